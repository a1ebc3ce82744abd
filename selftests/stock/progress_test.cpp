// SPDX-License-Identifier: BSD-3-Clause
// What was posted leaves though nobody calls: neither the thread that posted
// (it is gone) nor anyone else of that process's end.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <thread>

#include "pair.hpp"

namespace stock_test {
namespace {

constexpr size_t kProgressBytes = 1 << 20;
constexpr uint64_t kSends = 24;  // more than any socket buffer holds

struct Progress : testing::TestWithParam<uint32_t> {
    Progress() : out(pattern(kProgressBytes, 5)), pair(opts()) {}
    static tcpqp_qp_opts opts() {
        tcpqp_qp_opts o{};
        o.zerocopy_bytes = GetParam();
        return o;
    }
    void post_and_exit() {
        std::thread([&] {
            for (uint64_t i = 0; i < kSends; i++)
                ASSERT_EQ(pair.end_a->send(i, out.data(), out.size()), 1);
        }).join();
    }
    void receive_all() {
        std::vector<std::byte> in(kProgressBytes);
        for (uint64_t i = 0; i < kSends; i++) {
            std::fill(in.begin(), in.end(), std::byte{0});
            ASSERT_EQ(pair.end_b->recv(i, in.data(), in.size()), 1);
            ASSERT_EQ(pair.end_b->next().length, kProgressBytes) << "message " << i;
            ASSERT_EQ(in, out);
        }
    }
    std::vector<std::byte> out;  // outlives the queue pair, whose it is until then
    Pair pair;
};

TEST_P(Progress, NobodyCalls) {
    post_and_exit();
    receive_all();
    for (uint64_t i = 0; i < kSends; i++)
        ASSERT_EQ(pair.end_a->next().id, i);
}

TEST_P(Progress, TheDescriptorTells) {
    const int fd = pair.end_a->cq.fd();
    post_and_exit();
    receive_all();
    tcpqp_completion c{};
    for (uint64_t i = 0; i < kSends;) {
        pollfd p{fd, POLLIN, 0};
        ASSERT_EQ(::poll(&p, 1, kLimit_ms), 1);
        const int n = pair.end_a->cq.poll({&c, 1});
        ASSERT_EQ(n == 1 ? c.id : i, i);
        i += static_cast<uint64_t>(n);
    }
}

// The peer goes on after long: what helps must sleep meanwhile, and wake.
TEST_P(Progress, AfterALongStop) {
    post_and_exit();
    timespec before{}, after{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double cpu_s = static_cast<double>(after.tv_sec - before.tv_sec) +
                         1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(cpu_s, 0.1);
    receive_all();
}

INSTANTIATE_TEST_SUITE_P(Copy, Progress, testing::Values(0u));
INSTANTIATE_TEST_SUITE_P(Zerocopy, Progress, testing::Values(4096u));

// Its sleep must not keep the socket of a destroyed queue pair open.
TEST(ProgressEnd, DestroyClosesTheSocket) {
    Pair pair;
    std::vector<std::byte> out(16 << 20);
    ASSERT_EQ(pair.end_a->send(1, out.data(), out.size()), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::array<Fd, 2> other = tcp_pair();
    pair.end_a->qp = tcpqp::v1::Qp(pair.end_a->cq, other[0].get(), nowait());
    pair.sockets[0].reset();
    std::vector<std::byte> in(16 << 20);
    ASSERT_EQ(pair.end_b->recv(1, in.data(), in.size()), 1);
    EXPECT_EQ(pair.end_b->next().status, -ECANCELED);  // the rest never comes, and that is told
}

// All of it goes while the cq's thread is in its grace, asleep, or just awake.
TEST(ProgressEnd, DestroyAtAnyMoment) {
    std::vector<std::byte> out(16 << 20);
    for (int i = 0; i < 70; i++) {
        Pair pair;
        ASSERT_EQ(pair.end_a->send(1, out.data(), out.size()), 1);
        std::this_thread::sleep_for(std::chrono::microseconds(i * 40));
        pair.end_a.reset();
    }
}

TEST(ProgressEnd, TwoQueuePairsOneQueue) {
    tcpqp::v1::Context context(stock_opts());
    tcpqp::v1::Completions cq(context);
    std::array<std::array<Fd, 2>, 2> sockets{tcp_pair(), tcp_pair()};
    const std::vector<std::byte> out = pattern(16 << 20, 3);
    std::vector<tcpqp::v1::Qp> qps;
    std::vector<std::unique_ptr<End>> ends;
    for (auto& s : sockets) {
        qps.emplace_back(cq, s[0].get(), nowait());
        ends.push_back(std::make_unique<End>(s[1].get(), nowait()));
    }
    // neither end has read the other's hello yet
    for (tcpqp::v1::Qp& qp : qps) {
        const tcpqp_work w{
            7,      const_cast<std::byte*>(out.data()), static_cast<uint32_t>(out.size()), 0, 0, 0,
            nullptr};
        ASSERT_EQ(qp.post_send({&w, 1}), 1);
    }
    std::vector<std::byte> in(out.size());
    for (auto& end : ends) {
        ASSERT_EQ(end->recv(1, in.data(), in.size()), 1);
        ASSERT_EQ(end->next().status, 0);
        ASSERT_EQ(in, out);
    }
}

// A thread that is never done with one queue pair neither polls in vain nor waits.
TEST(ProgressEnd, BesideAQueuePairThatIsAlwaysBusy) {
    tcpqp::v1::Context context(stock_opts());
    tcpqp::v1::Completions cq(context);
    const std::array<std::array<Fd, 2>, 2> sockets{tcp_pair(), tcp_pair()};
    const std::vector<std::byte> out = pattern(16 << 20, 4);
    const std::span<const std::byte> small = std::span(out).first(64);
    tcpqp::v1::Qp busy(cq, sockets[0][0].get(), nowait()),
        patient(cq, sockets[1][0].get(), nowait());
    End busy_peer(sockets[0][1].get(), nowait()), patient_peer(sockets[1][1].get(), nowait());
    const auto send = [](tcpqp::v1::Qp& qp, std::span<const std::byte> bytes) {
        const tcpqp_work w{7,
                           const_cast<std::byte*>(bytes.data()),
                           static_cast<uint32_t>(bytes.size()),
                           0,
                           0,
                           0,
                           nullptr};
        return qp.post_send({&w, 1});
    };
    ASSERT_EQ(send(patient, out), 1);

    auto received = std::async(std::launch::async, [&] {
        std::vector<std::byte> in(out.size());
        EXPECT_EQ(patient_peer.recv(1, in.data(), in.size()), 1);
        EXPECT_EQ(patient_peer.next().status, 0);
        EXPECT_EQ(in, out);
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimit_ms / 2);
    uint64_t messages = 0;
    std::array<std::byte, 64> in{};
    tcpqp_completion c{};
    while (received.wait_for(std::chrono::seconds(0)) != std::future_status::ready &&
           std::chrono::steady_clock::now() < until) {
        ASSERT_EQ(send(busy, small), 1);
        while (cq.poll({&c, 1}) == 0)
            ASSERT_EQ(messages, 0U);  // the hello has passed then
        ASSERT_EQ(busy_peer.recv(1, in.data(), in.size()), 1);
        ASSERT_EQ(busy_peer.next().status, 0);
        messages++;
    }
    EXPECT_EQ(received.wait_for(std::chrono::seconds(0)), std::future_status::ready)
        << messages << " messages passed meanwhile";
    while (received.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
        cq.wait(100);
}

}  // namespace
}  // namespace stock_test
