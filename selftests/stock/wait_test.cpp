// SPDX-License-Identifier: BSD-3-Clause
// Waiting: timeouts, epoll, cancellation, and no CPU while idle.
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <chrono>
#include <future>
#include <thread>

#include "pair.hpp"
#include "userspace/frames/frame.hpp"
#include "userspace/frames/gather.hpp"

namespace stock_test {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

// Everything that is there, then the wait.
void drain(End& end) {
    tcpqp_completion c{};
    while (end.cq.poll({&c, 1}) != 0 || end.cq.wait(100) != -ETIMEDOUT) {
    }
}

TEST(Wait, TimesOutWithoutSpinning) {
    Pair pair;
    drain(*pair.end_a);
    const auto start = Clock::now();
    const double cpu = cpu_seconds();
    int error = 0;
    do  // io_uring's work for a queue that is gone ends a sleep early
        error = pair.end_a->cq.wait(500);
    while (error == 0 || error == -EINTR);
    EXPECT_EQ(error, -ETIMEDOUT);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(500));
    EXPECT_LT(cpu_seconds() - cpu, 0.05);
}

// Level triggered: with one completion taken at a time, epoll always says that more wait.
TEST(Wait, EpollSeesEveryCompletion) {
    tcpqp_qp_opts opts{};
    opts.sends = opts.receives = 200;
    Pair pair(opts);
    Fd epoll(::epoll_create1(0));
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair.end_b->cq.fd(), &event), 0);
    std::vector<std::byte> buffer(64);
    std::vector<tcpqp_work> works;
    for (uint64_t i = 0; i < 200; i++)
        works.push_back({i, buffer.data(), 64, 0, 0, 0, nullptr});
    ASSERT_EQ(pair.end_b->qp.post_recv(works), 200);
    ASSERT_EQ(pair.end_a->qp.post_send(works), 200);
    tcpqp_completion c{};
    for (uint64_t got = 0; got < 200;) {
        const int n = ::epoll_wait(epoll.get(), &event, 1, kLimit_ms);
        if (n < 0 && errno == EINTR)
            continue;
        ASSERT_EQ(n, 1) << "after " << got;
        tcpqp_completion sent{};
        pair.end_a->cq.poll({&sent, 1});  // the other end goes on, too
        if (pair.end_b->cq.poll({&c, 1}) == 0)
            continue;
        ASSERT_EQ(c.id, got++);
    }
    while (pair.end_b->cq.poll({&c, 1}) != 0) {
    }
    int n = 0;
    do
        n = ::epoll_wait(epoll.get(), &event, 1, 100);
    while (n < 0 && errno == EINTR);
    EXPECT_EQ(n, 0);
}

// The receive is asked for by the poll that finds nothing: epoll alone must see the next message.
TEST(Wait, EpollAfterADeferredReceive) {
    Pair pair;
    Fd epoll(::epoll_create1(0));
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair.end_b->cq.fd(), &event), 0);
    std::vector<std::byte> buffer(64);
    tcpqp_completion c{};
    for (uint64_t i = 0; i < 50; i++) {
        ASSERT_EQ(pair.end_b->recv(i, buffer.data(), 64), 1);
        ASSERT_EQ(pair.end_a->send(i, buffer.data(), 64), 1);
        // one poll for each time that epoll says so, as an event loop does
        do {
            int n = 0;
            do
                n = ::epoll_wait(epoll.get(), &event, 1, kLimit_ms);
            while (n < 0 && errno == EINTR);
            ASSERT_EQ(n, 1);
        } while (pair.end_b->cq.poll({&c, 1}) == 0);
        ASSERT_EQ(c.id, i);
        ASSERT_EQ(pair.end_a->next().id, i);
    }
}

TEST(Wait, CancelFromAnotherThread) {
    Pair pair;
    std::vector<std::byte> buffer(64);
    ASSERT_EQ(pair.end_a->recv(5, buffer.data(), 64), 1);
    auto waiter = std::async(std::launch::async, [&] { return pair.end_a->next(); });
    EXPECT_EQ(pair.end_a->qp.cancel(), 0);
    const tcpqp_completion c = waiter.get();
    EXPECT_EQ(c.status, -ECANCELED);
    EXPECT_EQ(c.id, 5u);
    EXPECT_EQ(pair.end_a->qp.info().reason, uint32_t{TCPQP_REASON_CANCELED});
    EXPECT_EQ(pair.end_a->recv(6, buffer.data(), 64), -ENOTCONN);
    EXPECT_EQ(pair.end_a->send(6, buffer.data(), 64), -ENOTCONN);
    // and the peer is told
    ASSERT_EQ(pair.end_b->recv(1, buffer.data(), 64), 1);
    EXPECT_EQ(pair.end_b->next().status, -ECANCELED);
}

