// SPDX-License-Identifier: BSD-3-Clause
#include "copy.hpp"

#include <cstdint>
#include <cstring>

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
constexpr std::size_t kVector = 32;
constexpr std::size_t kStride = 128;

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

const bool kHaveAvx2 = __builtin_cpu_supports("avx2");
#endif

}  // namespace

void copy_rising(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
    if (kHaveAvx2)
        return copy_avx2(to, from, bytes);
#endif
    copy_words(to, from, bytes);
}

}  // namespace nupa
