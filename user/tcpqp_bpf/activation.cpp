// SPDX-License-Identifier: BSD-3-Clause
#include "activation.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tcpqp::bpf {
namespace {

constexpr int kFirst = 3;  // SD_LISTEN_FDS_START

int option(int fd, int name) {
    int value = 0;
    socklen_t bytes = sizeof(value);
    if (::getsockopt(fd, SOL_SOCKET, name, &value, &bytes) != 0)
        throw_errno("the passed listener");
    return value;
}

void check(int fd) {
    if (option(fd, SO_DOMAIN) != AF_UNIX || option(fd, SO_TYPE) != SOCK_SEQPACKET ||
        option(fd, SO_ACCEPTCONN) == 0)
        throw_errno("the passed listener is no AF_UNIX SOCK_SEQPACKET one", EINVAL);
    ucred who{};
    socklen_t bytes = sizeof(who);
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        throw_errno("the passed listener");
    if (who.uid != 0 && who.uid != ::geteuid())
        throw_errno("the passed listener is user " + std::to_string(who.uid) + "'s", EPERM);
}

bool is_ours(const char* pid) { return std::to_string(::getpid()) == pid; }

}  // namespace

Fd passed_listener() {
    const char* pid = ::getenv("LISTEN_PID");
    const char* count = ::getenv("LISTEN_FDS");
    if (pid == nullptr || count == nullptr || !is_ours(pid))
        return {};
    const bool one = std::string_view(count) == "1";
    for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"})
        ::unsetenv(name);
    if (!one)
        throw_errno("one listener is taken, and not more", EINVAL);
    check(kFirst);
    Fd listener(kFirst);
    if (::fcntl(kFirst, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(kFirst, F_SETFL, O_NONBLOCK) != 0)
        throw_errno("the passed listener");
    return listener;
}

}  // namespace tcpqp::bpf
