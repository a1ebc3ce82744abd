// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <random>

#include "frames.hpp"

namespace {

using namespace test;
using nupa::Csum;
using nupa::L4;
using nupa::ParseError;

TEST(Parse, Tcp4) {
    TcpFrame f;
    f.seq = 0x01020304, f.ack = 0x05060708, f.flags = nupa::kTcpAck | nupa::kTcpPsh, f.window = 77,
    f.tos = 2;
    f.options = {8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1};
    f.payload = pattern(100);
    Wire w(f);
    ASSERT_EQ(w.error, ParseError::kOk);
    const nupa::Headers& at = w.packet.at;
    EXPECT_EQ(at.family, 4);
    EXPECT_EQ(at.l4, L4::kTcp);
    EXPECT_EQ(at.l3_at, 14);
    EXPECT_EQ(at.l4_at, 34);
    EXPECT_EQ(at.options_at, 54);
    EXPECT_EQ(at.option_bytes(), 12);
    EXPECT_EQ(at.header_bytes, 66);
    EXPECT_EQ(at.seq, f.seq);
    EXPECT_EQ(at.ack, f.ack);
    EXPECT_EQ(at.window, 77);
    EXPECT_EQ(at.tcp_flags, f.flags);
    EXPECT_EQ(at.ip_tos, 2);
    EXPECT_FALSE(at.ip_csum_bad);
    EXPECT_EQ(payload_of(w.packet), f.payload);
    EXPECT_EQ(w.packet.csum, Csum::kUnknown);
    EXPECT_EQ(w.packet.verify(), Csum::kGood);
}

TEST(Parse, Tcp6WithVlan) {
    TcpFrame f;
    f.family = 6, f.vlan = true, f.tos = 0x2e, f.payload = pattern(33);
    Wire w(f);
    ASSERT_EQ(w.error, ParseError::kOk);
    EXPECT_EQ(w.packet.at.l3_at, 18);
    EXPECT_EQ(w.packet.at.l4_at, 58);
    EXPECT_EQ(w.packet.at.ip_tos, 0x2e);
    EXPECT_EQ(w.packet.verify(), Csum::kGood);
    EXPECT_EQ(payload_of(w.packet), f.payload);
    const nupa::FlowKey key = w.packet.flow();
    EXPECT_EQ(key.raw.family, 6);
    EXPECT_EQ(key.raw.saddr[15], 1);
    EXPECT_EQ(key.raw.daddr[15], 2);
    EXPECT_EQ(key.raw.sport, __builtin_bswap16(1000));
}

TEST(Parse, PaddingIsCutOff) {
    TcpFrame f;
    f.payload = pattern(2);
    ByteVector bytes = f.build();
    bytes.resize(60, std::byte{0xaa});  // Ethernet's minimum
    Wire w(bytes);
    ASSERT_EQ(w.error, ParseError::kOk);
    EXPECT_EQ(payload_of(w.packet), f.payload);
    EXPECT_EQ(w.packet.verify(), Csum::kGood);
}

TEST(Parse, HeaderOverManyBuffers) {
    TcpFrame f;
    f.payload = pattern(50);
    const ByteVector bytes = f.build();
    std::vector<nupa::Bytes> pieces;
    for (std::size_t at = 0; at < bytes.size(); at += 7)
        pieces.push_back({bytes.data() + at, std::min<std::size_t>(7, bytes.size() - at)});
    ASSERT_LE(pieces.size(), nupa::kPayloadSpansMax);
    nupa::Packet p;
    ASSERT_EQ(p.assign(pieces), ParseError::kOk);
    EXPECT_EQ(payload_of(p), f.payload);
    EXPECT_EQ(bytes_of(p), bytes);
}

TEST(Parse, TooManyBuffers) {
    const ByteVector bytes(100);
    const std::vector<nupa::Bytes> pieces(nupa::kPayloadSpansMax + 1, nupa::Bytes{bytes.data(), 5});
    nupa::Packet p;
    EXPECT_EQ(p.assign(pieces), ParseError::kTruncated);
    EXPECT_EQ(p.bytes(), 0u);
}

TEST(Parse, ShorterThanEthernet) {
    for (std::size_t n = 0; n < 14; n++) {
        Wire w{ByteVector(n)};
        EXPECT_EQ(w.error, ParseError::kTruncated);
        EXPECT_EQ(w.packet.bytes(), 0u);
    }
}

TEST(Parse, NotIpIsOpaque) {
    ByteVector arp(60);
    arp[12] = std::byte{8}, arp[13] = std::byte{6};
    Wire w(arp);
    EXPECT_EQ(w.error, ParseError::kOk);
    EXPECT_EQ(w.packet.at.header_bytes, 14);
    EXPECT_EQ(w.packet.csum, Csum::kNone);
    EXPECT_FALSE(w.packet.has_flow());
    EXPECT_EQ(bytes_of(w.packet), arp);
}

void expect_opaque(const ByteVector& bytes, ParseError error) {
    Wire w(bytes);
    EXPECT_EQ(w.error, error);
    EXPECT_EQ(w.packet.at.family, 0);
    EXPECT_FALSE(w.packet.at.tcp());
    EXPECT_EQ(w.packet.verify(), Csum::kNone);
    EXPECT_EQ(bytes_of(w.packet), bytes);  // forwarded as it came
}

TEST(Parse, BrokenIpv4) {
    TcpFrame f;
    f.payload = pattern(20);
    ByteVector v = f.build();
    v[14] = std::byte{0x55};
    expect_opaque(v, ParseError::kIpHeader);
    v[14] = std::byte{0x44};  // header of 16 bytes
    expect_opaque(v, ParseError::kIpHeader);
    f.length_error = 1;  // longer than the frame
    expect_opaque(f.build(), ParseError::kIpHeader);
    f.length_error = -61;  // shorter than the IP header
    expect_opaque(f.build(), ParseError::kIpHeader);
    f.length_error = -21;  // shorter than IP and TCP headers
    expect_opaque(f.build(), ParseError::kTruncated);
}

TEST(Parse, BigTcpLengthZeroIsOnlyForBursts) {
    TcpFrame f;
    f.payload = pattern(20);
    f.length_error = -60;  // 20 + 20 + 20 bytes: zero
    const ByteVector v = f.build();
    expect_opaque(v, ParseError::kIpHeader);
    const nupa::Bytes all{v.data(), v.size()};
    nupa::Packet p;
    EXPECT_EQ(p.assign({&all, 1}, nupa::ParseMode::kTso), ParseError::kOk);
    EXPECT_EQ(p.payload.bytes(), 20u);
}

TEST(Parse, BrokenTcp) {
    TcpFrame f;
    ByteVector v = f.build();
    v[34 + 12] = std::byte{0x40};  // 16 bytes
    expect_opaque(v, ParseError::kL4Header);
    v[34 + 12] = std::byte{0xf0};  // beyond the datagram
    expect_opaque(v, ParseError::kL4Header);
}

TEST(Parse, BrokenIpv6) {
    TcpFrame f;
    f.family = 6;
    f.length_error = 1;
    expect_opaque(f.build(), ParseError::kIpHeader);
    f.length_error = -1;
    expect_opaque(f.build(), ParseError::kTruncated);
}

TEST(Parse, IpChecksum) {
    TcpFrame f;
    ByteVector v = f.build();
    v[14 + 8] ^= std::byte{1};
    Wire w(v);
    EXPECT_TRUE(w.packet.at.ip_csum_bad);
}

TEST(Parse, Fragments) {
    TcpFrame f;
    f.seq = 4711, f.fragment = 0x2000, f.payload = pattern(64);
    Wire first(f);
    ASSERT_EQ(first.error, ParseError::kOk);
    EXPECT_TRUE(first.packet.at.fragment);
    EXPECT_TRUE(first.packet.at.first_fragment);
    EXPECT_TRUE(first.packet.has_flow());
    EXPECT_FALSE(first.packet.at.tcp());
    EXPECT_EQ(first.packet.at.seq, 4711u);
    EXPECT_EQ(first.packet.verify(), Csum::kNone);
    f.fragment = 0x0010;
    Wire later(f);
    EXPECT_TRUE(later.packet.at.fragment);
    EXPECT_FALSE(later.packet.has_flow());
    EXPECT_EQ(later.packet.flow().raw.sport, 0);
    EXPECT_EQ(later.packet.flow().raw.family, 4);
}

// @header goes between IPv6 and TCP; its first byte is set to TCP.
ByteVector behind(TcpFrame f, std::uint8_t type, std::vector<std::uint8_t> header) {
    f.family = 6;
    f.length_error = static_cast<int>(header.size());
    ByteVector v = f.build();
    v[20] = static_cast<std::byte>(type);
    header[0] = 6;
    const auto* p = reinterpret_cast<const std::byte*>(header.data());
    v.insert(v.begin() + 54, p, p + header.size());
    return v;
}

TEST(Parse, Ipv6Extensions) {
    TcpFrame f;
    f.seq = 4711, f.payload = pattern(64);
    for (const std::uint8_t type : {0, 43, 60}) {
        Wire w(behind(f, type, {0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        ASSERT_EQ(w.error, ParseError::kOk);
        EXPECT_TRUE(w.packet.at.tcp());
        EXPECT_EQ(w.packet.at.l4_at, 70);
        EXPECT_EQ(w.packet.at.seq, 4711u);
        EXPECT_EQ(payload_of(w.packet), f.payload);
        EXPECT_EQ(w.packet.verify(), Csum::kGood);
    }
    Wire unknown(behind(f, 51, {0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_FALSE(unknown.packet.has_flow());
    Wire too_long(behind(f, 60, {0, 200, 0, 0, 0, 0, 0, 0}));
    EXPECT_FALSE(too_long.packet.has_flow());
}

TEST(Parse, Ipv6Fragments) {
    TcpFrame f;
    f.seq = 4711, f.payload = pattern(64);
    Wire first(behind(f, 44, {0, 0, 0, 1, 9, 9, 9, 9}));
    EXPECT_TRUE(first.packet.at.first_fragment);
    EXPECT_TRUE(first.packet.has_flow());
    EXPECT_FALSE(first.packet.at.tcp());
    EXPECT_EQ(first.packet.at.seq, 4711u);
    EXPECT_EQ(first.packet.verify(), Csum::kNone);
    Wire later(behind(f, 44, {0, 0, 0, 16, 9, 9, 9, 9}));
    EXPECT_TRUE(later.packet.at.fragment);
    EXPECT_FALSE(later.packet.has_flow());
}

ByteVector udp(std::uint16_t length, std::uint16_t check) {
    TcpFrame f;
    f.checksum = false;
    ByteVector v = f.build();  // 20 bytes behind the IP header are enough
    v[14 + 9] = std::byte{17};
    std::vector<std::uint8_t> ip(20);
    std::memcpy(ip.data(), v.data() + 14, 20);
    ip[10] = ip[11] = 0;
    const std::uint16_t sum = reference_checksum(ip);
    v[14 + 10] = static_cast<std::byte>(sum >> 8), v[14 + 11] = static_cast<std::byte>(sum);
    v[38] = static_cast<std::byte>(length >> 8), v[39] = static_cast<std::byte>(length);
    v[40] = static_cast<std::byte>(check >> 8), v[41] = static_cast<std::byte>(check);
    return v;
}

TEST(Parse, Udp) {
    Wire w(udp(20, 0));
    ASSERT_EQ(w.error, ParseError::kOk);
    EXPECT_EQ(w.packet.at.l4, L4::kUdp);
    EXPECT_EQ(w.packet.at.header_bytes, 42);
    EXPECT_EQ(w.packet.verify(), Csum::kNone);  // zero: no checksum
    Wire bad(udp(20, 0x1234));
    EXPECT_EQ(bad.packet.verify(), Csum::kBad);
    EXPECT_EQ(Wire(udp(21, 0)).error, ParseError::kL4Header);
    EXPECT_EQ(Wire(udp(7, 0)).error, ParseError::kL4Header);
}

// Any bytes at all: lengths add up, nothing is read outside (ASan builds prove that).
TEST(Parse, RandomBytes) {
    std::mt19937 random(99);
    TcpFrame four, six;
    four.payload = six.payload = pattern(40);
    six.family = 6;
    const ByteVector seeds[] = {four.build(), six.build()};
    for (int round = 0; round < 200000; round++) {
        ByteVector v = seeds[round % 2];
        for (unsigned i = random() % 6; i > 0; i--)
            v[random() % v.size()] = static_cast<std::byte>(random());
        v.resize(random() % (v.size() + 1));
        v.shrink_to_fit();
        for (const auto mode : {nupa::ParseMode::kWire, nupa::ParseMode::kTso}) {
            const nupa::Bytes all{v.data(), v.size()};
            nupa::Packet p;
            p.assign({&all, 1}, mode);
            ASSERT_LE(p.bytes(), v.size());
            ASSERT_LE(p.at.header_bytes, nupa::kHeaderMaxBytes);
            ASSERT_LE(p.at.options_at, p.at.header_bytes);
            p.verify();
            p.flow();
            const ByteVector out = bytes_of(p);
            ASSERT_TRUE(std::equal(out.begin(), out.end(), v.begin()));
        }
    }
}

}  // namespace
