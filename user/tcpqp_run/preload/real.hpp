// SPDX-License-Identifier: BSD-3-Clause
// The C library's own functions behind those of ours.
#pragma once

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>

namespace tcpqp::preload {

// Looked up when first used: another library's constructor may call us before ours ran.
template <typename Function>
class Real {
public:
    constexpr explicit Real(const char* name) noexcept : name_(name) {}
    template <typename... Arguments>
    auto operator()(Arguments... arguments) noexcept {
        void* at = at_.load(std::memory_order_relaxed);
        if (at == nullptr)
            at_.store(at = ::dlsym(RTLD_NEXT, name_), std::memory_order_relaxed);
        return reinterpret_cast<Function*>(at)(arguments...);
    }

private:
    const char* name_;
    std::atomic<void*> at_{nullptr};
};

inline constinit Real<int(int, const sockaddr*, socklen_t)> real_connect{"connect"};
inline constinit Real<int(int, sockaddr*, socklen_t*)> real_accept{"accept"};
inline constinit Real<int(int, sockaddr*, socklen_t*, int)> real_accept4{"accept4"};
inline constinit Real<int(int, sockaddr*, socklen_t*)> real_getsockname{"getsockname"};
inline constinit Real<int(int, sockaddr*, socklen_t*)> real_getpeername{"getpeername"};
inline constinit Real<int(int, int, int, void*, socklen_t*)> real_getsockopt{"getsockopt"};
inline constinit Real<int(int, int, int, const void*, socklen_t)> real_setsockopt{"setsockopt"};
inline constinit Real<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)>
    real_sendto{"sendto"};
inline constinit Real<ssize_t(int, const msghdr*, int)> real_sendmsg{"sendmsg"};
inline constinit Real<ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*)> real_recvfrom{
    "recvfrom"};
inline constinit Real<ssize_t(int, msghdr*, int)> real_recvmsg{"recvmsg"};
inline constinit Real<int(int, int, int, epoll_event*)> real_epoll_ctl{"epoll_ctl"};

}  // namespace tcpqp::preload
