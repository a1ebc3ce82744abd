// SPDX-License-Identifier: BSD-3-Clause
// Each step of the placement checks: a segment that passes all before it is refused there, with
// that reason.
#include <gtest/gtest.h>

#include "engine/icrc.hpp"
#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

struct Rig {
    explicit Rig(HostOptions o = {}) : host(o) { host.ack(kRcvNxt); }

    // One receive of @bytes at the MR's beginning.
    void post(std::uint32_t bytes = 4096) { host.ring.post({{kIova, bytes, kKey}}); }

    void expect_delivered(const TcpFrame& f, Reason reason, nupa_stat stat) {
        const auto memory = host.mr.read(host.guest, kIova, 8192);
        const std::uint64_t before = host.stat(stat);
        EXPECT_EQ(host.rx(f).reason, reason);
        EXPECT_EQ(host.stat(stat), before + 1);
        EXPECT_EQ(host.stat(NUPA_STAT_placed_segments), placed);
        EXPECT_EQ(host.mr.read(host.guest, kIova, 8192), memory);
    }
    void expect_placed(const TcpFrame& f, std::uint64_t addr) {
        EXPECT_EQ(host.rx(f).reason, Reason::kPlaced);
        EXPECT_EQ(host.stat(NUPA_STAT_placed_segments), ++placed);
        EXPECT_EQ(host.mr.read(host.guest, addr, f.payload.size()), f.payload);
    }

    Host host;
    std::uint64_t placed = 0;
};

struct PlacementChecks : testing::Test, Rig {};

TEST_F(PlacementChecks, Placed) {
    post();
    const TcpFrame f = send_segment(kRcvNxt, 0, pattern(1000), 0, TCP_BTH_OP_SEND_ONLY);
    const nupa::Decision d = host.rx(f);
    EXPECT_TRUE(d.placed());
    EXPECT_TRUE(d.has_qp);
    EXPECT_EQ(d.qpn, kQpn);
    EXPECT_TRUE(d.has_bth);
    EXPECT_EQ(d.bth.opcode, TCP_BTH_OP_SEND_ONLY);
    EXPECT_EQ(d.bth_at, 54);
    EXPECT_EQ(host.mr.read(host.guest, kIova, 1000), f.payload);
    EXPECT_EQ(*host.mr.at(host.guest, kIova + 1000), std::byte{0});
    EXPECT_EQ(host.stat(NUPA_STAT_placed_bytes), 1000u);
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_placed_segments], 1u);
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_placed_bytes], 1000u);
}

TEST_F(PlacementChecks, OtherFlowsAreNotOurs) {
    post();
    TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    f.sport++;
    const nupa::Decision d = host.rx(f);
    EXPECT_EQ(d.reason, Reason::kNoQp);
    EXPECT_FALSE(d.has_qp);
    EXPECT_EQ(host.stat(NUPA_STAT_qp_delivered_segments), 0u);
}

TEST_F(PlacementChecks, NoPayload) {
    TcpFrame f;
    f.seq = kRcvNxt;
    const nupa::Decision d = host.rx(f);
    EXPECT_EQ(d.reason, Reason::kNoQp);
    EXPECT_TRUE(d.has_qp);
    EXPECT_EQ(host.stat(NUPA_STAT_qp_delivered_segments), 0u);
}

TEST_F(PlacementChecks, Checksum) {
    post();
    const TcpFrame good = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    ByteVector bytes = good.build();
    bytes.back() ^= std::byte{1};
    Wire w(bytes);
    EXPECT_EQ(host.engine.receive(w.packet).reason, Reason::kCsum);
    EXPECT_EQ(w.packet.csum, nupa::Csum::kBad);
    EXPECT_EQ(host.stat(NUPA_STAT_rx_csum_bad), 1u);
    EXPECT_EQ(host.stat(NUPA_STAT_deliver_csum), 1u);
    expect_placed(good, kIova);  // TCP dropped the damaged one, so did our memory of it
}

TEST_F(PlacementChecks, IpHeaderChecksum) {
    post();
    ByteVector bytes = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY).build();
    bytes[14 + 8] ^= std::byte{1};  // TTL is not covered by TCP's checksum
    Wire w(bytes);
    EXPECT_EQ(host.engine.receive(w.packet).reason, Reason::kCsum);
}

TEST_F(PlacementChecks, PartialChecksumNeedsNoReading) {
    post();
    TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    f.checksum = false;
    Wire w(f);
    w.packet.csum = nupa::Csum::kPartial;
    EXPECT_TRUE(host.engine.receive(w.packet).placed());
}

