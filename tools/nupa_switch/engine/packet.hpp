// SPDX-License-Identifier: BSD-3-Clause
// A packet on its way through the switch: header bytes by value, payload by
// reference into the sender's memory until something must wait for it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "flow.hpp"
#include "limits.hpp"

namespace nupa {

using Bytes = std::span<const std::byte>;

enum class L4 : std::uint8_t { kNone, kTcp, kUdp };

// What the checksum field of TCP or UDP is worth.
enum class Csum : std::uint8_t {
    kUnknown,  // from outside: must be verified before it is trusted
    kPartial,  // the sender asked us to fill it: right by construction, field not filled
    kGood,     // field filled and verified
    kBad,
    kNone,  // no L4 checksum that we understand (not TCP/UDP, fragment, UDP zero)
};

enum class ParseError : std::uint8_t {
    kOk,
    kTruncated,  // shorter than a header says
    kIpHeader,   // version, header length or total length is impossible
    kL4Header,   // TCP data offset or UDP length is impossible
};

enum class ParseMode : std::uint8_t {
    kWire,  // IP lengths must be right; what follows them is padding and is cut off
    kTso,   // a burst to be cut: IP lengths are not looked at
};

// Where things are in Packet::header, and TCP's fields in host order.
struct Headers {
    std::uint16_t l3_at = 0;         // 0: not IP
    std::uint16_t l4_at = 0;         // 0: no L4 header that we understand
    std::uint16_t header_bytes = 0;  // payload begins there
    std::uint8_t family = 0;         // 0, 4 or 6
    L4 l4 = L4::kNone;
    bool fragment = false;        // of an IP datagram, first or not
    bool first_fragment = false;  // ports and seq are valid
    bool ip_csum_bad = false;     // IPv4 header checksum
    std::uint8_t jumbo_at = 0;    // IPv6 jumbogram header of a burst; 0: none
    std::uint8_t tcp_flags = 0;   // kTcp*
    std::uint8_t ip_tos = 0;      // DS field and ECN bits
    std::uint16_t window = 0;
    std::uint32_t seq = 0;
    std::uint32_t ack = 0;
    std::uint16_t options_at = 0;  // TCP options; they end at header_bytes
    bool tcp() const noexcept { return l4 == L4::kTcp && !fragment; }
    std::uint16_t option_bytes() const noexcept { return tcp() ? header_bytes - options_at : 0; }
};

enum : std::uint8_t {
    kTcpFin = 0x01,
    kTcpSyn = 0x02,
    kTcpRst = 0x04,
    kTcpPsh = 0x08,
    kTcpAck = 0x10,
    kTcpUrg = 0x20,
    kTcpEce = 0x40,
    kTcpCwr = 0x80,
};

// A short list of pieces.
class Payload {
public:
    Payload() = default;
    Payload(const Payload&) = default;
    // Of the list only what is used.
    Payload& operator=(const Payload& other) noexcept {
        std::copy_n(other.pieces_.begin(), other.count_, pieces_.begin());
        count_ = other.count_, bytes_ = other.bytes_;
        return *this;
    }

    void clear() noexcept { count_ = 0, bytes_ = 0; }
    bool push(Bytes piece) noexcept;  // false: the list is full; empty pieces are dropped
    // [offset, offset + bytes) of @from, which must contain it, in no more pieces than fit.
    void slice(std::span<const Bytes> from, std::uint32_t offset, std::uint32_t bytes) noexcept;
    void truncate(std::uint32_t bytes) noexcept;
    std::span<const Bytes> pieces() const noexcept { return {pieces_.data(), count_}; }
    std::uint32_t bytes() const noexcept { return bytes_; }
    void copy_to(std::byte* to) const noexcept;  // bytes() bytes

private:
    friend class Cutter;
    std::array<Bytes, kPayloadSpansMax> pieces_;
    std::uint32_t count_ = 0;
    std::uint32_t bytes_ = 0;
};

struct Packet {
    std::array<std::uint8_t, kHeaderMaxBytes> header;  // [0, at.header_bytes)
    Headers at;
    Csum csum = Csum::kUnknown;
    bool tso = false;           // to be cut by a Cutter
    std::uint16_t ingress = 0;  // the switch's port that it came from
    std::uint16_t mss = 0;      // payload bytes per segment of a burst or a run; 0: one segment
    Payload payload;
    std::unique_ptr<std::byte[]> owned;  // payload points here once own() was called; else null

