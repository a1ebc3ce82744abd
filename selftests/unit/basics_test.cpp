// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

#include "engine/checksum.hpp"
#include "engine/crc32.hpp"
#include "engine/endian.hpp"
#include "engine/reason.hpp"
#include "engine/rss.hpp"
#include "engine/stats.hpp"
#include "frames.hpp"
#include "guest.hpp"

namespace {

using namespace test;

TEST(HostMemory, EdgesOfRegions) {
    std::vector<std::byte> low(4096), high(8192);
    nupa::HostMemory m;
    ASSERT_TRUE(m.add(0x1000, low));
    ASSERT_TRUE(m.add(kHighRam, high));
    EXPECT_EQ(m.at(0x1000, 4096), low.data());
    EXPECT_EQ(m.at(0x1fff, 1), low.data() + 4095);
    EXPECT_EQ(m.at(kHighRam + 8000, 192), high.data() + 8000);
    EXPECT_EQ(m.at(0xfff, 1), nullptr);
    EXPECT_EQ(m.at(0xfff, 2), nullptr);
    EXPECT_EQ(m.at(0x2000, 1), nullptr);
    EXPECT_EQ(m.at(0x1fff, 2), nullptr);
    EXPECT_EQ(m.at(0x1000, 0), nullptr);
    EXPECT_EQ(m.at(0x1800, UINT64_MAX), nullptr);  // the sum wraps
    EXPECT_EQ(m.at(UINT64_MAX, 0x1002), nullptr);
    EXPECT_EQ(m.at(kHighRam - 1, 2), nullptr);
}

TEST(HostMemory, RefusesBadRegions) {
    std::vector<std::byte> a(4096), b(4096);
    nupa::HostMemory m;
    EXPECT_FALSE(m.add(0, {}));
    EXPECT_FALSE(m.add(UINT64_MAX - 4094, a));
    EXPECT_TRUE(m.add(UINT64_MAX - 4095, a));  // up to the very last byte
    EXPECT_NE(m.at(UINT64_MAX, 1), nullptr);
    EXPECT_TRUE(m.add(0x1000, b));
    EXPECT_FALSE(m.add(0x1fff, a));
    EXPECT_FALSE(m.add(1, a));
    for (std::size_t i = 2; i < nupa::kMemoryRegionsMax; i++)
        EXPECT_TRUE(m.add(0x10000 * i, a));
    EXPECT_FALSE(m.add(0x900000, a));
}

TEST(Checksum, AnySplitGivesTheSameSum) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; round++) {
        std::vector<std::uint8_t> v(random() % 300);
        for (auto& x : v)
            x = static_cast<std::uint8_t>(random());
        nupa::ChecksumSum sum;
        for (std::size_t at = 0; at < v.size();) {
            const std::size_t n = std::min<std::size_t>(v.size() - at, random() % 80);
            sum.add(v.data() + at, n);
            at += n;
        }
        ASSERT_EQ(sum.checksum(), reference_checksum(v)) << v.size();
    }
}

TEST(Checksum, LargeSumsDoNotOverflow) {
    const std::vector<std::byte> ones(1 << 20, std::byte{0xff});
    nupa::ChecksumSum sum;
    for (int i = 0; i < 64; i++)
        sum.add(ones);
    EXPECT_EQ(sum.folded(), 0xffff);
}

TEST(Checksum, IncrementalEqualsFull) {
    std::mt19937 random(2);
    for (int round = 0; round < 5000; round++) {
        std::vector<std::uint8_t> v(40);
        for (auto& x : v)
            x = static_cast<std::uint8_t>(random());
        const std::uint16_t before = reference_checksum(v);
        const std::size_t at = random() % 9 * 4;
        const std::uint32_t from = nupa::get_be32(&v[at]),
                            to = static_cast<std::uint32_t>(random());
        nupa::put_be32(&v[at], to);
        ASSERT_EQ(nupa::checksum_update32(before, from, to), reference_checksum(v));
    }
}

TEST(Checksum, Ipv4Header) {
    // RFC 1071 style example: 45 00 00 73 00 00 40 00 40 11 b8 61 c0 a8 00 01 c0 a8 00 c7
    const std::uint8_t ip[] = {0x45, 0,    0,    0x73, 0, 0, 0x40, 0,    0x40, 0x11,
                               0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,    0xc7};
    EXPECT_EQ(nupa::ipv4_header_checksum(ip, sizeof ip), 0xb861);
}

