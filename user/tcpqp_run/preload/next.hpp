// SPDX-License-Identifier: BSD-3-Clause
// A function of the program's libraries that lies behind one of ours.
#pragma once

#include <dlfcn.h>

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

}  // namespace tcpqp::preload
