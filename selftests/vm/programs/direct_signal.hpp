// SPDX-License-Identifier: BSD-3-Clause
// One of two ends between whose accelerators messages go to and fro.  A message is a payload and a
// line behind it whose last word is a flag, written to the other accelerator's memory.
//
// By the accelerators alone: all sends are posted ahead and wait for a bell; a batch of commands
// waits for a flag, compares what came, and rings.  Or by processes, which sleep for completions.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/accelerator.hpp"
#include "base/fd.hpp"
#include "verbs/context.hpp"
#include "verbs/cq.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace nupa::programs {

struct DirectOptions {
    uint32_t rounds = 56;            // there and back
    uint32_t payload_bytes = 16384;  // before the line; 0: the line alone
    bool begins = false;             // this end sends first
    bool may_copy = false;           // a processor may have to carry what was not placed
};

class DirectSignal {
public:
    static constexpr uint32_t kLineBytes = 512;  // of one segment, and sent from where it lies
    static constexpr uint32_t kRoundsMax = 56;
    static constexpr uint32_t kOverBell = 1;  // rung when the last round is over

    // Attaches @socket; @control is another connection to the same end.  Throws.
    DirectSignal(const tcpqp::Context& context, const tcpqp::Fd& control, tcpqp::Fd socket,
                 const DirectOptions& options);
    DirectSignal(const DirectSignal&) = delete;
    DirectSignal& operator=(const DirectSignal&) = delete;
    ~DirectSignal();

    // All sends of both ends are posted and held when it returns.
    void post_held(const tcpqp::Fd& control);
    // Sleeps until the accelerator has done its part: it begins with start(), rings kOverBell,
    // which signals over(), and ends with release(); these are for other threads and processes.
    void run_chain();
    void start() const noexcept { set(kStartAt); }
    void release() const noexcept { set(kReleaseAt); }
    [[nodiscard]] int over() const noexcept { return over_.get(); }
    // Returns when run_chain() of another thread sleeps; throws after a while.
    void wait_begun() const;
    // Nobody needs their descriptors then: they live with their regions and commands.
    void close_buffers() noexcept;

    // The same messages by this process, all receives of both ends being posted before.
    void post_receives(const tcpqp::Fd& control);
    void run_processes();

    // Throws unless every message was right and all sends are done, no byte of them in a
    // processor's hands.
    void check();
    void leave(const tcpqp::Fd& control);  // both are through

private:
    static constexpr uint64_t kStartAt = 0, kReleaseAt = 4;  // in the starting page

    [[nodiscard]] uint32_t message_bytes() const noexcept {
        return options_.payload_bytes + kLineBytes;
    }
    [[nodiscard]] uint64_t slot(uint32_t round) const noexcept {
        return uint64_t{round} * message_bytes();
    }
    [[nodiscard]] uint64_t flag_at(uint32_t round) const noexcept {
        return slot(round) + message_bytes() - sizeof(uint32_t);
    }
    void fill(const tcpqp::Fd& buffer, bool begins) const;
    void offer(const tcpqp::Fd& control);
    void set(uint64_t offset) const noexcept;
    void post(uint32_t round, bool notify, bool signal);
    void next_completion(ibv_wc_opcode wanted);
    [[nodiscard]] nupa_accel_call compare_call(uint32_t round) const noexcept;
    void add_round(uint32_t round);
    void submit(std::span<nupa_accel_call> calls) const;

    DirectOptions options_;
    tcpqp::Accelerator accelerator_;
    tcpqp::Fd out_, in_, right_, page_;
    uint32_t* page_at_ = nullptr;
    tcpqp::Mr out_mr_, in_mr_;
    tcpqp::CompletionQueue cq_;
    tcpqp::QueuePair qp_;
    const tcpqp::Context& context_;
    tcpqp::Fd socket_, bell_, over_;
    uint64_t peer_at_ = 0;
    uint32_t peer_key_ = 0;
    std::vector<nupa_accel_call> calls_;
    bool all_sent_ = false;
    std::atomic<pid_t> sleeper_{0};  // the thread of run_chain()
    uint64_t mapped_bytes_ = 0;      // of the accelerator's memory, before the first message
};

}  // namespace nupa::programs
