// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/net.hpp"

#include <tcpqp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "nccl/plugin/connector.hpp"
#include "nccl/plugin/environment.hpp"
#include "nccl/plugin/listener.hpp"
#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl::net {
namespace {

struct Plugin {
    std::mutex lock;
    unsigned users = 0;
    int limit_ms = kConnectLimitDefaultMs;
    bool device_memory = false;
    std::vector<Interface> interfaces;
    std::deque<Device> devices;  // the interfaces' first; addresses stay
    // By where NCCL keeps the handle and by its nonce: the handle comes from the network, so no
    // pointer of ours is in it.
    std::map<std::pair<const void*, Nonce>, std::unique_ptr<Connector>> connecting;
};

Plugin& plugin() {
    static Plugin p;
    return p;
}

// NCCL is C: what throws at set-up becomes a result here.
template <typename F>
Result guarded(const char* what, F f) noexcept {
    try {
        return f();
    } catch (const std::exception& e) {
        warn("%s: %s", what, e.what());
        return kSystemError;
    }
}

// The engine that @interface would get, and why it is no better one.
uint32_t engine_at(const Interface& interface, uint32_t& reason, int& error) {
    tcpqp_context_opts opts{};
    opts.size = sizeof(opts);
    opts.ifname = interface.name.c_str();
    tcpqp_context* context = nullptr;
    error = tcpqp_context_create(&opts, &context, &reason);
    if (error != 0)
        return TCPQP_ENGINE_AUTO;
    const uint32_t engine = tcpqp_context_engine(context);
    tcpqp_context_destroy(context);
    return engine;
}

// A GPU that polls for LL's and LL128's flags must not see one before its data, and here NCCL does
// not say which receives are polled.  The module places segments as they come; the stock engine's
// copies keep words whole, which is enough for LL (each word has its own flag), and not their
// order.
void forbid_polling(bool module, bool device_memory) {
    const char* why = device_memory ? "with TCPQP_DEVICE_MEMORY=1 messages are written in any order"
                                    : "this NCCL does not say which receives a GPU polls";
    const char* safe = module ? "Simple" : "^LL128";
    const char* proto = std::getenv("NCCL_PROTO");
    const std::string_view asked = proto != nullptr ? proto : "";
    if (asked == "Simple" || asked == "simple" || asked == safe)
        return;
    if (proto != nullptr) {
        warn("NCCL_PROTO=%s is not safe: %s; set NCCL_PROTO=%s, or nothing", proto, why, safe);
        return;
    }
    ::setenv("NCCL_PROTO", safe, 1);
    info("NCCL_PROTO=%s is set: %s", safe, why);
}

// Whether GPUs' memory is taken: TCPQP_DEVICE_MEMORY=1.  NCCL asks before it has any, and aborts
// when a registration fails later; so every connection must then be on the engine that reaches it.
bool wants_device_memory() {
    const char* word = std::getenv("TCPQP_DEVICE_MEMORY");
    if (word == nullptr || *word == '\0' || std::string_view(word) == "0")
        return false;
    if (std::string_view(word) != "1") {
        warn("TCPQP_DEVICE_MEMORY=%s is neither 0 nor 1: 0 it is", word);
        return false;
    }
    const char* engine = std::getenv("TCPQP_ENGINE");
    if (engine != nullptr && *engine != '\0' && std::string_view(engine) != "offload") {
        warn("TCPQP_DEVICE_MEMORY=1 needs TCPQP_ENGINE=offload, and not %s: 0 it is", engine);
        return false;
    }
    ::setenv("TCPQP_ENGINE", "offload", 1);
    return true;
}

Result find_devices(Plugin& p, bool marks_polled) {
    p.device_memory = wants_device_memory();
    p.interfaces =
        find_interfaces(std::getenv("NCCL_SOCKET_IFNAME"), std::getenv("NCCL_SOCKET_FAMILY"));
    bool module = false;
    int usable = 0;
    for (const Interface& i : p.interfaces) {
        uint32_t reason = TCPQP_REASON_NONE;
        int error = 0;
        const uint32_t engine = engine_at(i, reason, error);
        module |= engine != TCPQP_ENGINE_STOCK;
        if (error != 0) {
            warn("%s is left out: %s (%s: %s)", i.name.c_str(), std::strerror(-error),
                 tcpqp_reason_name(reason), tcpqp_reason_text(reason));
            continue;
        }
        usable++;
        p.devices.push_back({i.name, {static_cast<int>(p.devices.size())}, &i});
        if (engine == TCPQP_ENGINE_STOCK)
            info("%s, %s: engine stock, since %s", i.name.c_str(), text_of(i.address).c_str(),
                 tcpqp_reason_text(reason));
        else
            info("%s, %s: a tcp_qp device", i.name.c_str(), text_of(i.address).c_str());
    }
    if (usable == 0) {
        warn(
            "no interface can be used; NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose them, "
            "`ip -br address` shows them");
        return kSystemError;
    }
    const char* optional = std::getenv("NCCL_NET_OPTIONAL_RECV_COMPLETION");
    const bool unmarked =
        !marks_polled || (optional != nullptr && std::string_view(optional) == "0");
    // what is placed in a GPU's memory goes there in any order
    if (unmarked || p.device_memory)
        forbid_polling(module, p.device_memory);
    return kSuccess;
}

std::vector<const Interface*> interfaces_of(const Device& device) {
    std::vector<const Interface*> found;
    for (const int member : device.members)
        found.push_back(plugin().devices[static_cast<size_t>(member)].first);
    return found;
}

Memory* memory_of(void* region) noexcept { return static_cast<Memory*>(region); }

Result check_kind(int kind, bool is_dmabuf) noexcept {
    if ((kind & kPointerCuda) == 0 || (is_dmabuf && plugin().device_memory))
        return kSuccess;
    warn(plugin().device_memory
             ? "the GPU's driver gives no dma-buf of its memory; NCCL_NET_GDR_LEVEL=LOC stages it"
             : "device memory was given, which is taken with TCPQP_DEVICE_MEMORY=1 only");
    return kInvalidUsage;
}

}  // namespace

