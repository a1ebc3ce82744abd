// SPDX-License-Identifier: BSD-3-Clause
#include "transmit.hpp"

#include <new>

#include "checksum.hpp"
#include "endian.hpp"

namespace nupa {

namespace {

constexpr std::uint16_t kTxFlagsKnown =
    NUPA_TX_F_CSUM | NUPA_TX_F_TSO4 | NUPA_TX_F_TSO6 | NUPA_TX_F_ECN;
constexpr std::uint16_t kFlagsTso = NUPA_TX_F_TSO4 | NUPA_TX_F_TSO6;

TxError burst(Packet& out, const nupa_tx_ctx& ctx, std::span<const Bytes> bufs) noexcept {
    const std::uint8_t family = ctx.flags & NUPA_TX_F_TSO4 ? 4 : 6;
    if (out.assign(bufs, ParseMode::kTso) != ParseError::kOk || !out.at.tcp() ||
        out.at.family != family || out.at.header_bytes != ctx.header_bytes ||
        out.payload.bytes() == 0)
        return TxError::kHeader;
    const std::uint32_t ip_header = out.at.header_bytes - out.at.l3_at;
    if (ctx.mss < kMssMinBytes || ip_header + ctx.mss > kIpLengthMaxBytes ||
        (out.payload.bytes() + ctx.mss - 1) / ctx.mss > kSegmentsMax)
        return TxError::kMss;
    if (out.at.tcp_flags & (kTcpSyn | kTcpRst | kTcpUrg))
        return TxError::kTcpFlags;
    out.tso = true;
    out.mss = ctx.mss;
    out.csum = Csum::kPartial;
    return TxError::kOk;
}

// Some other protocol's checksum, or one inside a tunnel: computed here and now.
TxError generic_checksum(Packet& out, const nupa_tx_ctx& ctx,
                         std::span<const Bytes> bufs) noexcept {
    const std::size_t field = std::size_t{ctx.csum_start} + ctx.csum_offset;
    if (field + 2 > ctx.bytes)
        return TxError::kCsum;
    std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[ctx.bytes]);
    if (!copy)
        return TxError::kNoMemory;
    std::size_t used = 0;
    for (const Bytes& b : bufs) {
        std::memcpy(copy.get() + used, b.data(), b.size());
        used += b.size();
    }
    ChecksumSum sum;  // the field holds the sum of the pseudo header already
    sum.add({copy.get() + ctx.csum_start, ctx.bytes - std::size_t{ctx.csum_start}});
    put_be16(reinterpret_cast<std::uint8_t*>(copy.get()) + field, sum.checksum());
    const Bytes whole{copy.get(), ctx.bytes};
    out.assign({&whole, 1});
    out.owned = std::move(copy);
    return TxError::kOk;
}

bool ordinary_checksum(const Packet& p, const nupa_tx_ctx& ctx) noexcept {
    if (p.at.fragment || p.at.l4 == L4::kNone || ctx.csum_start != p.at.l4_at)
        return false;
    return ctx.csum_offset == (p.at.l4 == L4::kTcp ? 16 : 6);
}

}  // namespace

TxError packet_from_tx(Packet& out, const nupa_tx_ctx& ctx, std::span<const Bytes> bufs) noexcept {
    out.owned.reset();
    std::uint64_t bytes = 0;
    for (const Bytes& b : bufs)
        bytes += b.size();
    const bool tso = ctx.flags & kFlagsTso;
    if (bufs.size() != ctx.bufs || bufs.size() > NUPA_TX_FRAGS_MAX || bytes != ctx.bytes ||
        bytes < kEthernetBytes ||
        bytes > (tso ? std::uint32_t{NUPA_TSO_MAX_BYTES} : kFrameMaxBytes))
        return TxError::kSize;
    if (ctx.flags & ~kTxFlagsKnown || (ctx.flags & kFlagsTso) == kFlagsTso)
        return TxError::kFlags;
    if (tso)
        return burst(out, ctx, bufs);
    out.assign(bufs);  // a frame we do not understand is forwarded as it is
    if (!(ctx.flags & NUPA_TX_F_CSUM))
        return TxError::kOk;
    if (!ordinary_checksum(out, ctx))
        return generic_checksum(out, ctx, bufs);
    out.csum = Csum::kPartial;
    return TxError::kOk;
}

const char* tx_error_name(TxError error) noexcept {
    switch (error) {
        case TxError::kOk:
            return "ok";
        case TxError::kSize:
            return "size";
        case TxError::kFlags:
            return "flags";
        case TxError::kHeader:
            return "header";
        case TxError::kMss:
            return "mss";
        case TxError::kCsum:
            return "csum";
        case TxError::kTcpFlags:
            return "tcp_flags";
        case TxError::kNoMemory:
            return "no_memory";
    }
    return "unknown";
}

}  // namespace nupa
