// SPDX-License-Identifier: BSD-3-Clause
// A peer that writes what it likes into the stream.
#include <gtest/gtest.h>

#include "pair.hpp"
#include "userspace/frames/frame.hpp"

namespace stock_test {
namespace {

using tcpqp::stock::Frame;
using tcpqp::stock::FrameType;

std::vector<std::byte> frame(FrameType type, uint32_t length, uint32_t msn, size_t payload = 0) {
    std::vector<std::byte> b(tcpqp::stock::kFrameBytes + payload);
    tcpqp::stock::encode(Frame{type, length, msn, 0, false}, b.data());
    return b;
}

// One honest end; the other is this test with a plain socket.
class Hostile : public testing::Test {
protected:
    void write(std::span<const std::byte> bytes) {
        ASSERT_EQ(::send(sockets_[1].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    void hello() { write(frame(FrameType::kHello, 0, 0)); }
    void post() { ASSERT_EQ(end_.recv(1, buffer_.data(), buffer_.size()), 1); }
    void ends_with(uint32_t reason, int status = -ECANCELED) {
        EXPECT_EQ(end_.next().status, status);
        EXPECT_EQ(end_.qp.info().reason, reason) << tcpqp_reason_name(end_.qp.info().reason);
    }
    std::array<Fd, 2> sockets_ = tcp_pair();
    End end_{sockets_[0].get(), nowait()};
    std::vector<std::byte> buffer_ = std::vector<std::byte>(100);
};

TEST_F(Hostile, Text) {
    post();
    write(std::as_bytes(std::span("GET / HTTP/1.1\r\n")));
    ends_with(TCPQP_REASON_PEER_NOT_STOCK);
}

TEST_F(Hostile, OneWrongByteIsEnough) {
    post();
    write(std::as_bytes(std::span("x", 1)));
    ends_with(TCPQP_REASON_PEER_NOT_STOCK);
}

TEST_F(Hostile, MessageBeforeHello) {
    post();
    write(frame(FrameType::kMessage, 0, 0));
    ends_with(TCPQP_REASON_PEER_NOT_STOCK);
}

TEST_F(Hostile, TwoHellos) {
    post();
    hello();
    hello();
    ends_with(TCPQP_REASON_BAD_FRAME);
}

TEST_F(Hostile, OtherVersion) {
    post();
    std::vector<std::byte> b = frame(FrameType::kHello, 0, 0);
    b[2] = std::byte{9};
    write(b);
    ends_with(TCPQP_REASON_VERSION);
}

TEST_F(Hostile, GarbageAfterHello) {
    post();
    hello();
    write(pattern(1000, 3));
    ends_with(TCPQP_REASON_BAD_FRAME);
}

TEST_F(Hostile, WrongMsn) {
    post();
    hello();
    write(frame(FrameType::kMessage, 0, 1));
    ends_with(TCPQP_REASON_BAD_FRAME);
}

TEST_F(Hostile, LongerThanTheReceive) {
    post();
    hello();
    write(frame(FrameType::kMessage, 101, 0, 101));
    ends_with(TCPQP_REASON_TOO_LONG, -EMSGSIZE);
}

TEST_F(Hostile, LongerThanAnyMessage) {
    post();
    hello();
    write(frame(FrameType::kMessage, 0xffffffff, 0));
    ends_with(TCPQP_REASON_BAD_FRAME);
}

TEST_F(Hostile, ExactlyTheReceive) {
    post();
    hello();
    write(frame(FrameType::kMessage, 100, 0, 100));
    EXPECT_EQ(end_.next().length, 100u);
}

TEST_F(Hostile, ClosesWithinAMessage) {
    post();
    hello();
    write(frame(FrameType::kMessage, 50, 0, 49));
    ::shutdown(sockets_[1].get(), SHUT_WR);
    ends_with(TCPQP_REASON_TRUNCATED);
}

TEST_F(Hostile, ClosesWithinAHeader) {
    post();
    hello();
    std::vector<std::byte> head = frame(FrameType::kMessage, 50, 0);
    head.resize(10);
    write(head);
    ::shutdown(sockets_[1].get(), SHUT_WR);
    ends_with(TCPQP_REASON_TRUNCATED);
}

TEST_F(Hostile, ClosesBetweenMessages) {
    post();
    hello();
    ::shutdown(sockets_[1].get(), SHUT_WR);
    ends_with(TCPQP_REASON_CLOSED);
}

TEST_F(Hostile, Resets) {
    post();
    hello();
    const linger now{1, 0};
    ::setsockopt(sockets_[1].get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    char taken[24];
    ASSERT_EQ(::recv(sockets_[1].get(), taken, sizeof(taken), MSG_WAITALL), 24);
    sockets_[1].reset();
    ends_with(TCPQP_REASON_RESET);
}

// Whoever waits for the hello learns it by the call's error.
TEST(Hello, Reasons) {
    struct {
        std::vector<std::byte> bytes;
        bool close;
        int error;
        uint32_t reason;
    } cases[] = {
        {{}, false, -ETIMEDOUT, TCPQP_REASON_NO_BPF_HELPER},
        {{std::byte{0x51}}, false, -ETIMEDOUT, TCPQP_REASON_NO_BPF_HELPER},
        {{}, true, -ECONNRESET, TCPQP_REASON_CLOSED},
        {{std::byte{'S'}, std::byte{'S'}, std::byte{'H'}},
         false,
         -EPROTO,
         TCPQP_REASON_PEER_NOT_STOCK},
        {frame(FrameType::kMessage, 0, 0), false, -EPROTO, TCPQP_REASON_PEER_NOT_STOCK},
    };
    tcpqp::v1::Context context(stock_opts());
    tcpqp::v1::Completions cq(context);
    for (const auto& c : cases) {
        std::array<Fd, 2> sockets = tcp_pair();
        ASSERT_EQ(::send(sockets[1].get(), c.bytes.data(), c.bytes.size(), 0),
                  static_cast<ssize_t>(c.bytes.size()));
        if (c.close)
            ::shutdown(sockets[1].get(), SHUT_WR);
        tcpqp_qp_opts opts{};
        opts.size = sizeof(opts);
        opts.timeout_ms = 200;
        tcpqp_qp* qp = nullptr;
        uint32_t reason = 0;
        EXPECT_EQ(tcpqp_qp_create(cq.get(), sockets[0].get(), &opts, &qp, &reason), c.error);
        EXPECT_EQ(reason, c.reason) << tcpqp_reason_name(reason);
    }
}

}  // namespace
}  // namespace stock_test
