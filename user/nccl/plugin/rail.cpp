// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/rail.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "nccl/plugin/interfaces.hpp"
#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kDrainBytes = 4096;
constexpr int kDrainStepMs = 2;

std::string_view forced_engine() noexcept {
    const char* word = ::secure_getenv("TCPQP_ENGINE");
    return word != nullptr ? word : "";
}

// What waits unread would make close() reset the connection, and what TCP has not delivered yet
// would be lost.
void discard_input(int socket) noexcept {
    std::array<char, kDrainBytes> nowhere;
    while (::recv(socket, nowhere.data(), nowhere.size(), MSG_DONTWAIT) > 0) {
    }
}

void deliver(int socket, int limit_ms) noexcept {
    const auto until = Clock::now() + std::chrono::milliseconds(limit_ms);
    ::shutdown(socket, SHUT_WR);
    for (int unacknowledged = 0; Clock::now() < until;) {
        discard_input(socket);
        if (::ioctl(socket, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= 1)  // 1: the FIN
            return;
        pollfd gone{socket, 0, 0};  // POLLHUP, POLLERR
        if (::poll(&gone, 1, kDrainStepMs) > 0)
            return;
    }
}

}  // namespace

bool Rail::must_module() noexcept {
    return forced_engine() == "offload" || forced_engine() == "software";
}

Rail::~Rail() { end(); }

int Rail::probe() {
    tcpqp_context_opts opts{};
    opts.size = sizeof(opts);
    opts.socket = socket_.get();
    uint32_t reason = TCPQP_REASON_NONE;
    tcpqp_context* context = nullptr;
    const int error = tcpqp_context_create(&opts, &context, &reason);
    if (error != 0) {
        warn("no engine for %s: %s (%s: %s)%s", text().c_str(), std::strerror(-error),
             tcpqp_reason_name(reason), tcpqp_reason_text(reason),
             forced_engine().empty() ? "" : "; TCPQP_ENGINE forces one");
        return error;
    }
    context_.reset(context);
    can_module_ = tcpqp_context_engine(context) != TCPQP_ENGINE_STOCK;
    return 0;
}

int Rail::open(Carrier carrier, Depth depth) {
    if (carrier == Carrier::kStock && can_module_) {
        tcpqp_context_opts opts{};
        opts.size = sizeof(opts);
        opts.engine = TCPQP_ENGINE_STOCK;
        tcpqp_context* context = nullptr;
        uint32_t reason = TCPQP_REASON_NONE;
        const int error = tcpqp_context_create(&opts, &context, &reason);
        if (error != 0) {
            warn("%s: the peer has no tcp_qp device, and the stock engine is refused here: %s",
                 text().c_str(), std::strerror(-error));
            return error;
        }
        context_.reset(context);
        can_module_ = false;
    }
    tcpqp_cq_opts queue{};
    queue.size = sizeof(queue);
    queue.entries = depth.sends + depth.receives;
    queue.flags = TCPQP_CQ_F_SPINNING;  // NCCL's proxy does
    tcpqp_cq* cq = nullptr;
    if (const int error = tcpqp_cq_create(context_.get(), &queue, &cq); error != 0) {
        warn("%s: no completion queue: %s", text().c_str(), std::strerror(-error));
        return error;
    }
    cq_.reset(cq);
    tcpqp_qp_opts opts{};
    opts.size = sizeof(opts);
    opts.sends = depth.sends;
    opts.receives = depth.receives;
    opts.flags = TCPQP_QP_F_NOWAIT;
    tcpqp_qp* qp = nullptr;
    uint32_t reason = TCPQP_REASON_NONE;
    if (const int error = tcpqp_qp_create(cq, socket_.get(), &opts, &qp, &reason); error != 0) {
        warn("%s: no queue pair: %s (%s: %s)", text().c_str(), std::strerror(-error),
             tcpqp_reason_name(reason), tcpqp_reason_text(reason));
        return error;
    }
    qp_.reset(qp);
    tcpqp_qp_info info{};
    info.size = sizeof(info);
    if (tcpqp_qp_query(qp, &info) == 0)
        engine_ = info.engine;
    const uint32_t why = tcpqp_context_reason(context_.get());
    nccl::info("%s: engine %s%s%s", text().c_str(), tcpqp_engine_name(engine_),
               why != TCPQP_REASON_NONE ? ", since " : "",
               why != TCPQP_REASON_NONE ? tcpqp_reason_text(why) : "");
    return 0;
}

std::string Rail::peer() const {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
        return "a peer that has gone";
    return text_of(address);
}

std::string Rail::text() const { return interface_ + " to " + peer(); }

int Rail::poll(std::span<tcpqp_completion> out) noexcept {
    return qp_ ? tcpqp_poll(cq_.get(), out.data(), out.size()) : 0;
}

uint32_t Rail::reason() const noexcept {
    tcpqp_qp_info info{};
    info.size = sizeof(info);
    return qp_ && tcpqp_qp_query(qp_.get(), &info) == 0 ? info.reason : +TCPQP_REASON_NONE;
}

void Rail::end() noexcept {
    qp_.reset();
    cq_.reset();
}

void Rail::hang_up() noexcept {
    end();
    ::shutdown(socket_.get(), SHUT_RDWR);
}

void Rail::finish() noexcept {
    const bool opened = is_open();
    end();
    if (opened)
        deliver(socket_.get(), kCloseLimitMs);
    socket_.reset();
}

void Rail::report(const char* more) const {
    tcpqp_qp_info i{};
    i.size = sizeof(i);
    if (!qp_ || tcpqp_qp_query(qp_.get(), &i) != 0)
        return;
    nccl::info(
        "%s closes: engine %s, %ju bytes sent (%ju by reference), %ju received, %ju placed "
        "by the switch, %ju copied%s",
        text().c_str(), tcpqp_engine_name(i.engine), static_cast<uintmax_t>(i.tx_bytes),
        static_cast<uintmax_t>(i.tx_zerocopy_bytes), static_cast<uintmax_t>(i.rx_bytes),
        static_cast<uintmax_t>(i.rx_placed_bytes), static_cast<uintmax_t>(i.rx_copied_bytes), more);
}

}  // namespace tcpqp::nccl
