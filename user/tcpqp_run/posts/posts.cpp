// SPDX-License-Identifier: BSD-3-Clause
// libtcpqp-posts.so: a verbs program's posts to the module's queue pairs leave out the doorbell, a
// system call, where the kernel looks by itself.  The provider writes its rings as ever: it is its
// write() that does not happen.
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cstring>

#include "posts/doorbell.hpp"
#include "posts/provider.hpp"
#include "posts/queue.hpp"
#include "preload/next.hpp"

using namespace tcpqp::posts;

namespace {

constinit tcpqp::preload::Real<ssize_t(int, const void*, size_t)> real_write{"write"};

// Whose doorbell this thread's call into the provider is about to ring.
[[gnu::tls_model("initial-exec")]] constinit thread_local Queue* posting = nullptr;

[[gnu::constructor]] void begin() {
    real_write.find();
    begin_anew_in_children();
}

// What the provider writes: no request, for it has them in the ring.
bool is_doorbell(const Queue& queue, const void* data, size_t bytes) noexcept {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_post_send body;
    if (bytes != sizeof header + sizeof body)
        return false;
    std::memcpy(&header, data, sizeof header);
    std::memcpy(&body, static_cast<const unsigned char*>(data) + sizeof header, sizeof body);
    return header.command == IB_USER_VERBS_CMD_POST_SEND && body.qp_handle == queue.handle &&
           body.wr_count == 0;
}

Queue* watched(ibv_qp* qp) noexcept {
    Queue* queue = queue_of(qp);
    return queue != nullptr && queue->ring != nullptr ? queue : nullptr;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    posting = watched(qp);
    const int error = provider.post_send(qp, wr, bad);
    posting = nullptr;
    return error;
}

int wr_complete(ibv_qp_ex* qp) {
    posting = watched(&qp->qp_base);
    const int error = provider.wr_complete(qp);
    posting = nullptr;
    return error;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* wc) {
    const int found = provider.poll_cq(cq, most, wc);
    if (found == 0)
        ring_owed_if_free();
    return found;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
    const int error = provider.start_poll(cq, attr);
    if (error == ENOENT)
        ring_owed_if_free();
    return error;
}

// After it programs look once more, and then sleep.
int req_notify_cq(ibv_cq* cq, int solicited_only) {
    ring_owed();
    return provider.req_notify_cq(cq, solicited_only);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    ibv_qp* qp = provider.create_qp_ex(context, attr);
    if (qp == nullptr || (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0)
        return qp;
    auto* extended = verb<ibv_qp_ex*(ibv_qp*)>("ibv_qp_to_qp_ex");
    if (ibv_qp_ex* ex = extended != nullptr ? extended(qp) : nullptr) {
        lock();
        (void)replace(ex->wr_complete, provider.wr_complete, ours.wr_complete);
        unlock();
    }
    return qp;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    ibv_cq_ex* cq = provider.create_cq_ex(context, attr);
    if (cq != nullptr) {
        lock();
        (void)replace(cq->start_poll, provider.start_poll, ours.start_poll);
        unlock();
    }
    return cq;
}

}  // namespace

namespace tcpqp::posts {

constinit const Provider ours{post_send,    poll_cq,     req_notify_cq, create_qp_ex,
                              create_cq_ex, wr_complete, start_poll};

}  // namespace tcpqp::posts

extern "C" {

ibv_context* ibv_open_device(ibv_device* device) {
    static auto* real = verb<ibv_context*(ibv_device*)>("ibv_open_device");
    ibv_context* context = real(device);
    if (context != nullptr)
        take(context);
    return context;
}

int ibv_close_device(ibv_context* context) {
    static auto* real = verb<int(ibv_context*)>("ibv_close_device");
    forget_queues(context);
    return real(context);
}

int ibv_destroy_qp(ibv_qp* qp) {
    static auto* real = verb<int(ibv_qp*)>("ibv_destroy_qp");
    forget_queue(qp);
    return real(qp);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    static auto* real = verb<int(ibv_comp_channel*, ibv_cq**, void**)>("ibv_get_cq_event");
    ring_owed();
    return real(channel, cq, cq_context);
}

// Not noexcept: a point of cancellation.
ssize_t write(int fd, const void* data, size_t bytes) {
    Queue* queue = posting;
    if (queue != nullptr && fd == queue->cmd_fd && is_doorbell(*queue, data, bytes) &&
        leave_out(*queue))
        return static_cast<ssize_t>(bytes);
    return real_write(fd, data, bytes);
}
}
