// SPDX-License-Identifier: BSD-3-Clause
// What NCCL (2.20 and later) and a net plugin call each other by: the tables of functions
// `ncclNetPlugin_v8` to `ncclNetPlugin_v12`, and the structs they take.  Written down from the
// facts of the interface; names are ours, layouts are the contract and are asserted below.
//
// Who calls: init, devices and properties on the application's threads; listen, connect, accept
// and register on NCCL's proxy service thread; send, receive, test and flush on its proxy progress
// thread.  Calls on one comm never overlap, calls on different comms may.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpqp::nccl {

enum Result : int {
    kSuccess = 0,
    kUnhandledCudaError = 1,
    kSystemError = 2,
    kInternalError = 3,
    kInvalidArgument = 4,
    kInvalidUsage = 5,
    kRemoteError = 6,
    kInProgress = 7,
};

enum LogLevel : int { kLogNone = 0, kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogAbort = 4 };
enum LogSubsystem : unsigned long { kLogInit = 1, kLogNet = 16 };
enum PointerKind : int { kPointerHost = 1, kPointerCuda = 2, kPointerDmabuf = 4 };
enum DeviceKind : int { kDeviceHost = 0, kDeviceUnpack = 1 };

inline constexpr size_t kHandleBytes = 128;  // of listen() to connect(), by NCCL's bootstrap
inline constexpr int kRequestsMax = 32;      // receives under way on a comm; sends: times maxRecvs
inline constexpr int kGroupMax = 8;          // receives of one irecv()
inline constexpr int kUndefined = -1;        // rail, plane, traffic class
inline constexpr size_t kTransferMaxBytes = size_t{1} << 40;  // NCCL refuses a plugin with more
// In *request of irecv() (v9 and later): a receive of the LL or LL128 protocol.  Nobody waits for
// its completion: the GPU polls flags in the buffer.
inline void* const kReceiveIsPolled = reinterpret_cast<void*>(0x1);

using LogFunction = void (*)(int level, unsigned long flags, const char* file, int line,
                             const char* format, ...);
using ProfilerFunction = Result (*)(void** event, int type, void* parent, int64_t plugin,
                                    void* data);
struct DeviceHandle;  // of device offload, which no plugin here has

template <int kDevices>
struct VirtualDevice {
    int count;
    int devices[kDevices];
};
using VirtualDeviceV9 = VirtualDevice<4>;
using VirtualDeviceV12 = VirtualDevice<8>;

struct CommConfig {  // v10
    int traffic_class;
};

struct CommAttributes {  // v11
    int32_t peers_max, peers_min, flows_max, flows_min;
};
struct NetAttributes {
    CommAttributes send, receive;
    uint32_t op, algorithm, protocol;
};

struct PropertiesV8 {
    char* name;
    char* pci_path;
    uint64_t guid;
    int pointers;  // PointerKind
    int registration_is_global;
    int speed_mbps;
    int port;
    float latency_us;
    int comms_max;
    int receives_max;
    int device_kind;
    int device_version;
};

struct PropertiesV9 {  // v10, too
    char* name;
    char* pci_path;
    uint64_t guid;
    int pointers;
    int registration_is_global;
    int flush_is_forced;
    int speed_mbps;
    int port;
    float latency_us;
    int comms_max;
    int receives_max;
    int device_kind;
    int device_version;
    VirtualDeviceV9 members;
    size_t p2p_max_bytes;
    size_t collective_max_bytes;
};

struct PropertiesV11 : PropertiesV9 {
    int multi_request_max;
};

struct PropertiesV12 {
    char* name;
    char* pci_path;
    uint64_t guid;
    int pointers;
    int registration_is_global;
    int flush_is_forced;
    int speed_mbps;
    int port;
    float latency_us;
    int comms_max;
    int receives_max;
    int device_kind;
    int device_version;
    VirtualDeviceV12 members;
    size_t p2p_max_bytes;
    size_t collective_max_bytes;
    int multi_request_max;
    int16_t rail;
    int16_t plane;
};

// What all versions say alike.  connect() and accept() may return success with no comm, send and
// receive with no request: NCCL calls again.
using Devices = Result (*)(int* count);
using Accept = Result (*)(void* listener, void** comm, DeviceHandle** device);
using Register = Result (*)(void* comm, void* data, size_t bytes, int kind, void** region);
using RegisterDmabuf = Result (*)(void* comm, void* data, size_t bytes, int kind, uint64_t offset,
                                  int fd, void** region);
using Deregister = Result (*)(void* comm, void* region);
using Flush = Result (*)(void* comm, int count, void** data, int* bytes, void** regions,
                         void** request);
using Test = Result (*)(void* request, int* done, int* bytes);
using Close = Result (*)(void* comm);
using DeviceRegion = Result (*)(void* comm, void* region, void** device_region);
using Consumed = Result (*)(void* comm, int count, void* request);

