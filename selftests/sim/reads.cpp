// SPDX-License-Identifier: BSD-3-Clause
#include "reads.hpp"

#include <algorithm>
#include <cstddef>

#include "end.hpp"
#include "plan.hpp"
#include "world.hpp"

namespace sim {

Reads::Reads(End& end) : end_(end) {
    if (!end.connection().one_sided)
        return;
    sink_bytes_ = std::max<std::uint64_t>(std::min(end.connection().message_max, kReadMaxBytes),
                                          TCP_BTH_ATOMIC_RESPONSE_BYTES);
    const std::uint32_t key = key_of(end, kSinkRegion);
    end.host().add_region(key, pd_of(end), NUPA_ACCESS_LOCAL_WRITE, kSinks * sink_bytes_);
    sinks_ = end.host().find(key)->iova;
}

std::uint64_t Reads::shadow_slot(std::uint16_t msn) const noexcept {
    return end_.shadow_addr() + sizeof(nupa_qp_shadow) +
           msn % NUPA_READS_MAX * sizeof(nupa_qp_read);
}

const Read& Reads::begin(std::uint16_t msn, std::uint32_t length, bool atomic,
                         std::uint64_t value) {
    const auto sink = std::find(busy_.begin(), busy_.end(), false);
    *sink = true;
    waiting_++;
    Read& read = slots_[msn % NUPA_READS_MAX];
    read = {true, atomic, msn, key_of(end_, kSinkRegion), length, 0, value};
    read.va = sinks_ + static_cast<std::uint64_t>(sink - busy_.begin()) * sink_bytes_;
    if (atomic)
        return read;
    Ram& ram = end_.host().ram;
    const std::uint64_t slot = shadow_slot(msn);
    ram.put(slot + offsetof(nupa_qp_read, va), read.va);
    ram.put(slot + offsetof(nupa_qp_read, key), read.key);
    ram.put(slot + offsetof(nupa_qp_read, length), read.length);
    ram.put<std::uint32_t>(slot + offsetof(nupa_qp_read, valid), NUPA_READ_VALID | msn);
    return read;
}

const Read* Reads::expected(const tqp_rx_msg& msg) const noexcept {
    const Read& read = slots_[msg.msn % NUPA_READS_MAX];
    if (!read.waits)
        return nullptr;
    if (msg.kind == TCP_BTH_KIND_ATOMIC_RESPONSE)
        return read.atomic ? &read : nullptr;
    const bool same = !read.atomic && msg.length_known && msg.length == read.length &&
                      msg.va == read.va && msg.rkey == read.key;
    return same ? &read : nullptr;
}

const Region* Reads::reach(std::uint16_t msn, std::uint64_t va,
                           std::uint64_t bytes) const noexcept {
    const Read& read = slots_[msn % NUPA_READS_MAX];
    if (!read.waits || read.msn != msn || va < read.va || va - read.va > read.length ||
        bytes > read.length - (va - read.va))
        return nullptr;
    const Region* r = end_.host().find(read.key);
    return r && r->allows(pd_of(end_), va, bytes) ? r : nullptr;
}

bool Reads::inside(std::uint64_t addr, std::uint64_t bytes) const {
    for (const Read& read : slots_) {
        const Region* r = read.waits ? end_.host().find(read.key) : nullptr;
        if (!r)
            continue;
        bool all = false;
        r->runs(read.va, read.length, [&](std::uint64_t at, std::uint64_t n) {
            if (addr < at || addr - at >= n)
                return;
            const std::uint64_t here = std::min(bytes, n - (addr - at));
            addr += here, bytes -= here;
            all |= bytes == 0;
        });
        if (all)
            return true;
    }
    return false;
}

void Reads::poison(const Read& read) {
    const Region* r = end_.host().find(read.key);
    if (!r)
        return;  // the application has overwritten it already
    const auto value = static_cast<std::uint8_t>(end_.dice().bits());
    r->runs(read.va, read.length,
            [&](std::uint64_t at, std::uint64_t n) { end_.host().ram.fill(at, n, value); });
}

// The switch has forgotten it before the application uses its sink for something else.
void Reads::done(std::uint16_t msn) {
    Read& read = slots_[msn % NUPA_READS_MAX];
    end_.host().ram.put<std::uint32_t>(shadow_slot(msn) + offsetof(nupa_qp_read, valid), 0);
    read.waits = false;
    waiting_--;
    busy_[(read.va - sinks_) / sink_bytes_] = false;
    poison(read);
}

void Reads::flush() {
    for (Read& read : slots_)
        if (read.waits) {
            read.waits = false;
            poison(read);
        }
    waiting_ = 0;
    busy_.fill(false);
}

}  // namespace sim
