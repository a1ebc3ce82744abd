// SPDX-License-Identifier: BSD-3-Clause
// Messages with heads (TCPQP_CONN_F_REFERENCES) where there is no pool: all of them go inline, and
// heads that no end of ours writes end the connection.  With a pool: selftests/vm/pool.py.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "conn_pair.hpp"

namespace stock_test {
namespace {

constexpr uint32_t kReferenceBytes = 40000;

tcpqp_conn_opts references(uint32_t buffers = 4, uint32_t bytes = kReferenceBytes) {
    tcpqp_conn_opts o = small(buffers, bytes);
    o.flags = TCPQP_CONN_F_REFERENCES;
    return o;
}

TEST(References, WithoutAPoolAllGoInline) {
    ConnPair p(references());
    for (uint32_t bytes : {0u, 1u, 31u, 32u, 33u, kReferenceBytes - 1, kReferenceBytes}) {
        const auto message = pattern(bytes, bytes);
        ASSERT_EQ(p.a->send(message, kLimit_ms), 0);
        View in;
        ASSERT_EQ(p.b->recv(in, kLimit_ms), 0);
        ASSERT_TRUE(
            std::equal(message.begin(), message.end(), in.bytes().begin(), in.bytes().end()));
        ASSERT_EQ(p.b->send(in), 0) << "a view that was received";
        View back;
        ASSERT_EQ(p.a->recv(back, kLimit_ms), 0);
        EXPECT_TRUE(
            std::equal(message.begin(), message.end(), back.bytes().begin(), back.bytes().end()));
    }
    EXPECT_EQ(p.a->info().tx_reference_bytes, 0u);
    EXPECT_EQ(p.b->info().rx_reference_bytes, 0u);
    EXPECT_EQ(p.a->send(pattern(kReferenceBytes + 1, 1)), -EMSGSIZE);
    EXPECT_EQ(p.a->close(kLimit_ms), 0);
}

TEST(References, ImmediatesAreKept) {
    ConnPair p(references());
    tcpqp_view out{}, in{};
    ASSERT_EQ(tcpqp_buffer(p.a->get(), &out, kLimit_ms), 0);
    EXPECT_EQ(out.length, kReferenceBytes);
    std::memset(out.data, 7, out.length);
    out.imm = 0xdecafbad;
    out.flags = TCPQP_F_IMM;
    ASSERT_EQ(tcpqp_send_view(p.a->get(), &out), 0);
    ASSERT_EQ(tcpqp_recv(p.b->get(), &in, kLimit_ms), 0);
    EXPECT_EQ(in.flags, uint32_t{TCPQP_F_IMM});
    EXPECT_EQ(in.imm, 0xdecafbad);
    EXPECT_EQ(in.length, kReferenceBytes);
    EXPECT_EQ(tcpqp_release(p.b->get(), &in), 0);
    EXPECT_EQ(tcpqp_release(p.b->get(), &in), -EINVAL);
}

// One of the buffers is for heads that are no message.
TEST(References, AllBuffersAreUsedAgain) {
    ConnPair p(references(2, 100));
    for (uint32_t i = 0; i < 500; i++) {
        ASSERT_EQ(p.a->send(pattern(i % 100, i), kLimit_ms), 0);
        View in;
        ASSERT_EQ(p.b->recv(in, kLimit_ms), 0);
        ASSERT_EQ(in.bytes().size(), i % 100);
    }
}

TEST(References, AreNoStream) {
    ConnPair p(references());
    std::array<std::byte, 8> room{};
    std::span<const std::byte> shown;
    EXPECT_EQ(p.a->write(room, 0), -EOPNOTSUPP);
    EXPECT_EQ(p.a->read(room, 0), -EOPNOTSUPP);
    EXPECT_EQ(p.a->peek(shown, 0), -EOPNOTSUPP);
    EXPECT_EQ(p.a->consume(0), -EOPNOTSUPP);
    EXPECT_EQ(p.a->flush(0), -EOPNOTSUPP);
    EXPECT_EQ(p.a->finish(), -EOPNOTSUPP);
    EXPECT_EQ(p.a->ready(), -EOPNOTSUPP);
}

int open_error(int socket, tcpqp_conn_opts opts) {
    tcpqp_conn* conn = nullptr;
    opts.size = sizeof(opts);
    opts.engine = TCPQP_ENGINE_STOCK;
    const int error = tcpqp_open(socket, &opts, &conn, nullptr);
    tcpqp_close(conn, 0);
    return error;
}

TEST(References, BothEndsMustSaySo) {
    std::array<Fd, 2> sockets = tcp_pair();
    tcpqp_conn_opts with = references();
    with.timeout_ms = 300;
    auto other = std::async(std::launch::async, [&] {
        tcpqp_conn_opts without = small(4, kReferenceBytes);
        return Connection(sockets[1].get(), without);
    });
    EXPECT_EQ(open_error(sockets[0].get(), with), -EPROTO);
    other.get();
}

TEST(References, OptionsAreChecked) {
    std::array<Fd, 2> sockets = tcp_pair();
    tcpqp_conn_opts o = references();
    o.flags = 1u << 31;
    EXPECT_EQ(open_error(sockets[0].get(), o), -EINVAL);
    EXPECT_EQ(open_error(sockets[0].get(), references(1)), -EINVAL) << "none is left for messages";
}

// ---- a peer that writes heads by hand ----

struct RawHead {
    uint8_t kind = 0;
    uint8_t reserved[3] = {};
    uint32_t flags = 0, imm = 0, length = 0;
    uint64_t number = 0, lease_bytes = 0;
};
enum : uint8_t { kHello = 1, kInline, kReference, kTaken };

std::vector<std::byte> head_bytes(const RawHead& head, size_t behind = 0) {
    std::vector<std::byte> all(sizeof(head) + behind);
    std::memcpy(all.data(), &head, sizeof(head));
    return all;
}

// What recv() says of the message after an ordinary hello.
int after(const std::vector<std::byte>& message) {
    std::array<Fd, 2> sockets = tcp_pair();
    auto opened = std::async(std::launch::async, [&] {
        tcpqp_conn_opts o = references();
        o.engine = TCPQP_ENGINE_STOCK;
        return std::make_unique<Connection>(sockets[1].get(), o);
    });
    End peer(sockets[0].get(), {});
    std::array<std::byte, 64> room{};
    const auto hello = head_bytes({.kind = kHello});
    EXPECT_EQ(peer.recv(1, room.data(), room.size()), 1);
    EXPECT_EQ(peer.send(2, hello.data(), hello.size()), 1);
    auto conn = opened.get();
    EXPECT_EQ(peer.send(3, message.data(), message.size()), 1);
    View view;
    const int error = conn->recv(view, kLimit_ms);
    EXPECT_EQ(conn->send(pattern(1, 1), 0) == 0, error == 0) << "it goes on after that";
    return error;
}

TEST(References, HeadsAreChecked) {
    EXPECT_EQ(after(head_bytes({.kind = kInline, .length = 5}, 5)), 0) << "as it should be";
    EXPECT_EQ(after(std::vector<std::byte>(31)), -ENOTCONN) << "less than a head";
    EXPECT_EQ(after(head_bytes({})), -ENOTCONN) << "no kind";
    EXPECT_EQ(after(head_bytes({.kind = 9})), -ENOTCONN) << "a kind that there is not";
    EXPECT_EQ(after(head_bytes({.kind = kHello})), -ENOTCONN) << "hello twice";
    EXPECT_EQ(after(head_bytes({.kind = kInline, .length = 6}, 5)), -ENOTCONN);
    EXPECT_EQ(after(head_bytes({.kind = kInline, .length = 4}, 5)), -ENOTCONN);
    EXPECT_EQ(after(head_bytes({.kind = kInline, .flags = 2}, 0)), -ENOTCONN) << "unknown flags";
    EXPECT_EQ(after(head_bytes({.kind = kTaken, .number = 1})), -ENOTCONN) << "more than offered";
    EXPECT_EQ(after(head_bytes({.kind = kTaken, .number = ~uint64_t{0}})), -ENOTCONN);
    const RawHead right{.kind = kReference, .length = 16384, .number = 1, .lease_bytes = 16384};
    EXPECT_EQ(after(head_bytes(right)), -ENOTCONN) << "there is no pool";
    RawHead wrong = right;
    wrong.number = 0;
    EXPECT_EQ(after(head_bytes(wrong)), -ENOTCONN);
    wrong = right;
    wrong.lease_bytes = 16385;
    EXPECT_EQ(after(head_bytes(wrong)), -ENOTCONN);
    wrong = right;
    wrong.length = 16385;
    EXPECT_EQ(after(head_bytes(wrong)), -ENOTCONN) << "longer than its lease";
    wrong = right;
    wrong.length = kReferenceBytes + 1;
    wrong.lease_bytes = 19 * 4096;
    EXPECT_EQ(after(head_bytes(wrong)), -EMSGSIZE) << "longer than our buffers";
    wrong.lease_bytes = 20 * 4096;
    EXPECT_EQ(after(head_bytes(wrong)), -ENOTCONN) << "a lease of which it needs less than half";
    wrong.lease_bytes = 1 << 30;
    EXPECT_EQ(after(head_bytes(wrong)), -ENOTCONN);
    wrong.lease_bytes = uint64_t{1} << 40;
    EXPECT_EQ(after(head_bytes(wrong)), -ENOTCONN);
    EXPECT_EQ(after(head_bytes(right, 1)), -ENOTCONN) << "bytes behind it";
}

}  // namespace
}  // namespace stock_test
