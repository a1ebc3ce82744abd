// SPDX-License-Identifier: BSD-3-Clause
// MIXED_TRAIN: messages of any lengths in a segment, as the LENGTHS before them said.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_mixed.h>
#include <tcp_qp/tcp_bth_option.h>

#include <utility>
#include <vector>

#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

constexpr std::uint32_t kMixedStride = 512;
const std::vector<std::uint32_t> kLengths{5, 64, 1, 300, 7};

struct MixedRig {
    explicit MixedRig(HostOptions o = {}, std::vector<std::uint32_t> l = kLengths)
        : lengths(std::move(l)), host(o) {
        tcp_bth_mixed_begin(&all);
        for (const std::uint32_t length : lengths) {
            tcp_bth_mixed_add(&all, length);
            table.resize(table.size() + 4);
            tcp_bth_put32(reinterpret_cast<std::uint8_t*>(&table[table.size() - 4]), length);
        }
        bytes = pattern(all.bytes, 3);
        host.ack(o.rcv_nxt);
        start = o.rcv_nxt + static_cast<std::uint32_t>(table.size());
    }
    void post(std::uint32_t receives, std::uint32_t room = kMixedStride) {
        for (; receives; receives--)
            host.ring.post({{kIova + kMixedStride * posted_++, room, kKey}});
    }
    TcpFrame frame(const tcp_bth& b, std::uint32_t seq, ByteVector payload) {
        TcpFrame f;
        f.seq = seq, f.payload = std::move(payload), f.options = bth_option(b);
        return f;
    }
    TcpFrame announcement() {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_LENGTHS, b.msn = msn;
        b.start_seq = start - static_cast<std::uint32_t>(table.size());
        b.length = static_cast<std::uint32_t>(table.size()), b.flags = TCP_BTH_F_TIMESTAMP;
        return frame(b, b.start_seq, table);
    }
    tcp_bth option() const {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_MIXED_TRAIN, b.msn = msn, b.start_seq = start;
        b.length = all.check, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = all.bytes;
        b.flags = TCP_BTH_F_TIMESTAMP;
        return b;
    }
    TcpFrame segment(std::uint32_t from, std::uint32_t to) {
        return frame(option(), start + from, {bytes.begin() + from, bytes.begin() + to});
    }
    Reason announce() { return host.rx(announcement()).reason; }
    // All messages are in their receives, and nothing lies behind them.
    void expect_all(const char* what = "") {
        std::uint32_t at = 0;
        for (std::uint32_t i = 0; i < lengths.size(); at += lengths[i++]) {
            ByteVector right(bytes.begin() + at, bytes.begin() + at + lengths[i]);
            right.resize(kMixedStride);
            ASSERT_EQ(host.mr.read(host.guest, kIova + kMixedStride * i, kMixedStride), right)
                << what << " message " << i;
        }
    }
    void expect_untouched(const TcpFrame& f, Reason reason) {
        const ByteVector before = host.mr.read(host.guest, kIova, 8192);
        EXPECT_EQ(host.rx(f).reason, reason);
        EXPECT_EQ(host.mr.read(host.guest, kIova, 8192), before);
    }

    std::vector<std::uint32_t> lengths;
    tcp_bth_mixed all{};
    ByteVector table, bytes;
    std::uint32_t start = 0;
    std::uint16_t msn = 0;
    Host host;
    std::uint32_t posted_ = 0;
};

struct Mixed : testing::Test, MixedRig {};

TEST_F(Mixed, EachMessageGoesToItsReceive) {
    post(5);
    EXPECT_EQ(announce(), Reason::kOpcode) << "the host reads the lengths, too";
    ASSERT_EQ(host.rx(segment(0, all.bytes)).reason, Reason::kPlaced);
    expect_all();
    EXPECT_EQ(host.stat(NUPA_STAT_placed_bytes), all.bytes);
}

TEST_F(Mixed, AnyCutAndOrder) {
    for (std::uint32_t cut = 1; cut < all.bytes; cut++) {
        MixedRig t;
        t.post(5);
        t.announce();
        ASSERT_EQ(t.host.rx(t.segment(cut, all.bytes)).reason, Reason::kPlaced);
        ASSERT_EQ(t.host.rx(t.segment(0, cut)).reason, Reason::kPlaced);
        t.expect_all("cut");
    }
}

TEST_F(Mixed, NumbersAndSequenceNumbersWrap) {
    HostOptions o;
    o.rcv_nxt = 0xffffff80;
    MixedRig t(o);
    t.msn = 65534;
    t.host.ring.complete(65534);
    for (std::uint32_t i = 0; i < 65534; i++)
        t.host.ring.post({});
    t.post(5);
    // MSN 0 would prove it: here a segment at E does
    t.announce();
    ASSERT_EQ(t.host.rx(t.segment(0, t.all.bytes)).reason, Reason::kPlaced);
    t.expect_all();
}

TEST_F(Mixed, NothingWithoutItsLengths) {
    post(5);
    host.rx(send_segment(kRcvNxt, 0, ByteVector(table.size()), 9));  // whatever: at E
    expect_untouched(segment(0, all.bytes), Reason::kLengths);
    EXPECT_EQ(host.stat(NUPA_STAT_deliver_lengths), 1u);
}

