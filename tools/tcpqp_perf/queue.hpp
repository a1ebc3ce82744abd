// SPDX-License-Identifier: BSD-3-Clause
// The same rounds over libtcpqp's level 1.
#pragma once

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory.hpp"
#include "round.hpp"
#include "sockets.hpp"
#include "tcpqp.hpp"

namespace perf {

struct Depth {
    uint32_t sends = 0;
    uint32_t receives = 0;
};

class Queue final : public Transport {
public:
    // Buffers for messages of up to @bytes_max; waits for the peer's queue pair.
    // Buffers lie in the pool if @pool.
    Queue(Socket socket, const tcpqp_context_opts& opts, uint32_t bytes_max, Depth depth,
          bool pool);
    Sample ask(const Round& round) override;
    void serve(const Round& round) override;
    [[nodiscard]] tcpqp_qp_info info() const noexcept { return qp_.info(); }
    // Of all receives: nobody's between rounds.
    [[nodiscard]] std::span<std::byte> receive_memory() noexcept {
        return memory_.bytes().first(size_t{depth_.receives} * stride_);
    }

private:
    Sample send_stream(const Round& round);
    Sample ping(const Round& round);
    void sink(const Round& round);
    // @flags: of the last message
    uint64_t send_batch(uint32_t bytes, uint64_t count, uint32_t flags = 0);
    bool take();
    void sleep() {
        const int error = cq_.wait(-1);
        if (error != 0 && error != -EINTR)
            fail(error, "wait");
    }
    void take_or_sleep();
    void repost(uint32_t flags = 0);
    void say(const Round& round);
    void await_message(const Round& round);
    // Completions lie in our memory, but the stock engine's: those a system call brings.
    [[nodiscard]] bool polls(const Round& round) const noexcept {
        return !round.events && engine_ != TCPQP_ENGINE_STOCK;
    }
    [[noreturn]] void fail(int error, const std::string& what);
    tcpqp_qp_opts qp_opts();
    tcpqp_work receive(uint32_t slot) noexcept;

    const Depth depth_;
    const uint32_t stride_;
    Socket socket_;
    Memory memory_;
    tcpqp::Context context_;
    tcpqp::MemoryRegion mr_;
    tcpqp::Completions cq_;
    std::vector<tcpqp_work> receives_;  // to be posted (again)
    std::vector<tcpqp_work> sends_;
    std::vector<tcpqp_completion> completions_;
    tcpqp::Qp qp_;
    const uint32_t engine_;
    uint64_t sending_ = 0;
    uint64_t received_ = 0;
};

}  // namespace perf
