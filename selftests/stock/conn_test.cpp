// SPDX-License-Identifier: BSD-3-Clause
// Level 2: messages on a connection, views and their release.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "conn_pair.hpp"

namespace stock_test {
namespace {

TEST(Conn, SendAndView) {
    ConnPair p;
    const auto message = pattern(60000, 2);
    ASSERT_EQ(p.a->send(message), 0);
    View view;
    ASSERT_EQ(p.b->recv(view, kLimit_ms), 0);
    EXPECT_TRUE(
        std::equal(message.begin(), message.end(), view.bytes().begin(), view.bytes().end()));
}

TEST(Conn, EchoOfViews) {
    ConnPair p(small(4, 5000));
    std::thread server([&] {
        View v;
        while (p.b->recv(v, kLimit_ms) == 0)
            ASSERT_EQ(p.b->send(v), 0);
    });
    for (uint32_t i = 0; i < 500; i++) {
        View out, in;
        ASSERT_EQ(p.a->buffer(out, kLimit_ms), 0);
        const auto message = pattern(i * 10, i);
        std::copy(message.begin(), message.end(), out.bytes().begin());
        out.resize(i * 10);
        ASSERT_EQ(p.a->send(out), 0);
        ASSERT_EQ(p.a->recv(in, kLimit_ms), 0);
        ASSERT_TRUE(
            std::equal(message.begin(), message.end(), in.bytes().begin(), in.bytes().end()));
    }
    EXPECT_EQ(p.a->close(kLimit_ms), 0);
    ::shutdown(p.sockets[0].get(), SHUT_WR);
    server.join();
    EXPECT_EQ(p.b->info().rx_messages, 500u);
}

TEST(Conn, HeldViewsStopThePeer) {
    ConnPair p(small(2, 200000));
    const auto message = pattern(200000, 1);
    int error = 0, sent = 0;
    while ((error = p.a->send(message, 100)) == 0)
        sent++;
    EXPECT_EQ(error, -ETIMEDOUT);
    EXPECT_EQ(p.a->send(message, 0), -EAGAIN);
    auto last = std::async(std::launch::async, [&] { return p.a->send(message, kLimit_ms); });
    for (int i = 0; i < sent; i++) {
        View v;
        ASSERT_EQ(p.b->recv(v, kLimit_ms), 0);
    }
    EXPECT_EQ(last.get(), 0);
}

// One at first, then as many as there may be, in both directions.
TEST(Conn, BuffersComeWhenTheyAreNeeded) {
    constexpr uint32_t kBuffers = 7, kBytes = 1000;
    tcpqp_conn_opts opts = small(kBuffers, kBytes);
    opts.first_buffers = 1;
    ConnPair p(opts);
    std::vector<View> out(kBuffers + 1), in(kBuffers + 1);
    for (uint32_t i = 0; i < kBuffers; i++) {
        ASSERT_EQ(p.a->buffer(out[i], 0), 0) << i;
        const auto message = pattern(kBytes, i);
        std::copy(message.begin(), message.end(), out[i].bytes().begin());
    }
    EXPECT_EQ(p.a->buffer(out[kBuffers], 0), -EAGAIN);
    EXPECT_EQ(p.a->buffer(out[kBuffers], 10), -ETIMEDOUT);
    for (uint32_t i = 0; i < kBuffers; i++)
        ASSERT_EQ(p.a->send(out[i]), 0);
    ASSERT_EQ(p.a->send(pattern(kBytes, kBuffers), kLimit_ms), 0);
    for (uint32_t i = 0; i < kBuffers; i++)
        ASSERT_EQ(p.b->recv(in[i], kLimit_ms), 0) << i;
    EXPECT_EQ(p.b->recv(in[kBuffers], 10), -ETIMEDOUT);
    in[0] = View();
    ASSERT_EQ(p.b->recv(in[0], kLimit_ms), 0);
    for (uint32_t i = 0; i < kBuffers; i++) {
        const auto message = pattern(kBytes, i == 0 ? kBuffers : i);
        EXPECT_TRUE(
            std::equal(message.begin(), message.end(), in[i].bytes().begin(), in[i].bytes().end()))
            << i;
    }
}

TEST(Conn, Timeouts) {
    ConnPair p;
    View v;
    EXPECT_EQ(p.a->recv(v, 0), -EAGAIN);
    EXPECT_EQ(p.a->recv(v, 50), -ETIMEDOUT);
}

TEST(Conn, CancelWakesEveryWaiter) {
    ConnPair p;
    auto wait = [&] {
        View v;
        return p.a->recv(v, kLimit_ms);
    };
    auto one = std::async(std::launch::async, wait), two = std::async(std::launch::async, wait);
    EXPECT_EQ(p.a->cancel(), 0);
    EXPECT_EQ(one.get(), -ENOTCONN);
    EXPECT_EQ(two.get(), -ENOTCONN);
    EXPECT_EQ(p.a->send(pattern(1, 1), kLimit_ms), -ENOTCONN);
}

// ---- the end of a queue pair that has no work posted in a direction ----

// A call that waits by now, and what it says once it is woken; 1: it is not.
template <typename Call>
std::future<int> started(Call call) {
    auto waiter = std::async(std::launch::async, call);
    EXPECT_EQ(waiter.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    return waiter;
}

int said(std::future<int>& waiter) {
    return waiter.wait_for(std::chrono::milliseconds(kLimit_ms / 4)) == std::future_status::ready
               ? waiter.get()
               : 1;
}

TEST(Conn, WhoReleasesAfterTheEndIsToldOfIt) {
    ConnPair p(small(1, 100));
    View view, none;
    ASSERT_EQ(p.a->send(pattern(10, 1), kLimit_ms), 0);
    ASSERT_EQ(p.b->recv(view, kLimit_ms), 0);
    ASSERT_EQ(p.a->cancel(), 0);
    while (p.b->send(pattern(10, 2), kLimit_ms) == 0) {
    }
    view = View();  // it can't be posted any more
    EXPECT_EQ(p.b->recv(none, 1000), -ENOTCONN);
    EXPECT_EQ(p.b->recv(none, 0), -ENOTCONN);
}

// The second waits in the completion queue.
TEST(Conn, WhatHasComeIsHandedOutAfterTheEnd) {
    bool both = false;
    for (int attempt = 0; attempt < 20 && !both; attempt++) {
        ConnPair p(small(2, 100));
        View first, second, none;
        for (uint32_t i = 0; i < 2; i++)
            ASSERT_EQ(p.a->send(pattern(10, i), kLimit_ms), 0);
        ASSERT_EQ(p.b->recv(first, kLimit_ms), 0);
        both = p.b->info().rx_messages == 2;  // else it was late
        ASSERT_EQ(p.b->cancel(), 0);
        first = View();
        EXPECT_EQ(p.b->send(pattern(10, 3), kLimit_ms), -ENOTCONN);
        if (both)
            EXPECT_EQ(p.b->recv(second, 0), 0);
        EXPECT_EQ(p.b->recv(none, 1000), -ENOTCONN);
    }
    EXPECT_TRUE(both);
}

TEST(Conn, CancelWakesWhoReceivesWhileAllViewsAreHeld) {
    ConnPair p(small(1, 100));
    View view, none;
    ASSERT_EQ(p.a->send(pattern(10, 1), kLimit_ms), 0);
    ASSERT_EQ(p.b->recv(view, kLimit_ms), 0);
    auto waiter = started([&] { return p.b->recv(none, kLimit_ms); });
    ASSERT_EQ(p.b->cancel(), 0);
    EXPECT_EQ(said(waiter), -ENOTCONN);
}

TEST(Conn, CancelWakesWhoSendsWhileAllViewsAreHeld) {
    ConnPair p(small(1, 100));
    View view;
    ASSERT_EQ(p.b->buffer(view, kLimit_ms), 0);
    auto waiter = started([&] { return p.b->send(pattern(10, 1), kLimit_ms); });
    ASSERT_EQ(p.b->cancel(), 0);
    EXPECT_EQ(said(waiter), -ENOTCONN);
}

TEST(Conn, ThePeersEndWakesWhoSendsWhileAllViewsAreHeld) {
    ConnPair p(small(1, 100));
    View view, another;
    ASSERT_EQ(p.b->buffer(view, kLimit_ms), 0);
    auto waiter = started([&] { return p.b->buffer(another, kLimit_ms); });
    ASSERT_EQ(p.a->cancel(), 0);
    EXPECT_EQ(said(waiter), -ENOTCONN);
}

TEST(Conn, AnUnsentViewsReleaseWakesWhoSends) {
    ConnPair p(small(1, 100));
    View view;
    ASSERT_EQ(p.a->buffer(view, kLimit_ms), 0);
    auto waiter = started([&] { return p.a->send(pattern(10, 1), kLimit_ms); });
    view = View();
    EXPECT_EQ(said(waiter), 0);
}

// The end that comes after it takes nothing back; what is lost by it stays lost.
TEST(Conn, WhatHasCompletedStaysFlushedAfterTheEnd) {
    for (const bool finished : {false, true}) {
        SCOPED_TRACE(finished);
        ConnPair p;
        std::array<std::byte, 10> room;
        ASSERT_EQ(p.a->write(pattern(10, 1)), 10);
        ASSERT_EQ(p.a->flush(kLimit_ms), 0);
        ASSERT_EQ(p.b->read(room, kLimit_ms), 10);
        if (finished) {
            ASSERT_EQ(p.a->finish(), 0);
            ASSERT_EQ(p.b->read(room, kLimit_ms), 0);
            ASSERT_EQ(p.a->flush(kLimit_ms), 0);
        }
        ASSERT_EQ(p.b->cancel(), 0);
        EXPECT_EQ(p.a->read(room, kLimit_ms), -ECONNRESET);
        EXPECT_EQ(p.a->ready(), TCPQP_READABLE | TCPQP_WRITABLE | TCPQP_FLUSHED | TCPQP_BROKEN);
        EXPECT_EQ(p.a->flush(0), 0);
        EXPECT_EQ(p.a->flush(kLimit_ms), 0);
        EXPECT_EQ(p.a->write(pattern(10, 2)), finished ? -EPIPE : -ECONNRESET);
        EXPECT_EQ(p.a->flush(0), finished ? 0 : -ECONNRESET);
    }
}

// Nothing at all is posted, and the loop sleeps on the descriptor.
TEST(Conn, CancelMakesTheDescriptorReadable) {
    ConnPair p(small(1, 100));
    View in, out;
    ASSERT_EQ(p.a->send(pattern(10, 1), kLimit_ms), 0);
    ASSERT_EQ(p.b->recv(in, kLimit_ms), 0);
    ASSERT_EQ(p.b->buffer(out, kLimit_ms), 0);
    pollfd loop{p.b->fd(), POLLIN, 0};
    ASSERT_EQ(p.b->ready(), TCPQP_FLUSHED);
    ASSERT_EQ(::poll(&loop, 1, 0), 0);
    ASSERT_EQ(p.b->cancel(), 0);
    EXPECT_EQ(::poll(&loop, 1, 1000), 1);
    EXPECT_EQ(p.b->ready(), TCPQP_READABLE | TCPQP_WRITABLE | TCPQP_FLUSHED | TCPQP_BROKEN);
    EXPECT_EQ(::poll(&loop, 1, 0), 0) << "all events were taken";
}

// One thread sends while another receives on the same connection, at both ends.
TEST(Conn, FullDuplexThreads) {
    constexpr int kCount = 2000;
    ConnPair p(small(4, 300));
    auto send = [](Connection& c) {
        for (uint32_t i = 0; i < kCount; i++)
            ASSERT_EQ(c.send(pattern(i % 300, i), kLimit_ms), 0);
    };
    auto receive = [](Connection& c) {
        for (uint32_t i = 0; i < kCount; i++) {
            View v;
            ASSERT_EQ(c.recv(v, kLimit_ms), 0);
            const auto want = pattern(i % 300, i);
            ASSERT_TRUE(std::equal(want.begin(), want.end(), v.bytes().begin(), v.bytes().end()));
        }
    };
    std::thread threads[] = {std::thread([&] { send(*p.a); }), std::thread([&] { send(*p.b); }),
                             std::thread([&] { receive(*p.a); }),
                             std::thread([&] { receive(*p.b); })};
    for (std::thread& t : threads)
        t.join();
}

TEST(Conn, Errors) {
    ConnPair p(small(2, 1000));
    tcpqp_view v{};
    v.slot = 99;
    EXPECT_EQ(tcpqp_release(p.a->get(), &v), -EINVAL);
    EXPECT_EQ(tcpqp_send_view(p.a->get(), &v), -EINVAL);
    v.slot = 0;  // posted, not held
    EXPECT_EQ(tcpqp_release(p.a->get(), &v), -EINVAL);
    EXPECT_EQ(tcpqp_send_view(p.a->get(), &v), -EINVAL);
    ASSERT_EQ(tcpqp_buffer(p.a->get(), &v, 0), 0);
    v.length = 1001;
    EXPECT_EQ(tcpqp_send_view(p.a->get(), &v), -EMSGSIZE);
    EXPECT_EQ(tcpqp_release(p.a->get(), &v), 0);
    EXPECT_EQ(tcpqp_release(p.a->get(), &v), -EINVAL);
    EXPECT_EQ(p.a->send(pattern(1001, 1)), -EMSGSIZE);
    EXPECT_EQ(tcpqp_send(nullptr, "x", 1, 0), -EINVAL);
    EXPECT_EQ(tcpqp_send(p.a->get(), nullptr, 1, 0), -EINVAL);
    EXPECT_EQ(tcpqp_recv(p.a->get(), nullptr, 0), -EINVAL);
    EXPECT_EQ(tcpqp_recv(nullptr, &v, 0), -EINVAL);
    EXPECT_EQ(tcpqp_buffer(nullptr, &v, 0), -EINVAL);
    EXPECT_EQ(tcpqp_buffer(p.a->get(), nullptr, 0), -EINVAL);
    EXPECT_EQ(tcpqp_release(nullptr, &v), -EINVAL);
    EXPECT_EQ(tcpqp_release(p.a->get(), nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_send_view(nullptr, &v), -EINVAL);
    EXPECT_EQ(tcpqp_send_view(p.a->get(), nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_conn_query(nullptr, nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_conn_query(p.a->get(), nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_conn_fd(nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_conn_cancel(nullptr), -EINVAL);
    tcpqp_qp_info info{};
    EXPECT_EQ(tcpqp_conn_query(p.a->get(), &info), -EINVAL);
    EXPECT_EQ(tcpqp_close(nullptr, 0), 0);
}

TEST(Conn, PeerSendsTooLong) {
    OddPair p(small(2, 1000));
    auto& [sockets, big, c] = p;
    const auto message = pattern(1001, 1);
    ASSERT_EQ(big.send(1, message.data(), message.size()), 1);
    EXPECT_EQ(big.next().status, 0);
    View v;
    EXPECT_EQ(c.recv(v, kLimit_ms), -EMSGSIZE);
    EXPECT_EQ(c.info().reason, uint32_t{TCPQP_REASON_TOO_LONG});
}

TEST(Conn, OpenErrors) {
    tcpqp_conn* c = nullptr;
    uint32_t reason = 0;
    std::array<Fd, 2> sockets = tcp_pair();
    tcpqp_conn_opts o = small(2, 1000);
    o.size = sizeof(o);
    EXPECT_EQ(tcpqp_open(sockets[0].get(), &o, nullptr, &reason), -EINVAL);
    o.engine = TCPQP_ENGINE_STOCK;
    EXPECT_EQ(tcpqp_open(-1, &o, &c, &reason), -EBADF);
    o.buffers = TCPQP_BUFFERS_MAX + 1;
    EXPECT_EQ(tcpqp_open(sockets[0].get(), &o, &c, &reason), -EINVAL);
    o.buffers = 2;
    o.first_buffers = 3;
    EXPECT_EQ(tcpqp_open(sockets[0].get(), &o, &c, &reason), -EINVAL);
    o.first_buffers = 0;
    o.timeout_ms = 100;
    EXPECT_EQ(tcpqp_open(sockets[0].get(), &o, &c, &reason), -ETIMEDOUT);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NO_BPF_HELPER});
    EXPECT_EQ(c, nullptr);
}

}  // namespace
}  // namespace stock_test
