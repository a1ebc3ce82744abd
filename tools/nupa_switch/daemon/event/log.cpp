// SPDX-License-Identifier: BSD-3-Clause
#include "event/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

namespace nupa::daemon {
namespace {

constexpr size_t kLogLineMaxBytes = 511;

}  // namespace

void write_log_line(fmt::string_view format, fmt::format_args args) noexcept {
    try {
        std::string line = fmt::vformat(format, args);
        line.resize(std::min(line.size(), kLogLineMaxBytes));
        line += '\n';
        [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    } catch (...) {
        // Nobody to tell.
    }
}

}  // namespace nupa::daemon
