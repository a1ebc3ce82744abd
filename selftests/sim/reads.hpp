// SPDX-License-Identifier: BSD-3-Clause
// READs and atomics of one end, from the request to the end of the response,
// as kernel/tcp_qp/tx/requester.c; and the sinks they go to.
#pragma once

#include <array>
#include <cstdint>

#include "host.hpp"

extern "C" {
#include "wire/rxmsg.h"
}

namespace sim {

class End;

struct Read {
    bool waits = false;
    bool atomic = false;
    std::uint16_t msn = 0;
    std::uint32_t key = 0, length = 0;
    std::uint64_t va = 0;
    std::uint64_t value = 0;  // that the atomic must find
};

class Reads {
public:
    explicit Reads(End& end);

    // ---- application ----
    bool room() const noexcept { return waiting_ < kSinks; }
    bool idle() const noexcept { return waiting_ == 0; }
    // The sink is a free one of ours; the switch knows of it before the request leaves.
    const Read& begin(std::uint16_t msn, std::uint32_t length, bool atomic, std::uint64_t value);
    void flush();  // nothing will come any more: the sinks are the application's

    // ---- kernel ----
    // The READ that the response being received is for, or nullptr.
    const Read* expected(const tqp_rx_msg& msg) const noexcept;
    // Is [va, va + bytes) a sink that waits for @msn's response?
    const Region* reach(std::uint16_t msn, std::uint64_t va, std::uint64_t bytes) const noexcept;
    // Does [addr, addr + bytes) of host memory belong to any sink that waits?
    bool inside(std::uint64_t addr, std::uint64_t bytes) const;
    void done(std::uint16_t msn);

private:
    static constexpr std::size_t kSinks = 3;

    std::uint64_t shadow_slot(std::uint16_t msn) const noexcept;
    void poison(const Read& read);

    End& end_;
    std::array<Read, NUPA_READS_MAX> slots_{};
    std::array<bool, kSinks> busy_{};
    std::size_t waiting_ = 0;
    std::uint64_t sinks_ = 0, sink_bytes_ = 0;
};

}  // namespace sim
