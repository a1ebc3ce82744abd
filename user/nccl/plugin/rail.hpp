// SPDX-License-Identifier: BSD-3-Clause
// One connection of a comm: its socket and queue pair.
//   probe()   what this end could do, before the ends have agreed
//   open()    the queue pair, as agreed; never waits for the peer
#pragma once

#include <tcpqp.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "nccl/plugin/messages.hpp"

namespace tcpqp::nccl {

template <typename T, auto kDestroy>
struct Destroyer {
    void operator()(T* object) const noexcept { static_cast<void>(kDestroy(object)); }
};
using Context = std::unique_ptr<tcpqp_context, Destroyer<tcpqp_context, tcpqp_context_destroy>>;
using Cq = std::unique_ptr<tcpqp_cq, Destroyer<tcpqp_cq, tcpqp_cq_destroy>>;
using Qp = std::unique_ptr<tcpqp_qp, Destroyer<tcpqp_qp, tcpqp_qp_destroy>>;
using Region = std::unique_ptr<tcpqp_mr, Destroyer<tcpqp_mr, tcpqp_mr_destroy>>;

struct Depth {
    uint32_t sends, receives;
};

class Rail {
public:
    Rail(Fd socket, std::string interface) noexcept
        : socket_(std::move(socket)), interface_(std::move(interface)) {}
    Rail(Rail&&) noexcept = default;
    Rail& operator=(Rail&&) = delete;
    ~Rail();

    // 0 or a negative errno, with a warning.
    int probe();
    [[nodiscard]] bool can_module() const noexcept { return can_module_; }
    [[nodiscard]] static bool must_module() noexcept;
    int open(Carrier carrier, Depth depth);

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] tcpqp_context* context() const noexcept { return context_.get(); }
    [[nodiscard]] tcpqp_qp* qp() const noexcept { return qp_.get(); }
    [[nodiscard]] bool is_open() const noexcept { return qp_ != nullptr; }
    [[nodiscard]] bool is_stock() const noexcept { return engine_ == TCPQP_ENGINE_STOCK; }
    [[nodiscard]] bool needs_regions() const noexcept { return can_module_; }
    [[nodiscard]] std::string peer() const;
    [[nodiscard]] std::string text() const;  // "eth0 to 10.0.0.2:4711"

    // Completions taken, or a negative errno.
    int poll(std::span<tcpqp_completion> out) noexcept;
    // Why the queue pair ended, an enum tcpqp_reason.
    [[nodiscard]] uint32_t reason() const noexcept;
    // From its return on no buffer of posted work is read or written any more.
    void end() noexcept;
    // As end(), and the peer learns it now.
    void hang_up() noexcept;
    // As end(), but for up to kCloseLimitMs TCP may deliver what was handed to it.
    void finish() noexcept;
    // One line of what the connection did, and @more.
    void report(const char* more) const;

private:
    Fd socket_;
    std::string interface_;
    bool can_module_ = false;
    uint32_t engine_ = TCPQP_ENGINE_AUTO;
    Context context_;
    Cq cq_;
    Qp qp_;
};

}  // namespace tcpqp::nccl
