// SPDX-License-Identifier: BSD-3-Clause
#include "qp_session.hpp"

#include <fmt/core.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "base/route.hpp"
#include "stop.hpp"
#include "verbs/device.hpp"

namespace ncqp {
namespace {

uint32_t attach_engine(Engine engine) noexcept {
    switch (engine) {
        case Engine::kOffload:
            return TCP_QP_ENGINE_OFFLOAD;
        case Engine::kSoftware:
            return TCP_QP_ENGINE_SOFTWARE;
        default:
            return TCP_QP_ENGINE_AUTO;
    }
}

uint32_t attach_flags(const Options& o) noexcept {
    if (!o.wire)
        return 0;
    return *o.wire == 0 ? TCP_QP_ATTACH_F_WIRE_V0 : TCP_QP_ATTACH_F_WIRE_V1;
}

// What a user can do about it.
const char* advice(uint32_t reason) noexcept {
    switch (reason) {
        case TCP_QP_REASON_SOCKET_STATE:
        case TCP_QP_REASON_PEER_CLOSED:
            return "; did the peer give up? Its own message says why";
        case TCP_QP_REASON_NO_PEER_QP:
            return "; run ncqp with a queue pair engine there, or use --engine tcp at both ends";
        case TCP_QP_REASON_NO_OFFLOAD_DEVICE:
            return "; use --engine software, or a nupa interface";
        case TCP_QP_REASON_OTHER_DEVICE:
            return "; name the route's interface with -f, or leave -f out";
        case TCP_QP_REASON_OFFLOAD_REFUSED:
            return "; --engine software or auto does without";
        case TCP_QP_REASON_NO_SG:
            return "; turn it on (ethtool -K IF sg on), or use --engine tcp at both ends";
        default:
            return "";
    }
}

// The last reason may also be an old one: why auto took software.
bool ends_connection(uint32_t reason) noexcept {
    return reason == TCP_QP_REASON_OFFLOAD_GONE || reason == TCP_QP_REASON_LOCAL_ERROR ||
           reason == TCP_QP_REASON_URGENT || reason == TCP_QP_REASON_DEVICE_QUEUE ||
           reason == TCP_QP_REASON_EARLIER_QP;
}

}  // namespace

Status qp_precheck(const Options& options) {
    // an unknown interface is told by the socket, which knows it too
    const bool known = !options.ifname.empty() && ::if_nametoindex(options.ifname.c_str()) != 0;
    try {
        if (known)
            std::ignore = tcpqp::open_device(options.ifname);
        else
            tcpqp::require_module("INTERFACE");
    } catch (const std::exception& e) {
        return Status::failure(e.what());
    }
    return {};
}

QpSession::QpSession(Job& job, uint32_t depth) : job_(job) {
    if (Status s = find_interface(ifname_); !s.ok())
        throw std::runtime_error(s.text());
    context_ = tcpqp::open_device(ifname_);
    const auto entries = static_cast<uint32_t>(depth + kControlSlots);
    cq_ = std::make_unique<tcpqp::CompletionQueue>(*context_, static_cast<int>(2 * entries));
    control_memory_.resize(2 * kControlSlots * kControlBytes);
    control_mr_ = tcpqp::Mr(*context_, control_memory_.data(), control_memory_.size(),
                            IBV_ACCESS_LOCAL_WRITE);
    if (!control_mr_)
        tcpqp::throw_errno("register memory (see `ulimit -l`)");
    qp_ = std::make_unique<tcpqp::QueuePair>(*context_, *cq_, tcpqp::QpDepth{entries, entries});
}

Status QpSession::find_interface(std::string& ifname) {
    ifname = job_.options.ifname;
    if (!ifname.empty())
        return {};
    const int error = tcpqp::route_interface(job_.connection.fd.get(), ifname);
    if (error == 0)
        return {};
    if (error == ENETUNREACH)
        return Status::failure("the connection has no route; name the interface with -f");
    return Status::failure(fmt::format("find the connection's route: {}", std::strerror(error)));
}

Status QpSession::attach() {
    tcp_qp_attach_req request{};
    request.engine = attach_engine(job_.options.engine);
    request.flags = attach_flags(job_.options);
    request.timeout_ms =
        std::min<uint32_t>(static_cast<uint32_t>(job_.options.timeout_ms(kAttachTimeoutDefault_ms)),
                           TCP_QP_ATTACH_TIMEOUT_MAX_MS);
    const tcpqp::Attached attached =
        tcpqp::attach(*context_, *qp_, job_.connection.fd.get(), request);
    job_.report.reason = tcpqp::reason_name(attached.response.reason);
    if (attached.error != 0)
        return attach_failure(attached);
    job_.connection.has_queue_pair = true;
    job_.report.engine = tcpqp::engine_name(attached.response.engine);
    job_.report.wire_version = attached.response.wire_version;
    job_.report.mss = attached.response.mss;
    if (attached.response.reason != TCP_QP_REASON_NONE && !job_.options.quiet)
        fmt::print(stderr, "ncqp: {} engine: {}\n", job_.report.engine,
                   tcpqp::reason_text(attached.response.reason));
    return {};
}

Status QpSession::attach_failure(const tcpqp::Attached& attached) const {
    if (stop_requested())
        return interrupted();
    const uint32_t reason = attached.response.reason;
    if (reason != TCP_QP_REASON_NONE)
        return Status::failure(fmt::format("no queue pair on this connection ({}): {}{}",
                                           job_.report.reason, tcpqp::reason_text(reason),
                                           advice(reason)));
    return Status::failure(fmt::format("no queue pair on this connection (device {} on {}): {}",
                                       context_->name(), ifname_, std::strerror(attached.error)));
}

Status QpSession::post_control_receives(size_t count) noexcept {
    for (size_t i = 0; i < count; i++) {
        if (control_receives_ == kControlSlots)
            return Status::failure("too many control messages");
        const size_t slot = control_receives_++;
        const tcpqp::Work work{kCookieControlReceive | slot,
                               control_memory_.data() + slot * kControlBytes, kControlBytes,
                               control_mr_.lkey(), 0};
        if (Status s = post_receives({&work, 1}); !s.ok())
            return s;
    }
    return {};
}

Status QpSession::send_control(const Control& control) noexcept {
    if (control_sends_ == kControlSlots)
        return Status::failure("too many control messages");
    const size_t slot = kControlSlots + control_sends_++;
    std::byte* at = control_memory_.data() + slot * kControlBytes;
    encode(control, std::span<std::byte, kControlBytes>(at, kControlBytes));
    const tcpqp::Work work{kCookieControlSend | slot, at, kControlBytes, control_mr_.lkey(),
                           immediate_of(control.type)};
    return post_sends({&work, 1});
}

std::optional<Control> QpSession::control_of(const ibv_wc& wc) const noexcept {
    const size_t slot = wc.wr_id & kCookieIndexMask;
    return decode({control_memory_.data() + slot * kControlBytes, wc.byte_len});
}

Status QpSession::post_sends(std::span<const tcpqp::Work> works) noexcept {
    const int error = qp_->post_sends(works);
    if (error == 0)
        return {};
    return Status::failure(fmt::format("post a send: {}", std::strerror(error)));
}

Status QpSession::post_receives(std::span<const tcpqp::Work> works) noexcept {
    const int error = qp_->post_receives(works);
    if (error == 0)
        return {};
    return Status::failure(fmt::format("post a receive: {}", std::strerror(error)));
}

Status QpSession::ring_doorbell() noexcept {
    const int error = qp_->ring_doorbell();
    if (error == 0)
        return {};
    return Status::failure(fmt::format("ring the doorbell: {}", std::strerror(error)));
}

// Armed before the last empty poll, so that nothing slips between poll and wait.
Status QpSession::reap(std::span<const ibv_wc>& out) noexcept {
    int n = cq_->poll(batch_);
    if (n == 0 && !armed_) {
        if (!cq_->arm())
            return Status::failure("arm the completion queue");
        armed_ = true;
        n = cq_->poll(batch_);
    }
    if (n < 0)
        return Status::failure("the completion queue is broken");
    out = {batch_.data(), static_cast<size_t>(n)};
    return {};
}

Status QpSession::wait(int extra_fd, int timeout_ms, const char* what) noexcept {
    std::array<pollfd, 3> fds{
        {{cq_->fd(), POLLIN, 0}, {context_->event_fd(), POLLIN, 0}, {extra_fd, POLLIN, 0}}};
    if (Status s = wait_for(fds, timeout_ms, what); !s.ok())
        return s;
    if (fds[0].revents != 0) {
        cq_->consume_events();
        armed_ = false;
    }
    if (fds[1].revents == 0)
        return {};
    while (auto event = context_->event())
        if (*event == IBV_EVENT_DEVICE_FATAL)
            return Status::failure("the RDMA device was removed");
    // other events come with completions that tell more
    return {};
}

Status QpSession::failure_of(const ibv_wc& wc) noexcept {
    tcp_qp_info info{};
    if (tcpqp::query(*context_, *qp_, info) == 0 && info.reason < TCP_QP_REASON_COUNT &&
        info.reason != TCP_QP_REASON_NONE)
        job_.report.reason = tcpqp::reason_name(info.reason);
    switch (wc.status) {
        case IBV_WC_WR_FLUSH_ERR:
            if (info.reason == TCP_QP_REASON_PROTOCOL)
                return Status::failure(
                    fmt::format("the peer went away in the middle of a message after {} bytes, or "
                                "broke the tcp_bth protocol",
                                job_.report.bytes));
            if (ends_connection(info.reason))
                return Status::failure(fmt::format("the connection broke after {} bytes: {}",
                                                   job_.report.bytes,
                                                   tcpqp::reason_text(info.reason)));
            return Status::failure(fmt::format("the peer went away after {} bytes, before the end",
                                               job_.report.bytes));
        case IBV_WC_LOC_LEN_ERR:
            return Status::failure("the peer sent a message longer than the posted buffer");
        default:
            return Status::failure(fmt::format("work completion: {} (status {})",
                                               ibv_wc_status_str(wc.status),
                                               static_cast<int>(wc.status)));
    }
}

void QpSession::mark_counters() noexcept {
    if (tcpqp::query(*context_, *qp_, base_) != 0)
        base_ = {};
}

void QpSession::account() noexcept {
    tcp_qp_info now{};
    if (tcpqp::query(*context_, *qp_, now) != 0)
        return;
    job_.report.tx_zerocopy_bytes = now.tx_zerocopy_bytes - base_.tx_zerocopy_bytes;
    if (job_.report.role == "sender") {
        job_.report.copied_bytes = now.tx_copied_bytes - base_.tx_copied_bytes;
    } else {
        job_.report.placed_bytes = now.rx_placed_bytes - base_.rx_placed_bytes;
        job_.report.copied_bytes = now.rx_copied_bytes - base_.rx_copied_bytes;
        job_.report.delivered_bytes = now.rx_delivered_bytes - base_.rx_delivered_bytes;
    }
    job_.report.wire_version = now.wire_version;
    if (now.mss != 0)
        job_.report.mss = now.mss;
}

}  // namespace ncqp