Result init(LogFunction log, bool marks_polled) noexcept {
    set_log(log);
    return guarded("init", [&] {
        Plugin& p = plugin();
        const std::lock_guard guard(p.lock);
        if (p.users++ != 0)
            return kSuccess;
        p.limit_ms = number_from_environment("TCPQP_TIMEOUT_MS", 1, kConnectLimitMaxMs,
                                             kConnectLimitDefaultMs);
        if (!p.devices.empty())
            return kSuccess;
        const Result result = find_devices(p, marks_polled);
        p.users -= result == kSuccess ? 0 : 1;
        return result;
    });
}

Result finalize() noexcept {
    Plugin& p = plugin();
    const std::lock_guard guard(p.lock);
    if (p.users == 0)
        return kInvalidUsage;
    if (--p.users == 0)
        p.connecting.clear();
    return kSuccess;
}

Result devices(int* count) noexcept {
    Plugin& p = plugin();
    const std::lock_guard guard(p.lock);
    *count = static_cast<int>(p.devices.size());
    return kSuccess;
}

const Device* device(int index) noexcept {
    Plugin& p = plugin();
    const std::lock_guard guard(p.lock);
    if (index >= 0 && static_cast<size_t>(index) < p.devices.size())
        return &p.devices[static_cast<size_t>(index)];
    warn("there is no device %d", index);
    return nullptr;
}

bool takes_device_memory() noexcept { return plugin().device_memory; }

Result make_virtual(int* index, std::span<const int> members) noexcept {
    return guarded("makeVDevice", [&] {
        Plugin& p = plugin();
        const std::lock_guard guard(p.lock);
        if (members.empty() || members.size() > kRailsMax || p.devices.size() >= kDevicesMax) {
            warn("a virtual device has 1 to %u rails, and there are at most %u devices", kRailsMax,
                 kDevicesMax);
            return kInvalidUsage;
        }
        Device made{"", {}, nullptr};
        for (const int member : members) {
            const bool known = member >= 0 && static_cast<size_t>(member) < p.devices.size() &&
                               p.devices[static_cast<size_t>(member)].members.size() == 1;
            if (!known ||
                std::find(made.members.begin(), made.members.end(), member) != made.members.end()) {
                warn("%d cannot be a rail of a virtual device", member);
                return kInvalidUsage;
            }
            const Device& one = p.devices[static_cast<size_t>(member)];
            made.name += (made.name.empty() ? "" : "+") + one.name;
            made.members.push_back(member);
            made.first = made.first != nullptr ? made.first : one.first;
        }
        *index = static_cast<int>(p.devices.size());
        p.devices.push_back(std::move(made));
        return kSuccess;
    });
}

Result listen(int index, void* handle, void** listener) noexcept {
    *listener = nullptr;
    return guarded("listen", [&] {
        const Device* d = device(index);
        if (d == nullptr)
            return kInvalidArgument;
        auto made = std::make_unique<Listener>(interfaces_of(*d), plugin().limit_ms);
        const Handle ours = made->handle();
        std::memset(handle, 0, kHandleBytes);
        std::memcpy(handle, &ours, sizeof(ours));
        *listener = made.release();
        return kSuccess;
    });
}

Result connect(int index, const void* at, void** comm) noexcept {
    *comm = nullptr;
    return guarded("connect", [&] {
        const Device* d = device(index);
        if (d == nullptr)
            return kInvalidArgument;
        Handle handle;
        std::memcpy(&handle, at, sizeof(handle));
        if (const Result result = Connector::check(handle); result != kSuccess)
            return result;
        Plugin& p = plugin();
        const std::pair<const void*, Nonce> key{at, handle.nonce};
        std::unique_ptr<Connector> connector;
        {
            const std::lock_guard guard(p.lock);
            // those that NCCL has given up
            std::erase_if(p.connecting, [&](const auto& entry) {
                return entry.first != key && entry.second->is_late();
            });
            if (auto node = p.connecting.extract(key); !node.empty())
                connector = std::move(node.mapped());
        }
        if (!connector)
            connector = std::make_unique<Connector>(handle, interfaces_of(*d), p.limit_ms);
        const Result result = connector->step();
        if (result == kInProgress) {
            const std::lock_guard guard(p.lock);
            p.connecting[key] = std::move(connector);
            return kSuccess;
        }
        if (result != kSuccess)
            return result;
        Comm* made = connector->finish().release();  // what the other calls take it for
        *comm = made;
        return *comm != nullptr ? kSuccess : kSystemError;
    });
}

