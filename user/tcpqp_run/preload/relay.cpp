// SPDX-License-Identifier: BSD-3-Clause
#include "preload/relay.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/unix_message.hpp"
#include "preload/epolls.hpp"
#include "preload/real.hpp"

namespace tcpqp::preload {
namespace {

using run::Ask;
using run::Plain;
using run::Reply;
using run::Request;

// What we do between the program's call and its return changes no errno.
class KeepErrno {
public:
    KeepErrno() noexcept : before_(errno) {}
    ~KeepErrno() { errno = before_; }
    KeepErrno(const KeepErrno&) = delete;
    KeepErrno& operator=(const KeepErrno&) = delete;

private:
    int before_;
};

int option_of(int fd, int level, int name) noexcept {
    int value = 0;
    socklen_t bytes = sizeof(value);
    return real_getsockopt(fd, level, name, static_cast<void*>(&value), &bytes) == 0 ? value : -1;
}

bool is_tcp(int fd) noexcept {
    const int domain = option_of(fd, SOL_SOCKET, SO_DOMAIN);
    return (domain == AF_INET || domain == AF_INET6) &&
           option_of(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
           option_of(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
}

// Where the relay is; read once, since programs (nginx) throw their environment away.
class Address {
public:
    const sockaddr_un* get() noexcept {
        int state = state_.load(std::memory_order_acquire);
        if (state == kUnread) {
            const char* path = ::secure_getenv(run::kSocketVariable);
            sockaddr_un found{};
            state = path != nullptr && unix_address(path, found) ? kRelay : kNone;
            address_ = found;  // two threads write the same
            state_.store(state, std::memory_order_release);
        }
        return state == kRelay ? &address_ : nullptr;
    }

private:
    enum : int { kUnread, kNone, kRelay };
    sockaddr_un address_{};
    std::atomic<int> state_{kUnread};
};

constinit Address relay_address;

[[gnu::constructor]] void read_address() noexcept { (void)relay_address.get(); }

// Somebody else may listen at the path of a relay that was killed.
bool is_ours(const Fd& relay) noexcept {
    ucred who{};
    socklen_t bytes = sizeof(who);
    return real_getsockopt(relay.get(), SOL_SOCKET, SO_PEERCRED, static_cast<void*>(&who),
                           &bytes) == 0 &&
           (who.uid == 0 || who.uid == ::getuid() || who.uid == ::geteuid());
}

Fd call_relay() noexcept {
    const sockaddr_un* address = relay_address.get();
    if (address == nullptr)
        return {};
    Fd relay(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto* to = reinterpret_cast<const sockaddr*>(address);
    while (relay && real_connect(relay.get(), to, static_cast<socklen_t>(sizeof(*address))) != 0)
        if (errno != EINTR)
            return {};
    return relay && is_ours(relay) ? std::move(relay) : Fd();
}

// False: there is no relay, or it is gone.  Without a limit of time: the relay answers at once, and
// before it touches the socket.
bool ask(Request request, int fd, Reply& reply, Fd& got) noexcept {
    const Fd relay = call_relay();
    if (!relay)
        return false;
    request.magic = run::kMagic;
    UnixMessage out(&request, sizeof(request));
    fd >= 0 ? out.put(fd) : out.put_nothing();
    ssize_t n = -1;
    while ((n = real_sendmsg(relay.get(), &out.header, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
    }
    UnixMessage in(&reply, sizeof(reply));
    while (n > 0 && (n = real_recvmsg(relay.get(), &in.header, MSG_CMSG_CLOEXEC)) < 0 &&
           errno == EINTR) {
    }
    if (n <= 0)
        return false;
    got = in.take();
    return n == sizeof(reply) && reply.magic == run::kMagic;
}

void count(Plain why) noexcept {
    Request request{};
    request.ask = Ask::kLeft;
    request.left = why;
    Reply reply{};
    Fd nothing;
    (void)ask(request, -1, reply, nothing);
}

// What the new socket has of the old one.  Read before the relay has that: it sets times of its
// own.
struct Dress {
    int flags;
    int signal;
    f_owner_ex owner;
    timeval receive, send;
};

void read_time(int fd, int name, timeval& limit) noexcept {
    socklen_t bytes = sizeof(limit);
    real_getsockopt(fd, SOL_SOCKET, name, static_cast<void*>(&limit), &bytes);
}

Dress dress_of(int fd) noexcept {
    Dress d{};
    d.flags = ::fcntl(fd, F_GETFL);
    d.signal = ::fcntl(fd, F_GETSIG);
    ::fcntl(fd, F_GETOWN_EX, &d.owner);
    read_time(fd, SO_RCVTIMEO, d.receive);
    read_time(fd, SO_SNDTIMEO, d.send);
    return d;
}

void set_time(int fd, int name, const timeval& limit) noexcept {
    real_setsockopt(fd, SOL_SOCKET, name, static_cast<const void*>(&limit),
                    static_cast<socklen_t>(sizeof(limit)));
}

void put_on(int fd, const Dress& d) noexcept {
    if (d.owner.pid != 0)
        ::fcntl(fd, F_SETOWN_EX, &d.owner);
    ::fcntl(fd, F_SETSIG, d.signal);
    ::fcntl(fd, F_SETFL, d.flags);
    set_time(fd, SO_RCVTIMEO, d.receive);
    set_time(fd, SO_SNDTIMEO, d.send);
}

void replace(int fd, const Fd& by) noexcept {
    const int flags = ::fcntl(fd, F_GETFD);
    ::dup3(by.get(), fd, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
}

// What the library itself sees in the way.
Plain obstacle(int fd, Ask how) noexcept {
    if (option_of(fd, SOL_SOCKET, SO_ZEROCOPY) > 0 ||
        option_of(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT) > 0)
        return Plain::kOptions;
    return how != Ask::kAccepted && is_in_epoll(fd) ? Plain::kInEpoll : Plain::kNone;
}

// What the relay's ends look like; so may anyone's.
bool may_be_relayed(int fd) noexcept {
    sockaddr_un name{};
    socklen_t bytes = sizeof(name);
    return option_of(fd, SOL_SOCKET, SO_DOMAIN) == AF_UNIX &&
           option_of(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
           real_getpeername(fd, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 &&
           is_relays_name(&name, bytes);
}

}  // namespace

bool has_relay() noexcept { return relay_address.get() != nullptr; }

bool is_relays_name(const void* at, socklen_t bytes) noexcept {
    sockaddr_un name{};
    constexpr size_t kHead = offsetof(sockaddr_un, sun_path) + 1;
    if (bytes <= kHead + run::kNamePrefixBytes || bytes >= sizeof(name))
        return false;
    std::memcpy(&name, at, bytes);
    return name.sun_family == AF_UNIX && name.sun_path[0] == '\0' &&
           std::memcmp(name.sun_path + 1, run::kNamePrefix, run::kNamePrefixBytes) == 0;
}

void offer(int fd, Ask how, const sockaddr* peer, socklen_t bytes) noexcept {
    const KeepErrno keep;
    if (!has_relay() || !is_tcp(fd))
        return;
    if (const Plain why = obstacle(fd, how); why != Plain::kNone)
        return count(why);
    Request request{};
    request.ask = how;
    if (peer != nullptr)
        std::memcpy(&request.peer, peer, std::min<size_t>(bytes, sizeof(request.peer)));
    const Dress dress = dress_of(fd);
    Reply reply{};
    Fd ours;
    if (!ask(request, fd, reply, ours) || !ours)
        return;
    put_on(ours.get(), dress);
    replace(fd, ours);
}

Found find(int fd) noexcept {
    const KeepErrno keep;
    Found found;
    if (!has_relay() || !may_be_relayed(fd))
        return found;
    found.relayed = true;
    Request request{};
    request.ask = Ask::kFind;
    Reply reply{};
    if (ask(request, fd, reply, found.tcp)) {
        found.relayed = reply.error != ENOENT;
        found.so_error = reply.so_error;
    }
    return found;
}

}  // namespace tcpqp::preload
