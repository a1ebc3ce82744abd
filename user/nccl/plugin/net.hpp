// SPDX-License-Identifier: BSD-3-Clause
// The plugin, without a version: versions.cpp makes NCCL's five tables of it.  Nothing throws.
#pragma once

#include <span>
#include <vector>

#include "nccl/contract/net.hpp"
#include "nccl/plugin/interfaces.hpp"

namespace tcpqp::nccl::net {

inline constexpr const char* kName = "TCPQP";

// A device is one interface, or several that NCCL merged into a virtual one.
struct Device {
    std::string name;
    std::vector<int> members;  // indices of devices of one interface
    const Interface* first;
};

// @marks_polled: this version of NCCL says which receives are of LL and LL128.
Result init(LogFunction log, bool marks_polled) noexcept;
Result finalize() noexcept;
Result devices(int* count) noexcept;
// Valid until the plugin is unloaded.  NULL: there is no such device.
const Device* device(int index) noexcept;
// Devices say so to NCCL: GPUs' memory is registered by its dma-bufs.
bool takes_device_memory() noexcept;
Result make_virtual(int* index, std::span<const int> members) noexcept;

Result listen(int device, void* handle, void** listener) noexcept;
Result connect(int device, const void* handle, void** comm) noexcept;
Result accept(void* listener, void** comm) noexcept;
Result register_memory(void* comm, void* data, size_t bytes, int kind, void** region) noexcept;
Result register_dmabuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                       void** region) noexcept;
Result deregister(void* comm, void* region) noexcept;
Result send(void* comm, void* data, size_t bytes, int tag, void* region, void** request) noexcept;
Result receive(void* comm, int count, void** data, const size_t* bytes, const int* tags,
               void** regions, bool polled, void** request) noexcept;
Result flush(void** request) noexcept;
Result test(void* request, int* done, int* bytes) noexcept;
Result close_send(void* comm) noexcept;
Result close_receive(void* comm) noexcept;
Result close_listen(void* listener) noexcept;

}  // namespace tcpqp::nccl::net
