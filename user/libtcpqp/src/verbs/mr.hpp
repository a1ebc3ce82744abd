// SPDX-License-Identifier: BSD-3-Clause
// Memory the device may reach: registered on construction, revoked on destruction.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "verbs/context.hpp"

namespace tcpqp {

class Mr {
public:
    Mr() = default;
    // access: IBV_ACCESS_*; 0 lets the device read only.  On failure the object
    // is empty and errno says why (EFAULT, EOPNOTSUPP: pages that can't be pinned).
    Mr(const Context& context, void* address, size_t bytes, int access) noexcept;

    explicit operator bool() const noexcept { return mr_ != nullptr; }
    [[nodiscard]] uint32_t lkey() const noexcept { return mr_->lkey; }

private:
    struct Deregister {
        void operator()(ibv_mr* mr) const noexcept { ibv_dereg_mr(mr); }
    };
    std::unique_ptr<ibv_mr, Deregister> mr_;
};

}  // namespace tcpqp
