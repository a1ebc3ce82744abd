// SPDX-License-Identifier: BSD-3-Clause
#include "segment.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>

#include "checksum.hpp"
#include "endian.hpp"
#include "icrc.hpp"

namespace nupa {

namespace {

constexpr std::uint32_t kPatchedAt =
    offsetof(tcp_bth_head, flags);  // flags .. icrc is what ver 0 changes
constexpr std::uint32_t kPatchedBytes = offsetof(tcp_bth_v0, tsval) - kPatchedAt;
constexpr std::uint32_t kDmaLengthAt =
    sizeof(tcp_bth_v0) + offsetof(tcp_bth_reth, length);  // or the immediate

// Where in its message a segment stands, as TCP_BTH_POS_*.
int position(std::uint32_t mbo, std::uint32_t bytes, std::uint32_t length) noexcept {
    return (mbo == 0 ? TCP_BTH_POS_FIRST : 0) | (mbo + bytes == length ? TCP_BTH_POS_LAST : 0);
}

}  // namespace

Cutter::Cutter(const Packet& packet, TxRewrite rewrite, std::uint32_t span) noexcept
    : packet_(packet), rewrite_(rewrite), span_(span ? span : packet.mss) {
    const std::uint32_t bytes = packet.payload.bytes();
    if (!rewrite.v0 || !packet.at.tcp() || bytes == 0)
        return;
    unsigned int at = 0;
    const Headers& h = packet.at;
    if (tcp_bth_find(packet.header.data() + h.options_at, h.option_bytes(), h.seq, bytes, &option_,
                     &at) != TCP_BTH_OK)
        return;
    // Same size in both layouts only with timestamps; 24 bits of offset; ver 0
    // can't say "no bytes" or "several messages"; a filled checksum is patched by words, so the
    // option must lie on one.  The parser takes any extension with any opcode; what is written
    // here must be one that is there.
    has_v1_ = option_.ver == 1 && option_.ext_bytes == tcp_bth_ext_bytes(option_.opcode) &&
              !tcp_bth_is_train(option_.opcode) && option_.flags & TCP_BTH_F_TIMESTAMP &&
              option_.length != 0 && option_.length <= TCP_BTH_V0_MESSAGE_MAX_BYTES &&
              (packet.csum == Csum::kPartial || at % 2 == 0);
    option_at_ = static_cast<std::uint16_t>(h.options_at + at);
}

bool Cutter::next(Packet& segment) noexcept {
    if (done_)
        return false;
    const std::uint32_t left = packet_.payload.bytes() - offset_;
    const std::uint32_t bytes = packet_.tso ? std::min(span_, left) : left;
    done_ = bytes == left;
    copy_header(segment);
    slice(segment, bytes);
    if (packet_.tso)
        patch_header(segment, bytes, done_);
    if (has_v1_)
        patch_option(segment, bytes);
    segment.mss = bytes > packet_.mss ? packet_.mss : 0;
    offset_ += bytes;
    index_ += segment.segments();
    return true;
}

void Cutter::copy_header(Packet& segment) noexcept {
    segment.at = packet_.at;
    segment.csum = packet_.csum;
    segment.ingress = packet_.ingress;
    segment.tso = false;
    segment.mss = 0;
    segment.owned.reset();
    const std::uint8_t jumbo = packet_.at.jumbo_at;
    if (jumbo == 0) {
        std::memcpy(segment.header.data(), packet_.header.data(), packet_.at.header_bytes);
        return;
    }
    // The hop-by-hop header was for the burst alone.
    std::memcpy(segment.header.data(), packet_.header.data(), jumbo);
    std::memcpy(segment.header.data() + jumbo, packet_.header.data() + jumbo + kJumboHeaderBytes,
                packet_.at.header_bytes - jumbo - kJumboHeaderBytes);
    segment.header[packet_.at.l3_at + 6] = packet_.header[jumbo];
    segment.at.jumbo_at = 0;
    segment.at.l4_at -= kJumboHeaderBytes;
    segment.at.options_at -= kJumboHeaderBytes;
    segment.at.header_bytes -= kJumboHeaderBytes;
}

void Cutter::slice(Packet& segment, std::uint32_t bytes) noexcept {
    Payload& out = segment.payload;
    out.clear();
    while (bytes) {
        const Bytes& piece = packet_.payload.pieces_[piece_];
        const std::size_t n = std::min<std::size_t>(piece.size() - piece_used_, bytes);
        out.push(piece.subspan(piece_used_, n));
        bytes -= static_cast<std::uint32_t>(n);
        piece_used_ += n;
        if (piece_used_ == piece.size())
            piece_++, piece_used_ = 0;
    }
}

void Cutter::patch_header(Packet& segment, std::uint32_t bytes, bool last) noexcept {
    Headers& at = segment.at;
    std::uint8_t* ip = segment.header.data() + at.l3_at;
    const std::uint32_t ip_bytes = at.header_bytes - at.l3_at + bytes;
    if (at.family == 4) {
        put_be16(ip + 2, static_cast<std::uint16_t>(ip_bytes));
        put_be16(ip + 4, static_cast<std::uint16_t>(get_be16(ip + 4) + index_));
        put_be16(ip + 10, ipv4_header_checksum(ip, at.l4_at - at.l3_at));
    } else {
        put_be16(ip + 4, static_cast<std::uint16_t>(ip_bytes - kIpv6Bytes));
    }
    std::uint8_t* tcp = segment.header.data() + at.l4_at;
    at.seq += offset_;
    put_be32(tcp + 4, at.seq);
    if (!last)
        at.tcp_flags &= static_cast<std::uint8_t>(~(kTcpFin | kTcpPsh));
    if (index_ != 0)
        at.tcp_flags &= static_cast<std::uint8_t>(~kTcpCwr);
    tcp[13] = at.tcp_flags;
}

void Cutter::patch_option(Packet& segment, std::uint32_t bytes) noexcept {
    const std::uint32_t mbo = segment.at.seq - option_.start_seq;
    const int pos = position(mbo, bytes, option_.length);
    const std::uint8_t opcode = tcp_bth_variant(option_.opcode, pos);
    // Requests have no FIRST and LAST: a part of one can only be said in ver 1.
    if (tcp_bth_position(opcode) != pos)
        return;
    const std::uint16_t at = static_cast<std::uint16_t>(
        option_at_ - (packet_.at.header_bytes - segment.at.header_bytes));
    std::uint8_t* o = segment.header.data() + at;
    std::uint8_t before[kPatchedBytes];
    std::memcpy(before, o + kPatchedAt, kPatchedBytes);
    // Only the segment that ends a WRITE bears its immediate.
    const bool no_imm =
        tcp_bth_op(option_.opcode)->ext == TCP_BTH_EXT_RETH_IMM && !(pos & TCP_BTH_POS_LAST);
    if (no_imm)
        put_be32(o + kDmaLengthAt, option_.length);

    o[4] = static_cast<std::uint8_t>(option_.flags | (rewrite_.icrc ? TCP_BTH_F_ICRC : 0));
    o[5] = opcode;
    put_be32(o + 8, mbo << 8 | (index_ & 0xff));
    put_be32(o + 12, 0);
    if (rewrite_.icrc)
        put_be32(o + 12, icrc(o, o[1], segment.payload));
    if (segment.csum == Csum::kPartial)
        return;
    std::uint8_t* check = segment.header.data() + segment.at.l4_at + kTcpCheckAt;
    std::uint16_t value = get_be16(check);
    for (std::uint32_t i = 0; i < kPatchedBytes; i += 4)
        value = checksum_update32(value, get_be32(before + i), get_be32(o + kPatchedAt + i));
    if (no_imm)
        value = checksum_update32(value, option_.dma_length, option_.length);
    put_be16(check, value);
}

}  // namespace nupa
