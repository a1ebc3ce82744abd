// SPDX-License-Identifier: BSD-3-Clause
// Memory the device may reach: registered on construction, revoked on destruction.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "verbs/context.hpp"

namespace tcpqp {

class Mr {
public:
    Mr() = default;
    // access: IBV_ACCESS_*; 0 lets the device read only.  On failure the object
    // is empty and errno says why (EFAULT, EOPNOTSUPP: pages that can't be pinned).
    Mr(const Context& context, void* address, size_t bytes, int access) noexcept;
    // The same for [offset, offset + bytes) of a dma-buf, named by addresses from @iova on.
    // librxe (rdma-core 44) has no ibv_reg_dmabuf_mr(), so this asks the kernel itself.
    Mr(const Context& context, int dmabuf, uint64_t offset, size_t bytes, uint64_t iova,
       int access) noexcept;
    Mr(Mr&& other) noexcept { swap(other); }
    Mr& operator=(Mr&& other) noexcept {
        Mr(std::move(other)).swap(*this);
        return *this;
    }
    ~Mr();

    explicit operator bool() const noexcept { return lkey_ != 0; }
    [[nodiscard]] ibv_mr* get() const noexcept { return mr_; }  // nullptr of a dma-buf
    [[nodiscard]] uint32_t lkey() const noexcept { return lkey_; }

private:
    void swap(Mr& other) noexcept {
        std::swap(mr_, other.mr_);
        std::swap(cmd_fd_, other.cmd_fd_);
        std::swap(handle_, other.handle_);
        std::swap(lkey_, other.lkey_);
    }

    ibv_mr* mr_ = nullptr;
    int cmd_fd_ = -1;  // of a dma-buf's
    uint32_t handle_ = 0;
    uint32_t lkey_ = 0;  // no region's is 0
};

}  // namespace tcpqp
