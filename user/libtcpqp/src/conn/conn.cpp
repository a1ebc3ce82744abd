// SPDX-License-Identifier: BSD-3-Clause
#include "conn/conn.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace {

uint32_t head_bytes(const tcpqp_conn_opts& opts) noexcept {
    return (opts.flags & TCPQP_CONN_F_REFERENCES) != 0 ? uint32_t{tcpqp::kHeadBytes} : 0;
}

}  // namespace

tcpqp_conn::tcpqp_conn(const tcpqp_conn_opts& opts)
    : buffer_bytes_(opts.buffer_bytes),
      slot_bytes_(opts.buffer_bytes + head_bytes(opts)),
      buffers_(opts.buffers),
      memory_(size_t{2} * opts.buffers * slot_bytes_),
      receives_(memory_.all().first(memory_.size() / 2), opts.buffers, opts.first_buffers),
      sends_(memory_.all().subspan(memory_.size() / 2), opts.buffers, opts.first_buffers),
      slots_(size_t{2} * opts.buffers, Slot::kFree),
      ready_(opts.buffers) {
    free_.reserve(buffers_);
    if (head_bytes(opts) == 0)
        return;
    handover_ = std::make_unique<tcpqp::Handover>(buffer_bytes_, buffers_);
    leases_.resize(slots_.size());
}

tcpqp_conn::~tcpqp_conn() { tear_down(); }

void tcpqp_conn::tear_down() noexcept {
    qp_.reset();
    cq_.reset();
    receives_.clear();
    sends_.clear();
    context_.reset();
    free_.clear();
}

int tcpqp_conn::add_sends() noexcept {
    const uint32_t before = sends_.size();
    const int error = sends_.grow(*context_);
    const uint32_t first = handover_ ? std::max(before, 1U) : before;
    for (uint32_t i = first; i < sends_.size(); i++)
        free_.push_back(buffers_ + i);
    return error;
}

// The peer filled all that were posted, or sends long messages: it might have sent more.
void tcpqp_conn::add_receives() noexcept {
    const uint32_t before = receives_.size();
    (void)receives_.grow(*context_);
    for (uint32_t slot = before; slot < receives_.size(); slot++)
        post_receive(slot);
}

bool tcpqp_conn::is_held(const tcpqp_view& view) const noexcept {
    const bool is_streams = (has_partial_ && view.slot == partial_.slot) ||
                            (shown_left_ != 0 && view.slot == shown_.slot);
    return view.slot < slots_.size() && slots_[view.slot] == Slot::kHeld && !is_streams;
}

// One at a time: what the caller does not need stays in the cq, whose
// descriptor so stays readable.
bool tcpqp_conn::pump_one() noexcept {
    tcpqp_completion completion;
    const int n = cq_->poll({&completion, 1});
    if (n > 0)
        handle(completion);
    if (n < 0)
        receive_status_ = send_status_ = -ENOTCONN;
    return n > 0;
}

// Of a direction that has no work posted no completion tells that the queue pair has ended.
void tcpqp_conn::notice_end() noexcept {
    if ((posted_ != 0 && sending_ != 0) || !qp_->ended())
        return;
    if (posted_ == 0 && receive_status_ == 0)
        receive_status_ = -ENOTCONN;
    if (sending_ == 0 && send_status_ == 0)
        send_status_ = -ENOTCONN;
}

// What the stream's calls tell of must not stay in the cq: its descriptor would stay readable.
bool tcpqp_conn::pump_all() noexcept {
    bool moved = false;
    while (!waiting_ && pump_one())
        moved = true;
    if (moved)
        moved_.notify_all();
    return moved;
}

// One thread sleeps on the cq, any other on the condition: no wake-up is lost
// when one thread takes another's completion.
int tcpqp_conn::wait_until(Lock& lock, int timeout_ms, Condition done) noexcept {
    const tcpqp::Deadline deadline(timeout_ms);
    for (;;) {
        while (!(this->*done)() && !waiting_ && pump_one())
            moved_.notify_all();
        if (!(this->*done)())
            notice_end();
        if ((this->*done)())
            return 0;
        if (timeout_ms == 0)
            return -EAGAIN;
        const int left_ms = deadline.left_ms();
        if (left_ms == 0)
            return -ETIMEDOUT;
        if (waiting_) {
            if (left_ms < 0)
                moved_.wait(lock);
            else
                moved_.wait_for(lock, std::chrono::milliseconds(left_ms));
            continue;
        }
        waiting_ = true;
        lock.unlock();
        const int error = cq_->wait(left_ms);
        lock.lock();
        waiting_ = false;
        moved_.notify_all();
        if (error != 0 && error != -ETIMEDOUT)
            return error;
    }
}

void tcpqp_conn::handle(const tcpqp_completion& c) noexcept {
    const auto slot = static_cast<uint32_t>(c.id);
    if (c.opcode == TCPQP_OP_SEND) {
        sending_--;
        if (c.status != 0) {
            send_status_ = -ENOTCONN;
            lost_ = true;
        }
        if (slot < slots_.size())
            give_back(slot);
        tell_taken();
        after_send();
        return;
    }
    posted_--;
    if (c.status != 0) {
        slots_[slot] = Slot::kFree;
        if (receive_status_ == 0)
            receive_status_ = c.status == -EMSGSIZE ? -EMSGSIZE : -ENOTCONN;
        return;
    }
    if (handover_)
        handle_headed(slot, c.length);
    else
        push_ready({at(slot), c.length, c.imm, c.flags, slot});
    if (posted_ == 0 || c.length > buffer_bytes_ / 2)
        add_receives();
}