TEST_F(PlacementChecks, Icrc) {
    post();
    TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_ONLY, b.flags = TCP_BTH_F_ICRC;
    f.options = bth_option(b);
    nupa::Payload payload;
    payload.push(f.payload);
    b.icrc = nupa::icrc(f.options.data(), f.options.size(), payload) ^ 1;
    f.options = bth_option(b);
    expect_delivered(f, Reason::kCsum, NUPA_STAT_deliver_csum);
    b.icrc ^= 1;
    f.options = bth_option(b);
    expect_delivered(f, Reason::kDuplicate, NUPA_STAT_deliver_duplicate);  // TCP has the first one
    Rig other_rig;
    other_rig.post();
    other_rig.expect_placed(f, kIova);
}

TEST_F(PlacementChecks, Flags) {
    for (const std::uint8_t bad : {nupa::kTcpSyn, nupa::kTcpFin, nupa::kTcpRst, nupa::kTcpUrg}) {
        Rig rig;
        rig.post();
        TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
        f.flags |= bad;
        rig.expect_delivered(f, Reason::kFlags, NUPA_STAT_deliver_flags);
        // TCP takes the bytes of a FIN or urgent segment, but not those of SYN and RST.
        f.flags = nupa::kTcpAck;
        if (bad == nupa::kTcpFin || bad == nupa::kTcpUrg)
            rig.expect_delivered(f, Reason::kDuplicate, NUPA_STAT_deliver_duplicate);
        else
            rig.expect_placed(f, kIova);
    }
}

TEST_F(PlacementChecks, FragmentsAreDistrusted) {
    post();
    TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    TcpFrame fragment = f;
    fragment.fragment = 0x2000;
    expect_delivered(fragment, Reason::kFlags, NUPA_STAT_deliver_flags);
    // The host may have put 64 KiB together that the switch never saw.
    expect_delivered(f, Reason::kDisorder, NUPA_STAT_deliver_disorder);
    host.ack(kRcvNxt + nupa::kFragmentReachBytes);
    post();
    expect_placed(
        send_segment(kRcvNxt + nupa::kFragmentReachBytes, 0, pattern(50), 1, TCP_BTH_OP_SEND_ONLY),
        kIova);
}

TEST_F(PlacementChecks, Plain) {
    TcpFrame f;
    f.seq = kRcvNxt, f.payload = pattern(100);
    expect_delivered(f, Reason::kPlain, NUPA_STAT_deliver_plain);
}

TEST_F(PlacementChecks, BthInvalid) {
    post();
    TcpFrame f = send_segment(kRcvNxt, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY);
    f.options[4] |= 2;  // no such version
    expect_delivered(f, Reason::kBthInvalid, NUPA_STAT_bth_invalid);
}

TEST_F(PlacementChecks, BthTwice) {
    post();
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.start_seq = kRcvNxt, b.length = 100;
    TcpFrame f;
    f.seq = kRcvNxt, f.payload = pattern(100), f.options = bth_option(b);
    const auto twice = f.options;
    f.options.insert(f.options.end(), twice.begin(), twice.end());
    expect_delivered(f, Reason::kBthInvalid, NUPA_STAT_bth_invalid);
}

TEST_F(PlacementChecks, Window) {
    post();
    host.ack(kRcvNxt, 1024);  // no more than before: the edge never moves back
    Host small;
    small.ring.post({{kIova, 4096, kKey}});
    EXPECT_EQ(small.rx(send_segment(kRcvNxt, 0, pattern(100))).reason,
              Reason::kWindow);  // none advertised yet
    small.ack(kRcvNxt, 1024);
    EXPECT_EQ(small.rx(send_segment(kRcvNxt, 1000, pattern(24))).reason, Reason::kPlaced);
    EXPECT_EQ(small.rx(send_segment(kRcvNxt, 1024, pattern(1))).reason, Reason::kWindow);
    EXPECT_EQ(small.rx(send_segment(kRcvNxt, 900, pattern(125))).reason, Reason::kWindow);
    EXPECT_EQ(small.stat(NUPA_STAT_deliver_window), 3u);
}

TEST_F(PlacementChecks, BeyondAnyWindowIsForgotten) {
    post();
    const std::uint32_t far = (65535u << 7) + 1;
    for (std::uint32_t i = 0; i < 2 * nupa::kBlocksMax; i++)
        EXPECT_EQ(host.rx(send_segment(kRcvNxt, far + 100 * i, pattern(10))).reason,
                  Reason::kWindow);
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_disorder_overflows], 0u);
    expect_placed(send_segment(kRcvNxt, 0, pattern(100)), kIova);
}

