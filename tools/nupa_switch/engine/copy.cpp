// SPDX-License-Identifier: BSD-3-Clause
#include "copy.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nupa {

namespace {

// x86 shows stores to others in program order, so it is enough to hold the
// compiler; elsewhere a release fence keeps a line's end behind its beginning.
inline void in_order() noexcept {
#if defined(__x86_64__)
    __asm__ volatile("" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

template <class T>
inline void move(std::byte*& to, const std::byte*& from, std::size_t& n) noexcept {
    T v;
    std::memcpy(&v, from, sizeof v);
    std::memcpy(to, &v, sizeof v);
    in_order();
    to += sizeof v, from += sizeof v, n -= sizeof v;
}

inline void copy_words(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    while (n >= 8)
        move<std::uint64_t>(to, from, n);
    if (n >= 4)
        move<std::uint32_t>(to, from, n);
    if (n >= 2)
        move<std::uint16_t>(to, from, n);
    if (n)
        move<std::uint8_t>(to, from, n);
}

#if defined(__x86_64__)
constexpr std::size_t kHalf = 16;
constexpr std::size_t kVector = 32;
constexpr std::size_t kStride = 128;

// What every x86-64 processor has.
void copy_sse2(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    if (n >= kStride) {
        const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) & (kHalf - 1);
        copy_words(to, from, head);
        to += head, from += head, n -= head;
    }
    for (; n >= kHalf; to += kHalf, from += kHalf, n -= kHalf) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
        in_order();
    }
    copy_words(to, from, n);
}

__attribute__((target("avx2"))) inline void store(std::byte* p, __m256i v) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
    in_order();
}

__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from,
                                               std::size_t n) noexcept {
    if (n >= kStride) {
        const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) & (kVector - 1);
        copy_words(to, from, head);  // to an aligned store: no vector crosses a line
        to += head, from += head, n -= head;
    }
    for (; n >= kStride; to += kStride, from += kStride, n -= kStride) {
        const __m256i* v = reinterpret_cast<const __m256i*>(from);
        const __m256i v0 = _mm256_loadu_si256(v), v1 = _mm256_loadu_si256(v + 1);
        const __m256i v2 = _mm256_loadu_si256(v + 2), v3 = _mm256_loadu_si256(v + 3);
        store(to, v0);
        store(to + kVector, v1);
        store(to + 2 * kVector, v2);
        store(to + 3 * kVector, v3);
    }
    for (; n >= kVector; to += kVector, from += kVector, n -= kVector)
        store(to, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    copy_words(to, from, n);
}

#define NUPA_AVX512 __attribute__((target("avx512f,avx512bw,prfchw")))
constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 8 * kLine;

// Less than a line, in one store.  A mask of nothing is left out: on a page that is not there it
// traps into microcode.
NUPA_AVX512 inline void copy_part(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    if (n == 0)
        return;
    const __mmask64 bytes = (std::uint64_t{1} << n) - 1;
    _mm512_mask_storeu_epi8(to, bytes, _mm512_maskz_loadu_epi8(bytes, from));
    in_order();
}

NUPA_AVX512 inline void copy_line(std::byte* to, const std::byte* from) noexcept {
    _mm512_store_si512(to, _mm512_loadu_si512(from));
    in_order();
}

// One store for each line, and none that reaches into two.  Stores wait for their lines one after
// the other, so these are asked for in advance, but none that will not be written.
NUPA_AVX512 void copy_avx512(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    const std::size_t to_line = -reinterpret_cast<std::uintptr_t>(to) & (kLine - 1);
    const std::size_t head = to_line < n ? to_line : n;
    copy_part(to, from, head);
    to += head, from += head, n -= head;
    for (; n >= kAhead + kLine; to += kLine, from += kLine, n -= kLine) {
        __builtin_prefetch(to + kAhead, 1);
        copy_line(to, from);
    }
    for (; n >= kLine; to += kLine, from += kLine, n -= kLine)
        copy_line(to, from);
    copy_part(to, from, n);
}
#endif

#if defined(__x86_64__)
constexpr CopyWay kWays[] = {{"sse2", copy_sse2}, {"avx2", copy_avx2}, {"avx512", copy_avx512}};
// AMD's gain nothing by whole lines, and lose a tenth by asking for them in advance (Zen 5).
constexpr CopyWay kAmdWays[] = {{"sse2", copy_sse2}, {"avx512", copy_avx512}, {"avx2", copy_avx2}};

std::span<const CopyWay> ways() noexcept {
    if (!__builtin_cpu_supports("avx2"))
        return {kWays, 1};
    if (!__builtin_cpu_supports("avx512bw"))
        return {kWays, 2};
    return __builtin_cpu_is("amd") ? kAmdWays : kWays;
}
#else
constexpr CopyWay kWays[] = {{"words", copy_words}};

std::span<const CopyWay> ways() noexcept { return kWays; }
#endif

const std::span<const CopyWay> kHave = ways();

// A test that asks for a way which is not there must not pass by another one.
decltype(&copy_rising) chosen() noexcept {
    const char* wanted = std::getenv(kCopyVariable);
    if (!wanted || !*wanted)
        return kHave.back().copy;
    for (const CopyWay& way : copy_ways())
        if (std::string_view(wanted) == way.name)
            return way.copy;
    std::fprintf(stderr, "%s=%s: this processor has", kCopyVariable, wanted);
    for (const CopyWay& way : copy_ways())
        std::fprintf(stderr, " %s", way.name);
    std::fputc('\n', stderr);
    std::_Exit(EXIT_FAILURE);
}

const auto kChosenCopy = chosen();

}  // namespace

void copy_rising(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    kChosenCopy(to, from, bytes);
}

std::span<const CopyWay> copy_ways() noexcept { return kHave; }

const char* copy_way() noexcept {
    for (const CopyWay& way : copy_ways())
        if (way.copy == kChosenCopy)
            return way.name;
    return "";
}

}  // namespace nupa
