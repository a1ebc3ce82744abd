// SPDX-License-Identifier: BSD-3-Clause
// Placed runs that wait for more of their message (nupa_cmd_rx_mode.hold_us).
//
// A turn of the switch takes 64 packets of a ring, so a message of 70 packets needs two.  Whether
// a run was held shows in the completions; a machine that stops for longer than the hold time
// makes two of one, so a test that wants one may try again.
#include "qp_pair.hpp"

namespace nupa::testing {
namespace {

constexpr size_t kPartBytes = 700;
constexpr unsigned kTurnPackets = 64, kPackets = 70;
constexpr int kAttempts = 5;

struct Held {
    explicit Held(uint16_t hold_us = NUPA_RX_HOLD_MAX_US) {
        t.p[1].set_rx_mode(kModeAll, t.p[1].mac(), 9000, hold_us);
    }
    // The next message: one packet for each part.
    void begin(unsigned packets = kPackets) {
        data = pattern(packets * kPartBytes, msn);
        t.qp.post({{kIova, kMrBytes}}, kKey);
        t.base.seq = next;
        whole = send_message(t.base, msn++, data);
        next += static_cast<uint32_t>(data.size());
    }
    TcpFrame part(unsigned i) const {
        TcpFrame f = whole;
        f.seq += static_cast<uint32_t>(i * kPartBytes);
        f.flags = kAck;
        f.payload.assign(data.begin() + static_cast<long>(i * kPartBytes),
                         data.begin() + static_cast<long>((i + 1) * kPartBytes));
        return f;
    }
    void stage(const TcpFrame& f) { t.p[0].stage(0, build_tcp(f, false), offload(f)); }
    void stage(unsigned from, unsigned to) {
        for (unsigned i = from; i < to; i++)
            stage(part(i));
    }
    void go() {
        t.p[0].publish(0);
        t.p[0].wait_sent(0);
    }
    // What came until all of the message did, and the host acknowledges it.
    std::vector<RxPacket> take() {
        std::vector<RxPacket> out;
        for (size_t bytes = 0; bytes < data.size(); bytes += out.back().comp.payload_bytes) {
            out.push_back(t.p[1].receive(0));
            EXPECT_TRUE(out.back().comp.flags & NUPA_RX_F_PLACED);
        }
        EXPECT_EQ(t.mr.read(0, data.size()), data);
        t.qp.complete(1);
        TcpFrame ack = ack_of(t.base, next);
        t.p[1].send(0, build_tcp(ack, false), offload(ack));
        t.p[0].receive(0);
        return out;
    }

