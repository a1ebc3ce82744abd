// SPDX-License-Identifier: BSD-3-Clause
// Ethernet, IPv4, IPv6, TCP and UDP headers out of bytes that may be anything.
#include <algorithm>

#include "checksum.hpp"
#include "endian.hpp"
#include "packet.hpp"

namespace nupa {

namespace {

enum : std::uint16_t {
    kEthIpv4 = 0x0800,
    kEthIpv6 = 0x86dd,
    kEthVlan = 0x8100,
    kEthVlanS = 0x88a8
};
enum : std::uint8_t {
    kProtoHopByHop = 0,
    kProtoTcp = 6,
    kProtoUdp = 17,
    kProtoRouting = 43,
    kProtoFragment = 44,
    kProtoDestination = 60,
};
enum : std::uint32_t {
    kIpv4MinBytes = 20,
    kTcpMinBytes = 20,
    kUdpBytes = 8,
    kFragmentHeadBytes = 8,
    kExtensionMinBytes = 8,
};
enum : std::uint16_t {
    kIpv4MoreFragments = 0x2000,
    kIpv4OffsetMask = 0x1fff,
    kIpv6OffsetMask = 0xfff8
};

constexpr int kIpv6ExtensionsMax = 8;

// One pass over the header copy; @have bytes of it are there, of @total in the packet.
struct Parser {
    const std::uint8_t* h;
    std::uint32_t have;
    std::uint32_t total;
    ParseMode mode;
    Headers at{};
    std::uint32_t end = 0;  // of the IP datagram; what follows is padding
    std::uint8_t proto = 0;
    std::uint32_t l4 = 0;

    bool room(std::uint32_t from, std::uint32_t bytes) const noexcept {
        return from + bytes <= std::min(have, end);
    }

    ParseError ethernet() noexcept {
        end = total;
        std::uint32_t l3 = kEthernetBytes;
        if (!room(0, l3))
            return ParseError::kTruncated;
        std::uint16_t type = get_be16(h + 12);
        if ((type == kEthVlan || type == kEthVlanS) && room(l3, kVlanBytes)) {
            type = get_be16(h + 16);
            l3 += kVlanBytes;
        }
        at.header_bytes = static_cast<std::uint16_t>(l3);
        if (type != kEthIpv4 && type != kEthIpv6)
            return ParseError::kOk;
        at.l3_at = static_cast<std::uint16_t>(l3);
        return type == kEthIpv4 ? ipv4(l3) : ipv6(l3);
    }

    ParseError ipv4(std::uint32_t l3) noexcept {
        if (!room(l3, kIpv4MinBytes))
            return ParseError::kTruncated;
        const std::uint8_t* ip = h + l3;
        const std::uint32_t ihl = (ip[0] & 15) * 4u;
        if (ip[0] >> 4 != 4 || ihl < kIpv4MinBytes)
            return ParseError::kIpHeader;
        if (!room(l3, ihl))
            return ParseError::kTruncated;
        if (mode == ParseMode::kWire) {
            const std::uint32_t length = get_be16(ip + 2);
            if (length < ihl || length > total - l3)
                return ParseError::kIpHeader;
            end = l3 + length;
            at.ip_csum_bad = get_be16(ip + 10) != ipv4_header_checksum(ip, ihl);
        }
        const std::uint16_t fragment = get_be16(ip + 6);
        at.family = 4;
        at.ip_tos = ip[1];
        at.fragment = fragment & (kIpv4MoreFragments | kIpv4OffsetMask);
        // IP drops what its checksum finds: nothing will be made of that fragment.
        at.first_fragment = at.fragment && !(fragment & kIpv4OffsetMask) && !at.ip_csum_bad;
        proto = ip[9];
        l4 = l3 + ihl;
        return transport();
    }

    ParseError ipv6(std::uint32_t l3) noexcept {
        if (!room(l3, kIpv6Bytes))
            return ParseError::kTruncated;
        const std::uint8_t* ip = h + l3;
        if (ip[0] >> 4 != 6)
            return ParseError::kIpHeader;
        if (mode == ParseMode::kWire) {
            const std::uint32_t length = get_be16(ip + 4);
            if (length > total - l3 - kIpv6Bytes)
                return ParseError::kIpHeader;
            end = l3 + kIpv6Bytes + length;
        }
        at.family = 6;
        at.ip_tos = static_cast<std::uint8_t>(get_be16(ip) >> 4);
        proto = ip[6];
        l4 = l3 + kIpv6Bytes;
        if (proto == kProtoHopByHop && mode == ParseMode::kTso && jumbogram()) {
            proto = h[l4];
            at.jumbo_at = static_cast<std::uint8_t>(l4);
            l4 += kJumboHeaderBytes;
        }
        return ipv6_extensions();
    }