bool has_limit(const Fd& socket) {
    timeval limit{};
    socklen_t bytes = sizeof(limit);
    EXPECT_EQ(::getsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, &bytes), 0);
    return limit.tv_sec != 0 || limit.tv_usec != 0;
}

// Asleep in recv() without the limit that others need: then @then().
template <typename Then>
std::future<void> when_endless(const Fd& socket, Then then) {
    return std::async(std::launch::async, [&socket, then] {
        const auto until = Clock::now() + std::chrono::milliseconds(kLimit_ms);
        while (has_limit(socket) && Clock::now() < until)
            std::this_thread::yield();
        EXPECT_FALSE(has_limit(socket));
        then();
    });
}

tcpqp_cq_opts single_threaded() {
    tcpqp_cq_opts o{};
    o.flags = TCPQP_CQ_F_SINGLE_THREADED;
    return o;
}

// io_uring's work for a queue that is gone ends a sleep early.
int wait_for(End& end, tcpqp_completion& c, int timeout_ms) {
    int error = 0;
    while (end.cq.poll({&c, 1}) == 0 && (error == 0 || error == -EINTR))
        error = end.cq.wait(timeout_ms);
    return error;
}

TEST(Wait, OneThreadsQueueSleepsUntilBytesCome) {
    const auto sockets = tcp_pair();
    End a(sockets[0].get(), nowait(), single_threaded()), b(sockets[1].get(), nowait());
    std::vector<std::byte> in(64), out = pattern(64, 3);
    for (uint64_t i = 0; i < 3; i++)
        ASSERT_EQ(a.recv(i, in.data(), 64), 1);
    ASSERT_EQ(b.send(1, out.data(), 64), 1);
    ASSERT_EQ(a.next().status, 0);  // the hello came, too
    tcpqp_completion c{};
    auto sender = when_endless(sockets[0], [&] { b.send(2, out.data(), 64); });
    EXPECT_EQ(wait_for(a, c, -1), 0);
    sender.get();
    EXPECT_EQ(c.id, 1u);
    EXPECT_EQ(in, out);
    EXPECT_EQ(wait_for(a, c, 50), -ETIMEDOUT);
    EXPECT_TRUE(has_limit(sockets[0]));
}

TEST(Wait, CancelWakesOneThreadsQueue) {
    const auto sockets = tcp_pair();
    End a(sockets[0].get(), nowait(), single_threaded()), b(sockets[1].get(), nowait());
    std::vector<std::byte> buffer(64);
    for (uint64_t i = 0; i < 2; i++)
        ASSERT_EQ(a.recv(i, buffer.data(), 64), 1);
    ASSERT_EQ(b.send(1, buffer.data(), 64), 1);
    ASSERT_EQ(a.next().status, 0);
    tcpqp_completion c{};
    auto canceler = when_endless(sockets[0], [&] { a.qp.cancel(); });
    EXPECT_EQ(wait_for(a, c, -1), 0);
    canceler.get();
    EXPECT_EQ(c.status, -ECANCELED);
}

// By polls alone both ways, more than the sockets hold; and who waits after all is woken.
TEST(Wait, ASpinningQueueMovesEverythingByPolls) {
    constexpr size_t kBytes = size_t{1} << 20, kCount = 24;
    tcpqp_cq_opts spinning{};
    spinning.flags = TCPQP_CQ_F_SPINNING;
    const auto sockets = tcp_pair();
    tcpqp_qp_opts depth = nowait();
    depth.sends = depth.receives = kCount + 2;
    End a(sockets[0].get(), depth, spinning), b(sockets[1].get(), depth, spinning);
    std::vector<std::byte> in(kCount * kBytes), out = pattern(kCount * kBytes, 5);
    for (size_t i = 0; i < kCount; i++)
        ASSERT_EQ(b.send(i, out.data() + i * kBytes, kBytes), 1);
    size_t received = 0, sent = 0;
    tcpqp_completion c{};
    const auto until = Clock::now() + std::chrono::milliseconds(kLimit_ms);
    for (size_t posted = 0; (received < kCount || sent < kCount) && Clock::now() < until;) {
        if (posted < kCount && a.recv(posted, in.data() + posted * kBytes, kBytes) == 1)
            posted++;
        received += static_cast<size_t>(a.cq.poll({&c, 1}));
        sent += static_cast<size_t>(b.cq.poll({&c, 1}));
        ASSERT_EQ(c.status, 0);
    }
    ASSERT_EQ(received, kCount);
    ASSERT_EQ(sent, kCount);
    EXPECT_EQ(in, out);
    ASSERT_EQ(a.recv(50, in.data(), 64), 1);
    ASSERT_EQ(a.recv(51, in.data(), 64), 1);
    const double cpu = cpu_seconds();
    EXPECT_EQ(wait_for(a, c, 200), -ETIMEDOUT);
    EXPECT_LT(cpu_seconds() - cpu, 0.05);
    auto sender = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        b.send(50, out.data(), 64);
    });
    EXPECT_EQ(wait_for(a, c, kLimit_ms), 0);
    sender.get();
    EXPECT_EQ(c.id, 50u);
    pollfd readable{a.cq.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 0), 0);
    ASSERT_EQ(b.send(51, out.data(), 64), 1);
    EXPECT_EQ(::poll(&readable, 1, kLimit_ms), 1);
    EXPECT_EQ(a.next().id, 51u);
}

