// SPDX-License-Identifier: BSD-3-Clause
// Segmentation, checksums, merging, RSS and steering, as the driver uses them.
#include <endian.h>

#include <cstring>
#include <map>
#include <set>

#include "two_ports.hpp"

namespace nupa::testing {
namespace {

constexpr uint16_t kOffloadMss = 1448;

// Reads packets until @bytes of payload came; returns the payload and counts packets.
Bytes collect(FakePort& port, size_t bytes, unsigned& packets) {
    Bytes all;
    for (packets = 0; all.size() < bytes; packets++) {
        Bytes whole = port.receive(0).whole();
        auto f = parse_tcp(whole);
        if (!f)
            throw std::runtime_error("not TCP");
        all.insert(all.end(), f->payload.begin(), f->payload.end());
    }
    return all;
}

class OffloadFamily : public ::testing::TestWithParam<bool> {};

TEST_P(OffloadFamily, BurstWithoutMergingArrivesAsRightSegments) {
    Ports p(2, NUPA_RX_MODE_CSUM);
    TcpFrame f = p.frame(0, 1);
    f.v6 = GetParam();
    f.flags = kAck | kPsh;
    f.payload = pattern(5 * kOffloadMss + 100, 3);
    p[0].send(0, build_tcp(f, false), offload(f, kOffloadMss));
    Bytes all;
    for (unsigned i = 0; i < 6; i++) {
        RxPacket packet = p[1].receive(0);
        EXPECT_EQ(packet.comp.gso_size, 0);
        EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_CSUM_OK);
        EXPECT_TRUE(packet.comp.flags & (f.v6 ? NUPA_RX_F_TCP6 : NUPA_RX_F_TCP4));
        Bytes whole = packet.whole();
        EXPECT_TRUE(checksums_right(whole)) << "segment " << i;
        auto got = parse_tcp(whole);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->seq, f.seq + i * kOffloadMss);
        EXPECT_EQ(got->flags, i == 5 ? kAck | kPsh : kAck);
        EXPECT_EQ(got->payload.size(), i == 5 ? 100u : kOffloadMss);
        all.insert(all.end(), got->payload.begin(), got->payload.end());
    }
    EXPECT_EQ(all, f.payload);
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_segments), 6u);
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_packets), 1u);
}

// A checksum somewhere in the payload, as of a tunnel: the switch fills it into a copy of its own,
// which must live until the receiver has it, though frames of the same flow follow at once.
TEST_P(OffloadFamily, CopiesThatTheSwitchMadeOutliveTheirPackets) {
    Ports p(2);
    TcpFrame f = p.frame(0, 1);
    f.v6 = GetParam();
    TxOptions options;
    options.flags = NUPA_TX_F_CSUM;
    options.csum_start = static_cast<uint16_t>(header_bytes(f));
    Bytes sent;
    for (uint32_t i = 0; i < 40; i++) {
        f.payload = pattern(1000, i);
        f.payload[0] = f.payload[1] = 0;
        uint32_t sum = 0;
        for (size_t at = 0; at < f.payload.size(); at++)
            sum += at % 2 ? f.payload[at] : f.payload[at] << 8;
        sum = (sum & 0xffff) + (sum >> 16);
        sum = ~((sum & 0xffff) + (sum >> 16));
        f.payload[0] = static_cast<uint8_t>(sum >> 8), f.payload[1] = static_cast<uint8_t>(sum);
        Bytes frame = build_tcp(f);
        frame[options.csum_start] = frame[options.csum_start + 1u] = 0;
        p[0].stage(0, frame, options);
        sent.insert(sent.end(), f.payload.begin(), f.payload.end());
        f.seq += 1000;
    }
    p[0].publish(0);
    unsigned packets = 0;
    EXPECT_EQ(collect(p[1], sent.size(), packets), sent);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_csum_bad), 0u);
}

TEST_P(OffloadFamily, BurstIsMergedAgain) {
    Ports p(2);
    TcpFrame f = p.frame(0, 1);
    f.v6 = GetParam();
    f.payload = pattern(20 * kOffloadMss + 7, 3);
    p[0].send(0, build_tcp(f, false), offload(f, kOffloadMss));
    RxPacket packet = p[1].receive(0);
    EXPECT_EQ(packet.comp.gso_size, kOffloadMss);
    EXPECT_EQ(packet.comp.gso_segs, 21);
    EXPECT_EQ(packet.comp.payload_bytes, f.payload.size());
    auto got = parse_tcp(packet.whole());
    ASSERT_TRUE(got);
    EXPECT_EQ(got->payload, f.payload);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_merged), 20u);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_segments), 21u);
}

TEST_P(OffloadFamily, LargestBurst) {
    Ports p(2);
    TcpFrame f = p.frame(0, 1);
    f.v6 = GetParam();
    f.payload = pattern(NUPA_TSO_MAX_BYTES - header_bytes(f), 9);
    TxOptions o = offload(f, 8192);
    p[0].send(0, build_tcp(f, false), o);
    unsigned packets = 0;
    EXPECT_EQ(collect(p[1], f.payload.size(), packets), f.payload);
    EXPECT_LT(packets, 24u) << "64 KiB and less each";
}

