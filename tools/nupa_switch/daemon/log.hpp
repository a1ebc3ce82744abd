// SPDX-License-Identifier: BSD-3-Clause
// Rare lines for the operator on stderr.  Never fails: who reads them may be gone.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace nupa::daemon {

template <class... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) noexcept {
    std::array<char, 512> line;
    try {
        const auto out =
            fmt::format_to_n(line.data(), line.size() - 1, format, std::forward<Args>(args)...);
        *out.out = '\n';
        [[maybe_unused]] ssize_t n =
            ::write(STDERR_FILENO, line.data(), static_cast<size_t>(out.out - line.data()) + 1);
    } catch (...) {
        // Nobody to tell.
    }
}

}  // namespace nupa::daemon
