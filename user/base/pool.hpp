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
    [[nodiscard]] nupa_pool_info info() const;  // throws
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

private:
    Fd fd_;
};

}  // namespace tcpqp