// As much as there is room for: not all of a run or nothing.
TEST_P(OffloadFamily, WithFewBuffersWhatFitsIsTaken) {
    QueueShape shape;
    shape.fill_entries = 64;
    Ports p(2, kModeAll, shape);
    TcpFrame f = p.frame(0, 1);
    f.v6 = GetParam();
    f.payload = pattern(400 * kOffloadMss, 9);
    p[0].send(0, build_tcp(f, false), offload(f, kOffloadMss));
    p[0].wait_sent(0);
    const uint64_t dropped = p.stat(1, NUPA_STAT_rx_drop_no_buffer);
    unsigned packets = 0;
    const size_t there = (400 - dropped) * kOffloadMss;
    EXPECT_GT(there, 55u * 4096);
    EXPECT_LE(there, 64u * 4096);
    Bytes begin(f.payload.begin(), f.payload.begin() + static_cast<long>(there));
    EXPECT_EQ(collect(p[1], there, packets), begin);
}

INSTANTIATE_TEST_SUITE_P(Ip, OffloadFamily, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "v6" : "v4"; });

TEST(Offload, ChecksumIsFilledForOneFrame) {
    Ports p(2, 0);  // the host asked for no receive checksums: it will look itself
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(1000, 3);
    p[0].send(0, build_tcp(f, false), offload(f));
    RxPacket packet = p[1].receive(0);
    EXPECT_FALSE(packet.comp.flags & NUPA_RX_F_CSUM_OK);
    EXPECT_EQ(packet.whole(), build_tcp(f));
}

TEST(Offload, ChecksumOfForeignFramesIsVerified) {
    Ports p(2);
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(777, 3);
    Bytes good = build_tcp(f);
    p[0].send(0, good);
    EXPECT_TRUE(p[1].receive(0).comp.flags & NUPA_RX_F_CSUM_OK);
    Bytes bad = good;
    bad[100] ^= 1;
    p[0].send(0, bad);
    RxPacket packet = p[1].receive(0);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_CSUM_BAD);
    EXPECT_EQ(packet.whole(), bad) << "delivered: the host decides";
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_csum_bad), 1u);
    p[0].send(0, build_udp(p[1].mac(), p[0].mac(), pattern(99, 1)));
    EXPECT_TRUE(p[1].receive(0).comp.flags & NUPA_RX_F_CSUM_OK);
}

TEST(Offload, InterleavedFlowsStillMerge) {
    Ports p(2);
    constexpr unsigned kFlows = 8;
    constexpr unsigned kSegments = 10;
    std::map<uint16_t, Bytes> sent;
    for (unsigned s = 0; s < kSegments; s++)
        for (uint16_t flow = 0; flow < kFlows; flow++) {
            TcpFrame f = p.frame(0, 1);
            f.sport = static_cast<uint16_t>(5000 + flow);
            f.seq = 1 + s * 1000;
            f.payload = pattern(1000, s * 100 + flow);
            p[0].stage(0, build_tcp(f, false), offload(f));
            sent[f.sport].insert(sent[f.sport].end(), f.payload.begin(), f.payload.end());
        }
    p[0].publish(0);
    std::map<uint16_t, Bytes> got;
    unsigned packets = 0;
    for (size_t bytes = 0; bytes < size_t{kFlows} * kSegments * 1000; packets++) {
        auto f = parse_tcp(p[1].receive(0).whole());
        ASSERT_TRUE(f);
        ASSERT_EQ(f->seq, 1 + got[f->sport].size()) << "a flow's bytes stay in order";
        got[f->sport].insert(got[f->sport].end(), f->payload.begin(), f->payload.end());
        bytes += f->payload.size();
    }
    EXPECT_EQ(got, sent);
    EXPECT_LE(packets, 2 * kFlows) << "80 segments, at most two bursts of 64";
}

TEST(Offload, MoreFlowsThanMergesAreDeliveredWhole) {
    Ports p(2);
    constexpr unsigned kFlows = 60;
    for (uint16_t flow = 0; flow < kFlows; flow++) {
        TcpFrame f = p.frame(0, 1);
        f.sport = static_cast<uint16_t>(5000 + flow);
        f.payload = pattern(300, flow);
        p[0].stage(0, build_tcp(f, false), offload(f));
    }
    p[0].publish(0);
    std::set<uint16_t> seen;
    for (unsigned i = 0; i < kFlows; i++) {
        auto f = parse_tcp(p[1].receive(0).whole());
        ASSERT_TRUE(f);
        EXPECT_EQ(f->payload, pattern(300, f->sport - 5000u));
        seen.insert(f->sport);
    }
    EXPECT_EQ(seen.size(), kFlows);
}

