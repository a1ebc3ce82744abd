// SPDX-License-Identifier: BSD-3-Clause
// Doorbells that are left out, and those that are rung for them in the end.
//
// The kernel finds what was posted to a queue that it watches, in TQP_WATCH_US at the latest.  A
// program that looks for completions and finds none has nothing better to do than to ring.
#pragma once

#include "posts/queue.hpp"

namespace tcpqp::posts {

// Its producer index was stored.  May the doorbell be left out?
[[nodiscard]] bool leave_out(Queue& queue) noexcept;

// For all that the kernel has not looked at since.  Keeps errno.
void ring_owed() noexcept;
// The same, unless another thread does it, or nothing is owed.
void ring_owed_if_free() noexcept;
void ring_owed_locked() noexcept;
// In a child of fork(): the posts are its parent's, and their descriptors may be anything here.
void forget_owed() noexcept;

}  // namespace tcpqp::posts
