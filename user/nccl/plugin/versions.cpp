// SPDX-License-Identifier: BSD-3-Clause
// The tables that NCCL looks up, a version each; all that differs between them is here.
#include <algorithm>
#include <array>
#include <cstdio>

#include "nccl/plugin/limits.hpp"
#include "nccl/plugin/net.hpp"

namespace tcpqp::nccl {
namespace {

constexpr float kLatencyUs = 20;  // of TCP; NCCL's tuner adds it to each step
constexpr int kCommsMax = 65536;

Result accept_any(void* listener, void** comm, DeviceHandle**) noexcept {
    return net::accept(listener, comm);
}
Result connect_old(int device, void* handle, void** comm, DeviceHandle**) noexcept {
    return net::connect(device, handle, comm);
}
Result connect_v10(int device, CommConfig*, void* handle, void** comm, DeviceHandle**) noexcept {
    return net::connect(device, handle, comm);
}
Result connect_v11(void*, int device, void* handle, void** comm, DeviceHandle**) noexcept {
    return net::connect(device, handle, comm);
}
Result listen_v11(void*, int device, void* handle, void** listener) noexcept {
    return net::listen(device, handle, listener);
}
Result flush_any(void*, int, void**, int*, void**, void** request) noexcept {
    return net::flush(request);
}

Result init_v8(LogFunction log) noexcept { return net::init(log, false); }
Result init_v9(LogFunction log) noexcept { return net::init(log, true); }
Result init_v10(LogFunction log, ProfilerFunction) noexcept { return net::init(log, true); }
Result init_v11(void** context, uint64_t, CommConfig*, LogFunction log, ProfilerFunction) noexcept {
    static char one;  // a context that is not NULL; all communicators share the plugin's
    *context = &one;
    return net::init(log, true);
}
Result finalize_v11(void*) noexcept { return net::finalize(); }

Result send_v8(void* comm, void* data, int bytes, int tag, void* region, void** request) noexcept {
    if (bytes < 0) {
        *request = nullptr;
        return kInvalidArgument;
    }
    return net::send(comm, data, static_cast<size_t>(bytes), tag, region, request);
}
Result send_v10(void* comm, void* data, size_t bytes, int tag, void* region, void*,
                void** request) noexcept {
    return net::send(comm, data, bytes, tag, region, request);
}

Result receive_v8(void* comm, int count, void** data, int* bytes, int* tags, void** regions,
                  void** request) noexcept {
    std::array<size_t, kGroupMax> wide{};
    for (int i = 0; i < std::min(count, kGroupMax); i++) {
        if (bytes[i] < 0) {
            *request = nullptr;
            return kInvalidArgument;
        }
        wide[static_cast<size_t>(i)] = static_cast<size_t>(bytes[i]);
    }
    return net::receive(comm, count, data, wide.data(), tags, regions, false, request);
}
Result receive_v9(void* comm, int count, void** data, size_t* bytes, int* tags, void** regions,
                  void** request) noexcept {
    return net::receive(comm, count, data, bytes, tags, regions, *request == kReceiveIsPolled,
                        request);
}
Result receive_v10(void* comm, int count, void** data, size_t* bytes, int* tags, void** regions,
                   void**, void** request) noexcept {
    return receive_v9(comm, count, data, bytes, tags, regions, request);
}

template <typename Members>
Result make_virtual(int* device, Members* members) noexcept {
    const auto room = static_cast<int>(std::size(members->devices));
    const auto count = static_cast<size_t>(std::clamp(members->count, 0, room));
    return net::make_virtual(device, {members->devices, count});
}

template <typename Properties>
void fill(const net::Device& device, Properties& p) noexcept {
    p.name = const_cast<char*>(device.name.c_str());
    p.pci_path = device.first->pci_path.empty() ? nullptr
                                                : const_cast<char*>(device.first->pci_path.c_str());
    p.guid = device.first->guid;
    p.pointers = kPointerHost | (net::takes_device_memory() ? kPointerCuda | kPointerDmabuf : 0);
    p.registration_is_global = 0;
    p.speed_mbps = 0;
    for (const int member : device.members)
        p.speed_mbps += net::device(member)->first->speed_mbps;
    p.port = 0;
    p.latency_us = kLatencyUs;
    p.comms_max = kCommsMax;
    p.receives_max = kGroupMax;
    p.device_kind = kDeviceHost;
    p.device_version = 0;
}

template <typename Properties>
Result properties(int index, Properties* out) noexcept {
    const net::Device* device = net::device(index);
    if (device == nullptr)
        return kInvalidArgument;
    *out = {};
    fill(*device, *out);
    if constexpr (requires { out->members; }) {
        out->flush_is_forced = 0;
        out->p2p_max_bytes = out->collective_max_bytes = kMessageMaxBytes;
        out->members.count = static_cast<int>(device->members.size());
        std::copy(device->members.begin(), device->members.end(), out->members.devices);
    }
    if constexpr (requires { out->multi_request_max; })
        out->multi_request_max = 1;
    if constexpr (requires { out->rail; })
        out->rail = out->plane = kUndefined;
    return kSuccess;
}

template <typename Net>
constexpr void fill_common(Net& n) {
    n.name = net::kName;
    n.devices = net::devices;
    n.accept = accept_any;
    n.register_memory = net::register_memory;
    n.register_dmabuf = net::register_dmabuf;
    n.deregister = net::deregister;
    n.flush = flush_any;
    n.test = net::test;
    n.close_send = net::close_send;
    n.close_receive = net::close_receive;
    n.close_listen = net::close_listen;
}

constexpr NetV8 make_v8() {
    NetV8 n{};
    fill_common(n);
    n.init = init_v8;
    n.properties = properties<PropertiesV8>;
    n.listen = net::listen;
    n.connect = connect_old;
    n.send = send_v8;
    n.receive = receive_v8;
    return n;
}

constexpr NetV9 make_v9() {
    NetV9 n{};
    fill_common(n);
    n.init = init_v9;
    n.properties = properties<PropertiesV9>;
    n.listen = net::listen;
    n.connect = connect_old;
    n.send = net::send;
    n.receive = receive_v9;
    n.make_virtual = make_virtual<VirtualDeviceV9>;
    return n;
}

constexpr NetV10 make_v10() {
    NetV10 n{};
    fill_common(n);
    n.init = init_v10;
    n.properties = properties<PropertiesV9>;
    n.listen = net::listen;
    n.connect = connect_v10;
    n.send = send_v10;
    n.receive = receive_v10;
    n.make_virtual = make_virtual<VirtualDeviceV9>;
    return n;
}

template <typename Properties, typename Members>
constexpr NetWithContext<Properties, Members> make_v11() {
    NetWithContext<Properties, Members> n{};
    fill_common(n);
    n.init = init_v11;
    n.properties = properties<Properties>;
    n.listen = listen_v11;
    n.connect = connect_v11;
    n.send = send_v10;
    n.receive = receive_v10;
    n.make_virtual = make_virtual<Members>;
    n.finalize = finalize_v11;
    return n;
}

}  // namespace
}  // namespace tcpqp::nccl

using namespace tcpqp::nccl;

extern "C" {
#pragma GCC visibility push(default)
extern const NetV8 ncclNetPlugin_v8;
extern const NetV9 ncclNetPlugin_v9;
extern const NetV10 ncclNetPlugin_v10;
extern const NetV11 ncclNetPlugin_v11;
extern const NetV12 ncclNetPlugin_v12;
constinit const NetV8 ncclNetPlugin_v8 = make_v8();
constinit const NetV9 ncclNetPlugin_v9 = make_v9();
constinit const NetV10 ncclNetPlugin_v10 = make_v10();
constinit const NetV11 ncclNetPlugin_v11 = make_v11<PropertiesV11, VirtualDeviceV9>();
constinit const NetV12 ncclNetPlugin_v12 = make_v11<PropertiesV12, VirtualDeviceV12>();
#pragma GCC visibility pop
}
