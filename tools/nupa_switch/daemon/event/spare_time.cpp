// SPDX-License-Identifier: BSD-3-Clause
#include "event/spare_time.hpp"

#include <algorithm>

namespace nupa::daemon {

void SpareTime::turn(bool looks, uint64_t now_ns, Clock thread_ns) noexcept {
    if (looked_ && looks && now_ns - last_ns_ < kReadNs)
        return;
    const uint64_t thread = thread_ns();
    if (looked_) {
        wanted_ns_ += now_ns - last_ns_;
        ran_ns_ += thread - last_thread_ns_;
        if (wanted_ns_ >= kSpanNs)
            judge(now_ns);
    }
    looked_ = looks;
    last_ns_ = now_ns;
    last_thread_ns_ = thread;
}

void SpareTime::judge(uint64_t now_ns) noexcept {
    if (ran_ns_ < wanted_ns_ / 8 * 7) {
        closed_until_ns_ = now_ns + closed_ns_;
        closed_ns_ = std::min(2 * closed_ns_, kClosedMaxNs);
    } else {
        closed_ns_ = kClosedMinNs;
    }
    wanted_ns_ = 0;
    ran_ns_ = 0;
}

}  // namespace nupa::daemon
