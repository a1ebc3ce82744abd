// SPDX-License-Identifier: BSD-3-Clause
#include "place.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace nupa::bench {

Place::Place() : memory_(accelerator_.allocate(kPlaceBytes)) {
    void* at = ::mmap(nullptr, kPlaceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
    if (at == MAP_FAILED)
        tcpqp::throw_errno("map the accelerator's memory");
    mapped_ = static_cast<std::byte*>(at);
}

Place::~Place() { ::munmap(mapped_, kPlaceBytes); }

uint64_t Place::room(uint64_t at, uint64_t bytes) noexcept {
    return std::min(bytes, kPlaceBytes - at % kPlaceBytes);
}

void Place::write(uint64_t at, std::span<const std::byte> bytes) noexcept {
    std::memcpy(mapped_ + at % kPlaceBytes, bytes.data(), bytes.size());
}

void Place::copy(uint64_t at, int from, uint64_t offset, uint64_t bytes) {
    nupa_accel_call* last = pending_ ? &calls_[pending_ - 1] : nullptr;
    copied_bytes_ += bytes;
    if (last && last->from.offset + last->bytes == offset &&
        last->to.offset + last->bytes == at % kPlaceBytes) {
        last->bytes += bytes;
        return;
    }
    if (pending_ == NUPA_ACCEL_BATCH_MAX)
        flush();
    calls_[pending_++] = tcpqp::accel_call(NUPA_ACCEL_COPY, bytes,
                                           {memory_.get(), at % kPlaceBytes}, {from, offset});
}

void Place::flush() {
    if (!pending_)
        return;
    const std::span<nupa_accel_call> calls(calls_, pending_);
    pending_ = 0;
    submits_++;
    if (const int error = accelerator_.submit(calls); error != 0)
        tcpqp::throw_errno("copy by the accelerator", error);
    for (const nupa_accel_call& call : calls)
        if (call.status != NUPA_ACCEL_OK)
            throw std::runtime_error("copy by the accelerator: " + std::to_string(call.status));
}

void Place::clear() { accelerator_.fill({memory_.get()}, kPlaceBytes, 0); }

void Place::check() const {
    const tcpqp::Fd right = accelerator_.allocate(kMessageBytes);
    accelerator_.pattern({right.get()}, kMessageBytes, kPeriod, 0);
    for (uint64_t slot = 0; slot < kSlots; slot++) {
        const uint64_t same = accelerator_.compare({memory_.get(), slot * kMessageBytes},
                                                   {right.get()}, kMessageBytes);
        if (same != kMessageBytes)
            throw std::runtime_error("message in slot " + std::to_string(slot) +
                                     " is wrong at byte " + std::to_string(same));
    }
}

}  // namespace nupa::bench
