// SPDX-License-Identifier: BSD-3-Clause
// Making a connection's parts, and the choice of its engine with the peer.
#include <sys/socket.h>
#include <tcp_qp/tcp_qp.h>

#include <cerrno>
#include <system_error>

#include "conn/conn.hpp"
#include "engine/engine.hpp"
#include "kernel/context.hpp"
#include "provider/checks.hpp"
#include "provider/opts.hpp"
#include "userspace/frames/frame.hpp"
#include "userspace/queue/context.hpp"

using namespace tcpqp;

namespace {

constexpr int kAttachSliceMs = 250;

// A stock peer says hello at once; its bytes then wait in the plain stream.  One that can
// speak tcp_bth is met by the module.
bool peer_is_stock(int socket) noexcept {
    stock::FrameBytes bytes;
    stock::Frame frame;
    const ssize_t n = ::recv(socket, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    return n == static_cast<ssize_t>(bytes.size()) &&
           stock::decode(bytes.data(), frame) == TCPQP_REASON_NONE &&
           frame.type == stock::FrameType::kHello && !frame.can_option;
}

// Of the sends one is for heads that are no message.
bool check_flags(const tcpqp_conn_opts& o) noexcept {
    return (o.flags & ~uint32_t{TCPQP_CONN_F_REFERENCES}) == 0 &&
           (o.flags == 0 || (o.first_buffers >= 2 && o.buffer_bytes <= TCPQP_MESSAGE_MAX_BYTES));
}

bool check_opts(const tcpqp_conn_opts* from, tcpqp_conn_opts& o) noexcept {
    if (!read_opts(from, o) || engine_from_environment(o.engine) != 0)
        return false;
    o.buffer_bytes = o.buffer_bytes != 0 ? o.buffer_bytes : +TCPQP_BUFFER_DEFAULT_BYTES;
    o.buffers = o.buffers != 0 ? o.buffers : +TCPQP_BUFFERS_DEFAULT;
    o.first_buffers = o.first_buffers != 0 ? o.first_buffers : o.buffers;
    o.timeout_ms = o.timeout_ms != 0 ? o.timeout_ms : +TCPQP_TIMEOUT_DEFAULT_MS;
    return o.engine <= TCPQP_ENGINE_STOCK && o.buffers <= TCPQP_BUFFERS_MAX &&
           o.first_buffers <= o.buffers && check_flags(o) && o.timeout_ms > 0 &&
           o.timeout_ms <= TCP_QP_ATTACH_TIMEOUT_MAX_MS &&
           uint64_t{o.buffer_bytes} * o.buffers * 2 <= TCPQP_BUFFERS_MAX_BYTES;
}

}  // namespace

int tcpqp_conn::build(Made<tcpqp_context> context, int socket, int timeout_ms, uint32_t& reason) {
    reason = context.reason;
    if (!context.object)
        return context.error;
    context_ = std::move(context.object);
    if (const int error = open_buffers(); error != 0)
        return error;
    Made<tcpqp_cq> cq = context_->create_cq(3 * buffers_ + 1, 0);
    if (!cq.object)
        return cq.error;
    cq_ = std::move(cq.object);
    QpRequest request;
    request.socket = socket;
    request.sends = 2 * buffers_ + 1;  // views may be received ones; and the stream's end
    request.receives = buffers_;
    request.timeout_ms = timeout_ms;
    const std::vector<tcpqp_work> first = first_receives();
    request.first = first;
    Made<tcpqp_qp> qp = context_->create_qp(*cq_, request);
    if (qp.reason != TCPQP_REASON_NONE)
        reason = qp.reason;
    qp_ = std::move(qp.object);
    return qp.error;
}

int tcpqp_conn::open_buffers() {
    const int error = receives_.grow(*context_);
    return error != 0 ? error : add_sends();
}

// The peer may send at once, and nothing of it shall have to be copied.
std::vector<tcpqp_work> tcpqp_conn::first_receives() {
    std::vector<tcpqp_work> works;
    for (uint32_t slot = 0; slot < receives_.size(); slot++) {
        works.push_back(receive_work(slot));
        slots_[slot] = Slot::kPosted;
    }
    posted_ = receives_.size();
    return works;
}

// Half of the time for the better engine, so that the peer still waits; in slices,
// for a stock peer says so in the plain stream, perhaps only after we began.
int tcpqp_conn::open_verbs(int socket, const tcpqp_conn_opts& opts, uint32_t& reason) {
    const Deadline deadline(opts.timeout_ms / 2);
    for (int slice_ms = kAttachSliceMs; !peer_is_stock(socket); slice_ms *= 2) {
        const int left_ms = deadline.left_ms();
        const int error = build(make_verbs(TCPQP_ENGINE_AUTO, opts.ifname, socket), socket,
                                std::max(1, std::min(slice_ms, left_ms)), reason);
        if (error == 0)
            return 0;
        const bool may_be_stock = !context_ || reason == TCP_QP_REASON_NO_PEER_QP;
        const bool over = !context_ || left_ms <= slice_ms;
        tear_down();
        if (!may_be_stock || over)
            return may_be_stock ? -ENODEV : error;
    }
    reason = TCPQP_REASON_PEER_STOCK;
    return -ENODEV;
}

int tcpqp_conn::open_auto(int socket, const tcpqp_conn_opts& opts, const Deadline& deadline,
                          uint32_t& reason) {
    const int error = open_verbs(socket, opts, reason);
    if (error != -ENODEV)
        return error;
    Made<tcpqp_context> stock = make_stock();
    if (stock.object)
        stock.object->reason = stock.reason = reason;
    return build(std::move(stock), socket, deadline.left_ms(), reason);
}

int tcpqp_conn::open(int socket, uint32_t engine, const tcpqp_conn_opts& opts, uint32_t& reason) {
    const Deadline deadline(opts.timeout_ms);
    const int error = engine == TCPQP_ENGINE_AUTO ? open_auto(socket, opts, deadline, reason)
                                                  : build(make_context(engine, opts.ifname, socket),
                                                          socket, opts.timeout_ms, reason);
    return error == 0 && handover_ ? greet(deadline.left_ms()) : error;
}

extern "C" {

int tcpqp_open(int socket, const tcpqp_conn_opts* opts, tcpqp_conn** out, uint32_t* reason) {
    write_no_reason(reason);
    tcpqp_conn_opts o;
    if (out == nullptr || !check_opts(opts, o))
        return -EINVAL;
    uint32_t why = TCPQP_REASON_NONE;
    int error = 0;
    try {
        auto conn = std::make_unique<tcpqp_conn>(o);
        error = conn->open(socket, o.engine, o, why);
        if (error == 0)
            *out = conn.release();
    } catch (const std::system_error& e) {
        error = -e.code().value();
    } catch (...) {
        error = -ENOMEM;
    }
    if (reason != nullptr)
        *reason = why;
    return error;
}

int tcpqp_close(tcpqp_conn* conn, int timeout_ms) {
    if (conn == nullptr)
        return 0;
    const tcpqp::Deadline deadline(timeout_ms);
    int error = 0;
    do  // a signal is no reason to lose what was sent: nobody can call again
        error = conn->finish_sends(deadline.left_ms());
    while (error == -EINTR);
    delete conn;
    return error == -EAGAIN ? -ETIMEDOUT : error;
}

int tcpqp_send(tcpqp_conn* conn, const void* data, size_t length, int timeout_ms) {
    return conn == nullptr || (data == nullptr && length != 0)
               ? -EINVAL
               : conn->send(data, length, timeout_ms);
}

int tcpqp_recv(tcpqp_conn* conn, tcpqp_view* view, int timeout_ms) {
    return conn == nullptr || view == nullptr ? -EINVAL : conn->recv(*view, timeout_ms);
}

int tcpqp_release(tcpqp_conn* conn, tcpqp_view* view) {
    return conn == nullptr || view == nullptr ? -EINVAL : conn->release(*view);
}

int tcpqp_buffer(tcpqp_conn* conn, tcpqp_view* view, int timeout_ms) {
    return conn == nullptr || view == nullptr ? -EINVAL : conn->buffer(*view, timeout_ms);
}

int tcpqp_send_view(tcpqp_conn* conn, tcpqp_view* view) {
    return conn == nullptr || view == nullptr ? -EINVAL : conn->send_view(*view);
}

int tcpqp_conn_fd(tcpqp_conn* conn) { return conn == nullptr ? -EINVAL : conn->fd(); }

int tcpqp_conn_cancel(tcpqp_conn* conn) { return conn == nullptr ? -EINVAL : conn->cancel(); }

int tcpqp_conn_query(tcpqp_conn* conn, tcpqp_qp_info* info) {
    if (conn == nullptr || info == nullptr || info->size < sizeof(info->size) ||
        info->size > sizeof(*info))
        return -EINVAL;
    tcpqp_qp_info full{};
    const int error = conn->query(full);
    full.size = info->size;
    if (error == 0)
        std::memcpy(info, &full, info->size);
    return error;
}
}
