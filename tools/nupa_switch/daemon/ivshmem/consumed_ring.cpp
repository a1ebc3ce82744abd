// SPDX-License-Identifier: BSD-3-Clause
#include "ivshmem/consumed_ring.hpp"

#include "ivshmem/shared_field.hpp"

namespace nupa::daemon {

ConsumedRing::ConsumedRing(nupa_ring_ctl& ctl, uint32_t entries) noexcept
    : ctl_(&ctl), entries_(entries) {
    store_release(ctl_->cons, 0u);
    store_release(ctl_->db_event, 0u);
}

uint32_t ConsumedRing::pending() noexcept {
    if (produced_ == taken_)
        produced_ = load_acquire(ctl_->prod);
    return produced_ - taken_;
}

bool ConsumedRing::publish() noexcept {
    const uint32_t old = published_;
    if (old == taken_)
        return false;
    published_ = taken_;
    store_release(ctl_->cons, taken_);
    full_fence();
    return nupa_need_event(load_relaxed(ctl_->irq_event), taken_, old);
}

bool ConsumedRing::rearm() noexcept {
    store_release(ctl_->db_event, taken_);
    full_fence();
    produced_ = load_acquire(ctl_->prod);
    return produced_ != taken_;
}

}  // namespace nupa::daemon
