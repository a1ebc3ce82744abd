// SPDX-License-Identifier: BSD-3-Clause
#include "checksum.hpp"

#include <cstring>

#include "endian.hpp"

namespace nupa {

namespace {

std::uint64_t load64(const std::byte* p) noexcept {
    std::uint64_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// 32-bit words into 64-bit sums: no carry is lost below 16 GiB.
std::uint64_t sum_words(const std::byte* p, std::size_t n) noexcept {
    std::uint64_t a = 0, b = 0, c = 0, d = 0;
    for (; n >= 32; p += 32, n -= 32) {
        const std::uint64_t w0 = load64(p), w1 = load64(p + 8), w2 = load64(p + 16),
                            w3 = load64(p + 24);
        a += (w0 & 0xffffffff) + (w0 >> 32);
        b += (w1 & 0xffffffff) + (w1 >> 32);
        c += (w2 & 0xffffffff) + (w2 >> 32);
        d += (w3 & 0xffffffff) + (w3 >> 32);
    }
    for (; n >= 4; p += 4, n -= 4) {
        std::uint32_t w;
        std::memcpy(&w, p, sizeof w);
        a += w;
    }
    if (n >= 2) {
        std::uint16_t w;
        std::memcpy(&w, p, sizeof w);
        a += w;
        p += 2, n -= 2;
    }
    if (n)
        a += static_cast<std::uint8_t>(*p);
    // Fold each before adding: four full sums could carry out.
    const auto fold = [](std::uint64_t s) { return (s & 0xffffffff) + (s >> 32); };
    return fold(a) + fold(b) + fold(c) + fold(d);
}

std::uint16_t fold16(std::uint64_t sum) noexcept {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

}  // namespace

void ChecksumSum::add(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty())
        return;
    if (odd_) {
        sum_ += static_cast<std::uint64_t>(bytes[0]) << 8;
        bytes = bytes.subspan(1);
        odd_ = false;
    }
    sum_ += sum_words(bytes.data(), bytes.size());
    odd_ = bytes.size() & 1;
}

void ChecksumSum::add16(std::uint16_t host_order) noexcept {
    sum_ += __builtin_bswap16(host_order);
}

void ChecksumSum::add32(std::uint32_t host_order) noexcept {
    sum_ += __builtin_bswap32(host_order);
}

std::uint16_t ChecksumSum::folded() const noexcept { return __builtin_bswap16(fold16(sum_)); }

std::uint16_t ipv4_header_checksum(const std::uint8_t* ip, std::size_t header_bytes) noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i + 2 <= header_bytes; i += 2)
        if (i != 10)
            sum += get_be16(ip + i);
    return static_cast<std::uint16_t>(~fold16(sum));
}

std::uint16_t checksum_update16(std::uint16_t check, std::uint16_t from,
                                std::uint16_t to) noexcept {
    const std::uint64_t sum = static_cast<std::uint64_t>(static_cast<std::uint16_t>(~check)) +
                              static_cast<std::uint16_t>(~from) + to;
    return static_cast<std::uint16_t>(~fold16(sum));
}

std::uint16_t checksum_update32(std::uint16_t check, std::uint32_t from,
                                std::uint32_t to) noexcept {
    check = checksum_update16(check, static_cast<std::uint16_t>(from >> 16),
                              static_cast<std::uint16_t>(to >> 16));
    return checksum_update16(check, static_cast<std::uint16_t>(from),
                             static_cast<std::uint16_t>(to));
}

}  // namespace nupa
