// SPDX-License-Identifier: BSD-3-Clause
// Slice-by-8 tables, and carry-less multiplication where the CPU has it
// (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009).
#include "crc32.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nupa {

namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320;  // reflected

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
    Tables t{};
    for (std::uint32_t i = 0; i < 256; i++) {
        std::uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ kPolynomial : c >> 1;
        t[0][i] = c;
    }
    for (std::uint32_t i = 0; i < 256; i++)
        for (std::size_t k = 1; k < 8; k++)
            t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 0xff];
    return t;
}

constexpr Tables kTables = make_tables();

// @crc is inverted already, here and below.
std::uint32_t crc_tables(std::uint32_t crc, const std::byte* p, std::size_t n) noexcept {
    for (; n >= 8; p += 8, n -= 8) {
        std::uint64_t w;
        std::memcpy(&w, p, sizeof w);
        w ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; k++)
            crc ^= kTables[7 - k][w >> (8 * k) & 0xff];
    }
    for (; n; p++, n--)
        crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*p)) & 0xff];
    return crc;
}

#if defined(__x86_64__)
constexpr std::size_t kFoldMinBytes = 64;

__attribute__((target("pclmul,sse4.1"))) __m128i fold(__m128i x, __m128i next, __m128i k) noexcept {
    const __m128i lo = _mm_clmulepi64_si128(x, k, 0x00);
    const __m128i hi = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(lo, hi), next);
}

__attribute__((target("pclmul,sse4.1"))) __m128i load(const std::byte* p) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// @n >= 64 and a multiple of 16.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t crc_clmul(std::uint32_t crc,
                                                                 const std::byte* p,
                                                                 std::size_t n) noexcept {
    // x^(4*128+64), x^(4*128) and so on modulo the polynomial, reflected
    const __m128i k12 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k34 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i x0 = _mm_xor_si128(load(p), _mm_cvtsi32_si128(static_cast<int>(crc)));
    __m128i x1 = load(p + 16), x2 = load(p + 32), x3 = load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x0 = fold(x0, load(p), k12);
        x1 = fold(x1, load(p + 16), k12);
        x2 = fold(x2, load(p + 32), k12);
        x3 = fold(x3, load(p + 48), k12);
    }
    x0 = fold(x0, x1, k34);
    x0 = fold(x0, x2, k34);
    x0 = fold(x0, x3, k34);
    for (; n >= 16; p += 16, n -= 16)
        x0 = fold(x0, load(p), k34);
    // 128 bits remain, congruent to all that came before: the tables finish them.
    alignas(16) std::byte rest[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(rest), x0);
    return crc_tables(0, rest, sizeof rest);
}

const bool kHaveClmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif

}  // namespace

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
    const std::byte* p = bytes.data();
    std::size_t n = bytes.size();
    crc = ~crc;
#if defined(__x86_64__)
    if (n >= kFoldMinBytes && kHaveClmul) {
        const std::size_t whole = n & ~std::size_t{15};
        crc = crc_clmul(crc, p, whole);
        p += whole, n -= whole;
    }
#endif
    return ~crc_tables(crc, p, n);
}

}  // namespace nupa
