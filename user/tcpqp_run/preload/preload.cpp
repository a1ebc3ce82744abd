// SPDX-License-Identifier: BSD-3-Clause
// libtcpqp-preload.so: connections and listeners of an unmodified program get the module's ULP just
// before the kernel hears of them.  Everything else is between the program and the kernel.
#include <sys/socket.h>

#include "preload/real.hpp"
#include "preload/stats.hpp"
#include "ulp/taken.hpp"

using namespace tcpqp::preload;
using tcpqp::run::take;

namespace {

[[gnu::constructor]] void begin() {
    find_all();
    begin_stats();
}

[[gnu::destructor]] void end() { print_stats(); }

}  // namespace

extern "C" {

int connect(int fd, const sockaddr* peer, socklen_t bytes) {
    take(fd);
    return real_connect(fd, peer, bytes);
}

int listen(int fd, int backlog) noexcept {
    take(fd);
    return real_listen(fd, backlog);
}

// TCP fast open: the call that sends connects.
ssize_t sendto(int fd, const void* data, size_t bytes, int flags, const sockaddr* to,
               socklen_t to_bytes) {
    if ((flags & MSG_FASTOPEN) != 0)
        take(fd);
    return real_sendto(fd, data, bytes, flags, to, to_bytes);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    if ((flags & MSG_FASTOPEN) != 0)
        take(fd);
    return real_sendmsg(fd, message, flags);
}

int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
    if ((flags & MSG_FASTOPEN) != 0)
        take(fd);
    return real_sendmmsg(fd, messages, count, flags);
}
}
