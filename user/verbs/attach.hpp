// SPDX-License-Identifier: BSD-3-Clause
// What verbs lack: giving a connected TCP socket to a queue pair, and its counters.
#pragma once

#include <tcp_qp/tcp_qp.h>

#include "verbs/context.hpp"
#include "verbs/qp.hpp"

namespace tcpqp {

struct Attached {
    int error = 0;                  // errno; 0: the socket now carries the queue pair
    tcp_qp_attach_resp response{};  // reason is set on failure too, where one is known
};

// Blocks until the peer has attached too or the request's time is over.  A
// signal interrupts it (EINTR); the socket is then plain TCP again.
[[nodiscard]] Attached attach(const Context& context, const QueuePair& qp, int socket,
                              const tcp_qp_attach_req& request) noexcept;

[[nodiscard]] int query(const Context& context, const QueuePair& qp, tcp_qp_info& info) noexcept;

// A bell (tcp_qp.h): each signal of @eventfd lets @count more of the sends go, which wait for it
// from now on.  @eventfd -1, @count 0: no bell any more.  0 or an errno.
[[nodiscard]] int set_bell(const Context& context, const QueuePair& qp, int eventfd,
                           uint32_t count) noexcept;

// Does this RDMA device have the attach method?  A rxe device on the same
// netdev speaks the same user ABI but has not.
[[nodiscard]] bool is_tcp_qp(const Context& context) noexcept;

[[nodiscard]] const char* reason_name(uint32_t reason) noexcept;
[[nodiscard]] const char* reason_text(uint32_t reason) noexcept;
[[nodiscard]] const char* engine_name(uint32_t engine) noexcept;

}  // namespace tcpqp
