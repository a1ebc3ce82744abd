// SPDX-License-Identifier: BSD-3-Clause
// Level 2: one connection with its own memory, cq and qp.
//
// Slots 0 .. buffers-1 are receives, the rest sends.  A slot is posted, ready
// (a message nobody took yet), held (the application's, or the stream's), sending
// or free.  The end of the stream is sent from no slot.
//
// With references (handover_) a slot begins with a message's head, and a held one may have a lease
// whose memory its view shows; the first of the sends is for heads that are no message.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "conn/buffers.hpp"
#include "conn/handover.hpp"
#include "conn/memory.hpp"
#include "provider/deadline.hpp"
#include "provider/provider.hpp"

struct tcpqp_conn {
public:
    // Throws std::bad_alloc, std::system_error.
    explicit tcpqp_conn(const tcpqp_conn_opts& opts);
    ~tcpqp_conn();

    int open(int socket, uint32_t engine, const tcpqp_conn_opts& opts, uint32_t& reason);
    int finish_sends(int timeout_ms) noexcept;

    int send(const void* data, size_t length, int timeout_ms) noexcept;
    int buffer(tcpqp_view& view, int timeout_ms) noexcept;
    int send_view(const tcpqp_view& view) noexcept;
    int recv(tcpqp_view& view, int timeout_ms) noexcept;
    int release(const tcpqp_view& view) noexcept;
    int cancel() noexcept;
    int query(tcpqp_qp_info& info) noexcept;
    [[nodiscard]] bool has_references() const noexcept { return handover_ != nullptr; }
    [[nodiscard]] int fd() noexcept { return cq_->fd(); }

    // As a stream: conn_stream.cpp.
    ssize_t write(const std::byte* data, size_t length, int timeout_ms) noexcept;
    ssize_t read(std::byte* data, size_t length, int timeout_ms) noexcept;
    ssize_t peek(tcpqp_view& view, int timeout_ms) noexcept;
    int consume(size_t bytes) noexcept;
    int flush(int timeout_ms) noexcept;
    int finish() noexcept;
    int ready() noexcept;

private:
    enum class Slot : uint8_t { kFree, kPosted, kReady, kHeld, kSending };
    using Lock = std::unique_lock<std::mutex>;

    int build(tcpqp::Made<tcpqp_context> context, int socket, int timeout_ms, uint32_t& reason);
    // -ENODEV: stock may do.
    int open_verbs(int socket, const tcpqp_conn_opts& opts, uint32_t& reason);
    int open_auto(int socket, const tcpqp_conn_opts& opts, const tcpqp::Deadline& deadline,
                  uint32_t& reason);
    void tear_down() noexcept;
    // What is waited for; may move messages, never sleeps.
    using Condition = bool (tcpqp_conn::*)() noexcept;
    bool has_message() noexcept { return ready_count_ != 0 || receive_status_ != 0; }
    bool has_free() noexcept { return !free_.empty() || send_status_ != 0; }
    int open_buffers();
    int add_sends() noexcept;
    void add_receives() noexcept;
    // Whose peer has gone hears no more of what it took.
    bool has_sent() noexcept {
        return (sending_ == 0 && (!handover_ || handover_->all_taken() || receive_status_ != 0)) ||
               send_status_ != 0;
    }
    bool has_hello() noexcept { return handover_->heard() || receive_status_ != 0; }
    // Of references: conn_references.cpp.
    int greet(int timeout_ms) noexcept;
    void tell_taken() noexcept;
    int post_head(uint32_t slot, const tcpqp::Head& head) noexcept;
    int start_headed(const tcpqp_view& view) noexcept;
    void handle_headed(uint32_t slot, uint32_t length) noexcept;
    void end_by(int status) noexcept;
    int take_lease(tcpqp_view& view) noexcept;
    void lend(tcpqp_view& view) noexcept;
    bool is_readable() noexcept {
        return shown_left_ != 0 || show_next() || peer_finished_ || receive_status_ != 0;
    }
    // Waits until @done, moving completions.  0, -EAGAIN, -ETIMEDOUT, -EINTR.
    int wait_until(Lock& lock, int timeout_ms, Condition done) noexcept;
    bool pump_one() noexcept;
    void notice_end() noexcept;
    void handle(const tcpqp_completion& completion) noexcept;
    std::vector<tcpqp_work> first_receives();
    tcpqp_work receive_work(uint32_t slot) noexcept;
    int post_receive(uint32_t slot) noexcept;
    bool pump_all() noexcept;
    int take_free(Lock& lock, int timeout_ms, uint32_t& slot) noexcept;
    int start_send(const tcpqp_view& view) noexcept;
    int post(const tcpqp_work& work) noexcept;
    int send_partial() noexcept;
    [[nodiscard]] bool is_idle_enough() const noexcept;
    void after_send() noexcept;
    // Bytes of @data that fit now, into the partly filled buffer or a new one.
    size_t fill(const std::byte* data, size_t length) noexcept;
    int open_partial(Lock& lock, int timeout_ms) noexcept;
    bool show_next() noexcept;
    int wait_readable(Lock& lock, int timeout_ms) noexcept;
    void consume_shown(size_t bytes) noexcept;
    [[nodiscard]] int broken(int status) const noexcept;
    [[nodiscard]] int write_status() const noexcept;
    void push_ready(const tcpqp_view& view) noexcept;
    void pop_ready() noexcept;
    void give_back(uint32_t slot) noexcept;
    [[nodiscard]] bool is_receive(uint32_t slot) const noexcept { return slot < buffers_; }
    [[nodiscard]] bool is_held(const tcpqp_view& view) const noexcept;
    // The whole slot, and what a message's bytes have of it.
    [[nodiscard]] std::byte* start_of(uint32_t slot) noexcept {
        return memory_.data() + size_t{slot} * slot_bytes_;
    }
    [[nodiscard]] std::byte* at(uint32_t slot) noexcept {
        return start_of(slot) + (slot_bytes_ - buffer_bytes_);
    }
    [[nodiscard]] tcpqp_mr* mr_of(uint32_t slot) const noexcept {
        return is_receive(slot) ? receives_.mr(slot) : sends_.mr(slot - buffers_);
    }

    const uint32_t buffer_bytes_;
    const uint32_t slot_bytes_;
    const uint32_t buffers_;
    tcpqp::Memory memory_;
    std::unique_ptr<tcpqp_context> context_;
    tcpqp::Buffers receives_, sends_;
    std::unique_ptr<tcpqp_cq> cq_;
    std::unique_ptr<tcpqp_qp> qp_;

    std::mutex lock_;
    std::condition_variable moved_;
    bool waiting_ = false;  // a thread sleeps on the cq; others on moved_
    std::vector<Slot> slots_;
    std::vector<uint32_t> free_;
    std::vector<tcpqp_view> ready_;  // a ring
    size_t ready_head_ = 0;
    size_t ready_count_ = 0;
    uint32_t sending_ = 0;
    uint32_t posted_ = 0;  // receives
    int receive_status_ = 0;
    int send_status_ = 0;
    bool lost_ = false;  // some of what was sent or written
    bool canceled_ = false;

    // of references
    std::unique_ptr<tcpqp::Handover> handover_;
    std::vector<tcpqp::MappedLease> leases_;  // of held slots
    uint64_t told_taken_ = 0;

    // of the stream
    tcpqp_view partial_{};  // our buffer that is not full yet, if has_partial_; its length so far
    bool has_partial_ = false;
    bool finished_ = false;
    tcpqp_view shown_{};     // the message being read, if shown_left_ != 0
    size_t shown_left_ = 0;  // of its end
    bool peer_finished_ = false;
};
