// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/endian.hpp"
#include "engine/transmit.hpp"
#include "frames.hpp"

namespace {

using namespace test;
using nupa::Csum;
using nupa::TxError;

struct Tx {
    ByteVector bytes;
    std::vector<nupa::Bytes> bufs;
    nupa_tx_ctx ctx{};
    nupa::Packet packet;

    explicit Tx(const TcpFrame& f, std::uint16_t flags = 0) : bytes(f.build()) {
        bufs = {{bytes.data(), f.header_bytes()}};
        if (!f.payload.empty())
            bufs.push_back({bytes.data() + f.header_bytes(), f.payload.size()});
        ctx.flags = flags;
        ctx.bufs = static_cast<__le16>(bufs.size());
        ctx.bytes = static_cast<__le32>(bytes.size());
        ctx.mss = 100;
        ctx.header_bytes = static_cast<__le16>(f.header_bytes());
        ctx.csum_start = static_cast<__le16>(f.l4());
        ctx.csum_offset = 16;
    }
    TxError go() { return packet_from_tx(packet, ctx, bufs); }
};

TcpFrame frame(std::size_t payload = 250, int family = 4) {
    TcpFrame f;
    f.payload = pattern(payload), f.family = family;
    return f;
}

TEST(Transmit, Plain) {
    Tx t(frame());
    EXPECT_EQ(t.go(), TxError::kOk);
    EXPECT_EQ(t.packet.csum, Csum::kUnknown);
    EXPECT_FALSE(t.packet.tso);
}

TEST(Transmit, Checksum) {
    Tx t(frame(), NUPA_TX_F_CSUM);
    EXPECT_EQ(t.go(), TxError::kOk);
    EXPECT_EQ(t.packet.csum, Csum::kPartial);
    EXPECT_EQ(t.packet.payload.pieces()[0].data(), t.bufs[1].data());  // not copied
}

TEST(Transmit, Burst) {
    Tx t(frame(), NUPA_TX_F_TSO4 | NUPA_TX_F_CSUM | NUPA_TX_F_ECN);
    ASSERT_EQ(t.go(), TxError::kOk);
    EXPECT_TRUE(t.packet.tso);
    EXPECT_EQ(t.packet.mss, 100);
    EXPECT_EQ(t.packet.csum, Csum::kPartial);
    Tx six(frame(250, 6), NUPA_TX_F_TSO6);
    EXPECT_EQ(six.go(), TxError::kOk);
}

TEST(Transmit, Sizes) {
    Tx t(frame());
    t.ctx.bytes++;
    EXPECT_EQ(t.go(), TxError::kSize);
    t.ctx.bytes--, t.ctx.bufs++;
    EXPECT_EQ(t.go(), TxError::kSize);
    Tx long_frame(frame(nupa::kFrameMaxBytes - 54));
    EXPECT_EQ(long_frame.go(), TxError::kOk);
    Tx longer(frame(nupa::kFrameMaxBytes - 53));
    EXPECT_EQ(longer.go(), TxError::kSize);
    Tx burst(frame(NUPA_TSO_MAX_BYTES - 54), NUPA_TX_F_TSO4);
    EXPECT_EQ(burst.go(), TxError::kOk);
    Tx too_much(frame(NUPA_TSO_MAX_BYTES - 53), NUPA_TX_F_TSO4);
    EXPECT_EQ(too_much.go(), TxError::kSize);
    Tx tiny(frame());
    tiny.bufs = {{tiny.bytes.data(), 13}}, tiny.ctx.bufs = 1, tiny.ctx.bytes = 13;
    EXPECT_EQ(tiny.go(), TxError::kSize);
}

TEST(Transmit, Flags) {
    EXPECT_EQ(Tx(frame(), 0x10).go(), TxError::kFlags);
    EXPECT_EQ(Tx(frame(), NUPA_TX_F_TSO4 | NUPA_TX_F_TSO6).go(), TxError::kFlags);
}

TEST(Transmit, BurstHeader) {
    EXPECT_EQ(Tx(frame(), NUPA_TX_F_TSO6).go(), TxError::kHeader);
    EXPECT_EQ(Tx(frame(250, 6), NUPA_TX_F_TSO4).go(), TxError::kHeader);
    EXPECT_EQ(Tx(frame(0), NUPA_TX_F_TSO4).go(), TxError::kHeader);
    Tx t(frame(), NUPA_TX_F_TSO4);
    t.ctx.header_bytes += 4;
    EXPECT_EQ(t.go(), TxError::kHeader);
    Tx udp(frame(), NUPA_TX_F_TSO4);
    udp.bytes[23] = std::byte{17};
    EXPECT_EQ(udp.go(), TxError::kHeader);
    Tx fragment(frame(), NUPA_TX_F_TSO4);
    fragment.bytes[20] = std::byte{0x20};
    EXPECT_EQ(fragment.go(), TxError::kHeader);
}

TEST(Transmit, Mss) {
    Tx t(frame(), NUPA_TX_F_TSO4);
    t.ctx.mss = nupa::kMssMinBytes - 1;
    EXPECT_EQ(t.go(), TxError::kMss);
    t.ctx.mss = nupa::kMssMinBytes;
    EXPECT_EQ(t.go(), TxError::kOk);
    t.ctx.mss = 65535 - 40;
    EXPECT_EQ(t.go(), TxError::kOk);
    t.ctx.mss = 65535 - 39;  // IP length would not fit
    EXPECT_EQ(t.go(), TxError::kMss);
    Tx many(frame(65535 * 8), NUPA_TX_F_TSO4);
    many.ctx.mss = 8;
    EXPECT_EQ(many.go(), TxError::kOk);
    Tx too_many(frame(65535 * 8 + 1), NUPA_TX_F_TSO4);
    too_many.ctx.mss = 8;
    EXPECT_EQ(too_many.go(), TxError::kMss);
}

TEST(Transmit, BurstTcpFlags) {
    for (const std::uint8_t bad : {nupa::kTcpSyn, nupa::kTcpRst, nupa::kTcpUrg}) {
        TcpFrame f = frame();
        f.flags |= bad;
        EXPECT_EQ(Tx(f, NUPA_TX_F_TSO4).go(), TxError::kTcpFlags);
    }
}

// A checksum that is not TCP's or UDP's own: the field holds the pseudo header's sum.
TEST(Transmit, ForeignChecksumPosition) {
    TcpFrame f = frame();
    Tx t(f, NUPA_TX_F_CSUM);
    t.ctx.csum_start = 20, t.ctx.csum_offset = 40;
    ByteVector expected = t.bytes;
    std::vector<std::uint8_t> covered(expected.size() - 20);
    std::memcpy(covered.data(), expected.data() + 20, covered.size());
    const std::uint16_t sum = reference_checksum(covered);
    expected[60] = static_cast<std::byte>(sum >> 8), expected[61] = static_cast<std::byte>(sum);
    ASSERT_EQ(t.go(), TxError::kOk);
    EXPECT_EQ(bytes_of(t.packet), expected);
    EXPECT_NE(t.packet.csum, Csum::kPartial);
    t.ctx.csum_start = static_cast<__le16>(t.bytes.size() - 2), t.ctx.csum_offset = 1;
    EXPECT_EQ(t.go(), TxError::kCsum);
    t.ctx.csum_start = 65535, t.ctx.csum_offset = 65535;
    EXPECT_EQ(t.go(), TxError::kCsum);
}

TEST(Transmit, BrokenFrameIsForwarded) {
    Tx t(frame());
    t.bytes[14] = std::byte{0x10};
    EXPECT_EQ(t.go(), TxError::kOk);
    EXPECT_EQ(t.packet.at.family, 0);
    EXPECT_EQ(bytes_of(t.packet), t.bytes);
}

TEST(Transmit, ReusedPacketForgetsItsOwnBytes) {
    Tx t(frame());
    ASSERT_EQ(t.go(), TxError::kOk);
    ASSERT_TRUE(t.packet.own());
    ASSERT_EQ(t.go(), TxError::kOk);
    EXPECT_EQ(t.packet.owned, nullptr);
    EXPECT_EQ(bytes_of(t.packet), t.bytes);
}

}  // namespace
