// SPDX-License-Identifier: BSD-3-Clause
// Rare lines for the operator on stderr.  Never fails: who reads them may be gone.
#pragma once

#include <fmt/core.h>

namespace nupa::daemon {

// A long line is cut.
void write_log_line(fmt::string_view format, fmt::format_args args) noexcept;

template <class... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) noexcept {
    write_log_line(format, fmt::make_format_args(args...));
}

}  // namespace nupa::daemon
