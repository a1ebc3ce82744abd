// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/checksum.hpp"
#include "engine/faults.hpp"
#include "frames.hpp"

namespace {

using namespace test;
using nupa::Csum;

TEST(Payload, Slices) {
    const ByteVector a = pattern(10, 1), b = pattern(20, 2), c = pattern(5, 3);
    nupa::Payload whole;
    for (const ByteVector* v : {&a, &b, &c})
        ASSERT_TRUE(whole.push(*v));
    ASSERT_TRUE(whole.push({}));
    EXPECT_EQ(whole.pieces().size(), 3u);
    ByteVector all(35);
    whole.copy_to(all.data());
    for (std::uint32_t at = 0; at <= 35; at++)
        for (std::uint32_t n = 0; n + at <= 35; n++) {
            nupa::Payload part;
            part.slice(whole.pieces(), at, n);
            ASSERT_EQ(part.bytes(), n);
            ByteVector out(n);
            part.copy_to(out.data());
            ASSERT_TRUE(std::equal(out.begin(), out.end(), all.begin() + at));
        }
    whole.truncate(12);
    EXPECT_EQ(whole.bytes(), 12u);
    whole.truncate(100);
    EXPECT_EQ(whole.bytes(), 12u);
}

TEST(Payload, Full) {
    const ByteVector a = pattern(1);
    nupa::Payload p;
    for (std::size_t i = 0; i < nupa::kPayloadSpansMax; i++)
        EXPECT_TRUE(p.push(a));
    EXPECT_FALSE(p.push(a));
    EXPECT_EQ(p.bytes(), nupa::kPayloadSpansMax);
}

class Families : public testing::TestWithParam<int> {};

TEST_P(Families, FilledChecksumIsRight) {
    for (std::size_t n : {0u, 1u, 2u, 99u, 1448u}) {
        TcpFrame f;
        f.family = GetParam(), f.payload = pattern(n);
        const ByteVector right = f.build();
        f.checksum = false;
        Wire w(f);
        w.packet.csum = Csum::kPartial;
        w.packet.fill_checksums();
        EXPECT_EQ(w.packet.csum, Csum::kGood);
        EXPECT_EQ(bytes_of(w.packet), right) << n;
    }
}

TEST_P(Families, DamageIsFound) {
    TcpFrame f;
    f.family = GetParam(), f.payload = pattern(300);
    const ByteVector good = f.build();
    for (std::size_t at = f.l4(); at < good.size(); at += 3) {
        ByteVector v = good;
        v[at] ^= std::byte{0x10};
        Wire w(v);
        if (w.error == nupa::ParseError::kOk && w.packet.at.tcp())
            EXPECT_EQ(w.packet.verify(), Csum::kBad) << at;
    }
    EXPECT_EQ(Wire(good).packet.verify(), Csum::kGood);
}

TEST_P(Families, MarkCe) {
    TcpFrame f;
    f.family = GetParam(), f.tos = 0xb8 | 2;
    Wire w(f);
    EXPECT_TRUE(w.packet.mark_ce());
    EXPECT_EQ(w.packet.at.ip_tos, 0xb8 | 3);
    Wire again(bytes_of(w.packet));
    EXPECT_EQ(again.packet.at.ip_tos, 0xb8 | 3);
    EXPECT_FALSE(again.packet.at.ip_csum_bad);
    f.tos = 0xb8;
    Wire not_capable(f);
    EXPECT_FALSE(not_capable.packet.mark_ce());
    EXPECT_EQ(bytes_of(not_capable.packet), f.build());
}

INSTANTIATE_TEST_SUITE_P(Ip, Families, testing::Values(4, 6));

TEST(Packet, OwnOutlivesTheSender) {
    TcpFrame f;
    f.payload = pattern(500);
    Wire w(f);
    ASSERT_TRUE(w.packet.own());
    EXPECT_EQ(w.packet.payload.pieces().size(), 1u);
    std::fill(w.bytes.begin(), w.bytes.end(), std::byte{0});
    EXPECT_EQ(payload_of(w.packet), f.payload);
    nupa::Packet moved = std::move(w.packet);
    EXPECT_EQ(payload_of(moved), f.payload);
}

TEST(Packet, MaterialisedIsTrueOnTheWire) {
    TcpFrame f;
    f.payload = pattern(500), f.checksum = false;
    Wire w(f);
    w.packet.csum = Csum::kPartial;
    ASSERT_TRUE(w.packet.materialise());
    Wire other(bytes_of(w.packet));
    EXPECT_EQ(other.packet.verify(), Csum::kGood);
}

TEST(Packet, CopyIsIndependent) {
    TcpFrame f;
    f.payload = pattern(64);
    nupa::Packet copy;
    {
        Wire w(f);
        ASSERT_TRUE(nupa::packet_copy(copy, w.packet));
        EXPECT_NE(copy.payload.pieces()[0].data(), w.packet.payload.pieces()[0].data());
    }
    EXPECT_EQ(bytes_of(copy), f.build());
}

}  // namespace
