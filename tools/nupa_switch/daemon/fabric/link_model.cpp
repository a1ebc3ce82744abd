// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/link_model.hpp"

#include <algorithm>

#include "event/clock.hpp"

namespace nupa::daemon {
namespace {

constexpr uint64_t kBitsPerByte = 8;

}  // namespace

LinkVerdict LinkModel::admit(uint64_t now_ns, uint32_t bytes) noexcept {
    if (!limited())
        return {.depart_ns = now_ns};
    const uint64_t start = std::max(now_ns, free_at_ns_);
    const uint64_t queued_bytes = (start - now_ns) * config_.rate_mbps / kNsPerUs / kBitsPerByte;
    if (queued_bytes + bytes > config_.queue_bytes && queued_bytes)
        return {.drop = true};
    free_at_ns_ = start + bytes * kBitsPerByte * kNsPerUs / config_.rate_mbps;
    return {.mark = config_.ecn_bytes && queued_bytes >= config_.ecn_bytes,
            .depart_ns = free_at_ns_};
}

}  // namespace nupa::daemon
