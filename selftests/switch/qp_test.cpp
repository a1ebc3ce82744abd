// SPDX-License-Identifier: BSD-3-Clause
// Placement end to end: a tcp_bth message leaves one port's memory and lands in the other's
// posted buffer, while the ring gets only headers.
#include <tcp_qp/tcp_bth_option.h>

#include "qp_pair.hpp"

namespace nupa::testing {
namespace {

// IPv6 or not; cut into segments or in one run
class QpFamily : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(QpFamily, SendLandsInThePostedBuffer) {
    const auto [v6, cut] = GetParam();
    QpPair t({}, v6);
    if (cut)
        t.cut();
    t.sender_qp(NUPA_QP_F_TX_V0);
    t.qp.post({{kIova + 100, 100000}}, kKey);
    Bytes data = pattern(50000, 1);
    t.send(send_message(t.base, 0, data));

    RxPacket packet = t.p[1].receive(0);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_PLACED);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_QP);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_CSUM_OK);
    EXPECT_EQ(packet.comp.qpn, 17u);
    EXPECT_EQ(packet.comp.bufs, 0);
    EXPECT_EQ(packet.comp.payload_bytes, data.size());
    EXPECT_EQ(packet.comp.gso_size, kMss);
    EXPECT_EQ(packet.comp.gso_segs, (data.size() + kMss - 1) / kMss);
    EXPECT_EQ(t.mr.read(100, data.size()), data);
    EXPECT_EQ(t.mr.read(0, 100), Bytes(100, 0xee)) << "before the buffer";
    EXPECT_EQ(t.mr.read(100 + data.size(), 100), Bytes(100, 0xee)) << "behind the message";

    auto header = parse_tcp(packet.header);
    ASSERT_TRUE(header);
    tcp_bth bth{};
    ASSERT_EQ(tcp_bth_find(header->options.data(), static_cast<unsigned>(header->options.size()),
                           header->seq, packet.comp.payload_bytes, &bth, nullptr),
              TCP_BTH_OK);
    EXPECT_EQ(bth.ver, cut ? 0 : 1) << "a run keeps what the sender wrote";
    EXPECT_EQ(bth.opcode, TCP_BTH_OP_SEND_ONLY);
    EXPECT_EQ(bth.start_seq, t.base.seq);
    EXPECT_EQ(bth.tsval, 0x11223344u);
    EXPECT_EQ(t.qp.stat(NUPA_QP_STAT_placed_bytes), data.size());
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_placed_bytes), data.size());
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_qp_delivered_segments), 0u);
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_placed_segments), packet.comp.gso_segs);
    EXPECT_EQ(t.p.stat(0, NUPA_STAT_tx_segments), packet.comp.gso_segs);
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_rx_merged), packet.comp.gso_segs - 1u);
}

INSTANTIATE_TEST_SUITE_P(Ip, QpFamily, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& i) {
                             return std::string(std::get<0>(i.param) ? "v6" : "v4") +
                                    (std::get<1>(i.param) ? "_cut" : "_run");
                         });

// A run that was to be placed and is not: whole again from its parts, which fit the host's buffers.
TEST(Qp, ARunThatIsNotPlacedComesInParts) {
    for (const uint32_t flags : {0u, uint32_t{NUPA_QP_F_TX_V0}}) {
        QpPair t;
        t.sender_qp(flags);
        Bytes data = pattern(500000, 1);
        t.send(send_message(t.base, 0, data));
        Bytes all;
        uint32_t segments = 0;
        while (all.size() < data.size()) {
            RxPacket packet = t.p[1].receive(0);
            EXPECT_FALSE(packet.comp.flags & NUPA_RX_F_PLACED);
            EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_QP);
            EXPECT_EQ(packet.comp.gso_size, kMss);
            auto got = parse_tcp(packet.whole());
            ASSERT_TRUE(got);
            EXPECT_EQ(got->seq, static_cast<uint32_t>(t.base.seq + all.size()));
            tcp_bth bth{};
            EXPECT_EQ(
                tcp_bth_find(got->options.data(), static_cast<unsigned>(got->options.size()),
                             got->seq, static_cast<uint32_t>(got->payload.size()), &bth, nullptr),
                TCP_BTH_OK);
            EXPECT_EQ(bth.mbo, all.size());
            all.insert(all.end(), got->payload.begin(), got->payload.end());
            segments += packet.comp.gso_segs;
        }
        EXPECT_EQ(all, data);
        EXPECT_EQ(segments, (data.size() + kMss - 1) / kMss);
        EXPECT_EQ(t.p.stat(1, NUPA_STAT_qp_delivered_segments), segments);
    }
}

TEST(Qp, Ver1IsPlacedAsWell) {
    QpPair t;
    t.qp.post({{kIova, 100000}}, kKey);
    Bytes data = pattern(20000, 1);
    t.send(send_message(t.base, 0, data, false));
    EXPECT_TRUE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.mr.read(0, data.size()), data);
}

