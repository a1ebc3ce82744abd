// SPDX-License-Identifier: BSD-3-Clause
#include "exposed.hpp"

#include "end.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kWindowBit = 0x80000000;
constexpr std::uint64_t kCounterBytes = 8;
constexpr std::uint64_t kTailBytes = 2 * kCounterBytes;  // of the target: the counter, aligned
constexpr std::uint64_t kStaleBytes = 64;
constexpr std::uint32_t kRemote =
    NUPA_ACCESS_REMOTE_WRITE | NUPA_ACCESS_REMOTE_READ | NUPA_ACCESS_REMOTE_ATOMIC;

}  // namespace

Exposed::Exposed(End& end) : end_(end) {
    const std::uint32_t source_key = key_of(end, kSourceRegion);
    host().add_region(source_key, pd_of(end), NUPA_ACCESS_REMOTE_READ, kPageBytes);
    source_ = {source_key, host().find(source_key)->iova, kPageBytes};
    if (!end.connection().one_sided)
        return;
    fill(source_key);
    const std::uint64_t bytes = end.connection().message_max;
    target_ = {key_of(end, kTargetRegion), 0, bytes};
    host().add_region(
        target_.key, pd_of(end),
        NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE | NUPA_ACCESS_REMOTE_ATOMIC,
        bytes + kTailBytes);
    target_.va = host().find(target_.key)->iova;
    counter_ = {target_.key, (target_.va + bytes + kCounterBytes - 1) & ~(kCounterBytes - 1),
                kCounterBytes};
    window_ = {target_.key | kWindowBit, target_.va + bytes / 4, bytes / 2};
    window_bound_ = true;
    owner_.resize(bytes);
    stale_ = {key_of(end, kStaleRegion), 0, kStaleBytes};
    host().add_region(stale_.key, pd_of(end), NUPA_ACCESS_LOCAL_WRITE | kRemote, kStaleBytes);
    stale_.va = host().find(stale_.key)->iova;
    host().deregister(stale_.key);
}

Host& Exposed::host() const noexcept { return end_.host(); }

std::uint64_t Exposed::outside(std::uint32_t length) const {
    const std::uint64_t end = target_.va + target_.bytes + kTailBytes;
    switch (end_.dice().below(6)) {
        case 0:
            return target_.va - 1;
        case 1:
            return end + end_.dice().below(kPageBytes);
        case 2:
            return 0 - std::uint64_t{length} / 2;
        default:
            return end - length / 2;
    }
}

std::vector<Place> Exposed::wrong(bool write) const {
    const Region& foreign = *host().find(Host::kForeignKey);
    std::vector<Place> all = {
        {Host::kNoKey, target_.va, target_.bytes},
        {foreign.key, foreign.iova, foreign.bytes},
        stale_,
        {key_of(end_, 0), host().region_iova(key_of(end_, 0)), target_.bytes},  // receives
        {key_of(end_, kSinkRegion), host().region_iova(key_of(end_, kSinkRegion)), kStaleBytes},
    };
    all.push_back(write ? source_ : target_);
    return all;
}

void Exposed::fill(std::uint32_t key) {
    const Region& r = *host().find(key);
    r.runs(r.iova, r.bytes, [&](std::uint64_t at, std::uint64_t n) {
        for (std::uint64_t i = 0; i < n; i++)
            host().ram.put(at + i, static_cast<std::uint8_t>(end_.dice().bits()));
    });
}

// From here on it is the application's alone.
void Exposed::deregister(std::uint32_t key) {
    const Region* r = host().find(key);
    if (!r)
        return;
    end_.world().log.add(end_.world().now(), "end {}.{} deregisters key {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()), key});
    const Region copy = *r;
    host().deregister(key);
    copy.runs(copy.iova, copy.bytes, [&](std::uint64_t at, std::uint64_t n) {
        host().ram.fill(at, n, static_cast<std::uint8_t>(end_.dice().bits()));
    });
}

void Exposed::poison() {
    const Region* r = end_.connection().one_sided ? host().find(target_.key) : nullptr;
    if (r)
        r->runs(r->iova, r->bytes, [&](std::uint64_t at, std::uint64_t n) {
            host().ram.fill(at, n, static_cast<std::uint8_t>(end_.dice().bits()));
        });
}

const Region* Exposed::reach(std::uint32_t key, std::uint64_t va, std::uint64_t bytes,
                             std::uint32_t access) const noexcept {
    if (key & kWindowBit) {
        if (!window_bound_ || key != window_.key || access != NUPA_ACCESS_REMOTE_WRITE ||
            va < window_.va || va - window_.va > window_.bytes ||
            bytes > window_.bytes - (va - window_.va))
            return nullptr;
        key = target_.key;
    }
    const Region* r = host().find(key);
    return r && r->allows(pd_of(end_), va, bytes, access) ? r : nullptr;
}

bool Exposed::invalidate(std::uint32_t key) noexcept {
    if (!window_bound_ || key != window_.key)
        return false;
    window_bound_ = false;
    return true;
}

bool Exposed::claim(const Message& m, std::uint32_t offset, std::uint32_t n) {
    if (spoiled_)
        return true;
    std::uint32_t* owner = owner_.data() + (m.va - target_.va) + offset;
    bool overlaps = false;
    for (std::uint32_t i = 0; i < n; i++) {
        if (owner[i] > m.at + offset + i + 1)
            return false;
        overlaps |= owner[i] != 0 && owner[i] <= m.at;
        owner[i] = m.at + offset + i + 1;
    }
    if (overlaps)
        end_.world().coverage.add(k_overlapping_writes);
    return true;
}

bool Exposed::covered(const Message& m) const noexcept {
    if (spoiled_)
        return true;
    const std::uint32_t* owner = owner_.data() + (m.va - target_.va);
    for (std::uint32_t i = 0; i < m.length; i++)
        if (owner[i] < m.at + i + 1)
            return false;
    return true;
}

}  // namespace sim
