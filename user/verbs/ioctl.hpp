// SPDX-License-Identifier: BSD-3-Clause
// Calls of the uverbs core that rdma-core has no function for.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tcpqp {

// No object has it: a method that knows it is there refuses this, and makes nothing.
inline constexpr uint32_t kNoHandle = 0xffffffff;

inline ib_uverbs_attr value_attr(uint16_t id, uint64_t value, uint16_t bytes = 0) noexcept {
    ib_uverbs_attr a{};
    a.attr_id = id;
    a.len = bytes;
    a.flags = UVERBS_ATTR_F_MANDATORY;
    a.data = value;
    return a;
}

inline ib_uverbs_attr pointer_attr(uint16_t id, const void* at, size_t bytes) noexcept {
    return value_attr(id, reinterpret_cast<uint64_t>(at), static_cast<uint16_t>(bytes));
}

// The core takes up to eight bytes from the attribute itself.
template <class Small>
ib_uverbs_attr inline_attr(uint16_t id, const Small& value) noexcept {
    static_assert(sizeof(value) <= sizeof(uint64_t));
    uint64_t data = 0;
    std::memcpy(&data, &value, sizeof(value));
    return value_attr(id, data, sizeof(value));
}

// 0 or an errno.  A handle that the call makes is left in its attribute.
template <size_t N>
int invoke(int cmd_fd, uint16_t object, uint16_t method,
           std::array<ib_uverbs_attr, N>& attrs) noexcept {
    // the header ends in a flexible array, so the call is laid out by hand
    constexpr size_t kBytes = sizeof(ib_uverbs_ioctl_hdr) + N * sizeof(ib_uverbs_attr);
    alignas(ib_uverbs_ioctl_hdr) std::array<unsigned char, kBytes> call{};
    ib_uverbs_ioctl_hdr header{};
    header.length = kBytes;
    header.object_id = object;
    header.method_id = method;
    header.num_attrs = N;
    header.driver_id = RDMA_DRIVER_RXE;
    std::memcpy(call.data(), &header, sizeof(header));
    std::memcpy(call.data() + sizeof(header), attrs.data(), N * sizeof(ib_uverbs_attr));
    if (::ioctl(cmd_fd, RDMA_VERBS_IOCTL, call.data()))
        return errno;
    std::memcpy(attrs.data(), call.data() + sizeof(header), N * sizeof(ib_uverbs_attr));
    return 0;
}

}  // namespace tcpqp
