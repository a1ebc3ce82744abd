// SPDX-License-Identifier: BSD-3-Clause
// The port as a whole: admin commands, transmit marks, counters.
#include <gtest/gtest.h>

#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

TEST(PortEngine, QpCommands) {
    Host h;
    EXPECT_EQ(h.engine.qp_create(kQpn, h.qp_cmd()), NUPA_E_EXISTS);
    EXPECT_EQ(h.engine.qp_create(kQpn + 1, h.qp_cmd()), NUPA_E_EXISTS);  // the flow has one
    EXPECT_EQ(h.engine.qps(), 1u);
    EXPECT_EQ(h.engine.qp_destroy(kQpn + 1), NUPA_E_NOENT);
    EXPECT_EQ(h.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(h.engine.qp_stats(kQpn), nullptr);
    EXPECT_EQ(h.engine.qp_create(kQpn + 1, h.qp_cmd()), NUPA_OK);
}

// A flipped bit makes any packet look like a fragment; IP drops what its checksum finds.
TEST(PortEngine, DamagedFragmentStopsNothing) {
    Host h;
    h.ack(kRcvNxt);
    h.ring.post({{kIova, 100, kKey}});
    const TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    ByteVector damaged = f.build();
    damaged[f.l3() + 6] ^= std::byte{0x20};
    Wire w(damaged);
    EXPECT_TRUE(w.packet.at.fragment);
    EXPECT_FALSE(w.packet.has_flow());
    EXPECT_EQ(h.engine.receive(w.packet).reason, Reason::kNoQp);
    EXPECT_TRUE(h.rx(f).placed());
}

// The socket has ended, and its flow is another's by now; who has the old one is late to end it.
TEST(PortEngine, AContextDoesNotOutliveItsConnection) {
    HostOptions options;
    options.qp_flags |= NUPA_QP_F_TX_V0;
    constexpr std::uint32_t kSent = 777, kNewSent = kSent + (1u << 20), kNew = kRcvNxt + (1u << 20);
    for (const int began : {nupa::kTcpSyn + 0, nupa::kTcpSyn | nupa::kTcpAck}) {
        SCOPED_TRACE(began);
        Host h(options);
        h.ring.post({{kIova, 4096, kKey}});
        TcpFrame old = h.from_host(kRcvNxt);
        old.seq = kSent;
        EXPECT_TRUE(h.tx(old).v0);
        TcpFrame first = h.from_host(began & nupa::kTcpAck ? kNew : 0);
        first.flags = static_cast<std::uint8_t>(began), first.seq = kNewSent - 1;
        EXPECT_FALSE(h.tx(first).v0);
        TcpFrame established = h.from_host(kNew);
        established.seq = kNewSent;
        EXPECT_FALSE(h.tx(established).v0);

        const ByteVector before = h.mr.read(h.guest, kIova, 100);
        TcpFrame message = send_segment(kNew, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
        message.ack = kNewSent;
        EXPECT_EQ(h.rx(message).reason, Reason::kNoQp);
        EXPECT_EQ(h.mr.read(h.guest, kIova, 100), before);
        EXPECT_EQ(h.engine.qp_destroy(kQpn), NUPA_OK);
    }
}

// Whoever sends one to the host does not end what it has.
TEST(PortEngine, AForgedSynEndsNothing) {
    Host h;
    h.ack(kRcvNxt);
    h.ring.post({{kIova, 4096, kKey}});
    TcpFrame syn;
    syn.seq = kRcvNxt - 1, syn.flags = nupa::kTcpSyn;
    h.rx(syn);
    EXPECT_TRUE(h.rx(send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY)).placed());
}

TEST(PortEngine, InvalidQps) {
    Host h;
    ASSERT_EQ(h.engine.qp_destroy(kQpn), NUPA_OK);
    const auto with = [&](auto change) {
        nupa_cmd_qp cmd = h.qp_cmd();
        change(cmd);
        return h.engine.qp_create(kQpn, cmd);
    };
    EXPECT_EQ(with([](auto& c) { c.flow.family = 5; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.flow.reserved[0] = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.flow.daddr[15] = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.flags = 1 << 5; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rcv_wscale = 15; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_mask = 5; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.shadow_addr = 1ull << 60; }), NUPA_E_ADDRESS);
    EXPECT_EQ(h.engine.qps(), 0u);
    EXPECT_EQ(with([](auto&) {}), NUPA_OK);
}

TEST(PortEngine, Limits) {
    Host h;
    nupa::PortEngine engine(h.guest.memory, h.stats, 1, {1, 1});
    nupa_cmd_qp cmd = h.qp_cmd();
    EXPECT_EQ(engine.qp_create(1, cmd), NUPA_OK);
    cmd.flow.sport++;
    EXPECT_EQ(engine.qp_create(2, cmd), NUPA_E_NOSPACE);
    EXPECT_EQ(engine.mr_reg(1, h.mr.cmd), NUPA_OK);
    EXPECT_EQ(engine.mr_reg(2, h.mr.cmd), NUPA_E_NOSPACE);
}

TEST(PortEngine, DestroyedQpPlacesNothing) {
    Host h;
    h.ack(kRcvNxt);
    h.ring.post({{kIova, 4096, kKey}});
    ASSERT_TRUE(h.rx(send_segment(kRcvNxt, 0, pattern(100))).placed());
    ASSERT_EQ(h.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(h.rx(send_segment(kRcvNxt, 100, pattern(100))).reason, Reason::kNoQp);
    EXPECT_EQ(*h.mr.at(h.guest, kIova + 100), std::byte{0});
}

TEST(PortEngine, Reset) {
    Host h;
    h.engine.reset();
    EXPECT_EQ(h.engine.qps() + h.engine.mrs(), 0u);
    h.ack(kRcvNxt);
    EXPECT_EQ(h.rx(send_segment(kRcvNxt, 0, pattern(100))).reason, Reason::kNoQp);
}

TEST(PortEngine, TransmitSaysHowToCut) {
    HostOptions o;
    o.qp_flags = NUPA_QP_F_TX_V0 | NUPA_QP_F_ICRC;
    Host h(o);
    const nupa::TxRewrite r = h.ack(kRcvNxt);
    EXPECT_TRUE(r.v0);
    EXPECT_TRUE(r.icrc);
    TcpFrame other;
    other.src = 2, other.dst = 1, other.sport = 2001, other.dport = 1000;
    Wire w(other);
    EXPECT_FALSE(h.engine.transmit(w.packet).v0);
    Host plain;
    EXPECT_FALSE(plain.ack(kRcvNxt).v0);
}

TEST(PortEngine, TransmitCountsSegments) {
    Host h;
    TcpFrame f;
    f.src = 2, f.dst = 1, f.sport = 2000, f.dport = 1000, f.payload = pattern(2500);
    Wire w(f);
    w.packet.tso = true, w.packet.mss = 1000;
    h.engine.transmit(w.packet);
    h.ack(kRcvNxt);
    EXPECT_EQ(h.qp()[NUPA_QP_STAT_tx_segments], 3u);
    EXPECT_EQ(h.qp()[NUPA_QP_STAT_tx_bytes], 2500u);
}

// The first segments of a connection carry an unscaled window, a reset carries none.
TEST(PortEngine, RstMovesNothing) {
    Host h;
    h.ring.post({{kIova, 4096, kKey}});
    TcpFrame f = h.from_host(kRcvNxt + 50);
    f.flags = nupa::kTcpAck | nupa::kTcpRst;
    h.tx(f);
    EXPECT_EQ(h.rx(send_segment(kRcvNxt, 0, pattern(10))).reason, Reason::kWindow);
}

TEST(PortEngine, WindowScaleApplies) {
    HostOptions o;
    o.wscale = 0;
    Host h(o);
    h.ring.post({{kIova, 1 << 18, kKey}});
    h.ack(kRcvNxt, 60000);
    EXPECT_EQ(h.rx(send_segment(kRcvNxt, 59990, pattern(10))).reason, Reason::kPlaced);
    EXPECT_EQ(h.rx(send_segment(kRcvNxt, 60000, pattern(1))).reason, Reason::kWindow);
}

TEST(PortEngine, BadChecksumsOfOtherFlowsAreCounted) {
    Host h;
    TcpFrame f;
    f.sport = 4, f.payload = pattern(9);
    ByteVector bytes = f.build();
    bytes.back() ^= std::byte{1};
    Wire w(bytes);
    EXPECT_EQ(h.engine.receive(w.packet).reason, Reason::kNoQp);
    EXPECT_EQ(h.stat(NUPA_STAT_rx_csum_bad), 1u);
    EXPECT_EQ(h.stat(NUPA_STAT_deliver_csum), 0u);
}

TEST(PortEngine, PlacedPlusDeliveredIsAll) {
    Host h;
    h.ack(kRcvNxt);
    h.ring.post({{kIova, 150, kKey}});
    for (int i = 0; i < 5; i++)
        h.rx(send_segment(kRcvNxt, 50 * i, pattern(50)));
    EXPECT_EQ(h.stat(NUPA_STAT_placed_segments), 3u);
    EXPECT_EQ(h.stat(NUPA_STAT_qp_delivered_segments), 2u);
    EXPECT_EQ(h.stat(NUPA_STAT_qp_delivered_bytes), 100u);
    EXPECT_EQ(h.qp()[NUPA_QP_STAT_delivered_segments], 2u);
    EXPECT_EQ(h.qp()[NUPA_QP_STAT_delivered_bytes], 100u);
}

TEST(PortEngine, Ipv6Flow) {
    Host h;
    TcpFrame f = send_segment(kRcvNxt, 0, pattern(100));
    f.family = 6;
    nupa_cmd_qp cmd = h.qp_cmd();
    cmd.flow = Wire(f).packet.flow().raw;
    ASSERT_EQ(h.engine.qp_create(99, cmd), NUPA_OK);
    TcpFrame ack;
    ack.family = 6, ack.src = 2, ack.dst = 1, ack.sport = 2000, ack.dport = 1000, ack.ack = kRcvNxt,
    ack.window = 8000;
    Wire w(ack);
    h.engine.transmit(w.packet);
    h.ring.post({{kIova, 4096, kKey}});
    const nupa::Decision d = h.rx(f);
    EXPECT_TRUE(d.placed());
    EXPECT_EQ(d.qpn, 99u);
}

}  // namespace
