// SPDX-License-Identifier: BSD-3-Clause
// The signals that end a program, as a descriptor.
#pragma once

#include <sys/signalfd.h>

#include <csignal>

#include "base/fd.hpp"

namespace tcpqp {

// Readable at SIGTERM or SIGINT, which are blocked from now on: call it before there are threads.
inline Fd stop_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (::sigprocmask(SIG_BLOCK, &set, nullptr) < 0)
        throw_errno("sigprocmask");
    Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        throw_errno("signalfd");
    return fd;
}

}  // namespace tcpqp
