// SPDX-License-Identifier: BSD-3-Clause
// A completion descriptor of tcp_qp (tcp_qp.h): waits for a queue by its ring, without
// arming it and without events to read; and rings doorbells in the same system call.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/fd.hpp"
#include "verbs/context.hpp"

namespace tcpqp {

class CqDescriptor {
public:
    // Throws std::system_error; EPROTONOSUPPORT: another kind of device, or an older module.
    CqDescriptor(const Context& context, const ibv_cq& cq);

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    // All return 0 or an errno.  Times are milliseconds, -1: no limit.
    [[nodiscard]] int wait(int timeout_ms) const noexcept;
    [[nodiscard]] int ring(uint32_t qp_number) const noexcept;
    [[nodiscard]] int ring_and_wait(uint32_t qp_number, int timeout_ms) const noexcept;
    // Readable, completions or not, until clear().
    [[nodiscard]] int signal() const noexcept;
    [[nodiscard]] int clear() const noexcept;

private:
    [[nodiscard]] int call(uint32_t flags, uint32_t qp_number, int timeout_ms) const noexcept;

    Fd fd_;
};

// Has the device's module completion descriptors?
[[nodiscard]] bool has_cq_descriptors(const Context& context) noexcept;

}  // namespace tcpqp
