// SPDX-License-Identifier: BSD-3-Clause
#include "relay/family.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tcpqp::run {
namespace {

constexpr int kGenerationsMax = 100;

// 0: it has none that we can see.
pid_t parent_of(pid_t pid) noexcept {
    std::array<char, 256> line{};
    std::snprintf(line.data(), line.size(), "/proc/%d/status", pid);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(line.data(), "re"),
                                                               &std::fclose);
    while (file && std::fgets(line.data(), line.size(), file.get()) != nullptr)
        if (std::strncmp(line.data(), "PPid:", 5) == 0)
            return std::atoi(line.data() + 5);
    return 0;
}

// The relay is a subreaper: no descendant loses it.
bool descends_from_us(pid_t pid) noexcept {
    for (int i = 0; i < kGenerationsMax && pid > 1; i++) {
        if (pid == ::getpid())
            return true;
        pid = parent_of(pid);
    }
    return false;
}

}  // namespace

bool may_ask(int asker) noexcept {
    ucred who{};
    socklen_t bytes = sizeof(who);
    return ::getsockopt(asker, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
           (who.uid == ::getuid() || descends_from_us(who.pid));
}

}  // namespace tcpqp::run
