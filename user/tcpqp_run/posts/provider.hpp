// SPDX-License-Identifier: BSD-3-Clause
// What lies behind our functions: libibverbs', by its public names, and the provider's, by the
// public tables of a context, an extended queue pair and an extended completion queue.
#pragma once

#include <infiniband/verbs.h>

namespace tcpqp::posts {

// A function of the libibverbs that the program uses, which may have been loaded long after us and
// for one of its libraries alone; or none.
[[nodiscard]] void* find_verb(const char* name) noexcept;

template <typename Function>
[[nodiscard]] Function* verb(const char* name) noexcept {
    return reinterpret_cast<Function*>(find_verb(name));
}

// The provider's, one for all of its contexts.  Constant after the first context, the last two
// after the first object of their kind.
struct Provider {
    decltype(ibv_context_ops::post_send) post_send = nullptr;
    decltype(ibv_context_ops::poll_cq) poll_cq = nullptr;
    decltype(ibv_context_ops::req_notify_cq) req_notify_cq = nullptr;
    decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
    decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
    decltype(ibv_qp_ex::wr_complete) wr_complete = nullptr;
    decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
};

extern Provider provider;

// What these become.
extern const Provider ours;

// @now is @fresh from here on, and @known says what it was.  False: it is another than @known, and
// stays.
template <typename Function>
bool replace(Function& now, Function& known, Function fresh) noexcept {
    if (now == fresh)
        return true;
    if (now == nullptr || (known != nullptr && known != now))
        return false;
    known = now;
    now = fresh;
    return true;
}

// If the device is one of the module's; else it stays as it is, which is said once.
void take(ibv_context* context) noexcept;

}  // namespace tcpqp::posts
