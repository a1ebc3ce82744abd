// SPDX-License-Identifier: BSD-3-Clause
// Level 2: one connection with its own memory, cq and qp.
//
// Slots 0 .. buffers-1 are receives, the rest sends.  A slot is posted, ready
// (a message nobody took yet), held (the application's), sending or free.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "deadline.hpp"
#include "memory.hpp"
#include "provider.hpp"

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
    int cancel() noexcept { return qp_->cancel(); }
    int query(tcpqp_qp_info& info) noexcept { return qp_->query(info); }
    [[nodiscard]] int fd() noexcept { return cq_->fd(); }

private:
    enum class Slot : uint8_t { kFree, kPosted, kReady, kHeld, kSending };
    using Lock = std::unique_lock<std::mutex>;

    int build(tcpqp::Made<tcpqp_context> context, int socket, int timeout_ms, uint32_t& reason);
    // -ENODEV: stock may do.
    int open_verbs(int socket, const tcpqp_conn_opts& opts, uint32_t& reason);
    int open_auto(int socket, const tcpqp_conn_opts& opts, const tcpqp::Deadline& deadline,
                  uint32_t& reason);
    void tear_down() noexcept;
    // Waits until @done, moving completions.  0, -EAGAIN, -ETIMEDOUT, -EINTR.
    template <typename Done>
    int wait_until(Lock& lock, int timeout_ms, Done done) noexcept;
    bool pump_one() noexcept;
    void handle(const tcpqp_completion& completion) noexcept;
    std::vector<tcpqp_work> first_receives();
    tcpqp_work receive_work(uint32_t slot) noexcept;
    int post_receive(uint32_t slot) noexcept;
    int take_free(Lock& lock, int timeout_ms, uint32_t& slot) noexcept;
    int start_send(const tcpqp_view& view) noexcept;
    void give_back(uint32_t slot) noexcept;
    [[nodiscard]] bool is_receive(uint32_t slot) const noexcept { return slot < buffers_; }
    [[nodiscard]] bool is_held(const tcpqp_view& view) const noexcept;
    [[nodiscard]] std::byte* at(uint32_t slot) noexcept {
        return memory_.data() + size_t{slot} * buffer_bytes_;
    }

    const uint32_t buffer_bytes_;
    const uint32_t buffers_;
    tcpqp::Memory memory_;
    std::unique_ptr<tcpqp_context> context_;
    std::unique_ptr<tcpqp_mr> mr_;
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
    int receive_status_ = 0;
    int send_status_ = 0;
};
