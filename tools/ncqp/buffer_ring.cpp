// SPDX-License-Identifier: BSD-3-Clause
#include "buffer_ring.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/fd.hpp"
#include "limits.hpp"

namespace ncqp {

BufferRing::Anonymous::Anonymous(uint64_t n) : bytes(n) {
    void* const map =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        tcpqp::throw_errno("allocate buffers");
    at = static_cast<std::byte*>(map);
}

BufferRing::Anonymous::~Anonymous() { ::munmap(at, bytes); }

BufferRing::BufferRing(const tcpqp::Context& context, uint64_t slot_bytes, uint32_t slots,
                       DeviceKind device)
    : slot_bytes_(slot_bytes), name_(device == DeviceKind::kNone ? "buffers" : path_name(device)) {
    const uint64_t room = device == DeviceKind::kNone ? kRingMaxBytes : kDeviceRingMaxBytes;
    slots_ = static_cast<uint32_t>(std::clamp<uint64_t>(room / slot_bytes, 1, slots));
    if (device != DeviceKind::kNone) {
        device_ = make_device_memory(context, device, slot_bytes_ * slots_);
        at_ = device_->mapped();
        return;
    }
    memory_ = std::make_unique<Anonymous>(slot_bytes_ * slots_);
    at_ = memory_->at;
    mr_ = tcpqp::Mr(context, at_, memory_->bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!mr_)
        tcpqp::throw_errno("register memory (see `ulimit -l`)");
}

}  // namespace ncqp
