// SPDX-License-Identifier: BSD-3-Clause
// Memory of the switch's pool (include/tcp_qp/nupa_pool.h), as programs use it.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "tcp_qp/nupa_pool.h"

namespace tcpqp {

inline constexpr const char* kPoolPath = "/dev/nupa_pool0";

class Pool {
public:
    // Throws std::system_error.
    explicit Pool(const std::string& path = kPoolPath);

    // The descriptor of a new lease's dma-buf, all zero; throws.
    [[nodiscard]] Fd allocate(uint64_t bytes) const;
    // Its token: whoever is told it may take the lease, whose descriptor is to be kept until then.
    [[nodiscard]] uint64_t offer(const Fd& lease) const;  // throws
    // A lease that somebody offered, with what is in it; throws.
    [[nodiscard]] Fd take(uint64_t token, uint64_t bytes) const;
    [[nodiscard]] nupa_pool_info info() const;  // throws
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

private:
    Fd fd_;
};

}  // namespace tcpqp
