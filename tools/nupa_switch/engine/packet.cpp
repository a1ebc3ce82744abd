// SPDX-License-Identifier: BSD-3-Clause
#include "packet.hpp"

#include <algorithm>
#include <new>

#include "checksum.hpp"
#include "endian.hpp"

namespace nupa {

namespace {

enum : std::uint8_t { kEcnMask = 3, kEcnCe = 3 };
constexpr std::uint16_t kUdpCheckAt = 6;

std::uint16_t check_at(const Headers& at) noexcept {
    return static_cast<std::uint16_t>(at.l4_at + (at.l4 == L4::kTcp ? kTcpCheckAt : kUdpCheckAt));
}

bool has_l4_checksum(const Headers& at) noexcept { return at.l4 != L4::kNone && !at.fragment; }

}  // namespace

bool Payload::push(Bytes piece) noexcept {
    if (piece.empty())
        return true;
    if (count_ == pieces_.size())
        return false;
    pieces_[count_++] = piece;
    bytes_ += static_cast<std::uint32_t>(piece.size());
    return true;
}

void Payload::slice(std::span<const Bytes> from, std::uint32_t offset,
                    std::uint32_t bytes) noexcept {
    clear();
    for (const Bytes& piece : from) {
        if (bytes == 0)
            break;
        if (offset >= piece.size()) {
            offset -= static_cast<std::uint32_t>(piece.size());
            continue;
        }
        const std::size_t n = std::min<std::size_t>(piece.size() - offset, bytes);
        push(piece.subspan(offset, n));
        bytes -= static_cast<std::uint32_t>(n);
        offset = 0;
    }
}

void Payload::truncate(std::uint32_t bytes) noexcept {
    const Payload whole = *this;
    slice(whole.pieces(), 0, std::min(bytes, whole.bytes()));
}

void Payload::copy_to(std::byte* to) const noexcept {
    for (const Bytes& piece : pieces()) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
    }
}

bool Packet::own() noexcept {
    if (owned || payload.bytes() == 0)
        return true;
    const std::uint32_t bytes = payload.bytes();
    std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[bytes]);
    if (!copy)
        return false;
    payload.copy_to(copy.get());
    owned = std::move(copy);
    payload.clear();
    payload.push({owned.get(), bytes});
    return true;
}

bool Packet::materialise() noexcept {
    if (!own())
        return false;
    fill_checksums();
    return true;
}

void Packet::fill_checksums() noexcept {
    if (csum != Csum::kPartial || !has_l4_checksum(at))
        return;
    std::uint16_t value = l4_checksum(*this);
    if (at.l4 == L4::kUdp && value == 0)
        value = 0xffff;  // zero means "none" in UDP
    put_be16(header.data() + check_at(at), value);
    csum = Csum::kGood;
}

Csum Packet::verify() noexcept {
    if (csum != Csum::kUnknown)
        return csum;
    if (!has_l4_checksum(at))
        return csum = Csum::kNone;
    const std::uint16_t found = get_be16(header.data() + check_at(at));
    if (at.l4 == L4::kUdp && found == 0)
        return csum = Csum::kNone;
    // 0 and 0xffff are the same number in ones-complement
    const std::uint16_t right = l4_checksum(*this);
    const bool good = found == right || (found == 0xffff && right == 0);
    return csum = good ? Csum::kGood : Csum::kBad;
}

void Packet::write_to(std::byte* to) const noexcept {
    std::copy_n(reinterpret_cast<const std::byte*>(header.data()), at.header_bytes, to);
    payload.copy_to(to + at.header_bytes);
}

bool Packet::mark_ce() noexcept {
    if (at.family == 0 || (at.ip_tos & kEcnMask) == 0)
        return false;
    std::uint8_t* ip = header.data() + at.l3_at;
    at.ip_tos |= kEcnCe;
    if (at.family == 6) {
        ip[1] |= kEcnCe << 4;
        return true;
    }
    const std::uint16_t before = get_be16(ip);
    ip[1] |= kEcnCe;
    put_be16(ip + 10, checksum_update16(get_be16(ip + 10), before, get_be16(ip)));
    return true;
}

std::uint16_t l4_checksum(const Packet& p) noexcept {
    const Headers& at = p.at;
    const std::uint8_t* ip = p.header.data() + at.l3_at;
    ChecksumSum sum;
    if (at.family == 4)
        sum.add(ip + 12, 8);
    else
        sum.add(ip + 8, 32);
    sum.add16(at.l4 == L4::kTcp ? 6 : 17);
    sum.add32(at.header_bytes - at.l4_at + p.payload.bytes());
    const std::uint16_t check = check_at(at);
    sum.add(p.header.data() + at.l4_at, check - at.l4_at);
    sum.add(p.header.data() + check + 2, at.header_bytes - check - 2);
    for (const Bytes& piece : p.payload.pieces())
        sum.add(piece);
    return sum.checksum();
}

}  // namespace nupa
