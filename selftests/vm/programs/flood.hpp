// SPDX-License-Identifier: BSD-3-Clause
// One queue pair with messages of known bytes under way for as long as one steps
// it.  Accounts for every work request: each completes once, in order, with the
// right bytes or an error.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/fd.hpp"
#include "memory.hpp"
#include "verbs/attach.hpp"
#include "verbs/context.hpp"
#include "verbs/cq.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace nupa::programs {

struct FloodOptions {
    uint32_t engine = TCP_QP_ENGINE_AUTO;
    uint32_t depth = 8;
    uint32_t bytes = 64 << 10;  // of each message
    uint32_t train = 1;         // messages posted at once; several have no immediate
    uint64_t key = 1;           // of the messages' bytes; the same at both ends
    bool sends = true;
    bool receives = true;
    uint32_t attach_ms = 10000;
    uint64_t messages_max = UINT64_MAX;  // to send
};

// A message arrived with other bytes than were sent, twice, or out of order.
struct WrongData : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Flood {
public:
    // Throws std::system_error when a resource can't be had; attaches.
    Flood(const tcpqp::Context& context, tcpqp::Fd socket, const FloodOptions& options);

    // Posts what there is room for, waits up to @ms for completions and checks
    // them.  False once a work request ended with an error.  Throws WrongData.
    bool step(int ms);
    // Posts what there is room for.
    void post();
    // Waits until all that was posted has completed; how many have not in @ms.
    size_t drain(int ms);

    // Takes the memory back; the returned pages are nobody's but the caller's.
    std::span<uint8_t> revoke_memory() noexcept;
    std::span<uint8_t> destroy_queue_pair() noexcept;
    // Moves it to the error state; returns with the last of the flushed
    // completions, whether that move is over or not.
    std::span<uint8_t> fail_queue_pair(int ms);
    void reset_connection() noexcept;  // SO_LINGER 0 and close
    void close_socket() noexcept;
    void shut_down_sending() noexcept;  // FIN

    [[nodiscard]] uint64_t sent() const noexcept { return sent_; }
    [[nodiscard]] uint64_t received() const noexcept { return received_; }
    // The RDMA device was removed: every call fails, completions no longer come.
    [[nodiscard]] bool device_gone() const noexcept { return device_gone_; }
    [[nodiscard]] tcpqp::Fd& socket() noexcept { return socket_; }
    // Counters of the queue pair; zeros after it is destroyed.
    [[nodiscard]] tcp_qp_info info() const noexcept;
    [[nodiscard]] std::string json() const;

private:
    static constexpr uint64_t kReceive = uint64_t{1} << 32;

    void attach();
    bool poll_completions();
    void completion(const ibv_wc& wc);
    bool post_sends();
    void post_failed(const char* what, int error);
    void received(const ibv_wc& wc, uint32_t slot);
    [[nodiscard]] std::span<uint8_t> slot(uint32_t index) const noexcept;
    [[nodiscard]] tcpqp::Work work(uint32_t index, uint64_t flags, uint32_t imm) const noexcept;

    const tcpqp::Context& context_;
    FloodOptions o_;
    tcpqp::Fd socket_;
    Pages pages_;
    tcpqp::CompletionQueue cq_;
    tcpqp::Mr mr_;
    uint32_t lkey_ = 0;
    std::optional<tcpqp::QueuePair> qp_;
    std::deque<uint32_t> free_sends_, free_receives_, sends_, receives_;  // slots
    uint64_t posted_ = 0, sent_ = 0, received_ = 0;
    std::map<ibv_wc_status, uint64_t> errors_;
    bool send_failed_ = false;
    bool device_gone_ = false;
    tcpqp::Attached attached_;
    std::jthread mover_;
};

}  // namespace nupa::programs
