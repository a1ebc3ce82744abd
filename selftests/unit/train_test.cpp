// SPDX-License-Identifier: BSD-3-Clause
// SEND_TRAIN: several messages in a segment, each to its own receive, all of them or none.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <utility>
#include <vector>

#include "engine/merge.hpp"
#include "engine/segment.hpp"
#include "engine/transmit.hpp"
#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

constexpr std::uint32_t kTrainBytes = 64;  // of each message
constexpr std::uint32_t kTrainStride = 128;

struct TrainRig {
    explicit TrainRig(HostOptions o = {}) : host(o) { host.ack(kRcvNxt); }

    void post(std::uint32_t receives, std::uint32_t room = kTrainBytes) {
        for (; receives; receives--)
            host.ring.post({{kIova + kTrainStride * posted_++, room, kKey}});
    }
    ByteVector received(std::uint32_t message, std::uint32_t bytes = kTrainBytes) {
        return host.mr.read(host.guest, kIova + kTrainStride * message, bytes);
    }
    // Message @i of @payload, which begins with one.
    static ByteVector part(const ByteVector& payload, std::uint32_t i) {
        return {payload.begin() + i * kTrainBytes, payload.begin() + (i + 1) * kTrainBytes};
    }
    void expect_untouched(const TcpFrame& f, Reason reason) {
        const ByteVector before = host.mr.read(host.guest, kIova, 8192);
        EXPECT_EQ(host.rx(f).reason, reason);
        EXPECT_EQ(host.mr.read(host.guest, kIova, 8192), before);
    }

    Host host;
    std::uint32_t posted_ = 0;
};

struct Train : testing::Test, TrainRig {};

TEST_F(Train, EachMessageGoesToItsReceive) {
    post(5);
    const ByteVector bytes = pattern(5 * kTrainBytes);
    ASSERT_EQ(host.rx(train_segment(kRcvNxt, 5, 0, bytes)).reason, Reason::kPlaced);
    for (std::uint32_t i = 0; i < 5; i++) {
        EXPECT_EQ(received(i), part(bytes, i)) << i;
        EXPECT_EQ(host.mr.read(host.guest, kIova + kTrainStride * i + kTrainBytes,
                               kTrainStride - kTrainBytes),
                  ByteVector(kTrainStride - kTrainBytes))
            << "behind message " << i;
    }
    EXPECT_EQ(host.stat(NUPA_STAT_placed_bytes), 5 * kTrainBytes);
}

// TCP cuts where it likes, and what is lost comes again on its own.
TEST_F(Train, AnyCut) {
    for (std::uint32_t cut = 1; cut < 4 * kTrainBytes; cut++) {
        TrainRig t;
        t.post(4);
        const ByteVector bytes = pattern(4 * kTrainBytes, cut);
        const ByteVector first(bytes.begin(), bytes.begin() + cut);
        const ByteVector rest(bytes.begin() + cut, bytes.end());
        ASSERT_EQ(t.host.rx(train_segment(kRcvNxt, 4, cut, rest)).reason, Reason::kPlaced);
        ASSERT_EQ(t.host.rx(train_segment(kRcvNxt, 4, 0, first)).reason, Reason::kPlaced);
        for (std::uint32_t i = 0; i < 4; i++)
            EXPECT_EQ(t.received(i), part(bytes, i)) << "cut at " << cut << ", message " << i;
    }
}

// Told anew, as a shorter train, or as the SEND that it is.
TEST_F(Train, AnotherWayToSayTheSame) {
    post(3);
    const ByteVector bytes = pattern(3 * kTrainBytes);
    EXPECT_EQ(host.rx(train_segment(kRcvNxt, 3, 0, part(bytes, 0))).reason, Reason::kPlaced);
    EXPECT_EQ(
        host.rx(send_segment(kRcvNxt + 2 * kTrainBytes, 0, part(bytes, 2), 2, TCP_BTH_OP_SEND_ONLY))
            .reason,
        Reason::kPlaced);
    EXPECT_EQ(host.rx(train_segment(kRcvNxt + kTrainBytes, 2, 0, part(bytes, 1), 1)).reason,
              Reason::kPlaced);
    for (std::uint32_t i = 0; i < 3; i++)
        EXPECT_EQ(received(i), part(bytes, i)) << i;
}

TEST_F(Train, NumbersWrap) {
    TrainRig t;
    t.host.ring.complete(65534);
    for (std::uint32_t i = 0; i < 65534; i++)
        t.host.ring.post({});
    t.post(4);
    const ByteVector bytes = pattern(4 * kTrainBytes);
    ASSERT_EQ(t.host.rx(train_segment(kRcvNxt, 4, 0, bytes, 65534)).reason, Reason::kPlaced);
    for (std::uint32_t i = 0; i < 4; i++)
        EXPECT_EQ(t.received(i), part(bytes, i)) << i;
}

