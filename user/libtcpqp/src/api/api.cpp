// SPDX-License-Identifier: BSD-3-Clause
// The C functions of level 1: check what the caller gave, ask the provider.
#include <tcp_qp/tcp_qp.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "engine/engine.hpp"
#include "provider/checks.hpp"
#include "provider/opts.hpp"

namespace tcpqp {
namespace {

// Set-up may throw; nothing leaves the C API.
template <typename Make>
int guarded(Make make) noexcept {
    try {
        return make();
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    } catch (const std::system_error& e) {
        return -e.code().value();
    } catch (...) {
        return -EIO;
    }
}

template <typename T>
int hand_out(Made<T>& made, T** out, uint32_t* reason) noexcept {
    if (reason != nullptr)
        *reason = made.reason;
    if (made.object)
        *out = made.object.release();
    return made.error;
}

// 0, -EINVAL or -EFAULT.
[[gnu::always_inline]] inline int check_work(const tcpqp_context& context,
                                             const tcpqp_work& work) noexcept {
    if (work.length > TCPQP_MESSAGE_MAX_BYTES || work.reserved != 0 ||
        (work.flags & ~uint32_t{TCPQP_F_IMM | TCPQP_F_MORE}) != 0)
        return -EINVAL;
    if (work.mr != nullptr)
        return &work.mr->context == &context && work.mr->holds(work.addr, work.length) ? 0
                                                                                       : -EFAULT;
    if (work.length == 0)
        return 0;
    return work.addr == nullptr || context.needs_mr ? -EFAULT : 0;
}

[[gnu::always_inline]] inline int check_all(const tcpqp_context& context,
                                            std::span<const tcpqp_work> works) noexcept {
    for (const tcpqp_work& work : works)
        if (const int error = check_work(context, work); error != 0)
            return error;
    return 0;
}

// 0 or -EINVAL.
int check_qp_opts(const tcpqp_qp_opts* from, int socket, QpRequest& request) noexcept {
    tcpqp_qp_opts o;
    if (!read_opts(from, o) || (o.flags & ~uint32_t{TCPQP_QP_F_NOWAIT}) != 0 ||
        (o.first == nullptr) != (o.first_count == 0))
        return -EINVAL;
    request.socket = socket;
    request.sends = o.sends != 0 ? o.sends : +TCPQP_DEPTH_DEFAULT;
    request.receives = o.receives != 0 ? o.receives : +TCPQP_DEPTH_DEFAULT;
    request.timeout_ms = o.timeout_ms != 0 ? o.timeout_ms : +TCPQP_TIMEOUT_DEFAULT_MS;
    request.nowait = (o.flags & TCPQP_QP_F_NOWAIT) != 0;
    request.zerocopy_bytes = o.zerocopy_bytes;
    request.first = {o.first, o.first_count};
    const bool sane = request.first.size() <= request.receives &&
                      request.sends <= TCPQP_DEPTH_MAX && request.receives <= TCPQP_DEPTH_MAX &&
                      request.timeout_ms > 0 && request.timeout_ms <= TCP_QP_ATTACH_TIMEOUT_MAX_MS;
    return sane ? 0 : -EINVAL;
}

}  // namespace
}  // namespace tcpqp

using namespace tcpqp;