void tcpqp_conn::push_ready(const tcpqp_view& view) noexcept {
    slots_[view.slot] = Slot::kReady;
    ready_[(ready_head_ + ready_count_++) % ready_.size()] = view;
}

// The oldest is the caller's.
void tcpqp_conn::pop_ready() noexcept {
    slots_[ready_[ready_head_].slot] = Slot::kHeld;
    ready_head_ = (ready_head_ + 1) % ready_.size();
    ready_count_--;
}

tcpqp_work tcpqp_conn::receive_work(uint32_t slot) noexcept {
    return {slot, start_of(slot), slot_bytes_, 0, 0, 0, mr_of(slot)};
}

int tcpqp_conn::post_receive(uint32_t slot) noexcept {
    const tcpqp_work work = receive_work(slot);
    slots_[slot] = Slot::kPosted;
    const int n = qp_->post_recv({&work, 1});
    if (n > 0) {
        posted_++;
        return 0;
    }
    slots_[slot] = Slot::kFree;  // the connection has ended
    return n;
}

void tcpqp_conn::give_back(uint32_t slot) noexcept {
    if (is_receive(slot)) {
        post_receive(slot);
        return;
    }
    slots_[slot] = Slot::kFree;
    if (handover_ && slot == buffers_)
        return;
    free_.push_back(slot);
    if (waiting_)
        cq_->wake();
}

int tcpqp_conn::take_free(Lock& lock, int timeout_ms, uint32_t& slot) noexcept {
    int error = wait_until(lock, 0, &tcpqp_conn::has_free);
    if (error == -EAGAIN && sends_.may_grow() && add_sends() == 0)
        error = 0;
    if (error == -EAGAIN && timeout_ms != 0)
        error = wait_until(lock, timeout_ms, &tcpqp_conn::has_free);
    if (error != 0)
        return error;
    if (send_status_ != 0)
        return send_status_;
    slot = free_.back();
    free_.pop_back();
    slots_[slot] = Slot::kHeld;
    return 0;
}

int tcpqp_conn::start_send(const tcpqp_view& view) noexcept {
    if (handover_)
        return start_headed(view);
    const tcpqp_work work{view.slot, at(view.slot),   view.length, view.imm, view.flags,
                          0,         mr_of(view.slot)};
    slots_[view.slot] = Slot::kSending;
    const int error = post(work);
    if (error != 0)
        slots_[view.slot] = Slot::kHeld;
    return error;
}

int tcpqp_conn::post(const tcpqp_work& work) noexcept {
    const int n = qp_->post_send({&work, 1});
    if (n <= 0)
        return n;
    sending_++;
    return 0;
}

int tcpqp_conn::send(const void* data, size_t length, int timeout_ms) noexcept {
    if (length > buffer_bytes_)
        return -EMSGSIZE;
    Lock lock(lock_);
    uint32_t slot = 0;
    int error = send_partial();
    if (error == 0)
        error = take_free(lock, timeout_ms, slot);
    if (error != 0)
        return error;
    if (length != 0)
        std::memcpy(at(slot), data, length);
    error = start_send({at(slot), static_cast<uint32_t>(length), 0, 0, slot});
    if (error != 0)
        give_back(slot);
    return error;
}

int tcpqp_conn::buffer(tcpqp_view& view, int timeout_ms) noexcept {
    Lock lock(lock_);
    uint32_t slot = 0;
    const int error = take_free(lock, timeout_ms, slot);
    if (error == 0)
        view = {at(slot), buffer_bytes_, 0, 0, slot};
    if (error == 0 && handover_)
        lend(view);
    return error;
}

int tcpqp_conn::send_view(const tcpqp_view& view) noexcept {
    const Lock lock(lock_);
    if (!is_held(view) || (view.flags & ~uint32_t{TCPQP_F_IMM}) != 0)
        return -EINVAL;
    const bool is_leased = handover_ && leases_[view.slot];
    if (view.length > buffer_bytes_ || (is_leased && view.length > leases_[view.slot].bytes()))
        return -EMSGSIZE;
    const int error = send_partial();  // what was written to the stream before
    return error != 0 ? error : start_send(view);
}

int tcpqp_conn::recv(tcpqp_view& view, int timeout_ms) noexcept {
    Lock lock(lock_);
    const int error = wait_until(lock, timeout_ms, &tcpqp_conn::has_message);
    if (error != 0)
        return error;
    if (ready_count_ == 0)
        return receive_status_;
    tcpqp_view next = ready_[ready_head_];
    if (next.data == nullptr)
        if (const int refused = take_lease(next); refused != 0)
            return refused;
    pop_ready();
    view = next;
    tell_taken();
    return 0;
}

int tcpqp_conn::release(const tcpqp_view& view) noexcept {
    const Lock lock(lock_);
    if (!is_held(view))
        return -EINVAL;
    if (handover_)
        handover_->keep(std::move(leases_[view.slot]));
    give_back(view.slot);
    moved_.notify_all();
    return 0;
}

int tcpqp_conn::query(tcpqp_qp_info& info) noexcept {
    const int error = qp_->query(info);
    const Lock lock(lock_);
    if (error == 0 && handover_) {
        info.tx_reference_bytes = handover_->tx_bytes();
        info.rx_reference_bytes = handover_->rx_bytes();
    }
    return error;
}

int tcpqp_conn::cancel() noexcept {
    {
        const Lock lock(lock_);
        canceled_ = true;
    }
    const int error = qp_->cancel();
    cq_->wake();
    return error;
}

int tcpqp_conn::finish_sends(int timeout_ms) noexcept {
    Lock lock(lock_);
    send_partial();
    return wait_until(lock, timeout_ms, &tcpqp_conn::has_sent);
}