struct NetV8 {
    const char* name;
    Result (*init)(LogFunction log);
    Devices devices;
    Result (*properties)(int device, PropertiesV8* out);
    Result (*listen)(int device, void* handle, void** listener);
    Result (*connect)(int device, void* handle, void** comm, DeviceHandle** offload);
    Accept accept;
    Register register_memory;
    RegisterDmabuf register_dmabuf;
    Deregister deregister;
    Result (*send)(void* comm, void* data, int bytes, int tag, void* region, void** request);
    Result (*receive)(void* comm, int count, void** data, int* bytes, int* tags, void** regions,
                      void** request);
    Flush flush;
    Test test;
    Close close_send, close_receive, close_listen;
    DeviceRegion device_region;
    Consumed consumed;
};

struct NetV9 {
    const char* name;
    Result (*init)(LogFunction log);
    Devices devices;
    Result (*properties)(int device, PropertiesV9* out);
    Result (*listen)(int device, void* handle, void** listener);
    Result (*connect)(int device, void* handle, void** comm, DeviceHandle** offload);
    Accept accept;
    Register register_memory;
    RegisterDmabuf register_dmabuf;
    Deregister deregister;
    Result (*send)(void* comm, void* data, size_t bytes, int tag, void* region, void** request);
    Result (*receive)(void* comm, int count, void** data, size_t* bytes, int* tags, void** regions,
                      void** request);
    Flush flush;
    Test test;
    Close close_send, close_receive, close_listen;
    DeviceRegion device_region;
    Consumed consumed;
    Result (*make_virtual)(int* device, VirtualDeviceV9* members);
};

using SendV10 = Result (*)(void* comm, void* data, size_t bytes, int tag, void* region,
                           void* profile, void** request);
using ReceiveV10 = Result (*)(void* comm, int count, void** data, size_t* bytes, int* tags,
                              void** regions, void** profiles, void** request);

struct NetV10 {
    const char* name;
    Result (*init)(LogFunction log, ProfilerFunction profiler);
    Devices devices;
    Result (*properties)(int device, PropertiesV9* out);
    Result (*listen)(int device, void* handle, void** listener);
    Result (*connect)(int device, CommConfig* config, void* handle, void** comm,
                      DeviceHandle** offload);
    Accept accept;
    Register register_memory;
    RegisterDmabuf register_dmabuf;
    Deregister deregister;
    SendV10 send;
    ReceiveV10 receive;
    Flush flush;
    Test test;
    Close close_send, close_receive, close_listen;
    DeviceRegion device_region;
    Consumed consumed;
    Result (*make_virtual)(int* device, VirtualDeviceV9* members);
};

template <typename Properties, typename Members>
struct NetWithContext {
    const char* name;
    Result (*init)(void** context, uint64_t comm_id, CommConfig* config, LogFunction log,
                   ProfilerFunction profiler);
    Devices devices;
    Result (*properties)(int device, Properties* out);
    Result (*listen)(void* context, int device, void* handle, void** listener);
    Result (*connect)(void* context, int device, void* handle, void** comm, DeviceHandle** offload);
    Accept accept;
    Register register_memory;
    RegisterDmabuf register_dmabuf;
    Deregister deregister;
    SendV10 send;
    ReceiveV10 receive;
    Flush flush;
    Test test;
    Close close_send, close_receive, close_listen;
    DeviceRegion device_region;
    Consumed consumed;
    Result (*make_virtual)(int* device, Members* members);
    Result (*finalize)(void* context);  // NCCL calls it unchecked
    Result (*set_attributes)(void* context, NetAttributes* attributes);
};
using NetV11 = NetWithContext<PropertiesV11, VirtualDeviceV9>;
using NetV12 = NetWithContext<PropertiesV12, VirtualDeviceV12>;

// Pointers and 64-bit numbers of 8 bytes, the C rules of layout: NCCL runs on nothing else.
static_assert(sizeof(void*) == 8 && sizeof(Result) == 4);
static_assert(sizeof(VirtualDeviceV9) == 20 && sizeof(VirtualDeviceV12) == 36);
static_assert(sizeof(NetAttributes) == 44 && sizeof(CommConfig) == 4);
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, speed_mbps) == 32 &&
              offsetof(PropertiesV8, device_version) == 56);
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, flush_is_forced) == 32 &&
              offsetof(PropertiesV9, latency_us) == 44 && offsetof(PropertiesV9, members) == 64 &&
              offsetof(PropertiesV9, p2p_max_bytes) == 88);
static_assert(sizeof(PropertiesV11) == 112);
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, members) == 64 &&
              offsetof(PropertiesV12, p2p_max_bytes) == 104 &&
              offsetof(PropertiesV12, multi_request_max) == 120 &&
              offsetof(PropertiesV12, rail) == 124 && offsetof(PropertiesV12, plane) == 126);
static_assert(sizeof(NetV8) == 19 * sizeof(void*) && offsetof(NetV8, send) == 10 * sizeof(void*));
static_assert(sizeof(NetV9) == 20 * sizeof(void*) && offsetof(NetV9, test) == 13 * sizeof(void*));
static_assert(sizeof(NetV10) == 20 * sizeof(void*) &&
              offsetof(NetV10, make_virtual) == 19 * sizeof(void*));
static_assert(sizeof(NetV11) == 22 * sizeof(void*) &&
              offsetof(NetV11, finalize) == 20 * sizeof(void*));
static_assert(sizeof(NetV12) == 22 * sizeof(void*) &&
              offsetof(NetV12, set_attributes) == 21 * sizeof(void*));

}  // namespace tcpqp::nccl
