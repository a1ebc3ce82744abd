// SPDX-License-Identifier: BSD-3-Clause
#include "event/log.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace nupa::daemon {
namespace {

constexpr size_t kLogLineMaxBytes = 511;

uint64_t lost;

// A pipe with room has a page of it: two lines do not wait there.
bool has_room() noexcept {
    pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    return ::poll(&out, 1, 0) == 1 && out.revents & POLLOUT;
}

}  // namespace

void write_log_line(fmt::string_view format, fmt::format_args args) noexcept {
    try {
        std::string line = fmt::vformat(format, args);
        line.resize(std::min(line.size(), kLogLineMaxBytes));
        line += '\n';
        if (!has_room()) {
            lost++;
            return;
        }
        if (lost)
            line.insert(0, fmt::format("nupa_switch: {} lines were lost here\n", lost));
        lost = 0;
        [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    } catch (...) {
        // Nobody to tell.
    }
}

}  // namespace nupa::daemon