TEST(Offload, StrictSplitKeepsTcpPayloadOutOfTheSlot) {
    QueueShape shape;
    shape.flags = NUPA_RXQ_F_STRICT_SPLIT;
    Ports p(2, kModeAll, shape);
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(10, 1);
    p[0].send(0, build_tcp(f, false), offload(f));
    RxPacket packet = p[1].receive(0);
    EXPECT_EQ(packet.comp.header_bytes, header_bytes(f));
    EXPECT_EQ(packet.comp.bufs, 1);
    EXPECT_EQ(packet.payload, f.payload);
}

// Microsoft's verification key and one of its published vectors.
constexpr uint8_t kRssKey[NUPA_RSS_KEY_BYTES] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

nupa_admin_cmd rss_command(FakePort& port, unsigned queues) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_RSS;
    std::memcpy(cmd.rss.key, kRssKey, sizeof(kRssKey));
    cmd.rss.table_addr = port.alloc(NUPA_RSS_TABLE_ENTRIES, 64);
    for (unsigned i = 0; i < NUPA_RSS_TABLE_ENTRIES; i++)
        port.ram(cmd.rss.table_addr)[i] = static_cast<uint8_t>(i % queues);
    return cmd;
}

TEST(Offload, RssHashesAndSpreads) {
    Ports p(2, kModeAll, {}, 4);
    p[1].must(rss_command(p[1], 4));
    TcpFrame f = p.frame(0, 1);
    f.saddr = 0x420995bb;  // 66.9.149.187:2794 -> 161.142.100.80:1766: 0x51ccc178
    f.sport = 2794;
    f.daddr = 0xa18e6450;
    f.dport = 1766;
    f.payload = pattern(10, 1);
    p[0].send(0, build_tcp(f, false), offload(f));
    RxPacket packet = p[1].receive(0x51ccc178 % NUPA_RSS_TABLE_ENTRIES % 4);
    EXPECT_EQ(packet.comp.hash, 0x51ccc178u);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_HASH_L4);

    for (uint16_t i = 0; i < 64; i++) {
        f.sport = static_cast<uint16_t>(10000 + i);
        p[0].stage(0, build_tcp(f, false), offload(f));
    }
    p[0].publish(0);
    p[0].wait_sent(0);
    for (unsigned q = 0; q < 4; q++)
        EXPECT_TRUE(p[1].try_receive(q)) << "queue " << q << " got nothing of 64 flows";
}

TEST(Offload, RssTableWithUnknownQueueIsRefused) {
    Ports p(1);
    nupa_admin_cmd cmd = rss_command(p[0], 4);
    p[0].ram(cmd.rss.table_addr)[77] = 4;  // queue pairs are 0 to 3
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.rss.table_addr = 1ull << 40;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_ADDRESS);
}

TEST(Offload, SteeringRulesChooseTheQueue) {
    Ports p(2, kModeAll, {}, 4);
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(10, 1);
    nupa_admin_cmd exact{};
    exact.op = NUPA_ADMIN_STEER_ADD;
    exact.id = 7;
    exact.steer.flow.family = 4;
    exact.steer.flow.sport = htobe16(f.sport);
    exact.steer.flow.dport = htobe16(f.dport);
    uint32_t saddr = htobe32(f.saddr), daddr = htobe32(f.daddr);
    std::memcpy(exact.steer.flow.saddr, &saddr, 4);
    std::memcpy(exact.steer.flow.daddr, &daddr, 4);
    exact.steer.queue = 3;
    p[1].must(exact);
    nupa_admin_cmd wild = exact;
    wild.id = 8;
    wild.steer.wildcards = NUPA_STEER_ANY_SPORT | NUPA_STEER_ANY_SADDR | NUPA_STEER_ANY_DADDR;
    wild.steer.queue = 2;
    p[1].must(wild);
    EXPECT_EQ(p[1].admin_status(wild), NUPA_E_EXISTS);

    p[0].send(0, build_tcp(f, false), offload(f));
    p[1].receive(3);
    f.sport++;
    p[0].send(0, build_tcp(f, false), offload(f));
    p[1].receive(2);
    f.dport++;
    p[0].send(0, build_tcp(f, false), offload(f));
    p[1].receive(0);  // no rule: the RSS table, all zero before anyone set it

    f.sport--, f.dport--;
    nupa_admin_cmd del{};
    del.op = NUPA_ADMIN_STEER_DEL;
    del.id = 7;
    p[1].must(del);
    EXPECT_EQ(p[1].admin_status(del), NUPA_E_NOENT);
    p[0].send(0, build_tcp(f, false), offload(f));
    p[1].receive(2);  // the wildcard rule takes over
    wild.id = 9;
    wild.steer.queue = 4;
    EXPECT_EQ(p[1].admin_status(wild), NUPA_E_INVALID);
}

TEST(Offload, PacketForAQueueThatIsNotThereIsCounted) {
    Ports p(2);
    nupa_admin_cmd cmd = rss_command(p[1], 1);
    std::memset(p[1].ram(cmd.rss.table_addr), 2, NUPA_RSS_TABLE_ENTRIES);
    p[1].must(cmd);
    TcpFrame f = p.frame(0, 1);
    p[0].send(0, build_tcp(f, false), offload(f));
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_drop_no_queue), 1u);
}

}  // namespace
}  // namespace nupa::testing