TEST(Qp, IcrcIsWrittenAndChecked) {
    QpPair t;
    t.sender_qp(NUPA_QP_F_TX_V0 | NUPA_QP_F_ICRC);
    t.qp.post({{kIova, 100000}}, kKey);
    Bytes data = pattern(10000, 1);
    t.send(send_message(t.base, 0, data));
    EXPECT_TRUE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.mr.read(0, data.size()), data);
}

TEST(Qp, MessagesFollowEachOtherThroughTheRing) {
    QpShape shape;
    shape.rq_entries = 4;
    shape.rq_base = 3;
    QpPair t(shape);
    t.sender_qp(NUPA_QP_F_TX_V0);
    uint32_t seq = t.base.seq;
    for (uint16_t msn = 0; msn < 50; msn++) {
        Bytes data = pattern(3000 + msn, msn);
        t.qp.post({{kIova + 1000u * msn, 1000}, {kIova + 500000, 1}, {kIova + 600000, 100000}},
                  kKey);
        TcpFrame f = t.base;
        f.seq = seq;
        t.send(send_message(f, msn, data));
        ASSERT_TRUE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED) << msn;
        Bytes got = t.mr.read(1000u * msn, 1000);
        Bytes one = t.mr.read(500000, 1);
        Bytes rest = t.mr.read(600000, data.size() - 1001);
        got.insert(got.end(), one.begin(), one.end());
        got.insert(got.end(), rest.begin(), rest.end());
        ASSERT_EQ(got, data) << msn;
        seq += static_cast<uint32_t>(data.size());
        t.qp.complete(1);
        TcpFrame ack = ack_of(t.base, seq);
        t.p[1].send(0, build_tcp(ack, false), offload(ack));
        t.p[0].receive(0);
    }
}

TEST(Qp, WithoutAPostedReceiveTheBytesAreDelivered) {
    QpPair t;
    Bytes data = pattern(20000, 1);
    t.send(send_message(t.base, 0, data));
    Bytes got;
    while (got.size() < data.size()) {
        RxPacket packet = t.p[1].receive(0);
        EXPECT_FALSE(packet.comp.flags & NUPA_RX_F_PLACED);
        EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_QP);
        got.insert(got.end(), packet.payload.begin(), packet.payload.end());
    }
    EXPECT_EQ(got, data);
    EXPECT_GT(t.p.stat(1, NUPA_STAT_deliver_no_receive), 0u);
    EXPECT_EQ(t.mr.read(0, 100), Bytes(100, 0xee));
}

TEST(Qp, RetransmissionIsDeliveredNeverPlacedAgain) {
    QpPair t;
    t.qp.post({{kIova, 100000}}, kKey);
    Bytes data = pattern(1000, 1);
    TcpFrame f = send_message(t.base, 0, data);
    t.send(f);
    ASSERT_TRUE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    t.mr.fill(0xaa);
    t.send(f);
    RxPacket again = t.p[1].receive(0);
    EXPECT_FALSE(again.comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(again.payload, data);
    EXPECT_EQ(t.mr.read(0, 1000), Bytes(1000, 0xaa));
    EXPECT_EQ(t.p.stat(1, NUPA_STAT_deliver_duplicate), 1u);
}

TEST(Qp, DamagedSegmentsAreNotPlaced) {
    QpPair t;
    t.qp.post({{kIova, 100000}}, kKey);
    Bytes frame = build_tcp(send_message(t.base, 0, pattern(1000, 1)));
    frame.back() ^= 1;
    t.p[0].send(0, frame);
    RxPacket packet = t.p[1].receive(0);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_CSUM_BAD);
    EXPECT_FALSE(packet.comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.mr.read(0, 1000), Bytes(1000, 0xee));
}

TEST(Qp, WriteLandsAtItsAddress) {
    QpPair t;
    t.sender_qp(NUPA_QP_F_TX_V0);
    Bytes data = pattern(30000, 1);
    t.send(write_message(t.base, 0, data, kIova + 5000, kKey));
    EXPECT_TRUE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.mr.read(5000, data.size()), data);
}

