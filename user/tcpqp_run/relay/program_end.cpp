// SPDX-License-Identifier: BSD-3-Clause
// Linux says ECONNRESET when an AF_UNIX socket is closed with bytes that it did not read.  If the
// program sent none lately, we send one in its place, by a copy of its descriptor (pidfd_getfd: the
// program descends from us, and is no more privileged).
#include "relay/program_end.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/fd.hpp"

namespace tcpqp::run {
namespace {

// It may be on its way to the program still, or be given its number just now.
constexpr int kTries = 100, kTryMs = 1;

struct CloseDirectory {
    void operator()(DIR* d) const noexcept { ::closedir(d); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool is_number(const char* name) noexcept { return name[0] >= '0' && name[0] <= '9'; }

// The descriptor's number in @pid, or -1.
int number_in(const char* pid, const char* link) noexcept {
    char path[300];
    std::snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    const Directory directory(::opendir(path));
    while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
        std::array<char, 64> text{};
        const ssize_t n =
            ::readlinkat(::dirfd(directory.get()), entry->d_name, text.data(), text.size() - 1);
        if (n > 0 && std::strcmp(text.data(), link) == 0)
            return std::atoi(entry->d_name);
    }
    return -1;
}

Fd copy_from(const char* pid, int number) noexcept {
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, std::atoi(pid), 0)));
    return Fd(process ? static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0))
                      : -1);
}

Fd find(ino_t inode) noexcept {
    char link[64];
    std::snprintf(link, sizeof(link), "socket:[%llu]", 0ULL + inode);
    const Directory all(::opendir("/proc"));
    while (const dirent* entry = all ? ::readdir(all.get()) : nullptr) {
        const int number = is_number(entry->d_name) ? number_in(entry->d_name, link) : -1;
        if (number < 0)
            continue;
        if (Fd copy = copy_from(entry->d_name, number))
            return copy;
    }
    return {};
}

bool has_bytes(int ours) noexcept {
    int waiting = 0;
    return ::ioctl(ours, FIONREAD, &waiting) == 0 && waiting > 0;
}

bool is_closed(int ours) noexcept {
    pollfd p{ours, 0, 0};
    return ::poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0;
}

}  // namespace

void reset_program(int ours, ino_t inode) noexcept {
    for (int i = 0; i < kTries && !has_bytes(ours) && !is_closed(ours); i++) {
        if (const Fd theirs = find(inode)) {
            ::send(theirs.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            return;
        }
        ::poll(nullptr, 0, kTryMs);
    }
}

}  // namespace tcpqp::run
