// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that share their receives, from the admin ring to the completion (NUPA_FEAT_SRQ).
#include "qp_pair.hpp"

namespace nupa::testing {
namespace {

constexpr uint32_t kSharedCq = 3, kSrq = 4, kSharedReceiveBytes = 4096, kMessageBytes = 3000;
constexpr uint32_t kQps = 2, kFirstQpn = 17, kEntries = 16;
constexpr uint64_t kName = 0x1234567800000000;

// Port 0 sends to queue pairs of port 1, which are of one SRQ and one completion queue.
struct Shared {
    Shared()
        : p(2),
          mr(p[1], kKey, kIova, kMrBytes, kPd, kAccess),
          cq(p[1], kSharedCq, 0),
          srq(p[1], kSrq, kEntries) {
        mr.fill(0xee);
        for (uint32_t n = 0; n < kQps; n++) {
            base[n] = p.frame(0, 1);
            base[n].sport = static_cast<uint16_t>(base[n].sport + n);
            base[n].seq = 0xfffff000;  // wraps inside the first messages
            QpShape shape;
            shape.qpn = kFirstQpn + n;
            shape.flags |= NUPA_QP_F_COMPLETE | NUPA_QP_F_SRQ;
            shape.cq = kSharedCq;
            shape.srq = kSrq;
            qps.push_back(std::make_unique<FakeQp>(p[1], base[n], shape));
            qps[n]->give_turn(base[n].seq);
            acknowledge(n);
        }
    }
    // What was received of it, so that there is a window.
    void acknowledge(uint32_t n) {
        TcpFrame ack = ack_of(base[n], base[n].seq);
        p[1].send(0, build_tcp(ack, false), offload(ack));
        p[0].receive(0);
    }
    void post(uint32_t count) {
        for (; count; count--, posted++)
            srq.ring.post({{at(posted), kSharedReceiveBytes}}, kKey, kName + posted);
    }
    static uint64_t at(uint32_t receive) { return kIova + uint64_t{receive} * kSharedReceiveBytes; }
    Bytes received(uint32_t receive) { return mr.read(at(receive) - kIova, kMessageBytes); }
    // The next message to queue pair @n as the host hears of it; it says @data.
    RxPacket message(uint32_t n, const Bytes& data) {
        TcpFrame f = send_message(base[n], msn[n]++, data);
        base[n].seq += static_cast<uint32_t>(data.size());
        p[0].send(0, build_tcp(f, false), offload(f, kMss));
        return p[1].receive(0);
    }

    Ports p;
    FakeMr mr;
    FakeCq cq;
    FakeSrq srq;
    TcpFrame base[kQps];
    std::vector<std::unique_ptr<FakeQp>> qps;
    uint16_t msn[kQps] = {};
    uint32_t posted = 0;
};

TEST(Srq, IsOffered) {
    Ports p(1);
    EXPECT_TRUE(p[0].regs()->features & NUPA_FEAT_SRQ);
    EXPECT_GE(p[0].regs()->abi_minor, 7);
}

TEST(Srq, ReceivesAreTakenInTheOrderOfArrival) {
    Shared t;
    t.post(6);
    uint32_t used = 0;
    for (const uint32_t n : {0, 1, 1, 0, 1, 0}) {
        const Bytes data = pattern(kMessageBytes, static_cast<uint32_t>(used));
        ASSERT_TRUE(t.message(n, data).comp.flags & NUPA_RX_F_PLACED) << used;
        EXPECT_EQ(t.received(used), data);
        ASSERT_EQ(t.cq.completions(), used + 1);
        const ib_uverbs_wc wc = t.cq.completion(used);
        EXPECT_EQ(wc.wr_id, kName + used);
        EXPECT_EQ(wc.qp_num, kFirstQpn + n);
        EXPECT_EQ(wc.byte_len, kMessageBytes);
        used++;
        EXPECT_EQ(t.srq.index(), used);
        EXPECT_EQ(t.srq.ring.consumed(), used);
        t.acknowledge(n);
    }
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_completed_messages), 6u);
    EXPECT_EQ(t.qps[0]->stat(NUPA_QP_STAT_completed_messages), 3u);
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_qp_delivered_segments), 0u);
}

// What it may not complete comes whole, and the receive is there for the next one.
TEST(Srq, WhatIsNotCompletedIsDelivered) {
    Shared t;
    t.post(2);
    t.srq.own(true);
    const Bytes data = pattern(kMessageBytes, 1);
    const RxPacket packet = t.message(0, data);
    EXPECT_FALSE(packet.comp.flags & NUPA_RX_F_PLACED);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_QP);
    Bytes got = packet.payload;
    while (got.size() < data.size()) {
        const Bytes more = t.p[1].receive(0).payload;
        got.insert(got.end(), more.begin(), more.end());
    }
    EXPECT_EQ(got, data);
    EXPECT_EQ(t.received(0), Bytes(kMessageBytes, 0xee));
    EXPECT_EQ(t.cq.completions(), 0u);
    EXPECT_EQ(t.srq.index(), 0u);
    EXPECT_GT(t.p.stat(1, NUPA_STAT_deliver_no_receive), 0u);
    t.srq.own(false);
    EXPECT_TRUE(t.message(1, data).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.received(0), data);
    EXPECT_EQ(t.cq.completion(0).qp_num, kFirstQpn + 1);
}

TEST(Srq, LivesAsLongAsItsQueuePairs) {
    Shared t;
    EXPECT_EQ(t.srq.destroy(), NUPA_E_INVALID);
    EXPECT_EQ(t.qps[0]->destroy(), NUPA_OK);
    EXPECT_EQ(t.srq.destroy(), NUPA_E_INVALID);
    t.post(1);
    EXPECT_TRUE(t.message(1, pattern(kMessageBytes, 1)).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.cq.completions(), 1u);
    EXPECT_EQ(t.qps[1]->destroy(), NUPA_OK);
    EXPECT_EQ(t.srq.destroy(), NUPA_OK);
    EXPECT_EQ(t.srq.destroy(), NUPA_E_NOENT);
    EXPECT_EQ(t.cq.destroy(), NUPA_OK);
    EXPECT_FALSE(t.p[1].status() & NUPA_STATUS_FAILED) << "a refused command stops nobody";
}

}  // namespace
}  // namespace nupa::testing
