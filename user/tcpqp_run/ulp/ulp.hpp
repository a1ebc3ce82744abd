// SPDX-License-Identifier: BSD-3-Clause
// The one thing that is done to a program's sockets.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <tcp_qp/tcp_qp.h>
#include <unistd.h>

#include <cerrno>

namespace tcpqp::run {

// Gives the socket the module's ULP.  Returns 0 or an errno, and keeps errno as it was.  A bare
// system call: no point of cancellation, and nothing that another preloaded library could see.
inline int set_stream_ulp(int fd) noexcept {
    constexpr char kName[] = TCP_QP_STREAM_ULP_NAME;
    const int before = errno;
    const long result =
        ::syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_ULP, kName, sizeof(kName) - 1);
    const int error = result == 0 ? 0 : errno;
    errno = before;
    return error;
}

}  // namespace tcpqp::run