extern "C" {

int tcpqp_context_create(const tcpqp_context_opts* opts, tcpqp_context** out, uint32_t* reason) {
    write_no_reason(reason);
    return guarded([&] {
        tcpqp_context_opts o;
        if (out == nullptr || !read_opts(opts, o) || engine_from_environment(o.engine) != 0 ||
            o.engine > TCPQP_ENGINE_STOCK || o.reserved != 0 || o.reserved2 != 0)
            return -EINVAL;
        Made<tcpqp_context> made = make_context(o.engine, o.ifname, o.socket > 0 ? o.socket : -1);
        return hand_out(made, out, reason);
    });
}

int tcpqp_context_destroy(tcpqp_context* context) {
    if (context == nullptr)
        return 0;
    if (context->children != 0)
        return -EBUSY;
    delete context;
    return 0;
}

uint32_t tcpqp_context_engine(const tcpqp_context* context) { return context->engine(); }

uint32_t tcpqp_context_reason(const tcpqp_context* context) { return context->reason; }

int tcpqp_mr_create(tcpqp_context* context, void* addr, size_t bytes, tcpqp_mr** out) {
    if (context == nullptr || addr == nullptr || bytes == 0 || out == nullptr)
        return -EINVAL;
    return guarded([&] {
        Made<tcpqp_mr> made = context->create_mr(addr, bytes);
        context->children += made.object ? 1 : 0;
        return hand_out(made, out, nullptr);
    });
}

int tcpqp_mr_create_dmabuf(tcpqp_context* context, int dmabuf, size_t bytes,
                           const tcpqp_dmabuf_opts* opts, tcpqp_mr** out) {
    tcpqp_dmabuf_opts o;
    if (context == nullptr || out == nullptr || !read_opts(opts, o))
        return -EINVAL;
    const DmabufRegion region{dmabuf, o.offset, o.addr, bytes};
    if (const int error = check_dmabuf(region); error != 0)
        return error;
    return guarded([&] {
        Made<tcpqp_mr> made = context->create_mr(region);
        context->children += made.object ? 1 : 0;
        return hand_out(made, out, nullptr);
    });
}

int tcpqp_mr_destroy(tcpqp_mr* mr) {
    if (mr == nullptr)
        return 0;
    if (mr->busy())
        return -EBUSY;
    tcpqp_context& context = mr->context;
    delete mr;
    context.children--;  // last: whoever sees it may destroy the context
    return 0;
}

namespace {
constexpr uint32_t kCqFlags = +TCPQP_CQ_F_SINGLE_THREADED | +TCPQP_CQ_F_SPINNING;
}

int tcpqp_cq_create(tcpqp_context* context, const tcpqp_cq_opts* opts, tcpqp_cq** out) {
    tcpqp_cq_opts o;
    if (context == nullptr || out == nullptr || !read_opts(opts, o) ||
        o.entries > TCPQP_CQ_ENTRIES_MAX || (o.flags & ~kCqFlags) != 0)
        return -EINVAL;
    return guarded([&] {
        Made<tcpqp_cq> made =
            context->create_cq(o.entries != 0 ? o.entries : +TCPQP_CQ_ENTRIES_DEFAULT, o.flags);
        context->children += made.object ? 1 : 0;
        return hand_out(made, out, nullptr);
    });
}

int tcpqp_cq_destroy(tcpqp_cq* cq) {
    if (cq == nullptr)
        return 0;
    if (cq->qps != 0)
        return -EBUSY;
    tcpqp_context& context = cq->context;
    delete cq;
    context.children--;
    return 0;
}

int tcpqp_cq_fd(tcpqp_cq* cq) { return cq == nullptr ? -EINVAL : cq->fd(); }

[[gnu::hot]] int tcpqp_poll(tcpqp_cq* cq, tcpqp_completion* out, size_t max) {
    if (cq == nullptr || out == nullptr || max == 0)
        return -EINVAL;
    return cq->poll({out, std::min<size_t>(max, TCPQP_CQ_ENTRIES_MAX)});
}

[[gnu::hot]] int tcpqp_wait(tcpqp_cq* cq, int timeout_ms) {
    return cq == nullptr ? -EINVAL : cq->wait(timeout_ms);
}

int tcpqp_qp_create(tcpqp_cq* cq, int socket, const tcpqp_qp_opts* opts, tcpqp_qp** out,
                    uint32_t* reason) {
    write_no_reason(reason);
    QpRequest request;
    if (cq == nullptr || out == nullptr)
        return -EINVAL;
    int error = check_qp_opts(opts, socket, request);
    if (error == 0)
        error = check_all(cq->context, request.first);
    if (error != 0)
        return error;
    return guarded([&] {
        Made<tcpqp_qp> made = cq->context.create_qp(*cq, request);
        cq->qps += made.object ? 1 : 0;
        return hand_out(made, out, reason);
    });
}

int tcpqp_qp_destroy(tcpqp_qp* qp) {
    if (qp == nullptr)
        return 0;
    tcpqp_cq& cq = qp->cq;
    delete qp;
    cq.qps--;
    return 0;
}

int tcpqp_qp_cancel(tcpqp_qp* qp) { return qp == nullptr ? -EINVAL : qp->cancel(); }

[[gnu::hot]] int tcpqp_post_send(tcpqp_qp* qp, const tcpqp_work* works, size_t count) {
    if (qp == nullptr || works == nullptr || count == 0)
        return -EINVAL;
    const int error = check_all(qp->cq.context, {works, count});
    return error != 0 ? error : qp->post_send({works, count});
}

[[gnu::hot]] int tcpqp_post_recv(tcpqp_qp* qp, const tcpqp_work* works, size_t count) {
    if (qp == nullptr || works == nullptr || count == 0)
        return -EINVAL;
    const int error = check_all(qp->cq.context, {works, count});
    return error != 0 ? error : qp->post_recv({works, count});
}

int tcpqp_qp_query(tcpqp_qp* qp, tcpqp_qp_info* info) {
    if (qp == nullptr || info == nullptr || info->size < sizeof(info->size) ||
        info->size > sizeof(*info))
        return -EINVAL;
    tcpqp_qp_info full{};
    const int error = qp->query(full);
    full.size = info->size;
    if (error == 0)
        std::memcpy(info, &full, info->size);
    return error;
}
}
