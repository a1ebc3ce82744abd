// SPDX-License-Identifier: BSD-3-Clause
#include "flood.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "pattern.hpp"

namespace nupa::programs {
namespace {

constexpr size_t kBatch = 32;

uint64_t message_key(uint64_t key, uint32_t number) noexcept { return mix(key * 1000003 + number); }

}  // namespace

Flood::Flood(const tcpqp::Context& context, tcpqp::Fd socket, const FloodOptions& options)
    : context_(context),
      o_(options),
      socket_(std::move(socket)),
      pages_(size_t{2} * o_.depth * o_.bytes),
      cq_(context, static_cast<int>(2 * o_.depth)),
      mr_(pages_.registered(context, IBV_ACCESS_LOCAL_WRITE)) {
    lkey_ = mr_.lkey();
    qp_.emplace(context, cq_, tcpqp::QpDepth{o_.depth, o_.depth});
    for (uint32_t i = 0; i < o_.depth; i++) {
        if (o_.sends)
            free_sends_.push_back(i);
        if (o_.receives)
            free_receives_.push_back(o_.depth + i);
    }
    while (!free_receives_.empty())
        post();
    attach();
}

void Flood::attach() {
    tcp_qp_attach_req request{};
    request.engine = o_.engine;
    request.timeout_ms = o_.attach_ms;
    attached_ = tcpqp::attach(context_, *qp_, socket_.get(), request);
    if (attached_.error)
        tcpqp::throw_errno(std::string("attach: ") + tcpqp::reason_name(attached_.response.reason),
                           attached_.error);
}

std::span<uint8_t> Flood::slot(uint32_t index) const noexcept {
    return pages_.bytes().subspan(size_t{index} * o_.bytes, o_.bytes);
}

tcpqp::Work Flood::work(uint32_t index, uint64_t flags, uint32_t imm) const noexcept {
    return {.cookie = flags | index,
            .address = slot(index).data(),
            .bytes = o_.bytes,
            .lkey = lkey_,
            .imm = imm};
}

void Flood::post() {
    while (!free_receives_.empty()) {
        const uint32_t index = free_receives_.front();
        const tcpqp::Work receive = work(index, kReceive, 0);
        if (int error = qp_->post_receives({&receive, 1}))
            return post_failed("post a receive", error);
        free_receives_.pop_front();
        receives_.push_back(index);
    }
    if (!attached_.response.engine)
        return;  // not attached yet
    while (free_sends_.size() >= o_.train && posted_ + o_.train <= o_.messages_max)
        if (!post_sends())
            return;
    (void)qp_->ring_doorbell();
}

// False: it could not.
bool Flood::post_sends() {
    std::vector<tcpqp::Work> works;
    for (uint32_t i = 0; i < o_.train; i++) {
        const auto number = static_cast<uint32_t>(posted_ + i);
        fill(slot(free_sends_[i]), message_key(o_.key, number));
        works.push_back(work(free_sends_[i], 0, number));
        works.back().without_imm = o_.train > 1;
    }
    // an error state shows as flushed completions, not here
    if (int error = qp_->post_sends(works); error && error != EINVAL) {
        post_failed("post sends", error);
        return false;
    }
    for (uint32_t i = 0; i < o_.train; i++, posted_++) {
        sends_.push_back(free_sends_.front());
        free_sends_.pop_front();
    }
    return true;
}

// EIO is the uverbs core's word for a device that is gone.
void Flood::post_failed(const char* what, int error) {
    if (error != EIO)
        tcpqp::throw_errno(what, error);
    device_gone_ = true;
}

bool Flood::poll_completions() {
    std::array<ibv_wc, kBatch> wcs;
    bool any = false;
    for (;;) {
        const int n = cq_.poll(wcs);
        if (n < 0)
            throw std::runtime_error("the completion queue is broken");
        for (int i = 0; i < n; i++)
            completion(wcs[static_cast<size_t>(i)]);
        if (!n)
            return any;
        any = true;
    }
}

void Flood::completion(const ibv_wc& wc) {
    const auto index = static_cast<uint32_t>(wc.wr_id);
    std::deque<uint32_t>& queue = wc.wr_id & kReceive ? receives_ : sends_;
    if (queue.empty() || queue.front() != index)
        throw WrongData("a completion for what was not next: twice, or out of order");
    queue.pop_front();
    if (wc.status != IBV_WC_SUCCESS) {
        errors_[wc.status]++;
        send_failed_ |= !(wc.wr_id & kReceive);
        return;
    }
    if (errors_.contains(IBV_WC_WR_FLUSH_ERR) || (send_failed_ && !(wc.wr_id & kReceive)))
        throw WrongData("a success after a flush, or a send's after another's error");
    if (wc.wr_id & kReceive) {
        received(wc, index);
        free_receives_.push_back(index);
    } else {
        sent_++;
        free_sends_.push_back(index);
    }
}

void Flood::received(const ibv_wc& wc, uint32_t index) {
    const uint32_t number =
        wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : static_cast<uint32_t>(received_);
    if (number != static_cast<uint32_t>(received_))
        throw WrongData("message " + std::to_string(number) + " where " +
                        std::to_string(received_) + " was next");
    received_++;
    if (wc.byte_len != o_.bytes)
        throw WrongData("message " + std::to_string(number) + " has " +
                        std::to_string(wc.byte_len) + " bytes");
    const size_t wrong = first_wrong(slot(index), message_key(o_.key, number));
    if (wrong != o_.bytes)
        throw WrongData("message " + std::to_string(number) + ": wrong byte at " +
                        std::to_string(wrong));
}

bool Flood::step(int ms) {
    if (errors_.empty())
        post();
    if (!device_gone_ && !cq_.arm())
        post_failed("arm the completion queue", errno);
    if (device_gone_)
        return false;
    if (!poll_completions()) {
        pollfd ready{cq_.fd(), POLLIN, 0};
        poll(&ready, 1, ms);
        cq_.consume_events();
        poll_completions();
    }
    return errors_.empty() && !device_gone_;
}

size_t Flood::drain(int ms) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(ms);
    constexpr int kLookMs = 20;
    poll_completions();
    while (!device_gone_ && !(sends_.empty() && receives_.empty()) && Clock::now() < deadline) {
        (void)cq_.arm();
        pollfd ready{cq_.fd(), POLLIN, 0};
        poll(&ready, 1, kLookMs);
        cq_.consume_events();
        poll_completions();
    }
    return device_gone_ ? 0 : sends_.size() + receives_.size();
}