    QpPair t;
    uint32_t next = t.base.seq;
    uint16_t msn = 0;
    Bytes data;
    TcpFrame whole;
};

TEST(Hold, ARunGoesOnInTheNextTurn) {
    Held h;
    size_t completions = 0;
    for (int i = 0; i < kAttempts && completions != 1; i++) {
        h.begin();
        h.stage(0, kPackets);
        h.go();
        const std::vector<RxPacket> got = h.take();
        completions = got.size();
        if (completions == 1) {
            EXPECT_EQ(got[0].comp.payload_bytes, h.data.size());
            EXPECT_EQ(got[0].comp.gso_segs, kPackets);
            EXPECT_EQ(got[0].comp.gso_size, kPartBytes);
        }
    }
    EXPECT_EQ(completions, 1u);
}

TEST(Hold, WithoutItEachTurnCompletes) {
    Held h(0);
    h.begin();
    h.stage(0, kPackets);
    h.go();
    EXPECT_EQ(h.take().size(), 2u);
}

// All of these are visible when the sender gets its buffers back, without any time passing.
TEST(Hold, PushIsToldAtOnce) {
    Held h;
    h.begin();
    h.stage(0, 2);
    TcpFrame last = h.part(2);
    last.flags |= kPsh;
    h.stage(last);
    h.go();
    const auto got = h.t.p[1].try_receive(0);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->comp.payload_bytes, 3 * kPartBytes);
}

TEST(Hold, CongestionIsToldAtOnce) {
    Held h;
    h.begin();
    h.whole.ecn = 3;
    h.stage(0, 3);
    h.go();
    EXPECT_TRUE(h.t.p[1].try_receive(0));
}

TEST(Hold, AHoleIsToldAtOnce) {
    Held h;
    h.begin();
    h.stage(0, 2);
    h.stage(3, 5);
    h.go();
    for (int i = 0; i < 2; i++) {
        const auto got = h.t.p[1].try_receive(0);
        ASSERT_TRUE(got) << i;
        EXPECT_EQ(got->comp.payload_bytes, 2 * kPartBytes);
    }
}

// Nothing is acknowledged meanwhile: the stretch ends inside the second turn.
TEST(Hold, ALongStretchIsToldAtOnce) {
    constexpr unsigned kStretch = 100;  // 70,000 bytes: more than a new connection's
    Held h;
    h.begin(kStretch + 10);
    h.stage(0, kStretch);
    h.go();
    const auto got = h.t.p[1].try_receive(0);
    ASSERT_TRUE(got);
    EXPECT_TRUE(got->comp.flags & NUPA_RX_F_PLACED);
}

TEST(Hold, TheHostsCommandsFindNothingHeld) {
    Held h;
    h.begin();
    h.stage(0, 3);
    h.go();
    (void)h.t.p[1].stats();
    const auto got = h.t.p[1].try_receive(0);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->comp.payload_bytes, 3 * kPartBytes);
    h.stage(3, kPackets);
    h.go();
    size_t bytes = got->comp.payload_bytes;
    while (bytes < h.data.size())
        bytes += h.t.p[1].receive(0).comp.payload_bytes;
    EXPECT_EQ(h.t.mr.read(0, h.data.size()), h.data);
}

// Nobody says anything more: the timer alone ends the wait, and the order stays.
TEST(Hold, SilenceEndsTheWait) {
    Held h(1000);
    h.begin();
    for (unsigned i = 0; i < kPackets; i += 10) {
        h.stage(i, i + 10);
        h.go();
        const RxPacket got = h.t.p[1].receive(0);
        EXPECT_EQ(got.comp.payload_bytes, 10 * kPartBytes) << i;
        const auto header = parse_tcp(got.header);
        ASSERT_TRUE(header);
        EXPECT_EQ(header->seq, static_cast<uint32_t>(h.whole.seq + i * kPartBytes));
    }
    EXPECT_EQ(h.t.mr.read(0, h.data.size()), h.data);
}

TEST(Hold, WhatFollowsComesBehind) {
    Held h;
    h.begin();
    h.stage(0, 2);
    TcpFrame pure = h.t.base;
    pure.seq = h.whole.seq + 2 * kPartBytes;
    h.stage(pure);  // of the same connection, without payload
    h.go();
    const auto first = h.t.p[1].try_receive(0), second = h.t.p[1].try_receive(0);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->comp.payload_bytes, 2 * kPartBytes);
    EXPECT_EQ(second->comp.payload_bytes, 0u);
}

TEST(Hold, OthersDoNotWait) {
    Held h;
    h.begin();
    h.stage(0, 2);
    TcpFrame other = h.t.base;
    other.sport = 99, other.payload = pattern(100, 1);
    h.stage(other);
    h.go();
    const auto got = h.t.p[1].try_receive(0);
    ASSERT_TRUE(got);
    EXPECT_FALSE(got->comp.flags & NUPA_RX_F_PLACED);
}

TEST(Hold, TooLongIsRefused) {
    Ports p(1);
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_RX_MODE;
    cmd.rx_mode.mtu = 1500;
    const auto mac = p[0].mac();
    std::copy(mac.begin(), mac.end(), cmd.rx_mode.mac);
    cmd.rx_mode.hold_us = NUPA_RX_HOLD_MAX_US + 1;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.rx_mode.hold_us = NUPA_RX_HOLD_MAX_US;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_OK);
}

}  // namespace
}  // namespace nupa::testing
