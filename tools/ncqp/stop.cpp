// SPDX-License-Identifier: BSD-3-Clause
#include "stop.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#include "base/fd.hpp"
#include "options.hpp"

namespace ncqp {
namespace {

int g_stop_fd = -1;
volatile sig_atomic_t g_stopped = 0;

// timeout(1) signals a process and then its group: only a later signal means "now".
constexpr time_t kKillAfter_s = 1;
time_t g_stopped_at = 0;

void on_stop(int) {
    const int saved = errno;
    const uint64_t one = 1;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    if (g_stopped && now.tv_sec - g_stopped_at > kKillAfter_s)
        ::_exit(kExitFailure);
    if (!g_stopped)
        g_stopped_at = now.tv_sec;
    g_stopped = 1;
    [[maybe_unused]] ssize_t n = ::write(g_stop_fd, &one, sizeof(one));
    errno = saved;
}

// Mapped files are touched by the kernel only, so this is the last defence.
void on_bus_error(int) {
    static constexpr char kText[] = "ncqp: a mapped file was truncated, or its disk is full\n";
    [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
    ::_exit(kExitFailure);
}

void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    if (::sigaction(signal, &action, nullptr) != 0)
        tcpqp::throw_errno("install a signal handler");
}

}  // namespace

void stop_install() {
    g_stop_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g_stop_fd < 0)
        tcpqp::throw_errno("create an eventfd");
    handle(SIGINT, on_stop, 0);
    handle(SIGTERM, on_stop, 0);
    handle(SIGBUS, on_bus_error, 0);
    handle(SIGPIPE, SIG_IGN, 0);
    handle(SIGXFSZ, SIG_IGN, 0);  // then writing says EFBIG
}

bool stop_requested() noexcept { return g_stopped != 0; }

Status interrupted() { return Status::failure("interrupted by a signal"); }

Status wait_for(std::span<pollfd> fds, int timeout_ms, const char* what) noexcept {
    std::array<pollfd, kWaitMax + 1> all{};
    const size_t n = std::min(fds.size(), kWaitMax);
    std::copy_n(fds.begin(), n, all.begin());
    all[n] = {g_stop_fd, POLLIN, 0};
    for (;;) {
        const int ready = ::poll(all.data(), n + 1, timeout_ms);
        if (g_stopped)
            return interrupted();
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return Status::failure(fmt::format("poll: {}", std::strerror(errno)));
        if (ready == 0)
            return Status::failure(fmt::format("timed out waiting for {}", what));
        std::copy_n(all.begin(), n, fds.begin());
        return {};
    }
}

Status wait_fd(int fd, short events, int timeout_ms, const char* what) noexcept {
    std::array<pollfd, 1> one{{{fd, events, 0}}};
    return wait_for(one, timeout_ms, what);
}

}  // namespace ncqp
