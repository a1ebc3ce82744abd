// SPDX-License-Identifier: BSD-3-Clause
// Indices and words that a fake port shares with the switch.
#pragma once

namespace nupa::testing {

template <class T>
T load(const T& field) {
    return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
}

template <class T>
void store(T& field, T value) {
    __atomic_store_n(&field, value, __ATOMIC_RELEASE);
}

}  // namespace nupa::testing
