// SPDX-License-Identifier: BSD-3-Clause
// A socket's SO_RCVTIMEO for as long as it has a queue pair: ours, for recv()
// in wait(); then the application's again.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "userspace/base/limits.hpp"

namespace tcpqp::stock {

class ReceiveTimeout {
public:
    explicit ReceiveTimeout(int socket) noexcept : socket_(socket) {
        socklen_t bytes = sizeof(before_);
        const int flags = ::fcntl(socket, F_GETFL);
        set_ = flags >= 0 && (flags & O_NONBLOCK) == 0 &&
               ::getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &before_, &bytes) == 0 && set(kLimit);
    }
    ~ReceiveTimeout() {
        if (set_)
            set(before_);
    }
    ReceiveTimeout(const ReceiveTimeout&) = delete;
    ReceiveTimeout& operator=(const ReceiveTimeout&) = delete;
    // A blocking recv() ends in time.
    [[nodiscard]] bool is_set() const noexcept { return set_; }
    // The kernel's timer costs a short sleep one part in sixty.
    void limit(bool limited) noexcept {
        if (limited != limited_) [[unlikely]]
            limited_ = set(limited ? kLimit : timeval{}) ? limited : limited_;
    }

private:
    static constexpr timeval kLimit{0, suseconds_t{kSocketWaitMs} * 1000};

    bool set(const timeval& limit) const noexcept {
        return ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0;
    }

    int socket_;
    timeval before_{};
    bool set_ = false;
    bool limited_ = true;
};

}  // namespace tcpqp::stock
