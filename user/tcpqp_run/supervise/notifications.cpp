// SPDX-License-Identifier: BSD-3-Clause
#include "supervise/notifications.hpp"

#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"
#include "ulp/taken.hpp"

namespace tcpqp::run {
namespace {

constexpr size_t kStatusBytes = 512;  // its line Tgid is the fourth

// Descriptors are a process's; a notification names the thread.  0: it has gone.
pid_t process_of(uint32_t thread) noexcept {
    std::array<char, 32> path{};
    std::array<char, kStatusBytes> text{};
    std::snprintf(path.data(), path.size(), "/proc/%u/status", thread);
    const Fd fd(::open(path.data(), O_RDONLY | O_CLOEXEC));
    if (!fd || ::read(fd.get(), text.data(), text.size() - 1) <= 0)
        return 0;
    const char* line = std::strstr(text.data(), "\nTgid:");
    return line == nullptr ? 0 : std::atoi(line + std::strlen("\nTgid:"));
}

// A caller who dies frees its number for others: the notification, still valid afterwards, says
// that the descriptor is of who made the call.
void serve(int notify, const seccomp_notif& call) noexcept {
    const pid_t process = process_of(call.pid);
    if (process == 0)
        return;
    const Fd of(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!of)
        return refuse(errno);
    const int number = static_cast<int>(call.data.args[0]);
    const Fd socket(static_cast<int>(::syscall(SYS_pidfd_getfd, of.get(), number, 0)));
    if (!socket)
        return refuse(errno);
    if (::seccomp_notify_id_valid(notify, call.id) == 0)
        take(socket.get());
}

}  // namespace

void answer_all(int notify) noexcept {
    seccomp_notif* call = nullptr;
    seccomp_notif_resp* answer = nullptr;
    if (::seccomp_notify_alloc(&call, &answer) != 0)
        return;
    pollfd of{notify, POLLIN, 0};
    while (::poll(&of, 1, -1) >= 0 && (of.revents & POLLIN) != 0) {
        if (::seccomp_notify_receive(notify, call) != 0)
            continue;  // the caller was interrupted, or has died
        serve(notify, *call);
        *answer = {};
        answer->id = call->id;
        answer->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        (void)::seccomp_notify_respond(notify, answer);
    }
    ::seccomp_notify_free(call, answer);
}

}  // namespace tcpqp::run
