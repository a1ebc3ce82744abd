// SPDX-License-Identifier: BSD-3-Clause
// The sends of an end that its switch may complete, too (struct nupa_qp_sends): offload/sends.c.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstdint>
#include <deque>

#include "completion_ring.hpp"
#include "ram.hpp"
#include "stream.hpp"

namespace sim {

class SendTable {
public:
    SendTable(Ram& ram, std::uint64_t shadow_addr)
        : ram_(ram), at_(shadow_addr + offsetof(nupa_qp_shadow, sends)), cq_(ram) {}

    // ---- the host ----
    nupa_cmd_cq& cq_command() noexcept { return cq_.cmd; }
    // TCP hears that all before @una is acknowledged: what the switch has not completed, we do.
    void heard(std::uint32_t una);
    // The oldest messages of @out that are under way, and complete visibly.
    void post(const Stream& out, std::uint32_t una);
    // Another processor writes to the queue just now; somebody falls asleep until one comes.
    void own(bool host) noexcept { cq_.own(host); }
    void wait() noexcept { cq_.wait(); }

    // ---- what is right ----
    // The engine has seen a packet.  nullptr, or what is wrong: the peer has all before @held.
    const char* judge(const Stream& out, std::uint32_t held, bool completed);
    std::uint32_t judged() const noexcept { return judged_; }  // by the last packet
    bool under_way() const noexcept { return posted_ != word(offsetof(nupa_qp_sends, completed)); }
    bool waited_for() const noexcept { return cq_.waited_for(); }

private:
    struct Entry {
        std::size_t message;  // of the stream
        std::uint32_t end;
    };
    std::uint32_t word(std::size_t field) const noexcept {
        return ram_.get<std::uint32_t>(at_ + field);
    }
    static std::uint64_t name(std::size_t message) noexcept { return 0x5e9d0000ull + message; }
    void add(const Stream& out, std::size_t message);
    const char* judge_one(const Entry& entry, const Stream& out, std::uint32_t held);

    Ram& ram_;
    std::uint64_t at_;
    CompletionRing cq_;
    std::deque<Entry> entries_;  // that the host has not heard of
    std::size_t next_ = 0;       // none before it is added any more
    std::uint32_t posted_ = 0, heard_ = 0, seen_ = 0, judged_ = 0;
};

}  // namespace sim
