// SPDX-License-Identifier: BSD-3-Clause
// An accelerator to test with (include/tcp_qp/nupa_accel.h), as programs use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "tcp_qp/nupa_accel.h"

namespace tcpqp {

// A place in one of its buffers.
struct AccelPlace {
    int fd = -1;
    uint64_t offset = 0;
};

class Accelerator {
public:
    // Throws std::system_error.
    explicit Accelerator(const std::string& path = "/dev/nupa_accel0");

    // The descriptor of a new buffer's dma-buf, all zero; throws.
    [[nodiscard]] Fd allocate(uint64_t bytes) const;
    [[nodiscard]] nupa_accel_info info() const;  // throws
    // 0 or errno: all commands, one after the other; each call says how it went.
    [[nodiscard]] int submit(std::span<nupa_accel_call> calls) const noexcept;
    // 0 or errno.
    [[nodiscard]] int revoke(int buffer) const noexcept;
    [[nodiscard]] int bell(uint32_t number, int eventfd) const noexcept;

    // One command each; they throw unless the accelerator did it.
    void copy(AccelPlace to, AccelPlace from, uint64_t bytes) const;
    void fill(AccelPlace to, uint64_t bytes, uint32_t value) const;
    // Byte i is (start + i + 1) mod period: ncqp's pattern.
    void pattern(AccelPlace to, uint64_t bytes, uint32_t period, uint64_t start) const;
    // How many bytes are equal before the first that is not.
    [[nodiscard]] uint64_t compare(AccelPlace from, AccelPlace other, uint64_t bytes) const;

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

private:
    uint64_t execute(nupa_accel_call call) const;

    Fd fd_;
};

nupa_accel_call accel_call(nupa_accel_op op, uint64_t bytes, AccelPlace to, AccelPlace from = {},
                           AccelPlace other = {}) noexcept;

}  // namespace tcpqp
