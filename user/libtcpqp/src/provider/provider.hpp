// SPDX-License-Identifier: BSD-3-Clause
// What an engine has to offer.  The public handles are these objects.
// All functions return 0 or a count, or a negative errno.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tcpqp.h"

namespace tcpqp {

// Checked options of a queue pair.
struct QpRequest {
    int socket = -1;
    uint32_t sends = 0;
    uint32_t receives = 0;
    int timeout_ms = 0;
    bool nowait = false;
    uint32_t zerocopy_bytes = 0;        // 0: never
    std::span<const tcpqp_work> first;  // receives; sane, as many as fit
};

// Checked; @address: what work requests call the region's first byte.
struct DmabufRegion {
    int fd = -1;
    uint64_t offset = 0;
    void* address = nullptr;
    size_t bytes = 0;
};

template <typename T>
struct Made {
    std::unique_ptr<T> object;
    int error = 0;  // negative errno if there is no object
    uint32_t reason = TCPQP_REASON_NONE;
};

}  // namespace tcpqp

struct tcpqp_mr {
    tcpqp_mr(tcpqp_context& owner, void* at, size_t n) noexcept
        : context(owner), address(static_cast<std::byte*>(at)), bytes(n) {}
    virtual ~tcpqp_mr() = default;
    [[nodiscard]] virtual bool busy() const noexcept = 0;
    [[nodiscard]] bool holds(const void* at, size_t n) const noexcept {
        const uintptr_t offset =
            reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(address);
        return offset <= bytes && n <= bytes - offset;
    }
    tcpqp_context& context;
    std::byte* const address;
    const size_t bytes;
};

struct tcpqp_cq {
    explicit tcpqp_cq(tcpqp_context& owner) noexcept : context(owner) {}
    virtual ~tcpqp_cq() = default;
    [[nodiscard]] virtual int fd() noexcept = 0;
    virtual int poll(std::span<tcpqp_completion> out) noexcept = 0;
    virtual int wait(int timeout_ms) noexcept = 0;
    // The thread in wait(), or the next one, comes back, with nothing to poll perhaps.
    virtual void wake() noexcept = 0;
    tcpqp_context& context;
    std::atomic<unsigned> qps{0};
};

struct tcpqp_qp {
    explicit tcpqp_qp(tcpqp_cq& queue) noexcept : cq(queue) {}
    // No buffer is touched any more when it returns.
    virtual ~tcpqp_qp() = default;
    // Works are sane by themselves (lengths, mr); as many as fit.
    virtual int post_send(std::span<const tcpqp_work> works) noexcept = 0;
    virtual int post_recv(std::span<const tcpqp_work> works) noexcept = 0;
    virtual int cancel() noexcept = 0;
    // It takes no more work.  What is posted completes; who has nothing posted is told nothing.
    [[nodiscard]] virtual bool ended() noexcept = 0;
    virtual int query(tcpqp_qp_info& info) noexcept = 0;
    tcpqp_cq& cq;
};

struct tcpqp_context {
    explicit tcpqp_context(bool wants_mr) noexcept : needs_mr(wants_mr) {}
    virtual ~tcpqp_context() = default;
    [[nodiscard]] virtual uint32_t engine() const noexcept = 0;
    virtual tcpqp::Made<tcpqp_mr> create_mr(void* at, size_t bytes) = 0;
    virtual tcpqp::Made<tcpqp_mr> create_mr(const tcpqp::DmabufRegion& region) = 0;
    virtual tcpqp::Made<tcpqp_cq> create_cq(uint32_t entries, uint32_t flags) = 0;
    virtual tcpqp::Made<tcpqp_qp> create_qp(tcpqp_cq& cq, const tcpqp::QpRequest& request) = 0;
    const bool needs_mr;
    uint32_t reason = TCPQP_REASON_NONE;  // why not a better engine
    std::atomic<unsigned> children{0};
};