Result accept(void* listener, void** comm) noexcept {
    *comm = nullptr;
    return guarded("accept", [&] {
        auto& l = *static_cast<Listener*>(listener);
        const std::lock_guard guard(l.lock());
        Comm* made = l.accept().release();
        *comm = made;
        return kSuccess;
    });
}

Result register_memory(void* comm, void* data, size_t bytes, int kind, void** region) noexcept {
    *region = nullptr;
    return guarded("regMr", [&] {
        auto& c = *static_cast<Comm*>(comm);
        const std::lock_guard guard(c.lock());
        Memory* memory = nullptr;
        const Result refused = check_kind(kind, false);
        const Result result =
            refused != kSuccess ? refused : c.register_memory(data, bytes, &memory);
        *region = memory;
        return result;
    });
}

Result register_dmabuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                       void** region) noexcept {
    *region = nullptr;
    return guarded("regMrDmaBuf", [&] {
        auto& c = *static_cast<Comm*>(comm);
        const std::lock_guard guard(c.lock());
        Memory* memory = nullptr;
        const Result refused = check_kind(kind, true);
        const Result result =
            refused != kSuccess
                ? refused
                : c.register_dmabuf(data, bytes, (kind & kPointerCuda) != 0, offset, fd, &memory);
        *region = memory;
        return result;
    });
}

Result deregister(void* comm, void* region) noexcept {
    if (region == nullptr)
        return kSuccess;
    return guarded("deregMr", [&] {
        auto& c = *static_cast<Comm*>(comm);
        const std::lock_guard guard(c.lock());
        return c.deregister(memory_of(region));
    });
}

Result send(void* comm, void* data, size_t bytes, int tag, void* region, void** request) noexcept {
    *request = nullptr;
    return guarded("isend", [&] {
        auto& c = static_cast<SendComm&>(*static_cast<Comm*>(comm));
        const std::lock_guard guard(c.lock());
        Request* made = nullptr;
        const Result result = c.send(data, bytes, tag, memory_of(region), &made);
        *request = result == kSuccess ? made : nullptr;
        return result;
    });
}

Result receive(void* comm, int count, void** data, const size_t* bytes, const int* tags,
               void** regions, bool polled, void** request) noexcept {
    *request = nullptr;
    if (count < 1 || count > kGroupMax) {
        warn("a group of %d receives, of 1 to %d", count, kGroupMax);
        return kInvalidUsage;
    }
    return guarded("irecv", [&] {
        auto& c = static_cast<ReceiveComm&>(*static_cast<Comm*>(comm));
        std::array<Receive, kGroupMax> receives;
        for (size_t i = 0; i < static_cast<size_t>(count); i++)
            receives[i] = {data[i], bytes[i], tags[i], memory_of(regions[i])};
        const std::lock_guard guard(c.lock());
        Request* made = nullptr;
        const Result result =
            c.receive(std::span(receives).first(static_cast<size_t>(count)), polled, &made);
        *request = result == kSuccess ? made : nullptr;
        return result;
    });
}

// No request is "done".  Host memory needs none.  In a GPU's memory the switch has written a
// message before it hands on the segments that complete it, and nothing is on its way then.
Result flush(void** request) noexcept {
    *request = nullptr;
    return kSuccess;
}

Result test(void* request, int* done, int* bytes) noexcept {
    return guarded("test", [&] {
        auto& r = *static_cast<Request*>(request);
        const std::lock_guard guard(r.comm->lock());
        return r.comm->test(r, done, bytes);
    });
}

Result close_send(void* comm) noexcept {
    return guarded("closeSend", [&] {
        const std::unique_ptr<SendComm> c(static_cast<SendComm*>(static_cast<Comm*>(comm)));
        if (c)
            c->close();
        return kSuccess;
    });
}

Result close_receive(void* comm) noexcept {
    return guarded("closeRecv", [&] {
        const std::unique_ptr<ReceiveComm> c(static_cast<ReceiveComm*>(static_cast<Comm*>(comm)));
        if (c)
            c->close();
        return kSuccess;
    });
}

Result close_listen(void* listener) noexcept {
    const std::unique_ptr<Listener> l(static_cast<Listener*>(listener));
    if (l && l->dropped() != 0)
        info("%ju connections to this listener were none of this communicator's",
             static_cast<uintmax_t>(l->dropped()));
    return kSuccess;
}

}  // namespace tcpqp::nccl::net
