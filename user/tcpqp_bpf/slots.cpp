// SPDX-License-Identifier: BSD-3-Clause
#include "slots.hpp"

#include <algorithm>
#include <cerrno>

#include "limits.hpp"

namespace tcpqp::bpf {

// A part of what the others leave, so that whoever comes later finds something, too: of 1,024 slots
// one user has 256 at most, and after ten that take all they get there are 57 left.
bool Slots::has_share(uid_t uid) const noexcept {
    const auto at = used_.find(uid);
    const size_t used = at == used_.end() ? 0 : at->second;
    return used < std::max<size_t>(1, (free_ + used) / kShare);
}

Slots::Place Slots::take(uid_t uid) {
    const std::lock_guard guard(lock_);
    if (free_ == 0)
        throw_errno("connections, or memory that users keep", ENOSPC);
    if (!has_share(uid))
        throw_errno("connections of this user, or memory that it keeps", EDQUOT);
    const auto at = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& s) { return s.state == State::kFree; });
    used_[uid]++;
    free_--;
    at->state = State::kTaken;
    at->uid = uid;
    at->generation = ++generation_;
    return {at->generation, static_cast<uint32_t>(at - slots_.begin()), 0};
}

Slots::Slot* Slots::find(const Place& place) noexcept {
    if (place.slot >= slots_.size())
        return nullptr;
    Slot& slot = slots_[place.slot];
    return slot.state != State::kFree && slot.generation == place.generation ? &slot : nullptr;
}

bool Slots::hold(const Place& place, Fd& map) noexcept {
    const std::lock_guard guard(lock_);
    Slot* slot = find(place);
    if (slot == nullptr || slot->state != State::kTaken)
        return false;
    slot->state = State::kHeld;
    slot->map = std::move(map);
    return true;
}

Fd Slots::end(const Place& place) noexcept {
    const std::lock_guard guard(lock_);
    Slot* slot = find(place);
    if (slot == nullptr)
        return {};
    if (slot->state == State::kTaken)
        slot->state = State::kOver;
    if (slot->state != State::kHeld)
        return {};
    slot->state = State::kEnded;
    return std::move(slot->map);
}

void Slots::give_back(uid_t uid) noexcept {
    const auto used = used_.find(uid);
    if (--used->second == 0)
        used_.erase(used);
    free_++;
}

void Slots::release(const Place& place, uint32_t kept) {
    const std::lock_guard guard(lock_);
    Slot* slot = find(place);
    if (slot == nullptr)
        return;
    const uid_t uid = slot->uid;
    *slot = Slot();
    if (kept == 0)
        give_back(uid);
    else
        kept_.push_back({uid, kept});
}

void Slots::count_again(const std::function<std::vector<uint32_t>()>& living) {
    const std::lock_guard guard(lock_);
    const std::vector<uint32_t> all = living();
    std::erase_if(kept_, [&](const Kept& k) {
        const bool dead = !all.empty() && !std::binary_search(all.begin(), all.end(), k.map);
        if (dead)
            give_back(k.uid);
        return dead;
    });
}

}  // namespace tcpqp::bpf
