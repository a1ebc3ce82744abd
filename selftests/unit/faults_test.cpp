// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <random>

#include "engine/faults.hpp"
#include "engine/flow_match.hpp"
#include "host.hpp"

namespace {

using namespace test;
using nupa::FaultConfig;
using nupa::FaultDecision;
using nupa::Faults;

FaultConfig everything(std::uint64_t seed) {
    FaultConfig c;
    c.seed = seed;
    c.loss_ppm = c.duplicate_ppm = c.reorder_ppm = c.corrupt_ppm = c.truncate_ppm = c.bleach_ppm =
        c.mangle_ppm = c.copy_ppm = c.delay_ppm = 100000;
    c.delay_min_ns = 1000, c.delay_max_ns = 5000;
    return c;
}

bool equal(const FaultDecision& a, const FaultDecision& b) {
    return a.lose == b.lose && a.duplicate == b.duplicate && a.corrupt == b.corrupt &&
           a.truncate == b.truncate && a.bleach == b.bleach && a.mangle == b.mangle &&
           a.copy == b.copy && a.mangle_where == b.mangle_where &&
           a.reorder_packets == b.reorder_packets && a.delay_ns == b.delay_ns && a.where == b.where;
}

TEST(Faults, SameSeedSameDecisions) {
    Faults a(everything(5)), b(everything(5)), c(everything(6));
    int different = 0;
    for (int i = 0; i < 5000; i++) {
        const FaultDecision d = a.decide();
        ASSERT_TRUE(equal(d, b.decide()));
        different += !equal(d, c.decide());
    }
    EXPECT_GT(different, 100);
}

TEST(Faults, KindsDoNotShiftEachOther) {
    FaultConfig only_loss;
    only_loss.seed = 5, only_loss.loss_ppm = 100000;
    Faults a(everything(5)), b(only_loss);
    for (int i = 0; i < 5000; i++)
        ASSERT_EQ(a.decide().lose, b.decide().lose);
}

TEST(Faults, Rates) {
    Faults f(everything(1));
    int lose = 0, delay = 0, reorder = 0;
    for (int i = 0; i < 100000; i++) {
        const FaultDecision d = f.decide();
        lose += d.lose;
        delay += d.delay_ns != 0;
        reorder += d.reorder_packets != 0;
        if (d.delay_ns)
            ASSERT_TRUE(d.delay_ns >= 1000 && d.delay_ns <= 5000);
        ASSERT_LE(d.reorder_packets, 8u);
    }
    for (const int n : {lose, delay, reorder})
        EXPECT_NEAR(n, 10000, 500);
}

TEST(Faults, OffAndAlways) {
    Faults off;
    for (int i = 0; i < 100; i++)
        EXPECT_FALSE(off.decide().any());
    FaultConfig c;
    c.loss_ppm = nupa::kPpm;
    Faults always(c);
    for (int i = 0; i < 1000; i++)
        EXPECT_TRUE(always.decide().lose);
}

TEST(Faults, ValidConfigs) {
    EXPECT_TRUE(everything(1).valid());
    FaultConfig c;
    EXPECT_TRUE(c.valid());
    EXPECT_FALSE(c.any());
    c.corrupt_ppm = nupa::kPpm + 1;
    EXPECT_FALSE(c.valid());
    c = {};
    c.delay_min_ns = 2, c.delay_max_ns = 1;
    EXPECT_FALSE(c.valid());
    c = {};
    c.reorder_ppm = 1, c.reorder_packets_max = 0;
    EXPECT_FALSE(c.valid());
    c = {};
    c.delay_ppm = nupa::kPpm, c.delay_max_ns = UINT64_MAX;
    EXPECT_TRUE(c.valid());
    Faults(c).decide();
}

TEST(Random, KnownSequence) {
    // xoshiro256** from its authors' code, seeded by splitmix64(0)
    nupa::Random r(0);
    EXPECT_EQ(r.next(), 0x99ec5f36cb75f2b4u);
    EXPECT_EQ(r.next(), 0xbf6e1f784956452au);
    for (int i = 0; i < 1000; i++)
        EXPECT_LT(r.below(7), 7u);
}

// A flipped bit anywhere is found by the receiver, whatever the checksum state was.
TEST(FaultCorrupt, IsFound) {
    std::mt19937 random(4);
    for (int round = 0; round < 600; round++) {
        Host h;
        h.ack(kRcvNxt);
        h.ring.post({{kIova, 4096, kKey}});
        TcpFrame f = send_segment(kRcvNxt, 0, pattern(200));
        f.checksum = false;
        Wire w(f);
        w.packet.csum = nupa::Csum::kPartial;
        const std::uint64_t bit = 14 * 8 + random() % ((w.packet.bytes() - 14) * 8);
        ASSERT_TRUE(nupa::fault_corrupt(w.packet, bit));
        EXPECT_NE(w.packet.csum, nupa::Csum::kPartial);
        ASSERT_FALSE(h.engine.receive(w.packet).placed()) << bit;
    }
}

TEST(FaultCorrupt, FlipsExactlyOneBit) {
    TcpFrame f;
    f.payload = pattern(100);
    const ByteVector before = f.build();
    for (std::uint64_t where = 0; where < before.size() * 8; where += 5) {
        Wire w(before);
        ASSERT_TRUE(nupa::fault_corrupt(w.packet, where));
        const ByteVector after = bytes_of(w.packet);
        int bits = 0;
        for (std::size_t i = 0; i < after.size(); i++)
            bits += __builtin_popcount(static_cast<unsigned>(after[i] ^ before[i]));
        // A damaged length may make the receiver cut the frame off.
        EXPECT_TRUE(bits == 1 || after.size() < before.size());
        EXPECT_EQ(w.bytes, before);  // the sender's memory is untouched
    }
}

TEST(FaultTruncate, NeverLonger) {
    TcpFrame f;
    f.payload = pattern(100);
    const ByteVector before = f.build();
    for (std::uint64_t where = 0; where < 500; where++) {
        Wire w(before);
        ASSERT_TRUE(nupa::fault_truncate(w.packet, where));
        EXPECT_LT(w.packet.bytes(), before.size());
        EXPECT_FALSE(w.packet.at.tcp());  // IP's length says more than there is
    }
}

TEST(FaultBleach, OptionGoneChecksumRight) {
    for (const bool partial : {false, true}) {
        TcpFrame f = send_segment(kRcvNxt, 0, pattern(77));
        f.options.insert(f.options.begin(), {1});  // and not on a word
        Wire w(f);
        if (partial)
            w.packet.csum = nupa::Csum::kPartial;
        nupa::fault_bleach(w.packet);
        Host h;
        EXPECT_EQ(h.engine.receive(w.packet).reason, nupa::Reason::kPlain);
        w.packet.csum = partial ? nupa::Csum::kPartial : nupa::Csum::kUnknown;
        w.packet.fill_checksums();
        Wire other(bytes_of(w.packet));
        EXPECT_EQ(other.packet.verify(), nupa::Csum::kGood);
    }
}

TEST(FaultBleach, OtherOptionsStay) {
    TcpFrame f;
    f.options = {8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 254, 2};
    Wire w(f);
    nupa::fault_bleach(w.packet);
    EXPECT_EQ(bytes_of(w.packet), f.build());
}

// The option says something else, and TCP's own check does not see it.
TEST(FaultMangle, OneByteOfTheOptionChecksumRight) {
    for (const bool partial : {false, true})
        for (std::uint64_t where = 0; where < 200; where++) {
            TcpFrame f = send_segment(kRcvNxt, 0, pattern(77));
            const ByteVector before = f.build();
            Wire w(f);
            if (partial)
                w.packet.csum = nupa::Csum::kPartial;
            ASSERT_TRUE(nupa::fault_mangle(w.packet, where | where << 32));
            w.packet.fill_checksums();
            const ByteVector after = bytes_of(w.packet);
            unsigned changed = 0;
            for (std::size_t i = 14 + 20 + 20; i < before.size(); i++)
                changed += after[i] != before[i];
            EXPECT_EQ(changed, 1u);
            EXPECT_EQ(after[14 + 20 + 20], std::byte{TCP_BTH_KIND});
            EXPECT_EQ(Wire(after).packet.verify(), nupa::Csum::kGood);
        }
    Wire plain(TcpFrame{});
    EXPECT_FALSE(nupa::fault_mangle(plain.packet, 5));
}

TEST(FaultCopy, AnEarlierOptionOfTheSameFlow) {
    nupa::OptionMemory memory;
    Wire first(send_segment(kRcvNxt, 0, pattern(100))),
        second(send_segment(kRcvNxt, 100, pattern(50)));
    TcpFrame other_flow = send_segment(kRcvNxt, 300, pattern(50));
    other_flow.sport++;
    Wire other(other_flow);
    EXPECT_FALSE(memory.pass(first.packet, true));  // none before it
    EXPECT_FALSE(memory.pass(other.packet, true));  // of its flow
    ASSERT_TRUE(memory.pass(second.packet, true));
    EXPECT_EQ(std::memcmp(first.packet.header.data() + 54, second.packet.header.data() + 54, 24),
              0);
    EXPECT_EQ(Wire(bytes_of(second.packet)).packet.verify(), nupa::Csum::kGood);
    Wire third(send_segment(kRcvNxt, 150, pattern(50)));
    ASSERT_TRUE(memory.pass(third.packet, true));  // what was sent is remembered, not what left
    tcp_bth b;
    ASSERT_EQ(tcp_bth_parse(third.packet.header.data() + 54, 24, 0, 0, &b), TCP_BTH_OK);
    EXPECT_EQ(b.mbo, 100u);
}

TEST(FlowMatch, EachFieldAlone) {
    const nupa::FlowKey flow =
        Wire(send_segment(0, 0, pattern(1))).packet.flow();  // 10.0.0.1:1000 -> .2:2000
    nupa::FlowMatch m;
    EXPECT_TRUE(m.matches(flow));
    EXPECT_FALSE(m.matches(nupa::FlowKey{}));  // not IP
    m.sport = 1000;
    EXPECT_TRUE(m.matches(flow));
    m.dport = 1000;
    EXPECT_FALSE(m.matches(flow));
    m = {};
    m.family = 4, m.daddr = nupa::FlowMatch::Address{10, 0, 0, 2};
    EXPECT_TRUE(m.matches(flow));
    EXPECT_FALSE(m.matches(flow.reversed()));
    m.family = 6;
    EXPECT_FALSE(m.matches(flow));
}

}  // namespace
