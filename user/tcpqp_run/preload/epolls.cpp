// SPDX-License-Identifier: BSD-3-Clause
#include "preload/epolls.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"

namespace tcpqp::preload {
namespace {

// Descriptors that once were in an epoll: /proc is asked for those only, and for larger ones.
constexpr int kRemembered = 65536;
constexpr int kBits = 64;
constinit std::array<std::atomic<uint64_t>, kRemembered / kBits> noted{};

// Does this fdinfo say so?  Lines of an epoll's: "tfd:        5 events: ..."
bool holds(int directory, const char* name, int fd) noexcept {
    const Fd info(::openat(directory, name, O_RDONLY | O_CLOEXEC));
    std::FILE* file = info ? ::fdopen(::dup(info.get()), "r") : nullptr;
    if (file == nullptr)
        return false;
    char line[256];
    bool found = false;
    while (!found && std::fgets(line, sizeof(line), file) != nullptr)
        found = std::strncmp(line, "tfd:", 4) == 0 && std::atoi(line + 4) == fd;
    std::fclose(file);
    return found;
}

bool ask_proc(int fd) noexcept {
    DIR* directory = ::opendir("/proc/self/fdinfo");
    bool found = false;
    while (directory != nullptr && !found) {
        const dirent* entry = ::readdir(directory);
        if (entry == nullptr)
            break;
        found = entry->d_name[0] != '.' && holds(::dirfd(directory), entry->d_name, fd);
    }
    if (directory != nullptr)
        ::closedir(directory);
    return found;
}

}  // namespace

void note_epoll(int fd) noexcept {
    if (fd >= 0 && fd < kRemembered)
        noted[static_cast<size_t>(fd / kBits)] |= uint64_t{1} << fd % kBits;
}

bool is_in_epoll(int fd) noexcept {
    const uint64_t bit = uint64_t{1} << fd % kBits;
    if (fd < kRemembered && (noted[static_cast<size_t>(fd / kBits)] & bit) == 0)
        return false;
    const bool found = ask_proc(fd);
    if (!found && fd < kRemembered)
        noted[static_cast<size_t>(fd / kBits)] &= ~bit;
    return found;
}

}  // namespace tcpqp::preload
