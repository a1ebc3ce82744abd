// SPDX-License-Identifier: BSD-3-Clause
// libnccl-net-socketlike.so: a net plugin that behaves as NCCL's own socket transport does, the
// baseline of every comparison.  One control connection says each message's size; up to 128 bytes
// go with it, more go in parts of at least 64 KiB over the data sockets, of which
// NCCL_SOCKET_NTHREADS helper threads serve NCCL_NSOCKS_PERTHREAD each (default: no thread, one
// socket).  Grouped receives and device memory it has none of, as its model.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "nccl/contract/net.hpp"
#include "nccl/plugin/interfaces.hpp"
#include "nccl_harness/socket_plugin/streams.hpp"

namespace tcpqp::socket_plugin {
namespace {

using namespace nccl;

constexpr uint64_t kMagic = 0x736f636b6c696b65;
constexpr size_t kInlineBytes = 128, kTaskMinBytes = size_t{64} * 1024, kMessageMaxBytes = 1 << 30;
constexpr int kSocketsMax = 64, kThreadsMax = 16;

std::vector<Interface> g_interfaces;
int g_threads = 0, g_sockets = 1;
// For a test of what the harness sees: a comm loses all but its first messages.
const bool g_loses = std::getenv("SOCKETLIKE_LOSES") != nullptr;
constexpr uint32_t kKeptMessages = 8;
constexpr size_t kLostBytesMax = size_t{1} << 20;

struct Handle {
    uint64_t nonce;
    sockaddr_in6 at;  // or a sockaddr_in
    uint32_t sockets;
    struct Connecting* state;  // as NCCL's: between two calls of connect()
};
static_assert(sizeof(Handle) <= kHandleBytes);

struct Greeting {
    uint64_t magic, nonce;
    uint32_t index;  // 0: control
    uint32_t reserved;
};

struct Connecting {
    std::vector<Fd> sockets;
};

struct Listening {
    Fd socket;
    uint64_t nonce = 0;
    std::vector<Fd> strangers, arrived;
};

struct Comm;
struct Request {
    Comm* comm = nullptr;
    char* data = nullptr;
    size_t bytes = 0;
    int size = 0;  // of the message
    bool busy = false, split = false;
    size_t head = 0;  // bytes of the control message that are through
    std::array<char, sizeof(int) + kInlineBytes> control{};
    std::atomic<int> pending = 0;
};

struct Comm {
    Comm(Fd control_socket, std::vector<Fd> data, bool sending)
        : control(std::move(control_socket)),
          sends(sending),
          streams(std::move(data), sending, g_threads) {}
    Fd control;
    const bool sends;
    std::array<Request, kRequestsMax> requests;
    uint32_t first = 0, next = 0;  // of those whose size is not known to both ends; free running
    size_t turn = 0;
    Streams streams;  // first to go: its threads use the requests
};

int number(const char* name, int otherwise, int most) {
    const char* word = std::getenv(name);
    const int n = word != nullptr ? std::atoi(word) : otherwise;
    return std::clamp(n, 0, most);
}

Result init(void** context, uint64_t, CommConfig*, LogFunction, ProfilerFunction) noexcept {
    *context = &g_interfaces;
    if (g_interfaces.empty())
        g_interfaces =
            find_interfaces(std::getenv("NCCL_SOCKET_IFNAME"), std::getenv("NCCL_SOCKET_FAMILY"));
    g_threads = number("NCCL_SOCKET_NTHREADS", 0, kThreadsMax);
    const int each = std::max(number("NCCL_NSOCKS_PERTHREAD", 1, kSocketsMax), 1);
    g_sockets = std::min(each * std::max(g_threads, 1), kSocketsMax);
    return g_interfaces.empty() ? kSystemError : kSuccess;
}
Result finalize(void*) noexcept { return kSuccess; }
Result devices(int* count) noexcept {
    *count = static_cast<int>(g_interfaces.size());
    return kSuccess;
}
Result properties(int device, PropertiesV12* out) noexcept {
    const Interface& i = g_interfaces[static_cast<size_t>(device)];
    *out = {};
    out->name = const_cast<char*>(i.name.c_str());
    out->pci_path = i.pci_path.empty() ? nullptr : const_cast<char*>(i.pci_path.c_str());
    out->guid = static_cast<uint64_t>(device);
    out->pointers = kPointerHost;
    out->speed_mbps = i.speed_mbps;
    out->comms_max = 65536;
    out->receives_max = 1;
    out->p2p_max_bytes = out->collective_max_bytes = kMessageMaxBytes;
    out->members.count = 1;
    out->members.devices[0] = device;
    out->rail = out->plane = kUndefined;
    return kSuccess;
}

Result listen(void*, int device, void* handle, void** listener) noexcept {
    auto made = std::make_unique<Listening>();
    sockaddr_storage at = g_interfaces[static_cast<size_t>(device)].address;
    socklen_t length = address_length(at);
    made->socket.reset(::socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    auto* address = reinterpret_cast<sockaddr*>(&at);
    if (!made->socket || ::bind(made->socket.get(), address, length) != 0 ||
        ::listen(made->socket.get(), 1024) != 0 ||
        ::getsockname(made->socket.get(), address, &length) != 0 ||
        ::getrandom(&made->nonce, sizeof(made->nonce), 0) != sizeof(made->nonce))
        return kSystemError;
    made->arrived.resize(static_cast<size_t>(g_sockets) + 1);
    Handle h{};
    h.nonce = made->nonce;
    h.sockets = static_cast<uint32_t>(g_sockets);
    std::memcpy(&h.at, &at, sizeof(h.at));
    std::memset(handle, 0, kHandleBytes);
    std::memcpy(handle, &h, sizeof(h));
    *listener = made.release();
    return kSuccess;
}

void prepare(int socket) noexcept {
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool start_all(Connecting& state, const Handle& h) {
    for (uint32_t i = 0; i <= h.sockets; i++) {
        Fd fd(::socket(h.at.sin6_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const socklen_t length =
            h.at.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (!fd || (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&h.at), length) != 0 &&
                    errno != EINPROGRESS))
            return false;
        prepare(fd.get());
        state.sockets.push_back(std::move(fd));
    }
    return true;
}

Result connect(void*, int, void* handle, void** comm, DeviceHandle**) noexcept {
    *comm = nullptr;
    auto& h = *static_cast<Handle*>(handle);
    std::unique_ptr<Connecting> state(std::exchange(h.state, nullptr));
    if (!state) {
        state = std::make_unique<Connecting>();
        if (!start_all(*state, h))
            return kSystemError;
    }
    for (const Fd& fd : state->sockets) {
        pollfd writable{fd.get(), POLLOUT, 0};
        if (::poll(&writable, 1, 0) == 0) {
            h.state = state.release();
            return kSuccess;
        }
    }
    for (uint32_t i = 0; i < state->sockets.size(); i++) {
        const Greeting g{kMagic, h.nonce, i, 0};
        if (::send(state->sockets[i].get(), &g, sizeof(g), MSG_NOSIGNAL) != sizeof(g))
            return kRemoteError;
    }
    Fd control = std::move(state->sockets.front());
    state->sockets.erase(state->sockets.begin());
    *comm = std::make_unique<Comm>(std::move(control), std::move(state->sockets), true).release();
    return kSuccess;
}

// A whole greeting, nothing yet, or nobody of ours.
enum class Heard { kWait, kDrop, kGood };
Heard hear(int socket, const Listening& l, Greeting& g) noexcept {
    const ssize_t n = ::recv(socket, &g, sizeof(g), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN ? Heard::kWait : Heard::kDrop;
    if (n < static_cast<ssize_t>(sizeof(g)))
        return n == 0 ? Heard::kDrop : Heard::kWait;
    ::recv(socket, &g, sizeof(g), MSG_DONTWAIT);
    const bool ours = g.magic == kMagic && g.nonce == l.nonce && g.index < l.arrived.size();
    return ours && !l.arrived[g.index] ? Heard::kGood : Heard::kDrop;
}

Result accept(void* listener, void** comm, DeviceHandle**) noexcept {
    *comm = nullptr;
    auto& l = *static_cast<Listening*>(listener);
    for (;;) {
        Fd fd(::accept4(l.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd)
            break;
        prepare(fd.get());
        l.strangers.push_back(std::move(fd));
    }
    for (auto at = l.strangers.begin(); at != l.strangers.end();) {
        Greeting g{};
        const Heard heard = hear(at->get(), l, g);
        if (heard == Heard::kGood)
            l.arrived[g.index] = std::move(*at);
        at = heard == Heard::kWait ? at + 1 : l.strangers.erase(at);
    }
    for (const Fd& fd : l.arrived)
        if (!fd)
            return kSuccess;
    std::vector<Fd> data(std::make_move_iterator(l.arrived.begin() + 1),
                         std::make_move_iterator(l.arrived.end()));
    *comm = std::make_unique<Comm>(std::move(l.arrived.front()), std::move(data), false).release();
    for (Fd& fd : l.arrived)
        fd.reset();
    return kSuccess;
}

Result register_memory(void*, void* data, size_t, int kind, void** region) noexcept {
    *region = data;
    return kind == kPointerHost ? kSuccess : kInternalError;
}
Result deregister(void*, void*) noexcept { return kSuccess; }

void take(void* at, void* data, size_t bytes, void** request) noexcept {
    auto& comm = *static_cast<Comm*>(at);
    *request = nullptr;
    Request& r = comm.requests[comm.next % kRequestsMax];
    if (r.busy)
        return;
    comm.next++;
    r.comm = &comm;
    r.data = static_cast<char*>(data);
    r.bytes = bytes;
    r.busy = true;
    r.split = false;
    r.head = 0;
    r.size = static_cast<int>(bytes);
    *request = &r;
}

Result send(void* comm, void* data, size_t bytes, int, void*, void*, void** request) noexcept {
    take(comm, data, bytes, request);
    return kSuccess;
}
Result receive(void* comm, int count, void** data, size_t* bytes, int*, void**, void**,
               void** request) noexcept {
    if (count != 1)
        return kInternalError;
    take(comm, data[0], bytes[0], request);
    static thread_local std::array<char, kLostBytesMax> nowhere;
    if (g_loses && *request != nullptr && static_cast<Comm*>(comm)->next > kKeptMessages &&
        bytes[0] <= nowhere.size())
        static_cast<Request*>(*request)->data = nowhere.data();
    return kSuccess;
}
Result flush(void*, int, void**, int*, void**, void** request) noexcept {
    *request = nullptr;
    return kSuccess;
}

// The parts of a message that do not go with its size.
void split(Comm& comm, Request& r) {
    const auto size = static_cast<size_t>(r.size);
    r.split = true;
    comm.first++;
    if (size <= kInlineBytes)
        return;
    const size_t each =
        std::max(kTaskMinBytes, (size + comm.streams.count() - 1) / comm.streams.count());
    r.pending = static_cast<int>((size + each - 1) / each);
    for (size_t at = 0; at < size; at += each)
        comm.streams.add(comm.turn++ % comm.streams.count(),
                         {r.data + at, std::min(each, size - at), &r.pending});
}

// Sizes go and come in the order of the requests.  False: the connection has ended.
bool exchange_size(Comm& comm, Request& r) {
    if (comm.sends && r.head == 0) {
        std::memcpy(r.control.data(), &r.size, sizeof(int));
        if (r.bytes <= kInlineBytes)
            std::memcpy(r.control.data() + sizeof(int), r.data, r.bytes);
    }
    for (;;) {
        if (!comm.sends && r.head >= sizeof(int))
            std::memcpy(&r.size, r.control.data(), sizeof(int));
        const bool known = comm.sends || r.head >= sizeof(int);
        if (known && (r.size < 0 || static_cast<size_t>(r.size) > r.bytes))
            return false;  // message truncated
        const auto size = static_cast<size_t>(r.size);
        const size_t whole = sizeof(int) + (known && size <= kInlineBytes ? size : 0);
        if (r.head == whole)
            break;
        const ssize_t n =
            move(comm.control.get(), comm.sends, r.control.data() + r.head, whole - r.head);
        if (n < 0)
            return false;
        if (n == 0)
            return true;
        r.head += static_cast<size_t>(n);
    }
    if (!comm.sends && static_cast<size_t>(r.size) <= kInlineBytes)
        std::memcpy(r.data, r.control.data() + sizeof(int), static_cast<size_t>(r.size));
    split(comm, r);
    return true;
}

Result test(void* request, int* done, int* bytes) noexcept {
    auto& r = *static_cast<Request*>(request);
    Comm& comm = *r.comm;
    *done = 0;
    while (!r.split) {
        Request& oldest = comm.requests[comm.first % kRequestsMax];
        if (!exchange_size(comm, oldest))
            return kRemoteError;
        if (!oldest.split)
            break;
    }
    if (!comm.streams.progress())
        return kRemoteError;
    if (!r.split || r.pending.load(std::memory_order_acquire) != 0)
        return kSuccess;
    if (bytes != nullptr)
        *bytes = r.size;
    r.busy = false;
    *done = 1;
    return kSuccess;
}

Result close_comm(void* comm) noexcept {
    delete static_cast<Comm*>(comm);
    return kSuccess;
}
Result close_listen(void* listener) noexcept {
    delete static_cast<Listening*>(listener);
    return kSuccess;
}

}  // namespace
}  // namespace tcpqp::socket_plugin

using namespace tcpqp::socket_plugin;

extern "C" {
#pragma GCC visibility push(default)
extern const tcpqp::nccl::NetV12 ncclNetPlugin_v12;
constinit const tcpqp::nccl::NetV12 ncclNetPlugin_v12 = {
    "SocketLike", init,       devices, properties, listen,   connect, accept,     register_memory,
    nullptr,      deregister, send,    receive,    flush,    test,    close_comm, close_comm,
    close_listen, nullptr,    nullptr, nullptr,    finalize, nullptr};
#pragma GCC visibility pop
}