    // The host's TCP looks behind these, so its segments must not escape us there.
    ParseError ipv6_extensions() noexcept {
        for (int i = 0; i < kIpv6ExtensionsMax && room(l4, kExtensionMinBytes); i++) {
            if (proto == kProtoFragment) {
                const std::uint16_t fragment = get_be16(h + l4 + 2);
                at.fragment = true;
                at.first_fragment = (fragment & kIpv6OffsetMask) == 0;
                proto = h[l4];
                l4 += kExtensionMinBytes;
                if (!at.first_fragment)
                    break;
                continue;
            }
            if (proto != kProtoHopByHop && proto != kProtoRouting && proto != kProtoDestination)
                break;
            const std::uint32_t bytes = (h[l4 + 1] + 1u) * kExtensionMinBytes;
            if (!room(l4, bytes))
                break;
            proto = h[l4];
            l4 += bytes;
        }
        return transport();
    }

    // Linux puts this header, of exactly this shape, on IPv6 bursts above 64 KiB (RFC 2675).
    bool jumbogram() const noexcept {
        return room(l4, kJumboHeaderBytes) && h[l4 + 1] == 0 && h[l4 + 2] == 0xc2 && h[l4 + 3] == 4;
    }

    ParseError transport() noexcept {
        at.header_bytes = static_cast<std::uint16_t>(l4);
        if (at.fragment)
            return fragment_head();
        if (proto == kProtoTcp)
            return tcp();
        if (proto == kProtoUdp)
            return udp();
        return ParseError::kOk;
    }

    // Ports and sequence number, nothing more: the rest may be in another fragment.
    ParseError fragment_head() noexcept {
        if (!at.first_fragment || (proto != kProtoTcp && proto != kProtoUdp) ||
            !room(l4, kFragmentHeadBytes))
            return ParseError::kOk;
        at.l4 = proto == kProtoTcp ? L4::kTcp : L4::kUdp;
        at.l4_at = static_cast<std::uint16_t>(l4);
        at.seq = proto == kProtoTcp ? get_be32(h + l4 + 4) : 0;
        return ParseError::kOk;
    }

    ParseError tcp() noexcept {
        if (!room(l4, kTcpMinBytes))
            return ParseError::kTruncated;
        const std::uint8_t* t = h + l4;
        const std::uint32_t header = (t[12] >> 4) * 4u;
        if (header < kTcpMinBytes || !room(l4, header))
            return ParseError::kL4Header;
        at.l4 = L4::kTcp;
        at.l4_at = static_cast<std::uint16_t>(l4);
        at.seq = get_be32(t + 4);
        at.ack = get_be32(t + 8);
        at.tcp_flags = t[13];
        at.window = get_be16(t + 14);
        at.options_at = static_cast<std::uint16_t>(l4 + kTcpMinBytes);
        at.header_bytes = static_cast<std::uint16_t>(l4 + header);
        return ParseError::kOk;
    }

    ParseError udp() noexcept {
        if (!room(l4, kUdpBytes))
            return ParseError::kTruncated;
        const std::uint32_t length = get_be16(h + l4 + 4);
        if (length < kUdpBytes || length > end - l4)
            return ParseError::kL4Header;
        at.l4 = L4::kUdp;
        at.l4_at = static_cast<std::uint16_t>(l4);
        at.header_bytes = static_cast<std::uint16_t>(l4 + kUdpBytes);
        return ParseError::kOk;
    }
};

std::uint32_t gather(std::span<const Bytes> bufs,
                     std::array<std::uint8_t, kHeaderMaxBytes>& header) noexcept {
    std::size_t have = 0;
    for (const Bytes& b : bufs) {
        const std::size_t n = std::min(b.size(), header.size() - have);
        if (n)
            std::memcpy(header.data() + have, b.data(), n);
        have += n;
    }
    return static_cast<std::uint32_t>(have);
}

}  // namespace

ParseError Packet::assign(std::span<const Bytes> bufs, ParseMode mode) noexcept {
    std::size_t pieces = 0;
    std::uint64_t total = 0;
    for (const Bytes& b : bufs) {
        total += b.size();
        pieces += !b.empty();
    }
    at = {};
    payload.clear();
    tso = false, mss = 0;
    csum = Csum::kNone;
    if (pieces > kPayloadSpansMax || total > UINT32_MAX || total < kEthernetBytes)
        return ParseError::kTruncated;

    Parser parser{header.data(), gather(bufs, header), static_cast<std::uint32_t>(total), mode};
    const ParseError error = parser.ethernet();
    if (error != ParseError::kOk) {
        at.header_bytes = kEthernetBytes;
        parser.end = parser.total;
    } else {
        at = parser.at;
    }
    payload.slice(bufs, at.header_bytes, parser.end - at.header_bytes);
    if (at.l4 != L4::kNone && !at.fragment)
        csum = Csum::kUnknown;
    return error;
}

const char* parse_error_name(ParseError error) noexcept {
    switch (error) {
        case ParseError::kOk:
            return "ok";
        case ParseError::kTruncated:
            return "truncated";
        case ParseError::kIpHeader:
            return "ip_header";
        case ParseError::kL4Header:
            return "l4_header";
    }
    return "unknown";
}

}  // namespace nupa
