// SPDX-License-Identifier: BSD-3-Clause
// Loads and stores in wire (big) and device (little) order, and the one-time
// reads of memory that a guest may be writing.
#pragma once

#include <tcp_qp/tcp_bth.h>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nupa {

static_assert(std::endian::native == std::endian::little, "the device ABI is read in place");

inline std::uint16_t get_be16(const std::uint8_t* p) noexcept { return tcp_bth_get16(p); }
inline std::uint32_t get_be32(const std::uint8_t* p) noexcept { return tcp_bth_get32(p); }
inline void put_be16(std::uint8_t* p, std::uint16_t v) noexcept { tcp_bth_put16(p, v); }
inline void put_be32(std::uint8_t* p, std::uint32_t v) noexcept { tcp_bth_put32(p, v); }

// One load of shared memory, ordered before everything that follows.  @p must
// be 4-byte aligned.
inline std::uint32_t load_acquire32(const std::byte* p) noexcept {
    return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(p), __ATOMIC_ACQUIRE);
}

// Copies a trivially copyable object out of memory the guest may change meanwhile.
template <class T>
T copy_once(const std::byte* p) noexcept {
    T value;
    std::memcpy(&value, p, sizeof value);
    __asm__ volatile("" ::: "memory");  // the compiler may not read @p again
    return value;
}

}  // namespace nupa
