// SPDX-License-Identifier: BSD-3-Clause
// The thread rules of tcpqp.h; the TSAN build runs these.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "pair.hpp"
#include "provider/provider.hpp"

namespace stock_test {
namespace {

constexpr uint64_t kMessages = 2000;

// Posting from one thread, polling from another, at both ends.
TEST(Threads, PostAndPollApart) {
    Pair pair;
    constexpr size_t kBytes = 100;
    const std::vector<std::byte> out = pattern(kMessages * kBytes, 1);
    std::vector<std::byte> in(out.size());
    std::atomic<uint64_t> sent{0}, received{0};
    auto poster = [](auto post, uint64_t& count) {
        for (count = 0; count < kMessages;) {
            const int n = post(count);
            ASSERT_TRUE(n == 1 || n == -EAGAIN) << n;
            count += n == 1;
            if (n != 1)
                std::this_thread::yield();
        }
    };
    uint64_t posted_sends = 0, posted_receives = 0;
    std::thread sends([&] {
        poster([&](uint64_t i) { return pair.end_a->send(i, &out[i * kBytes], kBytes); },
               posted_sends);
    });
    std::thread receives([&] {
        poster([&](uint64_t i) { return pair.end_b->recv(i, &in[i * kBytes], kBytes); },
               posted_receives);
    });
    std::thread reaper([&] {
        while (sent < kMessages)
            ASSERT_EQ(pair.end_a->next().id, sent++);
    });
    while (received < kMessages)
        ASSERT_EQ(pair.end_b->next().id, received++);
    EXPECT_EQ(in, out);
    sends.join();
    receives.join();
    reaper.join();
}

// io_uring cancels what an exiting thread had submitted; the queue pair must not notice.
TEST(Threads, ThePosterExits) {
    Pair pair;
    std::vector<std::byte> out = pattern(5000, 1), in(5000);
    for (uint64_t i = 0; i < 20; i++) {
        std::thread([&] { ASSERT_EQ(pair.end_b->recv(i, in.data(), in.size()), 1); }).join();
        std::thread([&] { ASSERT_EQ(pair.end_a->send(i, out.data(), out.size()), 1); }).join();
        ASSERT_EQ(pair.end_b->next().status, 0);
        ASSERT_EQ(pair.end_a->next().status, 0);
        ASSERT_EQ(in, out);
    }
}

// A thread that waits sees what another one's call completed, also while it sleeps in the socket.
TEST(Threads, TheWaiterSeesAnothersSend) {
    Pair pair;
    std::byte byte{};
    for (uint64_t i = 0; i < 20; i++) {
        auto waiter = std::async(std::launch::async, [&] { return pair.end_a->next(); });
        if (i < 3)
            std::this_thread::sleep_for(std::chrono::milliseconds(i * 8));
        ASSERT_EQ(pair.end_a->send(i, &byte, 1), 1);
        ASSERT_EQ(waiter.get().id, i);
    }
}

// Its cq goes on: only the queue pair's own calls are over.
TEST(Threads, DestroyedWhileAnotherWaits) {
    for (int i = 0; i < 20; i++) {
        std::array<Fd, 2> sockets = tcp_pair();
        tcpqp::v1::Context context{stock_opts()};
        tcpqp::v1::Completions cq(context, tcpqp_cq_opts{});
        std::unique_ptr<End> peer;
        auto other = std::async(std::launch::async, [&] {
            peer = std::make_unique<End>(sockets[1].get(), tcpqp_qp_opts{});
        });
        auto qp = std::make_unique<tcpqp::v1::Qp>(cq, sockets[0].get(), tcpqp_qp_opts{});
        other.get();
        std::byte byte{};
        const tcpqp_work w{7, &byte, 1, 0, 0, 0, nullptr};
        ASSERT_EQ(qp->post_recv({&w, 1}), 1);
        auto waiter = std::async(std::launch::async, [&] { return cq.wait(200); });
        std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
        qp.reset();
        ASSERT_EQ(waiter.wait_for(std::chrono::milliseconds(kLimit_ms)), std::future_status::ready);
    }
}

TEST(Threads, TheSocketsTimeoutIsGivenBack) {
    std::array<Fd, 2> sockets = tcp_pair();
    const timeval before{7, 0};
    timeval after{};
    socklen_t bytes = sizeof(after);
    ASSERT_EQ(::setsockopt(sockets[0].get(), SOL_SOCKET, SO_RCVTIMEO, &before, sizeof(before)), 0);
    { End end(sockets[0].get(), nowait()); }
    ASSERT_EQ(::getsockopt(sockets[0].get(), SOL_SOCKET, SO_RCVTIMEO, &after, &bytes), 0);
    EXPECT_EQ(after.tv_sec, 7);
}

// One thread posts, one asks, and one cancels in the middle of it.
TEST(Threads, QueriesAndCancelMeanwhile) {
    constexpr uint64_t kBefore = 200;
    Pair pair;
    std::atomic<uint64_t> posted{0};
    std::atomic<bool> canceled{false}, stop{false};
    std::thread asker([&] {
        for (uint64_t last = 0; !stop; std::this_thread::yield()) {
            const uint64_t now = pair.end_a->qp.info().tx_messages;
            ASSERT_GE(now, last);
            ASSERT_LE(now, posted);  // which is read later
            last = now;
        }
    });
    std::thread canceler([&] {
        while (posted < kBefore && !stop)
            std::this_thread::yield();
        EXPECT_EQ(pair.end_a->qp.cancel(), 0);
        canceled = true;
    });
    std::vector<std::byte> out(100), in(100);
    for (bool ended = false; !ended;) {
        const bool is_late = canceled;
        const uint64_t id = posted++;
        if (const int n = pair.end_b->recv(id, in.data(), in.size()); n != 1) {
            EXPECT_EQ(n, -ENOTCONN);  // it has seen the end first
            break;
        }
        const int n = pair.end_a->send(id, out.data(), out.size());
        EXPECT_EQ(n, is_late || n != 1 ? -ENOTCONN : 1);
        if (n != 1)
            break;
        const tcpqp_completion sent = pair.end_a->next();
        EXPECT_EQ(sent.id, id);
        EXPECT_TRUE(sent.status == 0 || sent.status == -ECANCELED) << sent.status;
        EXPECT_EQ(pair.end_b->next().id, id);
        ended = sent.status != 0 || is_late;
    }
    stop = true;
    canceler.join();
    asker.join();
    EXPECT_GE(posted, kBefore);
    EXPECT_EQ(pair.end_a->send(0, out.data(), out.size()), -ENOTCONN);
    EXPECT_EQ(pair.end_a->qp.info().reason, TCPQP_REASON_CANCELED);
}

// Another thread that is told -EBUSY, and asks again, is told so until who uses the object has left
// it: here it asks in the middle of each destructor.
struct LeavingContext final : tcpqp_context {
    LeavingContext() : tcpqp_context(false) {}
    [[nodiscard]] uint32_t engine() const noexcept override { return TCPQP_ENGINE_STOCK; }
    tcpqp::Made<tcpqp_mr> create_mr(void* at, size_t bytes) override;
    tcpqp::Made<tcpqp_mr> create_mr(const tcpqp::DmabufRegion&) override { return {}; }
    tcpqp::Made<tcpqp_cq> create_cq(uint32_t, uint32_t) override;
    tcpqp::Made<tcpqp_qp> create_qp(tcpqp_cq& cq, const tcpqp::QpRequest&) override;
};

struct LeavingMr final : tcpqp_mr {
    using tcpqp_mr::tcpqp_mr;
    ~LeavingMr() override { EXPECT_EQ(tcpqp_context_destroy(&context), -EBUSY); }
    [[nodiscard]] bool busy() const noexcept override { return false; }
};

struct LeavingCq final : tcpqp_cq {
    using tcpqp_cq::tcpqp_cq;
    ~LeavingCq() override { EXPECT_EQ(tcpqp_context_destroy(&context), -EBUSY); }
    [[nodiscard]] int fd() noexcept override { return -1; }
    int poll(std::span<tcpqp_completion>) noexcept override { return 0; }
    int wait(int) noexcept override { return 0; }
    void wake() noexcept override {}
};

struct LeavingQp final : tcpqp_qp {
    using tcpqp_qp::tcpqp_qp;
    ~LeavingQp() override { EXPECT_EQ(tcpqp_cq_destroy(&cq), -EBUSY); }
    int post_send(std::span<const tcpqp_work>) noexcept override { return 0; }
    int post_recv(std::span<const tcpqp_work>) noexcept override { return 0; }
    int cancel() noexcept override { return 0; }
    [[nodiscard]] bool ended() noexcept override { return false; }
    int query(tcpqp_qp_info&) noexcept override { return 0; }
};

tcpqp::Made<tcpqp_mr> LeavingContext::create_mr(void* at, size_t bytes) {
    return {std::make_unique<LeavingMr>(*this, at, bytes), 0, TCPQP_REASON_NONE};
}

tcpqp::Made<tcpqp_cq> LeavingContext::create_cq(uint32_t, uint32_t) {
    return {std::make_unique<LeavingCq>(*this), 0, TCPQP_REASON_NONE};
}

tcpqp::Made<tcpqp_qp> LeavingContext::create_qp(tcpqp_cq& cq, const tcpqp::QpRequest&) {
    return {std::make_unique<LeavingQp>(cq), 0, TCPQP_REASON_NONE};
}

TEST(Threads, AnObjectIsBusyUntilItsUserHasGone) {
    tcpqp_context* context = std::make_unique<LeavingContext>().release();
    std::array<std::byte, 8> memory{};
    tcpqp_mr* mr = nullptr;
    tcpqp_cq* cq = nullptr;
    tcpqp_qp* qp = nullptr;
    ASSERT_EQ(tcpqp_mr_create(context, memory.data(), memory.size(), &mr), 0);
    ASSERT_EQ(tcpqp_cq_create(context, nullptr, &cq), 0);
    ASSERT_EQ(tcpqp_qp_create(cq, -1, nullptr, &qp, nullptr), 0);
    EXPECT_EQ(tcpqp_qp_destroy(qp), 0);
    EXPECT_EQ(tcpqp_mr_destroy(mr), 0);
    EXPECT_EQ(tcpqp_cq_destroy(cq), 0);
    EXPECT_EQ(tcpqp_context_destroy(context), 0);
}

}  // namespace
}  // namespace stock_test
