// SPDX-License-Identifier: BSD-3-Clause
// Option structs of callers that were built with another version of the header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tcpqp {

// What the caller's struct has of T, zero beyond; false: it is shorter than its
// own size field, or has something set that we don't know.
template <typename T>
bool read_opts(const T* from, T& to) noexcept {
    to = {};
    to.size = sizeof(T);
    if (from == nullptr)
        return true;
    size_t size = 0;
    std::memcpy(&size, from, sizeof(size));
    constexpr size_t kSizeMax = 4096;
    if (size < sizeof(size) || size > kSizeMax)
        return false;
    const auto* bytes = reinterpret_cast<const unsigned char*>(from);
    if (size > sizeof(T) &&
        std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; }))
        return false;
    std::memcpy(&to, from, std::min(size, sizeof(T)));
    return true;
}

}  // namespace tcpqp
