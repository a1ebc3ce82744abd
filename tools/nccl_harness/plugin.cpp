// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_harness/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tcpqp::harness {
namespace {

using namespace nccl;

constexpr int kOldest = 8, kNewest = 12;

int log_level() noexcept {
    const char* word = std::getenv("NCCL_DEBUG");
    const std::string_view level = word != nullptr ? word : "";
    return level == "INFO" ? kLogInfo : level == "WARN" ? kLogWarn : kLogNone;
}

void log(int level, unsigned long, const char*, int, const char* format, ...) {
    if (level == kLogWarn)
        warnings()++;
    if (level > log_level())
        return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fmt::print(stderr, "NCCL {} {}\n", level == kLogWarn ? "WARN" : "INFO", line);
}

Result profile(void**, int, void*, int64_t, void*) { return kSuccess; }

void must(Result result, const char* what) {
    if (result != kSuccess)
        fail(fmt::format("{} returned {}", what, static_cast<int>(result)));
}

template <typename P>
Properties from(const P& p) {
    Properties out{p.name != nullptr ? p.name : "",
                   p.pci_path != nullptr ? p.pci_path : "",
                   p.guid,
                   p.pointers,
                   p.speed_mbps,
                   p.comms_max,
                   p.receives_max,
                   p.device_kind,
                   false,
                   0,
                   {}};
    if constexpr (requires { p.members; }) {
        out.has_limits = true;
        out.p2p_max_bytes = p.p2p_max_bytes;
        for (int i = 0; i < p.members.count; i++)
            out.members.push_back(p.members.devices[i]);
    }
    return out;
}

}  // namespace

void fail(const std::string& what) { throw Failed(what); }
void check(bool good, const std::string& what) {
    if (!good)
        fail(what);
}

std::atomic<uint64_t>& warnings() noexcept {
    static std::atomic<uint64_t> count = 0;
    return count;
}

template <typename F>
auto Plugin::with(F f) const {
    switch (api_) {
        case 8:
            return f(*static_cast<const NetV8*>(table_));
        case 9:
            return f(*static_cast<const NetV9*>(table_));
        case 10:
            return f(*static_cast<const NetV10*>(table_));
        case 11:
            return f(*static_cast<const NetV11*>(table_));
        default:
            return f(*static_cast<const NetV12*>(table_));
    }
}

Plugin::Plugin(const std::string& path, int api) : path_(path) {
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr)
        fail(fmt::format("cannot load {}: {}", path, ::dlerror()));
    for (int v = kNewest; v >= kOldest && table_ == nullptr; v--)
        if (api == 0 || api == v) {
            table_ = symbol(v);
            api_ = v;
        }
    if (table_ == nullptr) {
        ::dlclose(library_);
        fail(fmt::format("{} has no table of {}", path,
                         api == 0 ? "v8 to v12" : fmt::format("v{}", api)));
    }
}

Plugin::~Plugin() { ::dlclose(library_); }

void* Plugin::symbol(int api) const noexcept {
    return ::dlsym(library_, ("ncclNetPlugin_v" + std::to_string(api)).c_str());
}

const char* Plugin::name() const noexcept {
    return with([](const auto& n) { return n.name; });
}

void Plugin::init() {
    must(with([this](const auto& n) -> Result {
             if constexpr (requires { n.finalize; }) {
                 CommConfig config{kUndefined};
                 return n.init(&context_, 1, &config, log, profile);
             } else if constexpr (requires { n.init(log, profile); }) {
                 return n.init(log, profile);
             } else {
                 return n.init(log);
             }
         }),
         "init");
}

void Plugin::finalize() {
    must(with([this](const auto& n) -> Result {
             if constexpr (requires { n.finalize; })
                 return n.finalize(context_);
             else
                 return kSuccess;
         }),
         "finalize");
}

int Plugin::devices() const {
    int count = 0;
    must(with([&](const auto& n) { return n.devices(&count); }), "devices");
    return count;
}

Properties Plugin::properties(int device) const {
    return with([&]<typename N>(const N& n) {
        const auto get = [&](auto p) {
            must(n.properties(device, &p), "getProperties");
            return from(p);
        };
        if constexpr (std::is_same_v<N, NetV8>)
            return get(PropertiesV8{});
        else if constexpr (std::is_same_v<N, NetV9> || std::is_same_v<N, NetV10>)
            return get(PropertiesV9{});
        else if constexpr (std::is_same_v<N, NetV11>)
            return get(PropertiesV11{});
        else
            return get(PropertiesV12{});
    });
}

