// SPDX-License-Identifier: BSD-3-Clause
// One lane towards a port: rate, a queue in front of it, marking and tail drop.
// Pure: takes the time, keeps only when the lane is free again.
#pragma once

#include <cstdint>

namespace nupa::daemon {

struct LinkConfig {
    static constexpr uint32_t kQueueDefaultBytes = 1 << 20;
    static constexpr uint32_t kRateMaxMbps = 10'000'000;

    uint32_t rate_mbps = 0;  // 0: no limit, nothing queues
    uint32_t queue_bytes = kQueueDefaultBytes;
    uint32_t ecn_bytes = 0;  // mark above this much queue; 0: never
    bool operator==(const LinkConfig&) const = default;
};

struct LinkVerdict {
    bool drop = false;
    bool mark = false;       // congestion experienced, if the packet is ECN capable
    uint64_t depart_ns = 0;  // when its last bit has left; at most now: at once
};

class LinkModel {
public:
    void configure(const LinkConfig& config) noexcept { config_ = config, free_at_ns_ = 0; }
    [[nodiscard]] const LinkConfig& config() const noexcept { return config_; }
    [[nodiscard]] bool limited() const noexcept { return config_.rate_mbps != 0; }
    LinkVerdict admit(uint64_t now_ns, uint32_t bytes) noexcept;

private:
    LinkConfig config_;
    uint64_t free_at_ns_ = 0;
};

}  // namespace nupa::daemon