TEST_F(PlacementChecks, WhatLiesBeyondTheEdgeIsRemembered) {
    post(1 << 16);
    Host small;
    small.ring.post({{kIova, 1 << 16, kKey}});
    small.ack(kRcvNxt, 1024);
    EXPECT_EQ(small.rx(send_segment(kRcvNxt, 2000, pattern(100))).reason, Reason::kWindow);
    small.ack(kRcvNxt, 1 << 20);  // TCP may have opened it before, and taken the segment
    EXPECT_EQ(small.rx(send_segment(kRcvNxt, 2000, pattern(100))).reason, Reason::kDuplicate);
}

// TCP may take a segment that is not from the peer: what it covers is copied, and nothing else.
TEST_F(PlacementChecks, ForgedAheadCostsWhatItCovers) {
    post();
    TcpFrame forged = send_segment(kRcvNxt, 250, pattern(100, 9));
    forged.ack = 0x40000000;  // of nothing that the host sent
    EXPECT_EQ(host.rx(forged).reason, Reason::kPeer);
    expect_placed(send_segment(kRcvNxt, 0, pattern(200)), kIova);
    for (const std::uint32_t at : {200, 300})
        expect_delivered(send_segment(kRcvNxt, at, pattern(100)), Reason::kDuplicate,
                         NUPA_STAT_deliver_duplicate);
    expect_placed(send_segment(kRcvNxt, 400, pattern(100)), kIova + 400);
}

TEST_F(PlacementChecks, Duplicate) {
    post();
    const TcpFrame f = send_segment(kRcvNxt, 0, pattern(100));
    expect_placed(f, kIova);
    TcpFrame evil = f;
    evil.payload = pattern(100, 9);
    expect_delivered(evil, Reason::kDuplicate, NUPA_STAT_deliver_duplicate);
    expect_delivered(send_segment(kRcvNxt, 50, pattern(100, 9)), Reason::kDuplicate,
                     NUPA_STAT_deliver_duplicate);
    expect_placed(send_segment(kRcvNxt, 200, pattern(100)), kIova + 200);
    expect_delivered(send_segment(kRcvNxt, 150, pattern(51, 9)), Reason::kDuplicate,
                     NUPA_STAT_deliver_duplicate);
    expect_placed(send_segment(kRcvNxt, 300, pattern(50)),
                  kIova + 300);  // all before was passed up
}

TEST_F(PlacementChecks, WhatWasDeliveredIsNotPlacedLater) {
    const TcpFrame f = send_segment(kRcvNxt, 0, pattern(100));
    expect_delivered(f, Reason::kNoReceive, NUPA_STAT_deliver_no_receive);
    post();
    expect_delivered(f, Reason::kDuplicate, NUPA_STAT_deliver_duplicate);
}

TEST_F(PlacementChecks, HostAckEndsPlacement) {
    post();
    host.ack(kRcvNxt + 500);  // TCP got them by some other way
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kDuplicate,
                     NUPA_STAT_deliver_duplicate);
    expect_placed(send_segment(kRcvNxt, 500, pattern(100)), kIova + 500);
}

TEST_F(PlacementChecks, Unsynced) {
    post(), post();
    // Not at E, and not of the first message: earlier bytes may have escaped the context.
    expect_delivered(send_segment(kRcvNxt + 1000, 0, pattern(100), 1), Reason::kUnsynced,
                     NUPA_STAT_deliver_unsynced);
    expect_placed(send_segment(kRcvNxt, 0, pattern(100), 0), kIova);  // exactly E
    expect_placed(send_segment(kRcvNxt + 1000, 200, pattern(100), 1), kIova + 200);
}

TEST_F(PlacementChecks, SyncByTheFirstMessage) {
    post();
    // Plain bytes up to +700 were still in flight when the context was born; the
    // first QP message names its own start, even from its middle.
    expect_placed(send_segment(kRcvNxt + 700, 300, pattern(100)), kIova + 300);
    expect_placed(send_segment(kRcvNxt + 700, 0, pattern(100)), kIova);
    TcpFrame before = send_segment(kRcvNxt + 600, 0, pattern(50), 0);
    expect_delivered(before, Reason::kDuplicate, NUPA_STAT_deliver_duplicate);
}