TEST(Crc32, EqualsZlib) {
    std::mt19937 random(3);
    const ByteVector data = pattern(5000);
    EXPECT_EQ(nupa::crc32(0, {reinterpret_cast<const std::byte*>("123456789"), 9}), 0xcbf43926u);
    for (int round = 0; round < 3000; round++) {
        const std::size_t at = random() % 1000, n = random() % (data.size() - at);
        const std::uint32_t seed = static_cast<std::uint32_t>(round % 2 ? random() : 0);
        ASSERT_EQ(
            nupa::crc32(seed, {data.data() + at, n}),
            ::crc32(seed, reinterpret_cast<const Bytef*>(data.data() + at), static_cast<uInt>(n)));
    }
}

TEST(Crc32, Continues) {
    const ByteVector data = pattern(1000);
    for (const std::size_t cut : {0u, 1u, 15u, 64u, 500u, 1000u})
        EXPECT_EQ(
            nupa::crc32(nupa::crc32(0, {data.data(), cut}), {data.data() + cut, data.size() - cut}),
            nupa::crc32(0, data));
}

// Microsoft's verification suite for RSS: IPv4 and IPv6 with and without ports.
TEST(Rss, VerificationSuite) {
    const nupa::Rss& rss = nupa::Rss::standard();
    nupa::FlowKey v4;
    v4.raw.family = 4;
    const auto set4 = [](std::uint8_t(&a)[16], std::uint32_t ip) { tcp_bth_put32(a, ip); };
    set4(v4.raw.saddr, 0x420995bb),
        set4(v4.raw.daddr, 0xa18e6450);  // 66.9.149.187 -> 161.142.100.80
    v4.raw.sport = __builtin_bswap16(2794), v4.raw.dport = __builtin_bswap16(1766);
    EXPECT_EQ(rss.hash(v4, true), 0x51ccc178u);
    EXPECT_EQ(rss.hash(v4, false), 0x323e8fc2u);
    nupa::FlowKey v6;
    v6.raw.family = 6;
    const std::uint8_t to[16] = {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03,
                                 0,    0,    0,    0,    0,    0,    0,    1};
    const std::uint8_t from[16] = {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff,
                                   0,    0,    0,    0,    0,    0,    0,    7};
    memcpy(v6.raw.saddr, from, 16), memcpy(v6.raw.daddr, to, 16);
    v6.raw.sport = __builtin_bswap16(2794), v6.raw.dport = __builtin_bswap16(1766);
    EXPECT_EQ(rss.hash(v6, true), 0x40207d3du);
    EXPECT_EQ(rss.hash(v6, false), 0x2cc18cd5u);
}

TEST(Rss, TablePicksTheQueue) {
    nupa::Rss rss = nupa::Rss::standard();
    std::array<std::uint8_t, NUPA_RSS_TABLE_ENTRIES> table;
    for (std::size_t i = 0; i < table.size(); i++)
        table[i] = static_cast<std::uint8_t>(i % 5);
    rss.set_table(table);
    EXPECT_EQ(rss.queue(0), 0);
    EXPECT_EQ(rss.queue(128 + 6), 1);
    EXPECT_EQ(rss.queue(0xffffffff), 127 % 5);
    std::array<std::uint8_t, NUPA_RSS_KEY_BYTES> zero{};
    rss.set_key(zero);
    nupa::FlowKey flow;
    flow.raw.family = 4, flow.raw.saddr[0] = 9;
    EXPECT_EQ(rss.hash(flow, true), 0u);
}

TEST(Names, OnePerNumber) {
    EXPECT_STREQ(nupa::stat_name(NUPA_STAT_placed_bytes), "placed_bytes");
    EXPECT_EQ(nupa::stat_name(NUPA_STAT_COUNT), nullptr);
    EXPECT_STREQ(nupa::qp_stat_name(NUPA_QP_STAT_refused), "refused");
    EXPECT_EQ(nupa::qp_stat_name(NUPA_QP_STAT_COUNT), nullptr);
    nupa_stat stat;
    EXPECT_FALSE(nupa::reason_stat(nupa::Reason::kPlaced, stat));
    EXPECT_TRUE(nupa::reason_stat(nupa::Reason::kNoReceive, stat));
    EXPECT_EQ(stat, NUPA_STAT_deliver_no_receive);
    EXPECT_STREQ(nupa::reason_name(nupa::Reason::kBounds), "bounds");
}

}  // namespace