int low_water(const Fd& socket) {
    int value = 0;
    socklen_t bytes = sizeof(value);
    EXPECT_EQ(::getsockopt(socket.get(), SOL_SOCKET, SO_RCVLOWAT, &value, &bytes), 0);
    return value;
}

// The application's would keep a wait from seeing a short message.
TEST(Wait, TheLowWaterMarkIsOursMeanwhile) {
    const auto sockets = tcp_pair();
    const int mine = 5000;
    ASSERT_EQ(::setsockopt(sockets[0].get(), SOL_SOCKET, SO_RCVLOWAT, &mine, sizeof(mine)), 0);
    End b(sockets[1].get(), nowait());
    {
        End a(sockets[0].get(), nowait(), single_threaded());
        std::vector<std::byte> in(64), out = pattern(64, 3);
        for (uint64_t i = 0; i < 2; i++)
            ASSERT_EQ(a.recv(i, in.data(), 64), 1);
        for (uint64_t i = 0; i < 2; i++) {
            ASSERT_EQ(b.send(i, out.data(), 64), 1);
            ASSERT_EQ(a.next().status, 0);
        }
        EXPECT_EQ(low_water(sockets[0]), 1);
    }
    EXPECT_EQ(low_water(sockets[0]), mine);
}

// Ever more seldom where they don't come, always where they do.
TEST(Wait, AFewLargeMessagesAreWaitedFor) {
    using namespace tcpqp::stock;
    const auto sockets = tcp_pair();
    Gather gather(sockets[0].get());
    const auto is_due = [&](uint64_t messages, uint32_t bytes = 65536) {
        gather.begin(bytes, messages, 0);
        return gather.is_due();
    };
    const auto wait = [&] {
        EXPECT_TRUE(gather.wait());
        EXPECT_EQ(low_water(sockets[0]), 1);
    };
    uint64_t messages = kGatherPauseMin;
    EXPECT_FALSE(is_due(messages - 1));  // no stream yet
    for (uint64_t pause = kGatherPauseMin; pause != kGatherPauseMax; messages += pause) {
        ASSERT_TRUE(is_due(messages));
        wait();
        pause *= 2;
        ASSERT_FALSE(is_due(messages + pause - 1));
    }
    EXPECT_FALSE(is_due(messages, 0));             // the last one was small
    EXPECT_FALSE(is_due(messages, kGatherBytes));  // or is as much as a few

    std::vector<std::byte> half(kGatherBytes / 2);
    ASSERT_EQ(::send(sockets[1].get(), half.data(), half.size(), 0), ssize_t(half.size()));
    ASSERT_TRUE(is_due(messages));
    wait();
    ASSERT_TRUE(is_due(++messages));  // that paid
    ASSERT_EQ(::recv(sockets[0].get(), half.data(), half.size(), MSG_WAITALL),
              ssize_t(half.size()));
    wait();
    EXPECT_FALSE(is_due(messages + 2 * kGatherPauseMin - 1));
    EXPECT_TRUE(is_due(messages + 2 * kGatherPauseMin));
}