int Plugin::make_virtual(const std::vector<int>& members) {
    int device = -1;
    must(with([&]<typename N>(const N& n) -> Result {
             if constexpr (requires { n.make_virtual; }) {
                 std::conditional_t<std::is_same_v<N, NetV12>, VirtualDeviceV12, VirtualDeviceV9>
                     v{};
                 v.count = static_cast<int>(members.size());
                 for (size_t i = 0; i < members.size(); i++)
                     v.devices[i] = members[i];
                 return n.make_virtual != nullptr ? n.make_virtual(&device, &v) : kInternalError;
             } else {
                 return kInternalError;
             }
         }),
         "makeVDevice");
    return device;
}

void* Plugin::listen(int device, HandleBytes& handle) {
    void* listener = nullptr;
    must(with([&](const auto& n) -> Result {
             if constexpr (requires { n.finalize; })
                 return n.listen(context_, device, handle.data(), &listener);
             else
                 return n.listen(device, handle.data(), &listener);
         }),
         "listen");
    check(listener != nullptr, "listen gave nothing");
    return listener;
}

void* Plugin::connect(int device, HandleBytes& handle) {
    void* comm = nullptr;
    DeviceHandle* offload = nullptr;
    must(with([&]<typename N>(const N& n) -> Result {
             CommConfig config{kUndefined};
             if constexpr (requires { n.finalize; })
                 return n.connect(context_, device, handle.data(), &comm, &offload);
             else if constexpr (std::is_same_v<N, NetV10>)
                 return n.connect(device, &config, handle.data(), &comm, &offload);
             else
                 return n.connect(device, handle.data(), &comm, &offload);
         }),
         "connect");
    return comm;
}

void* Plugin::accept(void* listener) {
    void* comm = nullptr;
    DeviceHandle* offload = nullptr;
    must(with([&](const auto& n) { return n.accept(listener, &comm, &offload); }), "accept");
    return comm;
}

void* Plugin::register_memory(void* comm, void* data, size_t bytes) {
    void* region = nullptr;
    must(with([&](const auto& n) {
             return n.register_memory(comm, data, bytes, kPointerHost, &region);
         }),
         "regMr");
    return region;
}

Result Plugin::try_register_device(void* comm, void* data, size_t bytes, int dmabuf,
                                   void** region) noexcept {
    return with([&](const auto& n) -> Result {
        if (dmabuf < 0)
            return n.register_memory(comm, data, bytes, kPointerCuda, region);
        return n.register_dmabuf != nullptr
                   ? n.register_dmabuf(comm, data, bytes, kPointerCuda, 0, dmabuf, region)
                   : kInternalError;
    });
}

Result Plugin::try_deregister(void* comm, void* region) noexcept {
    return with([&](const auto& n) { return n.deregister(comm, region); });
}

Result Plugin::try_send(void* comm, void* data, size_t bytes, int tag, void* region,
                        void** request) noexcept {
    return with([&]<typename N>(const N& n) -> Result {
        if constexpr (std::is_same_v<N, NetV8>)
            return n.send(comm, data, static_cast<int>(bytes), tag, region, request);
        else if constexpr (std::is_same_v<N, NetV9>)
            return n.send(comm, data, bytes, tag, region, request);
        else
            return n.send(comm, data, bytes, tag, region, nullptr, request);
    });
}

Result Plugin::try_receive(void* comm, int count, void** data, size_t* bytes, int* tags,
                           void** regions, void** request) noexcept {
    return with([&]<typename N>(const N& n) -> Result {
        if constexpr (std::is_same_v<N, NetV8>) {
            std::array<int, kGroupMax> narrow{};
            for (int i = 0; i < count; i++)
                narrow[static_cast<size_t>(i)] = static_cast<int>(bytes[i]);
            return n.receive(comm, count, data, narrow.data(), tags, regions, request);
        } else if constexpr (std::is_same_v<N, NetV9>) {
            return n.receive(comm, count, data, bytes, tags, regions, request);
        } else {
            std::array<void*, kGroupMax> profiles{};
            return n.receive(comm, count, data, bytes, tags, regions, profiles.data(), request);
        }
    });
}

Result Plugin::try_test(void* request, int* done, int* bytes) noexcept {
    return with([&](const auto& n) { return n.test(request, done, bytes); });
}

void* Plugin::flush(void* comm, void* data, int bytes, void* region) {
    void* request = nullptr;
    must(with([&](const auto& n) { return n.flush(comm, 1, &data, &bytes, &region, &request); }),
         "iflush");
    return request;
}

void Plugin::close_send(void* comm) noexcept {
    with([&](const auto& n) { return n.close_send(comm); });
}
void Plugin::close_receive(void* comm) noexcept {
    with([&](const auto& n) { return n.close_receive(comm); });
}
void Plugin::close_listen(void* listener) noexcept {
    with([&](const auto& n) { return n.close_listen(listener); });
}

}  // namespace tcpqp::harness