    Packet() = default;
    Packet(Packet&& other) noexcept { *this = std::move(other); }
    // Of the arrays only what is used.
    Packet& operator=(Packet&& other) noexcept {
        at = other.at, csum = other.csum, tso = other.tso, mss = other.mss;
        ingress = other.ingress;
        std::copy_n(other.header.begin(), at.header_bytes, header.begin());
        payload = other.payload;
        owned = std::move(other.owned);
        return *this;
    }

    // Copies the first bytes of @bufs into header, parses them, points payload
    // at the rest.  Any bytes are accepted as input; on an error the packet is
    // an opaque frame (at.l3_at == 0) that can still be forwarded, except on
    // kTruncated below an Ethernet header, where bytes() is 0.
    ParseError assign(std::span<const Bytes> bufs, ParseMode mode = ParseMode::kWire) noexcept;

    std::uint32_t bytes() const noexcept { return at.header_bytes + payload.bytes(); }
    // A run is several segments of a burst that stay together, with the first one's header.
    std::uint32_t segments() const noexcept {
        return mss == 0 ? 1 : (payload.bytes() + mss - 1) / mss;
    }
    // On the wire, headers of all segments included, and the longest of them.
    std::uint32_t wire_bytes() const noexcept {
        return segments() * at.header_bytes + payload.bytes();
    }
    std::uint32_t frame_bytes() const noexcept {
        const std::uint32_t bytes = payload.bytes();
        return at.header_bytes + (mss != 0 && mss < bytes ? mss : bytes);
    }
    std::span<const std::uint8_t> header_span() const noexcept {
        return {header.data(), at.header_bytes};
    }
    bool has_flow() const noexcept {
        return at.l4 != L4::kNone && (!at.fragment || at.first_fragment);
    }
    // As the receiver of this packet sees it.  Ports are zero without has_flow(), all is zero
    // without IP.
    FlowKey flow() const noexcept {
        FlowKey key;
        if (at.family == 0)
            return key;
        const std::uint8_t* ip = header.data() + at.l3_at;
        if (at.family == 4) {
            key.set_word(1, load<std::uint32_t>(ip + 12));
            key.set_word(3, load<std::uint32_t>(ip + 16));
        } else {
            for (std::size_t i = 0; i < 4; i++)
                key.set_word(1 + i, load<std::uint64_t>(ip + 8 + 8 * i));
        }
        const std::uint64_t ports = has_flow() ? load<std::uint32_t>(header.data() + at.l4_at) : 0;
        key.set_word(0, at.family | ports << 32);
        return key;
    }

    // Copy the payload so that the packet may outlive the sender's buffers.
    // False: no memory; the packet is unchanged.
    bool own() noexcept;
    // own() and fill the true checksums: for pcap, tap, corruption.  Not for tso bursts.
    bool materialise() noexcept;
    // Turn kPartial into a filled field.  Reads the payload.  IPv4 header checksum too.
    void fill_checksums() noexcept;
    // Turn kUnknown into kGood, kBad or kNone.  Reads the payload.
    Csum verify() noexcept;
    // All bytes to @to, which has room for bytes().
    void write_to(std::byte* to) const noexcept;

    // Congestion experienced.  False: the packet is not ECN capable, nothing changed.
    bool mark_ce() noexcept;

private:
    template <class T>
    static T load(const std::uint8_t* p) noexcept {
        T value;
        std::memcpy(&value, p, sizeof value);
        return value;
    }
};

// L4 checksum of @p as it should be in the header (its field counted as zero), host order.
std::uint16_t l4_checksum(const Packet& p) noexcept;

const char* parse_error_name(ParseError error) noexcept;

}  // namespace nupa