// Whatever a read has copied when it sleeps, the rest of the message ends the sleep.
TEST(Wait, ALargeMessageThatComesInPieces) {
    using namespace tcpqp::stock;
    constexpr uint32_t kBytes = kHalfMax;
    const auto sockets = tcp_pair();
    End a(sockets[0].get(), nowait(), single_threaded());
    const auto out = pattern(kBytes, 5);
    std::vector<std::byte> in(kBytes);
    std::array<std::byte, kFrameBytes> header;
    const auto write = [&](const std::byte* at, size_t bytes) {
        EXPECT_EQ(::send(sockets[1].get(), at, bytes, 0), ssize_t(bytes));
    };
    const int on = 1;
    ::setsockopt(sockets[1].get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    encode(Frame{FrameType::kHello}, header.data());
    write(header.data(), header.size());
    ASSERT_EQ(a.recv(0, in.data(), kBytes), 1);
    encode(Frame{FrameType::kMessage, 0, 0}, header.data());
    write(header.data(), header.size());
    ASSERT_EQ(a.next().status, 0);
    uint32_t msn = 1;
    const std::array<size_t, 6> firsts{1,          kBytes / 3,     kBytes / 2 - 1,
                                       kBytes / 2, kBytes / 2 + 1, kBytes - 1};
    for (size_t i = 0; i < 8 * firsts.size(); i++) {
        const size_t first = firsts[i % firsts.size()];
        std::fill(in.begin(), in.end(), std::byte{0});
        ASSERT_EQ(a.recv(msn, in.data(), kBytes), 1);
        auto sender = when_endless(sockets[0], [&] {
            encode(Frame{FrameType::kMessage, kBytes, msn}, header.data());
            write(header.data(), header.size());
            for (size_t sent = 0, n = 0; sent != first; sent += n) {  // reads copy only some of it
                n = std::min<size_t>(first - sent, 8192);
                write(out.data() + sent, n);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it is asleep again
            write(out.data() + first, kBytes - first);
        });
        tcpqp_completion c{};
        const auto start = Clock::now();
        EXPECT_EQ(wait_for(a, c, -1), 0);
        sender.get();
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
        EXPECT_EQ(c.id, msn++);
        EXPECT_EQ(in, out) << first;
        EXPECT_EQ(low_water(sockets[0]), 1);
    }
}

TEST(Wait, CancelWithAFullSocket) {
    Pair pair;
    std::vector<std::byte> big(16 << 20);
    for (uint64_t i = 0; i < 4; i++)
        ASSERT_EQ(pair.end_a->send(i, big.data(), big.size()), 1);
    ASSERT_EQ(pair.end_a->qp.cancel(), 0);
    for (uint64_t i = 0; i < 4; i++) {
        const tcpqp_completion c = pair.end_a->next();
        EXPECT_EQ(c.id, i);
        if (i == 3)
            EXPECT_EQ(c.status, -ECANCELED);
    }
}

TEST(Wait, ManyQueuePairsOnOneQueue) {
    constexpr size_t kPairs = 200;
    tcpqp::v1::Context context(stock_opts());
    tcpqp::v1::Completions cq(context);
    std::vector<std::array<Fd, 2>> sockets;
    std::vector<tcpqp::v1::Qp> qps;
    std::vector<std::byte> buffer(1000 * kPairs);
    tcpqp_qp_opts opts{};
    opts.sends = opts.receives = 4;
    for (size_t i = 0; i < kPairs; i++) {
        sockets.push_back(tcp_pair());
        for (const Fd& s : sockets.back())
            qps.emplace_back(cq, s.get(), nowait(opts));
    }
    const std::vector<std::byte> message = pattern(1000, 9);
    for (size_t i = 0; i < kPairs; i++) {
        const tcpqp_work out{i, const_cast<std::byte*>(message.data()), 1000, 0, 0, 0, nullptr};
        const tcpqp_work in{i, buffer.data() + 1000 * i, 1000, 0, 0, 0, nullptr};
        ASSERT_EQ(qps[2 * i + 1].post_recv({&in, 1}), 1);
        ASSERT_EQ(qps[2 * i].post_send({&out, 1}), 1);
    }
    std::array<tcpqp_completion, 7> batch;
    for (size_t got = 0; got < 2 * kPairs;) {
        const int n = cq.poll(batch);
        ASSERT_GE(n, 0);
        for (int i = 0; i < n; i++)
            ASSERT_EQ(batch[i].status, 0);
        got += static_cast<size_t>(n);
        if (n == 0)
            ASSERT_EQ(cq.wait(kLimit_ms), 0);
    }
    for (size_t i = 0; i < kPairs; i++)
        ASSERT_TRUE(std::equal(message.begin(), message.end(), buffer.begin() + 1000 * i));
}

}  // namespace
}  // namespace stock_test