TEST(Qp, WriteWithoutRightOrOutsideIsDelivered) {
    QpPair t;
    FakeMr read_only(t.p[1], kKey + 1, kIova, 4096, kPd, NUPA_ACCESS_LOCAL_WRITE);
    FakeMr other_pd(t.p[1], kKey + 2, kIova, 4096, kPd + 1, kAccess);
    struct Case {
        uint64_t va;
        uint32_t rkey;
        nupa_stat stat;
    };
    uint32_t seq = t.base.seq;
    uint16_t msn = 0;
    for (const Case& c : {Case{kIova, kKey + 1, NUPA_STAT_deliver_access},
                          Case{kIova, kKey + 2, NUPA_STAT_deliver_access},
                          Case{kIova, kKey + 3, NUPA_STAT_deliver_key},
                          Case{kIova + kMrBytes - 999, kKey, NUPA_STAT_deliver_bounds},
                          Case{kIova - 1, kKey, NUPA_STAT_deliver_bounds},
                          Case{~0ull - 10, kKey, NUPA_STAT_deliver_bounds}}) {
        const uint64_t before = t.p.stat(1, c.stat);
        TcpFrame f = t.base;
        f.seq = seq;
        t.send(write_message(f, msn++, pattern(1000, 1), c.va, c.rkey));
        EXPECT_FALSE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED) << c.rkey;
        EXPECT_EQ(t.p.stat(1, c.stat), before + 1);
        seq += 1000;
        t.qp.consume(seq);
    }
}

TEST(Qp, NothingIsPlacedAfterDeregistration) {
    QpPair t;
    t.qp.post({{kIova, 1000}}, kKey);
    t.mr.deregister();
    t.send(send_message(t.base, 0, pattern(1000, 1)));
    EXPECT_FALSE(t.p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(t.mr.read(0, 1000), Bytes(1000, 0xee));
}

TEST(Qp, AfterDestroyTheFlowIsPlain) {
    QpPair t;
    t.qp.post({{kIova, 1000}}, kKey);
    EXPECT_EQ(t.qp.destroy(), NUPA_OK);
    EXPECT_EQ(t.qp.destroy(), NUPA_E_NOENT);
    t.send(send_message(t.base, 0, pattern(1000, 1)));
    RxPacket packet = t.p[1].receive(0);
    EXPECT_FALSE(packet.comp.flags & (NUPA_RX_F_PLACED | NUPA_RX_F_QP));
    EXPECT_EQ(packet.payload, pattern(1000, 1));
}

TEST(Qp, MixedFlowsKeepTheirVerdicts) {
    QpPair t;
    t.qp.post({{kIova, 100000}}, kKey);
    TcpFrame plain = t.p.frame(0, 1);
    plain.sport = 7777;
    Bytes qp_data = pattern(30000, 1);
    Bytes plain_data = pattern(30000, 2);
    for (uint32_t at = 0; at < 30000; at += 1000) {  // segment by segment, in turns
        TcpFrame f = send_message(t.base, 0, qp_data);
        f.seq += at;
        f.flags = kAck;
        f.payload = Bytes(qp_data.begin() + at, qp_data.begin() + at + 1000);
        t.p[0].stage(0, build_tcp(f, false), offload(f));
        plain.seq = 1 + at;
        plain.payload = Bytes(plain_data.begin() + at, plain_data.begin() + at + 1000);
        t.p[0].stage(0, build_tcp(plain, false), offload(plain));
    }
    t.p[0].publish(0);
    size_t placed = 0;
    Bytes got;
    unsigned packets = 0;
    for (; placed < qp_data.size() || got.size() < plain_data.size(); packets++) {
        RxPacket packet = t.p[1].receive(0);
        if (packet.comp.flags & NUPA_RX_F_PLACED)
            placed += packet.comp.payload_bytes;
        else
            got.insert(got.end(), packet.payload.begin(), packet.payload.end());
    }
    EXPECT_EQ(placed, qp_data.size());
    EXPECT_EQ(got, plain_data);
    EXPECT_EQ(t.mr.read(0, qp_data.size()), qp_data);
    EXPECT_LE(packets, 4u) << "both flows merge side by side";
}

TEST(Qp, HostileQpCommandsAreRefused) {
    QpPair t;
    TcpFrame other = t.base;
    other.sport = 4242;
    QpShape shape;
    shape.qpn = 99;
    nupa_admin_cmd cmd = FakeQp::command(other, shape);
    cmd.qp.rq_pages = 5;
    cmd.qp.rq_table_addr = 1ull << 45;
    cmd.qp.shadow_addr = 64;
    EXPECT_EQ(t.p[1].admin_status(cmd), NUPA_E_ADDRESS);
    cmd.qp.rq_mask = 12;
    EXPECT_EQ(t.p[1].admin_status(cmd), NUPA_E_INVALID);
    nupa_admin_cmd mr{};
    mr.op = NUPA_ADMIN_MR_REG;
    mr.id = 1;
    mr.mr.bytes = 4096;
    mr.mr.pages = 1;
    mr.mr.page_shift = 12;
    mr.mr.table_addr = ~0ull - 4;
    EXPECT_EQ(t.p[1].admin_status(mr), NUPA_E_ADDRESS);
    EXPECT_FALSE(t.p[1].status() & NUPA_STATUS_FAILED) << "a refused command stops nobody";
}

}  // namespace
}  // namespace nupa::testing