TEST_F(Train, AllOrNothing) {
    post(3);
    expect_untouched(train_segment(kRcvNxt, 4, 0, pattern(4 * kTrainBytes)), Reason::kNoReceive);
    TrainRig small;
    small.post(1);
    small.post(1, kTrainBytes - 1);
    small.post(1);
    small.expect_untouched(train_segment(kRcvNxt, 3, 0, pattern(3 * kTrainBytes)), Reason::kBounds);
    TrainRig foreign;
    foreign.post(1);
    foreign.host.ring.post({{kIova + kTrainStride, kTrainBytes, kOtherKey}});
    foreign.expect_untouched(train_segment(kRcvNxt, 2, 0, pattern(2 * kTrainBytes)), Reason::kKey);
}

TEST_F(Train, WhatIsCompletedIsNotTouched) {
    post(4);
    host.ring.complete(1);
    expect_untouched(train_segment(kRcvNxt, 4, 0, pattern(4 * kTrainBytes)), Reason::kNoReceive);
}

// Each of its messages is where other segments said it is.
TEST_F(Train, Inconsistent) {
    post(4);
    const ByteVector one = pattern(kTrainBytes);
    ASSERT_EQ(host.rx(send_segment(kRcvNxt, 0, one, 0, TCP_BTH_OP_SEND_ONLY)).reason,
              Reason::kPlaced);
    ASSERT_EQ(
        host.rx(send_segment(kRcvNxt + 3 * kTrainBytes, 0, one, 3, TCP_BTH_OP_SEND_ONLY)).reason,
        Reason::kPlaced);
    // number 3 would begin one message earlier
    expect_untouched(train_segment(kRcvNxt + kTrainBytes, 2, 0, pattern(2 * kTrainBytes), 2),
                     Reason::kInconsistent);
}

TEST_F(Train, MorePiecesThanASegmentMayHave) {
    HostOptions o;
    o.rq_entries = 2048;
    TrainRig t(o);
    for (std::uint32_t i = 0; i < nupa::kPiecesMax + 1; i++)
        t.host.ring.post({{kIova + i, 1, kKey}});
    t.expect_untouched(
        train_segment(kRcvNxt, nupa::kPiecesMax + 1, 0, pattern(nupa::kPiecesMax + 1), 0, 1),
        Reason::kBounds);
}

TEST(TrainMerge, SegmentsOfABurst) {
    nupa::Merger merger;
    merger.configure(4096, true);
    constexpr std::uint32_t kMessages = 50, kMss = 1408;
    const ByteVector bytes = pattern(kMessages * kTrainBytes);
    for (std::uint32_t at = 0; at < bytes.size(); at += kMss) {
        const auto n = std::min<std::size_t>(kMss, bytes.size() - at);
        Wire w(train_segment(1000, kMessages, at, {bytes.begin() + at, bytes.begin() + at + n}));
        w.packet.verify();
        nupa::Decision d;
        d.has_qp = d.has_bth = true, d.reason = Reason::kPlaced;
        unsigned found = 0;
        const nupa::Headers& h = w.packet.at;
        ASSERT_EQ(tcp_bth_find(w.packet.header.data() + h.options_at, h.option_bytes(), h.seq,
                               w.packet.payload.bytes(), &d.bth, &found),
                  TCP_BTH_OK);
        d.bth_at = static_cast<std::uint16_t>(h.options_at + found);
        if (at)
            ASSERT_TRUE(merger.fits(w.packet, d)) << at;
        at ? merger.append(w.packet, d) : merger.start(w.packet, d);
        EXPECT_EQ(merger.closed(), at + n == bytes.size()) << "a run ends with its train";
    }
    EXPECT_EQ(merger.finish().payload_bytes, bytes.size());
}

// Layout 0 can't say it.
TEST(TrainCut, StaysLayout1) {
    TcpFrame f = train_segment(5000, 100, 0, pattern(100 * kTrainBytes));
    const ByteVector frame = f.build();
    const nupa::Bytes bufs[] = {{frame.data(), frame.size()}};
    nupa_tx_ctx ctx{};
    ctx.flags = NUPA_TX_F_TSO4 | NUPA_TX_F_CSUM, ctx.bufs = 1, ctx.mss = 1408;
    ctx.bytes = static_cast<__le32>(frame.size());
    ctx.header_bytes = static_cast<__le16>(f.header_bytes());
    nupa::Packet packet, segment;
    ASSERT_EQ(packet_from_tx(packet, ctx, bufs), nupa::TxError::kOk);
    nupa::Cutter cutter(packet, {.v0 = true});
    std::uint32_t cuts = 0;
    for (; cutter.next(segment); cuts++) {
        tcp_bth b{};
        const nupa::Headers& h = segment.at;
        ASSERT_EQ(tcp_bth_find(segment.header.data() + h.options_at, h.option_bytes(), h.seq,
                               segment.payload.bytes(), &b, nullptr),
                  TCP_BTH_OK);
        EXPECT_EQ(b.ver, 1);
        EXPECT_EQ(b.opcode, TCP_BTH_OP_SEND_TRAIN);
        EXPECT_EQ(b.mbo, cuts * 1408);
    }
    EXPECT_EQ(cuts, 5u);
}

}  // namespace
