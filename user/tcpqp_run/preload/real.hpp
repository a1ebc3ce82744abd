// SPDX-License-Identifier: BSD-3-Clause
// The C library's own functions behind those of ours.
#pragma once

#include <sys/socket.h>

#include "preload/next.hpp"

namespace tcpqp::preload {

inline constinit Real<int(int, const sockaddr*, socklen_t)> real_connect{"connect"};
inline constinit Real<int(int, int)> real_listen{"listen"};
inline constinit Real<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)>
    real_sendto{"sendto"};
inline constinit Real<ssize_t(int, const msghdr*, int)> real_sendmsg{"sendmsg"};
inline constinit Real<int(int, mmsghdr*, unsigned, int)> real_sendmmsg{"sendmmsg"};

inline void find_all() {
    real_connect.find();
    real_listen.find();
    real_sendto.find();
    real_sendmsg.find();
    real_sendmmsg.find();
}

}  // namespace tcpqp::preload
