// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include "engine/endian.hpp"
#include "engine/icrc.hpp"
#include "engine/segment.hpp"
#include "engine/transmit.hpp"
#include "frames.hpp"

namespace {

using namespace test;
using nupa::Csum;

// A burst in memory, its payload in pieces of @piece bytes as skb frags are.
struct Burst {
    ByteVector bytes;
    std::vector<nupa::Bytes> bufs;
    nupa::Packet packet;

    Burst(const TcpFrame& f, std::uint16_t mss, std::size_t piece = 32768,
          std::uint16_t extra_flags = 0)
        : bytes(f.build()) {
        bufs.push_back({bytes.data(), f.header_bytes()});
        for (std::size_t at = 0; at < f.payload.size(); at += piece)
            bufs.push_back(
                {bytes.data() + f.header_bytes() + at, std::min(piece, f.payload.size() - at)});
        nupa_tx_ctx ctx{};
        const int tso = f.family == 4 ? NUPA_TX_F_TSO4 : NUPA_TX_F_TSO6;
        ctx.flags = static_cast<__le16>((mss ? tso | NUPA_TX_F_CSUM : 0) | extra_flags);
        ctx.bufs = static_cast<__le16>(bufs.size());
        ctx.bytes = static_cast<__le32>(bytes.size());
        ctx.mss = mss;
        ctx.header_bytes = static_cast<__le16>(f.header_bytes());
        ctx.csum_start = static_cast<__le16>(f.l4()), ctx.csum_offset = 16;
        EXPECT_EQ(packet_from_tx(packet, ctx, bufs), nupa::TxError::kOk);
    }
};

tcp_bth v1_option(std::uint32_t start, std::uint32_t length,
                  std::uint8_t opcode = TCP_BTH_OP_SEND_ONLY, unsigned ext = 0) {
    tcp_bth b{};
    b.ver = 1, b.opcode = opcode, b.msn = 9, b.start_seq = start, b.length = length;
    b.flags = TCP_BTH_F_TIMESTAMP, b.tsval = 0x11111111, b.tsecr = 0x22222222;
    b.ext_bytes = static_cast<__u8>(ext), b.ext4 = 0x33333333, b.va = 0x4444444455555555,
    b.rkey = 6, b.dma_length = opcode == TCP_BTH_OP_WRITE_ONLY_IMM ? 0x77777777 : length;
    return b;
}

// The segment as it would travel on a wire.
struct Cut {
    ByteVector bytes;
    tcp_bth bth{};
    tcp_bth_error error;
};

std::vector<Cut> cut(const nupa::Packet& packet, nupa::TxRewrite rewrite = {}) {
    std::vector<Cut> out;
    nupa::Cutter cutter(packet, rewrite);
    nupa::Packet s;
    while (cutter.next(s)) {
        s.fill_checksums();
        Cut c;
        c.bytes = bytes_of(s);
        Wire w(c.bytes);
        EXPECT_EQ(w.error, nupa::ParseError::kOk);
        EXPECT_EQ(w.packet.verify(), Csum::kGood);
        EXPECT_FALSE(w.packet.at.ip_csum_bad);
        EXPECT_EQ(w.packet.at.seq, s.at.seq);
        EXPECT_EQ(w.packet.at.tcp_flags, s.at.tcp_flags);
        EXPECT_EQ(w.packet.at.header_bytes, s.at.header_bytes);
        c.error = tcp_bth_find(w.packet.header.data() + w.packet.at.options_at,
                               w.packet.at.option_bytes(), w.packet.at.seq,
                               w.packet.payload.bytes(), &c.bth, nullptr);
        out.push_back(std::move(c));
    }
    EXPECT_EQ(out.size(), cutter.segments());
    EXPECT_FALSE(cutter.next(s));
    return out;
}

class CutFamilies : public testing::TestWithParam<int> {};

TEST_P(CutFamilies, SequenceFlagsAndBytes) {
    TcpFrame f;
    f.family = GetParam(), f.payload = pattern(10001), f.seq = 0xfffffff0, f.id = 0xfffe;
    f.flags = nupa::kTcpAck | nupa::kTcpPsh | nupa::kTcpFin | nupa::kTcpCwr;
    Burst b(f, 1448, 999, NUPA_TX_F_ECN);
    const auto cuts = cut(b.packet);
    ASSERT_EQ(cuts.size(), 7u);
    ByteVector whole;
    for (std::size_t i = 0; i < cuts.size(); i++) {
        Wire w(cuts[i].bytes);
        EXPECT_EQ(w.packet.at.seq, static_cast<std::uint32_t>(f.seq + 1448 * i));
        const ByteVector p = payload_of(w.packet);
        EXPECT_EQ(p.size(), i == 6 ? 10001u - 6 * 1448 : 1448u);
        whole.insert(whole.end(), p.begin(), p.end());
        const std::uint8_t expected = nupa::kTcpAck | (i == 6 ? nupa::kTcpPsh | nupa::kTcpFin : 0) |
                                      (i == 0 ? nupa::kTcpCwr : 0);
        EXPECT_EQ(w.packet.at.tcp_flags, expected) << i;
        if (f.family == 4)
            EXPECT_EQ(nupa::get_be16(w.packet.header.data() + 18),
                      static_cast<std::uint16_t>(0xfffe + i));
    }
    EXPECT_EQ(whole, f.payload);
}

TEST_P(CutFamilies, BurstOf64KiBAtMtu1500) {
    TcpFrame f;
    f.family = GetParam(), f.payload = pattern(65160);
    EXPECT_EQ(cut(Burst(f, 1448).packet).size(), 45u);
}

TEST_P(CutFamilies, ShorterThanOneSegment) {
    TcpFrame f;
    f.family = GetParam(), f.payload = pattern(10);
    const auto cuts = cut(Burst(f, 1448).packet);
    ASSERT_EQ(cuts.size(), 1u);
    EXPECT_EQ(cuts[0].bytes, f.build());
}

INSTANTIATE_TEST_SUITE_P(Ip, CutFamilies, testing::Values(4, 6));

TEST(Cutter, BigTcpOf1MiB) {
    TcpFrame f;
    f.payload = pattern(NUPA_TSO_MAX_BYTES - 54);
    f.length_error = -(20 + 20 + static_cast<int>(f.payload.size()));  // tot_len 0
    ByteVector whole;
    for (const Cut& c : cut(Burst(f, 8960, 65536).packet)) {
        const ByteVector p = payload_of(Wire(c.bytes).packet);
        whole.insert(whole.end(), p.begin(), p.end());
    }
    EXPECT_EQ(whole, f.payload);
}

TEST(Cutter, JumbogramHeaderIsRemoved) {
    TcpFrame f;
    f.family = 6, f.payload = pattern(70000), f.checksum = false;
    ByteVector v = f.build();
    const std::uint8_t hop[8] = {6, 0, 0xc2, 4, 0, 1, 0x11, 0x90};
    v[20] = std::byte{0};  // next header: hop by hop
    v.insert(v.begin() + 54, reinterpret_cast<const std::byte*>(hop),
             reinterpret_cast<const std::byte*>(hop) + 8);
    const nupa::Bytes bufs[] = {{v.data(), 82}, {v.data() + 82, v.size() - 82}};
    nupa_tx_ctx ctx{};
    ctx.flags = NUPA_TX_F_TSO6, ctx.bufs = 2, ctx.bytes = static_cast<__le32>(v.size()),
    ctx.mss = 1428, ctx.header_bytes = 82;
    nupa::Packet p;
    ASSERT_EQ(packet_from_tx(p, ctx, bufs), nupa::TxError::kOk);
    ByteVector whole;
    for (const Cut& c : cut(p)) {
        Wire w(c.bytes);
        EXPECT_EQ(w.packet.at.header_bytes, 74);
        const ByteVector part = payload_of(w.packet);
        whole.insert(whole.end(), part.begin(), part.end());
    }
    EXPECT_EQ(whole, f.payload);
}

TEST(Cutter, SegmentsShareTheSendersBytes) {
    TcpFrame f;
    f.payload = pattern(3000);
    Burst b(f, 1000);
    nupa::Cutter cutter(b.packet, {});
    nupa::Packet s;
    std::size_t at = f.header_bytes();
    while (cutter.next(s)) {
        EXPECT_EQ(s.payload.pieces()[0].data(), b.bytes.data() + at);
        EXPECT_EQ(s.owned, nullptr);
        EXPECT_EQ(s.csum, Csum::kPartial);
        at += 1000;
    }
}

struct OpcodeCase {
    std::uint8_t only, first, middle, last;
    unsigned ext;
};

class CutOpcodes : public testing::TestWithParam<OpcodeCase> {};

TEST_P(CutOpcodes, Ver0OfAWholeMessage) {
    const OpcodeCase c = GetParam();
    for (const bool with_icrc : {false, true}) {
        TcpFrame f;
        f.seq = 0xffffff00, f.payload = pattern(5 * 1024);
        f.options = bth_option(v1_option(f.seq, 5 * 1024, c.only, c.ext));
        const auto cuts = cut(Burst(f, 1024).packet, {true, with_icrc});
        ASSERT_EQ(cuts.size(), 5u);
        for (std::size_t i = 0; i < 5; i++) {
            const tcp_bth& b = cuts[i].bth;
            ASSERT_EQ(cuts[i].error, TCP_BTH_OK);
            EXPECT_EQ(b.ver, 0);
            EXPECT_EQ(b.opcode, i == 0 ? c.first : i == 4 ? c.last : c.middle);
            EXPECT_EQ(b.mbo, 1024 * i);
            EXPECT_EQ(b.start_seq, f.seq);
            EXPECT_EQ(b.segno, i);
            EXPECT_EQ(b.msn, 9);
            EXPECT_EQ(b.tsval, 0x11111111u);
            EXPECT_EQ(b.tsecr, 0x22222222u);
            EXPECT_EQ(b.ext_bytes, c.ext);
            EXPECT_EQ(b.ext4, c.ext == 4 ? 0x33333333u : 0u);
            EXPECT_EQ(b.va, c.ext == 16 ? 0x4444444455555555u : 0u);
            if (c.ext == 16)  // the immediate comes last
                EXPECT_EQ(b.dma_length,
                          b.opcode == TCP_BTH_OP_WRITE_LAST_IMM ? 0x77777777u : 5120u);
            EXPECT_EQ(b.flags, TCP_BTH_F_TIMESTAMP | (with_icrc ? TCP_BTH_F_ICRC : 0));
            if (with_icrc) {
                Wire w(cuts[i].bytes);
                const std::uint8_t* o = w.packet.header.data() + w.packet.at.options_at;
                EXPECT_EQ(nupa::icrc(o, o[1], w.packet.payload), b.icrc);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, CutOpcodes,
    testing::Values(OpcodeCase{TCP_BTH_OP_SEND_ONLY, TCP_BTH_OP_SEND_FIRST, TCP_BTH_OP_SEND_MIDDLE,
                               TCP_BTH_OP_SEND_LAST, 0},
                    OpcodeCase{TCP_BTH_OP_SEND_ONLY_IMM, TCP_BTH_OP_SEND_FIRST,
                               TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST_IMM, 4},
                    OpcodeCase{TCP_BTH_OP_SEND_ONLY_INV, TCP_BTH_OP_SEND_FIRST,
                               TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST_INV, 4},
                    OpcodeCase{TCP_BTH_OP_WRITE_ONLY, TCP_BTH_OP_WRITE_FIRST,
                               TCP_BTH_OP_WRITE_MIDDLE, TCP_BTH_OP_WRITE_LAST, 16},
                    OpcodeCase{TCP_BTH_OP_WRITE_ONLY_IMM, TCP_BTH_OP_WRITE_FIRST,
                               TCP_BTH_OP_WRITE_MIDDLE, TCP_BTH_OP_WRITE_LAST_IMM, 16},
                    OpcodeCase{TCP_BTH_OP_READ_RESPONSE_ONLY, TCP_BTH_OP_READ_RESPONSE_FIRST,
                               TCP_BTH_OP_READ_RESPONSE_MIDDLE, TCP_BTH_OP_READ_RESPONSE_LAST,
                               16}));

TEST(Cutter, Ver0OfARetransmittedPiece) {
    TcpFrame f;
    f.seq = 10000, f.payload = pattern(3000);
    f.options = bth_option(v1_option(10000 - 777, 100000));
    const auto cuts = cut(Burst(f, 1000).packet, {true, false});
    for (std::size_t i = 0; i < 3; i++) {
        EXPECT_EQ(cuts[i].bth.opcode, TCP_BTH_OP_SEND_MIDDLE);
        EXPECT_EQ(cuts[i].bth.mbo, 777 + 1000 * i);
    }
}

void expect_stays_v1(const TcpFrame& f, nupa::TxRewrite rewrite = {true, true}) {
    for (const Cut& c : cut(Burst(f, 1000).packet, rewrite)) {
        EXPECT_EQ(c.error, TCP_BTH_OK);
        EXPECT_EQ(c.bth.ver, 1);
    }
}

TEST(Cutter, StaysVer1) {
    TcpFrame f;
    f.payload = pattern(3000);
    f.options = bth_option(v1_option(0, 3000));
    expect_stays_v1(f, {false, false});  // not asked for
    f.options = bth_option(v1_option(0, (1 << 24) + 1));
    expect_stays_v1(f);  // offsets would not fit
    tcp_bth without = v1_option(0, 3000);
    without.flags = 0;
    f.options = bth_option(without);
    expect_stays_v1(f);  // sizes differ
    f.options = bth_option(v1_option(0, 3000, TCP_BTH_OP_READ_REQUEST));
    expect_stays_v1(f);  // no FIRST or LAST of a request
    f.payload = pattern(1);
    f.options = bth_option(v1_option(0, 0));
    expect_stays_v1(f);  // ver 0 can't say "no bytes"
}

// An opcode with an extension that the option does not have, at the very end of the longest header:
// what lies behind it is not the option's.
TEST(Cutter, AnExtensionThatIsNotThereIsNotWritten) {
    constexpr std::size_t kDestinationBytes = 136;
    for (const unsigned ext : {0u, 4u}) {
        TcpFrame f;
        f.family = 6, f.payload = pattern(900), f.checksum = false;
        f.options.assign(16 - ext, 1);
        const auto option = bth_option(v1_option(0, 0x1f401f, TCP_BTH_OP_WRITE_ONLY_IMM, ext));
        f.options.insert(f.options.end(), option.begin(), option.end());
        ByteVector v = f.build();
        ByteVector destination(kDestinationBytes);
        destination[0] = std::byte{6};
        destination[1] = std::byte{kDestinationBytes / 8 - 1};
        destination[2] = std::byte{1};  // padding
        destination[3] = std::byte{kDestinationBytes - 4};
        v[18] = static_cast<std::byte>((v.size() - 54 + kDestinationBytes) >> 8);
        v[19] = static_cast<std::byte>(v.size() - 54 + kDestinationBytes);
        v[20] = std::byte{60};  // next header: destination options
        v.insert(v.begin() + 54, destination.begin(), destination.end());
        const nupa::Bytes bufs[] = {v};
        nupa_tx_ctx ctx{};
        ctx.flags = NUPA_TX_F_CSUM, ctx.bufs = 1, ctx.bytes = static_cast<__le32>(v.size()),
        ctx.csum_start = 54 + kDestinationBytes, ctx.csum_offset = nupa::kTcpCheckAt;
        nupa::Packet p;
        ASSERT_EQ(packet_from_tx(p, ctx, bufs), nupa::TxError::kOk);
        ASSERT_EQ(p.at.header_bytes, 250);
        const auto cuts = cut(p, {true, false});
        ASSERT_EQ(cuts.size(), 1u);
        EXPECT_EQ(cuts[0].bth.ver, 1);
        EXPECT_EQ(cuts[0].bth.ext_bytes, ext);
    }
}

TEST(Cutter, LongestVer0Message) {
    TcpFrame f;
    f.payload = pattern(3000), f.seq = (1 << 24) - 3000;
    f.options = bth_option(v1_option(0, 1 << 24));
    const auto cuts = cut(Burst(f, 1000).packet, {true, false});
    EXPECT_EQ(cuts[2].bth.mbo, (1u << 24) - 1000);
    EXPECT_EQ(cuts[2].bth.opcode, TCP_BTH_OP_SEND_LAST);
}

TEST(Cutter, WholeRequestBecomesVer0) {
    TcpFrame f;
    f.payload = pattern(24);
    f.options = bth_option(v1_option(0, 24, TCP_BTH_OP_READ_REQUEST));
    const auto cuts = cut(Burst(f, 1000).packet, {true, false});
    EXPECT_EQ(cuts[0].bth.ver, 0);
    EXPECT_EQ(cuts[0].bth.opcode, TCP_BTH_OP_READ_REQUEST);
}

// Without checksum offload the field is filled already and must stay right.
TEST(Cutter, SingleSegmentWithFilledChecksum) {
    for (const std::size_t nops : {0u, 2u}) {
        TcpFrame f;
        f.payload = pattern(777), f.seq = 4000;
        f.options.assign(nops, 1);
        const auto option = bth_option(v1_option(4000, 777));
        f.options.insert(f.options.end(), option.begin(), option.end());
        const auto cuts = cut(Burst(f, 0).packet, {true, true});
        ASSERT_EQ(cuts.size(), 1u);
        EXPECT_EQ(cuts[0].bth.ver, 0);
        EXPECT_EQ(cuts[0].bth.opcode, TCP_BTH_OP_SEND_ONLY);
    }
    TcpFrame odd;
    odd.payload = pattern(777), odd.seq = 4000, odd.options = {1};
    const auto option = bth_option(v1_option(4000, 777));
    odd.options.insert(odd.options.end(), option.begin(), option.end());
    EXPECT_EQ(cut(Burst(odd, 0).packet, {true, true})[0].bth.ver, 1);
}

TEST(Cutter, PureAckIsLeftAlone) {
    TcpFrame f;
    tcp_bth b = v1_option(0, 0, TCP_BTH_OP_ACKNOWLEDGE, 4);
    f.options = bth_option(b);
    const auto cuts = cut(Burst(f, 0).packet, {true, true});
    ASSERT_EQ(cuts.size(), 1u);
    EXPECT_EQ(cuts[0].bytes, f.build());
}

TEST(Icrc, IgnoresWhatMayChangeOnTheWay) {
    const ByteVector data = pattern(100);
    nupa::Payload payload;
    payload.push(data);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_LAST_IMM, b.ext_bytes = 4, b.ext4 = 5, b.mbo = 900,
    b.flags = TCP_BTH_F_ICRC | TCP_BTH_F_TIMESTAMP;
    const auto of = [&](const tcp_bth& x) {
        const auto o = bth_option(x);
        return nupa::icrc(o.data(), o.size(), payload);
    };
    const std::uint32_t base = of(b);
    tcp_bth c = b;
    c.icrc = 7, c.tsval = 8, c.tsecr = 9, c.flags |= TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK;
    EXPECT_EQ(of(c), base);
    for (auto change :
         {+[](tcp_bth& x) { x.mbo++; }, +[](tcp_bth& x) { x.msn++; }, +[](tcp_bth& x) { x.ext4++; },
          +[](tcp_bth& x) { x.segno++; }, +[](tcp_bth& x) { x.flags |= TCP_BTH_F_MORE; }}) {
        c = b;
        change(c);
        EXPECT_NE(of(c), base);
    }
}

}  // namespace
