// SPDX-License-Identifier: BSD-3-Clause
// The C library's own functions behind those of ours.
#pragma once

#include <dlfcn.h>
#include <sys/socket.h>

#include <atomic>

namespace tcpqp::preload {

// dlsym() takes locks, so ours are looked up before the program's first line; only another
// library's constructor may call us earlier.  Nothing here is noexcept: a thread that is cancelled
// in connect() or sendmsg() is unwound through us.
template <typename Function>
class Real {
public:
    constexpr explicit Real(const char* name) noexcept : name_(name) {}
    Function* find() {
        Function* at = at_.load(std::memory_order_relaxed);
        if (at == nullptr)
            at_.store(at = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_)),
                      std::memory_order_relaxed);
        return at;
    }
    template <typename... Arguments>
    auto operator()(Arguments... arguments) {
        return find()(arguments...);
    }

private:
    const char* name_;
    std::atomic<Function*> at_{nullptr};
};

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