TEST_F(PlacementChecks, SyncByPlainBytesAtE) {
    post();
    TcpFrame plain;
    plain.seq = kRcvNxt, plain.payload = pattern(10);
    expect_delivered(plain, Reason::kPlain, NUPA_STAT_deliver_plain);
    host.ring.post({{kIova, 4096, kKey}});
    expect_placed(send_segment(kRcvNxt + 500, 0, pattern(100), 1), kIova);
}

TEST_F(PlacementChecks, DisorderOverflow) {
    post(1 << 16);
    const auto hole = [](std::uint32_t i) {
        return send_segment(kRcvNxt, 100 + 200 * i, pattern(100, i));
    };
    for (std::uint32_t i = 0; i < nupa::kBlocksMax; i++)
        expect_placed(hole(i), kIova + 100 + 200 * i);
    expect_placed(hole(nupa::kBlocksMax),
                  kIova + 100 + 200 * nupa::kBlocksMax);  // placed, but no block for it
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_disorder_overflows], 1u);
    const std::uint32_t end = 200 * (nupa::kBlocksMax + 1);
    // Placed before and forgotten: must be delivered all the same.
    expect_delivered(hole(nupa::kBlocksMax), Reason::kDisorder, NUPA_STAT_deliver_disorder);
    expect_delivered(send_segment(kRcvNxt, end, pattern(100)), Reason::kDisorder,
                     NUPA_STAT_deliver_disorder);
    host.ack(kRcvNxt + end + 99);
    expect_delivered(send_segment(kRcvNxt, end + 200, pattern(50)), Reason::kDisorder,
                     NUPA_STAT_deliver_disorder);
    host.ack(kRcvNxt + end + 250);
    expect_placed(send_segment(kRcvNxt, end + 250, pattern(50)), kIova + end + 250);
}

TEST_F(PlacementChecks, Opcode) {
    post();
    std::uint32_t at = kRcvNxt;
    for (const std::uint8_t opcode :
         {TCP_BTH_OP_READ_REQUEST, TCP_BTH_OP_ACKNOWLEDGE, TCP_BTH_OP_ATOMIC_ACKNOWLEDGE,
          TCP_BTH_OP_CMP_SWAP, TCP_BTH_OP_FETCH_ADD, TCP_BTH_OP_TERMINATE}) {
        expect_delivered(send_segment(at, 0, pattern(24), 0, opcode), Reason::kOpcode,
                         NUPA_STAT_deliver_opcode);
        at += 24;
    }
}

TEST_F(PlacementChecks, EmptyMessage) {
    post();
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.start_seq = kRcvNxt;
    TcpFrame f;
    f.seq = kRcvNxt, f.payload = pattern(1), f.options = bth_option(b);
    expect_delivered(f, Reason::kOpcode, NUPA_STAT_deliver_opcode);
}

TEST_F(PlacementChecks, Inconsistent) {
    post();
    expect_placed(send_segment(kRcvNxt, 0, pattern(100)), kIova);
    // Same message, next bytes, but at another offset than its sequence number says.
    TcpFrame f = send_segment(kRcvNxt, 300, pattern(100));
    f.seq = kRcvNxt + 100;
    expect_delivered(f, Reason::kInconsistent, NUPA_STAT_deliver_inconsistent);
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_refused], 1u);
}

TEST_F(PlacementChecks, NoReceive) {
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kNoReceive,
                     NUPA_STAT_deliver_no_receive);
    post();
    expect_delivered(send_segment(kRcvNxt + 100, 0, pattern(100), 1), Reason::kNoReceive,
                     NUPA_STAT_deliver_no_receive);
    post();
    expect_placed(send_segment(kRcvNxt + 100, 100, pattern(100), 1, TCP_BTH_OP_SEND_LAST_IMM),
                  kIova + 100);
}

TEST_F(PlacementChecks, CompletedReceiveIsNotTouched) {
    post();
    host.ring.complete(1);  // kernel: message 0 is with the application
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kNoReceive,
                     NUPA_STAT_deliver_no_receive);
}

TEST_F(PlacementChecks, NoReceiveQueue) {
    HostOptions o;
    o.qp_flags = NUPA_QP_F_NO_RQ;
    Rig rig(o);
    rig.post();
    rig.expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kNoReceive,
                         NUPA_STAT_deliver_no_receive);
}

TEST_F(PlacementChecks, Key) {
    host.ring.post({{kIova, 4096, kOtherKey}});
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kKey, NUPA_STAT_deliver_key);
}

TEST_F(PlacementChecks, DeregisteredKey) {
    post();
    expect_placed(send_segment(kRcvNxt, 0, pattern(100)), kIova);
    ASSERT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    expect_delivered(send_segment(kRcvNxt, 100, pattern(100)), Reason::kKey, NUPA_STAT_deliver_key);
}

