// SPDX-License-Identifier: BSD-3-Clause
#include "supervise/notifications.hpp"

#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/fd.hpp"
#include "ulp/taken.hpp"

namespace tcpqp::run {
namespace {

constexpr size_t kStatusBytes = 512;     // its line Tgid is the fourth
constexpr unsigned kAnyThread = O_EXCL;  // PIDFD_THREAD of Linux 6.9
// SECCOMP_IOCTL_NOTIF_SET_FLAGS of Linux 6.6, and SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
constexpr unsigned long kSetFlags = _IOW('!', 4, uint64_t), kOnTheSameProcessor = 1;

// Of a thread that need not be the first of its process.  0: it has gone.
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

// A notification names the thread.  Kernels before 6.9 know processes only, and which one it is
// says a file that takes them longer to write than all else here.
Fd open_caller(uint32_t thread) noexcept {
    Fd of(static_cast<int>(::syscall(SYS_pidfd_open, thread, kAnyThread)));
    if (of || errno != EINVAL)
        return of;
    if (const pid_t process = process_of(thread); process != 0)
        return Fd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    errno = ESRCH;
    return {};
}

// A caller who dies frees its number for others: the notification, still valid afterwards, says
// that the descriptor is of who made the call.
void serve(int notify, const seccomp_notif& call) noexcept {
    const Fd of = open_caller(call.pid);
    if (!of) {
        if (errno != ESRCH)
            refuse(errno);
        return;
    }
    const int number = static_cast<int>(call.data.args[0]);
    const Fd socket(static_cast<int>(::syscall(SYS_pidfd_getfd, of.get(), number, 0)));
    if (!socket)
        return refuse(errno);
    if (::seccomp_notify_id_valid(notify, call.id) == 0)
        take(socket.get());
}

struct Free {
    void operator()(seccomp_notif* call) const noexcept { ::seccomp_notify_free(call, nullptr); }
    void operator()(seccomp_notif_resp* answer) const noexcept {
        ::seccomp_notify_free(nullptr, answer);
    }
};

// False: there is no going on.  The kernel refuses memory that is not all zeroes, and how much it
// writes to is its own affair: new memory for each call.
bool answer_one(int notify) noexcept {
    seccomp_notif* call_memory = nullptr;
    seccomp_notif_resp* answer_memory = nullptr;
    if (::seccomp_notify_alloc(&call_memory, &answer_memory) != 0)
        return false;
    const std::unique_ptr<seccomp_notif, Free> call(call_memory);
    const std::unique_ptr<seccomp_notif_resp, Free> answer(answer_memory);
    if (::seccomp_notify_receive(notify, call.get()) != 0)
        return errno == ENOENT || errno == EINTR;  // the caller has died, or was interrupted
    serve(notify, *call);
    answer->id = call->id;
    answer->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)::seccomp_notify_respond(notify, answer.get());
    return true;
}

}  // namespace

// A call that is not received yet is ended by any signal: so it is received at once, by who takes
// over the caller's processor.  Kernels that cannot do it take longer.
void answer_all(int notify) noexcept {
    (void)::ioctl(notify, kSetFlags, kOnTheSameProcessor);
    pollfd of{notify, POLLIN, 0};
    while (::poll(&of, 1, -1) >= 0 && (of.revents & POLLIN) != 0)
        if (!answer_one(notify))
            return;
}

}  // namespace tcpqp::run
