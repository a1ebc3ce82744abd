// SPDX-License-Identifier: BSD-3-Clause
// libtcpqp-preload.so: the calls by which a program could tell a relayed connection from TCP.  All
// others (read, poll, epoll, shutdown, sendfile, dup, ...) are the kernel's, on the AF_UNIX socket
// that the descriptor has become.
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "preload/epolls.hpp"
#include "preload/real.hpp"
#include "preload/relay.hpp"

using namespace tcpqp::preload;
using tcpqp::run::Ask;

namespace {

// Options of the descriptor that the program waits on; all others are the TCP socket's.
bool is_local(int level, int name) noexcept {
    if (level != SOL_SOCKET)
        return false;
    switch (name) {
        case SO_RCVTIMEO_OLD:
        case SO_SNDTIMEO_OLD:
        case SO_RCVTIMEO_NEW:
        case SO_SNDTIMEO_NEW:
        case SO_TYPE:
        case SO_PEEK_OFF:
            return true;
        default:
            return false;
    }
}

// What a relayed connection can't have.
bool is_refused(int level, int name) noexcept {
    return (level == SOL_SOCKET && name == SO_ZEROCOPY) ||
           (level == IPPROTO_TCP && (name == TCP_ULP || name == TCP_REPAIR));
}

int gone() noexcept {
    errno = ENOTCONN;
    return -1;
}

int connect_again(const Found& found, const sockaddr* peer, socklen_t bytes) noexcept {
    if (found.so_error == 0)
        return found.tcp ? real_connect(found.tcp.get(), peer, bytes) : gone();
    errno = found.so_error;
    return -1;
}

int offer_accepted(int fd) noexcept {
    if (fd >= 0)
        offer(fd, Ask::kAccepted, nullptr, 0);
    return fd;
}

}  // namespace

extern "C" {

int connect(int fd, const sockaddr* peer, socklen_t bytes) {
    const bool inet = peer != nullptr && bytes >= sizeof(peer->sa_family) &&
                      (peer->sa_family == AF_INET || peer->sa_family == AF_INET6);
    if (!inet || !has_relay())
        return real_connect(fd, peer, bytes);
    if (const Found found = find(fd); found.relayed)
        return connect_again(found, peer, bytes);
    const int result = real_connect(fd, peer, bytes);
    if (result == 0)
        offer(fd, Ask::kConnected, peer, bytes);
    else if (errno == EINPROGRESS || errno == EINTR)
        offer(fd, Ask::kConnecting, peer, bytes);
    return result;
}

int accept(int fd, sockaddr* peer, socklen_t* bytes) {
    return offer_accepted(real_accept(fd, peer, bytes));
}

int accept4(int fd, sockaddr* peer, socklen_t* bytes, int flags) {
    return offer_accepted(real_accept4(fd, peer, bytes, flags));
}

int getsockname(int fd, sockaddr* name, socklen_t* bytes) noexcept {
    const Found found = find(fd);
    if (found.relayed && !found.tcp)
        return gone();
    return real_getsockname(found.relayed ? found.tcp.get() : fd, name, bytes);
}

int getpeername(int fd, sockaddr* name, socklen_t* bytes) noexcept {
    const Found found = find(fd);
    if (found.relayed && !found.tcp)
        return gone();
    return real_getpeername(found.relayed ? found.tcp.get() : fd, name, bytes);
}

int getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) noexcept {
    const Found found = is_local(level, name) ? Found() : find(fd);
    const bool is_error = level == SOL_SOCKET && name == SO_ERROR;
    if (!found.relayed || (is_error && found.so_error == 0))
        return real_getsockopt(fd, level, name, value, bytes);
    if (is_error) {
        const int result = real_getsockopt(fd, level, name, value, bytes);  // taken, too
        if (result == 0 && *bytes == sizeof(int))
            *static_cast<int*>(value) = found.so_error;
        return result;
    }
    return found.tcp ? real_getsockopt(found.tcp.get(), level, name, value, bytes) : gone();
}

int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) noexcept {
    const Found found = is_local(level, name) ? Found() : find(fd);
    if (!found.relayed)
        return real_setsockopt(fd, level, name, value, bytes);
    if (is_refused(level, name)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return found.tcp ? real_setsockopt(found.tcp.get(), level, name, value, bytes) : gone();
}

// TCP ignores an address, where AF_UNIX refuses it.
ssize_t sendto(int fd, const void* data, size_t bytes, int flags, const sockaddr* to,
               socklen_t to_bytes) {
    const ssize_t n = real_sendto(fd, data, bytes, flags, to, to_bytes);
    if (n >= 0 || errno != EISCONN || to == nullptr || !find(fd).relayed)
        return n;
    return real_sendto(fd, data, bytes, flags, nullptr, socklen_t{0});
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    const ssize_t n = real_sendmsg(fd, message, flags);
    if (n >= 0 || errno != EISCONN || message->msg_name == nullptr || !find(fd).relayed)
        return n;
    msghdr bare = *message;
    bare.msg_name = nullptr;
    bare.msg_namelen = 0;
    return real_sendmsg(fd, &bare, flags);
}

// TCP names no sender, where AF_UNIX does.
ssize_t recvfrom(int fd, void* data, size_t bytes, int flags, sockaddr* from,
                 socklen_t* from_bytes) {
    if (from == nullptr || from_bytes == nullptr)
        return real_recvfrom(fd, data, bytes, flags, from, from_bytes);
    sockaddr_storage name{};
    socklen_t name_bytes = sizeof(name);
    const ssize_t n =
        real_recvfrom(fd, data, bytes, flags, reinterpret_cast<sockaddr*>(&name), &name_bytes);
    if (n < 0)
        return n;
    if (is_relays_name(&name, name_bytes))
        name_bytes = 0;
    std::memcpy(from, &name, std::min({*from_bytes, name_bytes, socklen_t{sizeof(name)}}));
    *from_bytes = name_bytes;
    return n;
}

// What _FORTIFY_SOURCE makes of it.  NOLINTNEXTLINE(bugprone-reserved-identifier)
ssize_t __recvfrom_chk(int fd, void* data, size_t bytes, size_t room, int flags, sockaddr* from,
                       socklen_t* from_bytes) {
    if (bytes > room)
        ::abort();
    return recvfrom(fd, data, bytes, flags, from, from_bytes);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
    const ssize_t n = real_recvmsg(fd, message, flags);
    if (n >= 0 && message->msg_name != nullptr &&
        is_relays_name(message->msg_name, message->msg_namelen))
        message->msg_namelen = 0;
    return n;
}

int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
    if (operation == EPOLL_CTL_ADD)
        note_epoll(fd);
    return real_epoll_ctl(epoll, operation, fd, event);
}
}
