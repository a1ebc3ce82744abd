// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/hold_queue.hpp"

#include <sys/timerfd.h>

#include <algorithm>
#include <new>

#include "event/clock.hpp"

namespace nupa::daemon {
namespace {

size_t cost(const Packet& segment) noexcept {
    return sizeof(HoldQueue::Held) + segment.payload.bytes();
}

}  // namespace

HoldQueue::HoldQueue() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!timer_)
        throw_errno("timerfd_create");
    overtaken_.reserve(kOvertakenMax);
}

bool HoldQueue::fits(const Packet& segment) const noexcept {
    return bytes_ + cost(segment) <= kHeldMaxBytes;
}

HoldQueue::Map::iterator HoldQueue::insert(uint64_t due_ns, uint16_t port, Packet&& segment) {
    auto it = held_.emplace(due_ns, Held{port, std::move(segment)});
    bytes_ += cost(it->second.segment);
    return it;
}

bool HoldQueue::hold_until(uint64_t due_ns, uint16_t port, Packet&& segment) noexcept {
    if (!fits(segment))
        return false;
    try {
        insert(due_ns, port, std::move(segment));
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

bool HoldQueue::hold_behind(uint32_t packets, uint64_t now_ns, uint16_t port,
                            Packet&& segment) noexcept {
    if (!fits(segment) || overtaken_.size() >= kOvertakenMax)
        return false;
    try {
        overtaken_.push_back({insert(now_ns + kOvertakeMaxNs, port, std::move(segment)), packets});
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

void HoldQueue::passed(uint16_t port) noexcept {
    for (Overtaken& o : overtaken_)
        if (o.at->second.port == port && o.left)
            o.left--;
}

HoldQueue::Held HoldQueue::extract(Map::iterator at) noexcept {
    std::erase_if(overtaken_, [at](const Overtaken& o) { return o.at == at; });
    bytes_ -= cost(at->second.segment);
    Held held = std::move(at->second);
    held_.erase(at);
    return held;
}

std::optional<HoldQueue::Held> HoldQueue::take_overtaken() noexcept {
    for (const Overtaken& o : overtaken_)
        if (!o.left)
            return extract(o.at);
    return std::nullopt;
}

std::optional<HoldQueue::Held> HoldQueue::take_due(uint64_t now_ns) noexcept {
    if (held_.empty() || held_.begin()->first > now_ns)
        return std::nullopt;
    return extract(held_.begin());
}

void HoldQueue::drop_port(uint16_t port) noexcept {
    for (auto it = held_.begin(); it != held_.end();) {
        auto at = it++;
        if (at->second.port == port)
            extract(at);
    }
}

void HoldQueue::arm(uint64_t other_ns) noexcept {
    const uint64_t want = held_.empty() ? other_ns : std::min(held_.begin()->first, other_ns);
    if (!fired_ && armed_ns_ <= want)
        return;
    const uint64_t at = want == UINT64_MAX ? 0 : std::max<uint64_t>(want, 1);
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(at / kNsPerSecond);
    when.it_value.tv_nsec = static_cast<long>(at % kNsPerSecond);
    // Setting it also clears an expiry that was not read.
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    armed_ns_ = want;
    fired_ = false;
}

}  // namespace nupa::daemon
