// SPDX-License-Identifier: BSD-3-Clause
// The cases that a net plugin is held against.  All ranks enter a case; rank 0 and 1 are its two
// ends, others only join the handles' exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nccl_harness/comms.hpp"

namespace tcpqp::harness {

inline constexpr size_t kKib = 1024, kMib = 1024 * kKib;
// Behind each buffer that a message comes to: nobody writes there.
inline constexpr std::byte kGuard{0xa5};
inline constexpr size_t kGuardBytes = 64;

struct Env {
    Plugin& plugin;
    Ranks& ranks;
    int device;
    bool thorough;  // --long
    bool to_self;   // comms from a rank to itself; a forced engine has none on loopback
    uint64_t seed;
    double seconds;       // of the polled case; 0: a few hundred steps
    std::string program;  // this one, to start victims
    std::string merge;    // of what @device was made, for them; or nothing
    Memory& memory;       // of collectives, and of the case `device`

    [[nodiscard]] bool is_end() const noexcept { return ranks.rank() < 2; }
    [[nodiscard]] int peer() const noexcept { return 1 - ranks.rank(); }
    [[nodiscard]] bool is_ours() const { return plugin.name() == std::string_view("TCPQP"); }
    // NCCL's own IB transport, compiled as a plugin (docs/nccl.md): it takes more requests than
    // NCCL asks for, and waits for the first connection that says nothing.
    [[nodiscard]] bool is_ib() const { return plugin.name() == std::string_view("IB"); }
    // NULL comms on ranks that are no end.
    [[nodiscard]] Pair pair() const;
};

struct Case {
    const char* name;
    const char* what;
    void (*run)(Env& env);
};
std::span<const Case> cases() noexcept;

void case_symbols(Env& env);
void case_properties(Env& env);
void case_connect(Env& env);
void case_strays(Env& env);
void case_sizes(Env& env);
void case_outstanding(Env& env);
void case_grouped(Env& env);
void case_order(Env& env);
void case_preset(Env& env);
void case_ends(Env& env);
void case_memory(Env& env);
void case_threads(Env& env);
void case_random(Env& env);
void case_mixed(Env& env);
void case_polled(Env& env);
void case_device(Env& env);

// The process that case_ends() kills: connects to @handle (hex), sends for ever.
void be_victim(Plugin& plugin, int device, const std::string& handle);

// Descriptors and threads of this process.
struct Usage {
    size_t descriptors, threads;
};
Usage usage();

}  // namespace tcpqp::harness
