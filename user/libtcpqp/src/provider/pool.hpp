// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tcp_qp/nupa_pool.h>

#include <cstddef>

namespace tcpqp {

inline constexpr const char* kPoolPath =
    "/dev/nupa_pool0";  // of a host's window to the switch's pool

// What a lease of at least @bytes has.
constexpr size_t whole_pages(size_t bytes) noexcept {
    return (bytes + NUPA_POOL_PAGE_BYTES - 1) / NUPA_POOL_PAGE_BYTES * NUPA_POOL_PAGE_BYTES;
}

}  // namespace tcpqp
