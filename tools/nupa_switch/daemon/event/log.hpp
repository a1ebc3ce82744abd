// SPDX-License-Identifier: BSD-3-Clause
// Rare lines for the operator on stderr.  Never fails or waits: who reads them may be gone, or
// slow.
#pragma once

#include <fmt/core.h>

namespace nupa::daemon {

// A long line is cut.  One that there is no room for is lost; the next one says how many were.
void write_log_line(fmt::string_view format, fmt::format_args args) noexcept;

template <class... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) noexcept {
    write_log_line(format, fmt::make_format_args(args...));
}

}  // namespace nupa::daemon