TEST_F(PlacementChecks, ForeignPd) {
    Region other(host.guest, 0x1000, 4096, kPd + 1);
    ASSERT_EQ(host.engine.mr_reg(kOtherKey, other.cmd), NUPA_OK);
    host.ring.post({{0x1000, 4096, kOtherKey}});
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kAccess,
                     NUPA_STAT_deliver_access);
}

TEST_F(PlacementChecks, ReadOnlyMr) {
    Region other(host.guest, 0x1000, 4096, kPd, NUPA_ACCESS_REMOTE_READ | NUPA_ACCESS_REMOTE_WRITE);
    ASSERT_EQ(host.engine.mr_reg(kOtherKey, other.cmd), NUPA_OK);
    host.ring.post({{0x1000, 4096, kOtherKey}});
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kAccess,
                     NUPA_STAT_deliver_access);
}

TEST_F(PlacementChecks, BeyondTheReceive) {
    post(1000);
    expect_placed(send_segment(kRcvNxt, 0, pattern(900)), kIova);
    expect_delivered(send_segment(kRcvNxt, 900, pattern(101)), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
    expect_delivered(send_segment(kRcvNxt, 1001, pattern(1)), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
}

TEST_F(PlacementChecks, SgeBeyondTheMr) {
    const std::uint64_t end = kIova + host.options.mr_bytes;
    host.ring.post({{end - 50, 100, kKey}});
    expect_delivered(send_segment(kRcvNxt, 0, pattern(51)), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
    host.ring.post({{kIova - 1, 100, kKey}});
    expect_delivered(send_segment(kRcvNxt + 51, 0, pattern(1), 1), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
    host.ring.post({{UINT64_MAX - 5, 100, kKey}});
    expect_delivered(send_segment(kRcvNxt + 52, 10, pattern(1), 2), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
}

// The sum wraps into a region that does exist.
TEST_F(PlacementChecks, SgeThatWraps) {
    Region low(host.guest, 0x1000, 4096, kPd);
    ASSERT_EQ(host.engine.mr_reg(kOtherKey, low.cmd), NUPA_OK);
    host.ring.post({{UINT64_MAX - 99, 1 << 20, kOtherKey}});
    expect_delivered(send_segment(kRcvNxt, 0x1000 + 200, pattern(10)), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
    EXPECT_EQ(low.read(host.guest, 0x1000, 4096), ByteVector(4096));
}

TEST_F(PlacementChecks, BadSgeCount) {
    post();
    host.ring.set_num_sge(0, 1000);
    expect_delivered(send_segment(kRcvNxt, 0, pattern(1)), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
}

TEST_F(PlacementChecks, NothingIsWrittenWhenALaterSgeIsBad) {
    host.ring.post({{kIova, 50, kKey}, {kIova + 50, 50, kOtherKey}});
    expect_delivered(send_segment(kRcvNxt, 0, pattern(100)), Reason::kKey, NUPA_STAT_deliver_key);
    expect_delivered(send_segment(kRcvNxt, 100, pattern(1)), Reason::kBounds,
                     NUPA_STAT_deliver_bounds);
}

TEST_F(PlacementChecks, ScatterOverSges) {
    const std::uint64_t a = kIova + 4000, b = kIova + 20001, c = kIova + 9;
    host.ring.post({{a, 333, kKey}, {b, 0, kKey}, {b, 5000, kKey}, {c, 2000, kKey}});
    const ByteVector message = pattern(7333, 5);
    std::uint32_t at = 0;
    for (const std::uint32_t n : {100u, 1000u, 5u, 3500u, 2728u}) {
        const TcpFrame f =
            send_segment(kRcvNxt, at, {message.begin() + at, message.begin() + at + n});
        ASSERT_TRUE(host.rx(f).placed());
        at += n;
    }
    ByteVector out = host.mr.read(host.guest, a, 333);
    for (const auto& part : {host.mr.read(host.guest, b, 5000), host.mr.read(host.guest, c, 2000)})
        out.insert(out.end(), part.begin(), part.end());
    EXPECT_EQ(out, message);
}

TEST_F(PlacementChecks, Ver1Places) {
    post();
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.start_seq = kRcvNxt, b.length = 1000;
    TcpFrame f;
    f.seq = kRcvNxt + 400, f.payload = pattern(600), f.options = bth_option(b);
    expect_placed(f, kIova + 400);
}

}  // namespace
