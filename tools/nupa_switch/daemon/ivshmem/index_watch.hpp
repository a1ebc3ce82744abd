// SPDX-License-Identifier: BSD-3-Clause
// How long an empty ring's index is looked at before its host is asked for a doorbell again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace nupa::daemon {

// Of one ring.  A watch lasts as long as work keeps coming, and ends when nothing came for its
// length.  That follows the host: it doubles when a doorbell told of work that a longer watch would
// have seen, and is halved when the ring was empty for longer than any watch.  (KVM polls for a
// halted processor's wake-up in the same way.)  Pure: times are the caller's.
class IndexWatch {
public:
    static constexpr uint64_t kMinNs = 50'000;
    static constexpr uint64_t kMaxNs = 2'000'000;  // unless the operator says otherwise

    explicit IndexWatch(uint64_t max_ns = kMaxNs) noexcept : max_ns_(max_ns) {}

    // Work begins.  If the ring was armed, a doorbell told of it.
    void begin(uint64_t now_ns) noexcept {
        if (!armed_)
            return;
        armed_ = false;
        if (now_ns - empty_ns_ <= max_ns_)
            length_ns_ = std::min(std::max(2 * length_ns_, kMinNs), max_ns_);
        else
            length_ns_ = length_ns_ / 2 < kMinNs ? 0 : length_ns_ / 2;
    }
    // The ring has nothing left.
    void emptied(uint64_t now_ns) noexcept { empty_ns_ = now_ns; }
    void armed() noexcept { armed_ = true; }
    // For none, or for long enough.
    [[nodiscard]] bool over(uint64_t now_ns) const noexcept {
        return now_ns - empty_ns_ >= length_ns_;
    }
    [[nodiscard]] uint64_t length_ns() const noexcept { return length_ns_; }

private:
    uint64_t max_ns_;
    uint64_t length_ns_ = 0;
    uint64_t empty_ns_ = 0;  // since when the ring is empty
    bool armed_ = false;
};

}  // namespace nupa::daemon
