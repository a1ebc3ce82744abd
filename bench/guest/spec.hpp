// SPDX-License-Identifier: BSD-3-Clause
// What one measurement is: "transport=tcp,bytes=1048576,flows=1,...".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nupa::bench {

inline constexpr uint64_t kMessageMaxBytes = 64 << 20;
inline constexpr uint32_t kFlowsMax = 16384;
inline constexpr uint32_t kMixedMinBytes = 128;

struct Spec {
    std::string transport = "tcp";
    std::string mode = "stream";  // or "pingpong"
    uint32_t bytes = 1 << 20;     // of a message
    uint32_t flows = 1;
    uint64_t messages = 0;          // of all flows; 0: as many as pass in ms
    uint32_t ms = 200;              // when messages is 0
    uint64_t warm_bytes = 8 << 20;  // sent before anything is counted
    uint32_t depth = 0;             // messages under way on a flow; 0: by size
    uint32_t batch = 0;             // work requests handed over at once; 0: by depth
    uint32_t burst = 0;             // largest IPv4 burst of the interface; 0: as it is
    uint32_t mtu = 0;               // of the interface; 0: as it is
    bool poll = false;              // spin on the completion queue instead of sleeping
    bool calls = false;             // count system calls, which costs a little itself
    bool mixed = false;             // lengths are a mix, of up to bytes
    bool scattered = false;  // buffers of 4 KiB pages that do not follow each other in memory
    bool waitall = false;    // plain TCP receives whole messages, by MSG_WAITALL
    bool pool = false;       // buffers in a lease of the switch's pool, of a queue pair
    bool memory = false;     // report the kernel memory that the connections took

    [[nodiscard]] bool pingpong() const noexcept { return mode == "pingpong"; }
};

// Throws std::invalid_argument that names the word it does not know.
[[nodiscard]] Spec parse_spec(std::string_view text);
[[nodiscard]] std::string to_text(const Spec& spec);
[[nodiscard]] std::string to_json(const Spec& spec);

}  // namespace nupa::bench
