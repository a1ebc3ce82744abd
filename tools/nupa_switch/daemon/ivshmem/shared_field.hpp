// SPDX-License-Identifier: BSD-3-Clause
// Access to fields that a host writes at the same time: one load, one store, no tearing.
// All shared fields are little endian; so is every machine the switch runs on.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace nupa::daemon {

static_assert(std::endian::native == std::endian::little, "nupa_hw.h fields are little endian");

template <class T>
T load_acquire(const T& field) noexcept {
    return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
}

template <class T>
T load_relaxed(const T& field) noexcept {
    return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

template <class T>
void store_release(T& field, T value) noexcept {
    __atomic_store_n(&field, value, __ATOMIC_RELEASE);
}

// Between publishing an index and reading the other side's event index: without it both
// sides may see the old value of the other, and nobody signals.
inline void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

}  // namespace nupa::daemon