// A table that came in parts, or as a message of another length, is the host's alone.
TEST_F(Mixed, LengthsInParts) {
    post(5);
    TcpFrame first = announcement(), rest = first;
    first.payload.resize(8);
    rest.seq += 8, rest.payload.erase(rest.payload.begin(), rest.payload.begin() + 8);
    EXPECT_EQ(host.rx(first).reason, Reason::kOpcode);
    EXPECT_EQ(host.rx(rest).reason, Reason::kOpcode);
    expect_untouched(segment(0, all.bytes), Reason::kLengths);
}

// A repetition is the host's business: which of the two TCP has taken is not known here.
TEST_F(Mixed, LengthsTwice) {
    post(5);
    TcpFrame other = announcement();
    other.payload[3] = std::byte{9};
    announce();
    EXPECT_EQ(host.rx(other).reason, Reason::kDuplicate);
    ASSERT_EQ(host.rx(segment(0, all.bytes)).reason, Reason::kPlaced);
    expect_all();
}

TEST_F(Mixed, AnotherTable) {
    const std::pair<const char*, void (*)(tcp_bth&)> lies[] = {
        {"check", [](tcp_bth& b) { b.length++; }},
        {"bytes", [](tcp_bth& b) { b.ext4++; }},
        {"number", [](tcp_bth& b) { b.msn++; }},
        {"start", [](tcp_bth& b) { b.start_seq--, b.mbo++; }},
    };
    for (const auto& [what, lie] : lies) {
        SCOPED_TRACE(what);
        MixedRig t;
        t.post(5);
        t.announce();
        tcp_bth b = t.option();
        lie(b);
        t.expect_untouched(t.frame(b, t.start, ByteVector(t.all.bytes - 1)), Reason::kLengths);
    }
}

TEST_F(Mixed, NoSuchTable) {
    for (const std::uint32_t length : {0u, 0x01000000u, 0x7fffffffu}) {
        MixedRig t({}, {5, length, 6});
        t.post(5);
        t.announce();
        tcp_bth b = t.option();
        b.ext4 = 11;
        t.expect_untouched(t.frame(b, t.start, ByteVector(11)), Reason::kLengths);
    }
}

TEST_F(Mixed, AllOrNothing) {
    post(4);
    announce();
    expect_untouched(segment(0, all.bytes), Reason::kNoReceive);
    MixedRig small;
    small.post(3);
    small.post(1, 299);
    small.post(1);
    small.announce();
    small.expect_untouched(small.segment(0, small.all.bytes), Reason::kBounds);
}

TEST_F(Mixed, WhatIsCompletedIsNotTouched) {
    post(5);
    announce();
    host.ring.complete(1);
    expect_untouched(segment(0, all.bytes), Reason::kNoReceive);
}

// One of its messages was said to begin elsewhere.
TEST_F(Mixed, Inconsistent) {
    post(6);
    announce();
    ASSERT_EQ(host.rx(send_segment(start + 6, 0, ByteVector(1), 1, TCP_BTH_OP_SEND_ONLY)).reason,
              Reason::kPlaced);
    expect_untouched(segment(0, 6), Reason::kInconsistent);
}

// Described as the SENDs that they are, before or after.
TEST_F(Mixed, AnotherWayToSayTheSame) {
    post(5);
    announce();
    ASSERT_EQ(host.rx(send_segment(start + 5, 0, {bytes.begin() + 5, bytes.begin() + 69}, 1,
                                   TCP_BTH_OP_SEND_ONLY))
                  .reason,
              Reason::kPlaced);
    ASSERT_EQ(host.rx(segment(0, 5)).reason, Reason::kPlaced);
    ASSERT_EQ(host.rx(segment(69, all.bytes)).reason, Reason::kPlaced);
    expect_all();
}

// Tables are forgotten with their trains, so that there is room for others for ever; and those that
// find none are learnt once there is.
TEST_F(Mixed, ManyTrains) {
    HostOptions o;
    o.rq_entries = 256;
    MixedRig t(o, {3, 2});
    for (std::uint32_t i = 0; i < 20; i++) {
        t.post(2);
        ASSERT_EQ(t.announce(), Reason::kOpcode);
        ASSERT_EQ(t.host.rx(t.segment(0, 5)).reason, Reason::kPlaced) << i;
        t.start += 5 + 8, t.msn += 2;
    }
    MixedRig ahead(o, {3, 2});
    ahead.post(20);
    for (std::uint32_t i = 0; i <= nupa::kMixedTrainsMax; i++) {
        ahead.announce();
        ahead.start += 5 + 8, ahead.msn += 2;
    }
    ahead.start -= 5 + 8, ahead.msn -= 2;
    ahead.expect_untouched(ahead.segment(0, 5), Reason::kLengths);
}

// What it takes of the switch is the port's, and is given back with the context.
TEST_F(Mixed, Memory) {
    const std::size_t before = host.engine.budget().used();
    announce();
    EXPECT_GT(host.engine.budget().used(), before);
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_LT(host.engine.budget().used(), before);
    EXPECT_EQ(host.engine.qp_create(kQpn, host.qp_cmd()), NUPA_OK);
    EXPECT_EQ(host.engine.budget().used(), before);
}

// A burst goes as one run where its lengths are known, and is cut where they are not.
TEST_F(Mixed, Runs) {
    post(5);
    Wire w(segment(0, all.bytes));
    EXPECT_EQ(host.engine.runs(w.packet), nupa::PortEngine::Runs::kNone);
    announce();
    EXPECT_EQ(host.engine.runs(w.packet), nupa::PortEngine::Runs::kPlaced);
}

}  // namespace
