// SPDX-License-Identifier: BSD-3-Clause
#include "leases.hpp"

#include <algorithm>
#include <new>

namespace nupa {
namespace {

constexpr std::uint64_t kLeasePageBytes = NUPA_POOL_PAGE_BYTES;
constexpr std::uint64_t kLargeBytes = 2 << 20;

std::uint64_t round_up(std::uint64_t at, std::uint64_t align) noexcept {
    return (at + align - 1) / align * align;
}

}  // namespace

// First fit.
std::optional<std::uint64_t> Leases::gap(std::uint64_t bytes, std::uint64_t align) const noexcept {
    std::uint64_t at = 0;
    for (const auto& [begin, lease] : leases_) {
        if (begin >= at && begin - at >= bytes)
            return at;
        at = round_up(begin + lease.bytes, align);
    }
    if (at <= bytes_ && bytes_ - at >= bytes)
        return at;
    return std::nullopt;
}

std::uint64_t Leases::share(Owner owner) const noexcept {
    const auto holder = owners_.find(owner);
    if (holder == owners_.end() || !holder->second.share)
        return bytes_;
    if (*holder->second.share != 0)
        return std::min(*holder->second.share, bytes_);
    const auto joined = std::count_if(owners_.begin(), owners_.end(), [](const auto& entry) {
        return entry.second.share.has_value();
    });
    return bytes_ / static_cast<std::uint64_t>(joined) / kLeasePageBytes * kLeasePageBytes;
}

bool Leases::over_share(Owner owner, std::uint64_t bytes) const noexcept {
    const auto holder = owners_.find(owner);
    const std::uint64_t held = holder == owners_.end() ? 0 : holder->second.bytes;
    const std::uint64_t max = share(owner);
    return held > max || bytes > max - held;
}

// Large ranges begin where a large page does: the tables of their regions are short.
std::optional<std::uint64_t> Leases::begin(Owner owner, std::uint64_t bytes) noexcept try {
    if (bytes == 0 || bytes % kLeasePageBytes != 0 || bytes > free_bytes_ ||
        over_share(owner, bytes))
        return std::nullopt;
    Holder& holder = owners_[owner];
    if (holder.leases >= NUPA_POOL_LEASES_MAX)
        return std::nullopt;
    const auto at = gap(bytes, bytes >= kLargeBytes ? kLargeBytes : kLeasePageBytes);
    if (!at)
        return std::nullopt;
    leases_.emplace(*at, Lease{bytes, owner, State::kComing, 0, 0});
    holder.leases++;
    holder.bytes += bytes;
    free_bytes_ -= bytes;
    return at;
} catch (const std::bad_alloc&) {
    return std::nullopt;
}

void Leases::granted(std::uint64_t at) noexcept { leases_.find(at)->second.state = State::kLeased; }

Leases::Lease* Leases::whole(Owner owner, std::uint64_t at) noexcept {
    const auto lease = leases_.find(at);
    const bool found = lease != leases_.end() && lease->second.owner == owner &&
                       lease->second.state != State::kComing &&
                       lease->second.state != State::kLeaving;
    return found ? &lease->second : nullptr;
}

int Leases::leave(Owner owner, std::uint64_t at, std::uint64_t token) noexcept {
    Lease* const lease = whole(owner, at);
    if (lease == nullptr || (token != 0 && lease->token != token))
        return NUPA_POOL_E_NOENT;
    if (lease->regions != 0)
        return NUPA_POOL_E_BUSY;
    lease->state = State::kLeaving;
    lease->token = 0;
    return NUPA_ACCEL_OK;
}

int Leases::offer(Owner owner, std::uint64_t at, std::uint64_t token) noexcept {
    Lease* const lease = whole(owner, at);
    if (lease == nullptr || lease->state == State::kOffered)
        return NUPA_POOL_E_NOENT;
    if (lease->regions != 0)
        return NUPA_POOL_E_BUSY;
    lease->state = State::kOffered;
    lease->token = token;
    return NUPA_ACCEL_OK;
}

int Leases::take(Owner owner, std::uint64_t token, std::uint64_t bytes, Taken& taken) noexcept try {
    const auto found = std::find_if(leases_.begin(), leases_.end(), [token](const auto& entry) {
        return entry.second.state == State::kOffered && entry.second.token == token;
    });
    if (found == leases_.end() || found->second.bytes != bytes)
        return NUPA_POOL_E_NOENT;
    Lease& lease = found->second;
    Holder& to = owners_[owner];
    Holder& from = owners_.find(lease.owner)->second;
    if (&to != &from && over_share(owner, bytes))
        return NUPA_POOL_E_SHARE;
    if (&to != &from && to.leases >= NUPA_POOL_LEASES_MAX)
        return NUPA_POOL_E_NOSPACE;
    taken = {found->first, lease.owner};
    from.leases--;
    from.bytes -= bytes;
    to.leases++;
    to.bytes += bytes;
    lease.owner = owner;
    lease.state = State::kComing;
    lease.token = 0;
    return NUPA_ACCEL_OK;
} catch (const std::bad_alloc&) {
    return NUPA_POOL_E_NOSPACE;
}

void Leases::leave_all(Owner owner) noexcept {
    for (const auto& [at, lease] : leases_)
        if (Lease* const one = whole(owner, at)) {
            one->state = State::kLeaving;
            one->token = 0;
        }
}

void Leases::freed(std::uint64_t at) noexcept {
    const auto lease = leases_.find(at);
    free_bytes_ += lease->second.bytes;
    Holder& holder = owners_.find(lease->second.owner)->second;
    holder.leases--;
    holder.bytes -= lease->second.bytes;
    leases_.erase(lease);
}

void Leases::drop(Owner owner) noexcept {
    for (auto lease = leases_.begin(); lease != leases_.end();) {
        const auto next = std::next(lease);
        if (lease->second.owner == owner)
            freed(lease->first);
        lease = next;
    }
}

Leases::At Leases::find(Owner owner, std::uint64_t at) const noexcept {
    auto lease = leases_.upper_bound(at);
    if (lease == leases_.begin())
        return leases_.end();
    --lease;
    const bool in = at - lease->first < lease->second.bytes && lease->second.owner == owner &&
                    lease->second.state == State::kLeased;
    return in ? lease : leases_.end();
}

bool Leases::covers(Owner owner, std::uint64_t at, std::uint64_t bytes) const noexcept {
    for (;;) {
        const At lease = find(owner, at);
        if (lease == leases_.end())
            return false;
        const std::uint64_t here = lease->second.bytes - (at - lease->first);
        if (bytes <= here)
            return true;
        at += here;
        bytes -= here;
    }
}

std::optional<std::uint64_t> Leases::holding(Owner owner, std::uint64_t at,
                                             std::uint64_t bytes) const noexcept {
    const At lease = find(owner, at);
    if (lease == leases_.end() || bytes > lease->second.bytes - (at - lease->first))
        return std::nullopt;
    return lease->first;
}

void Leases::unpin_all(Owner owner) noexcept {
    for (auto& [at, lease] : leases_)
        if (lease.owner == owner)
            lease.regions = 0;
}

bool Leases::pinned(Owner owner) const noexcept {
    return std::any_of(leases_.begin(), leases_.end(), [owner](const auto& entry) {
        return entry.second.owner == owner && entry.second.regions != 0;
    });
}

std::optional<std::uint64_t> Leases::leaving(Owner owner) const noexcept {
    for (const auto& [at, lease] : leases_)
        if (lease.owner == owner && lease.state == State::kLeaving)
            return at;
    return std::nullopt;
}

}  // namespace nupa