std::span<uint8_t> Flood::revoke_memory() noexcept {
    mr_ = tcpqp::Mr();
    return pages_.bytes();
}

std::span<uint8_t> Flood::destroy_queue_pair() noexcept {
    qp_.reset();
    return pages_.bytes();
}

std::span<uint8_t> Flood::fail_queue_pair(int ms) {
    mover_ = std::jthread([qp = qp_->get()] {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    });
    if (const size_t left = drain(ms))
        throw std::runtime_error(std::to_string(left) + " work requests were not flushed");
    return pages_.bytes();
}

void Flood::reset_connection() noexcept {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    socket_.reset();
}

void Flood::close_socket() noexcept { socket_.reset(); }

void Flood::shut_down_sending() noexcept { shutdown(socket_.get(), SHUT_WR); }

tcp_qp_info Flood::info() const noexcept {
    tcp_qp_info info{};
    if (qp_)
        (void)tcpqp::query(context_, *qp_, info);
    return info;
}

std::string Flood::json() const {
    const tcp_qp_info i = info();
    std::string errors;
    for (const auto& [status, count] : errors_)
        errors += (errors.empty() ? "\"" : ", \"") + std::string(ibv_wc_status_str(status)) +
                  "\": " + std::to_string(count);
    return "{\"sent\": " + std::to_string(sent_) + ", \"received\": " + std::to_string(received_) +
           ", \"unfinished\": " + std::to_string(sends_.size() + receives_.size()) +
           ", \"engine\": " + std::to_string(attached_.response.engine) + ", \"reason\": \"" +
           tcpqp::reason_name(i.reason) +
           "\", \"delivered\": " + std::to_string(i.rx_delivered_bytes) +
           ", \"placed\": " + std::to_string(i.rx_placed_bytes) +
           ", \"copied\": " + std::to_string(i.rx_copied_bytes) +
           ", \"device_gone\": " + (device_gone_ ? "true" : "false") + ", \"errors\": {" + errors +
           "}}";
}

}  // namespace nupa::programs
