// SPDX-License-Identifier: BSD-3-Clause
#include "ulp/say.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <ctime>

namespace tcpqp::run {
namespace {

constexpr size_t kLineBytes = 512;  // less than a pipe takes at once, if it takes anything

bool is_writable(int fd) noexcept {
    pollfd of{fd, POLLOUT, 0};
    return ::poll(&of, 1, 0) == 1 && of.revents == POLLOUT;
}

// The reader may go between the look and the write.  The SIGPIPE of that is this thread's, and is
// taken back; one that was pending before is the program's.
void write_unsignalled(int fd, const char* line, size_t bytes) noexcept {
    sigset_t pipe_alone, before, pending;
    ::sigemptyset(&pipe_alone);
    ::sigaddset(&pipe_alone, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_alone, &before);
    ::sigpending(&pending);
    constexpr timespec kNow{};
    if (::write(fd, line, bytes) < 0 && errno == EPIPE && ::sigismember(&pending, SIGPIPE) == 0)
        ::sigtimedwait(&pipe_alone, nullptr, &kNow);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void say(const char* format, ...) noexcept {
    const int before = errno;
    std::array<char, kLineBytes> line{};
    va_list arguments;
    va_start(arguments, format);
    const int bytes = std::vsnprintf(line.data(), line.size(), format, arguments);
    va_end(arguments);
    if (bytes > 0 && static_cast<size_t>(bytes) < line.size() && is_writable(STDERR_FILENO))
        write_unsignalled(STDERR_FILENO, line.data(), static_cast<size_t>(bytes));
    errno = before;
}

}  // namespace tcpqp::run
