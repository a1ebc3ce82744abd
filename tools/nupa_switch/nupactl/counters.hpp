// SPDX-License-Identifier: BSD-3-Clause
// What each counter of the switch counts, in a few words.
#pragma once

#include <string_view>

namespace nupa::ctl {

// Of a port, or of a QP context; empty: a newer switch's, which is not known here.
std::string_view port_counter_help(std::string_view name) noexcept;
std::string_view qp_counter_help(std::string_view name) noexcept;

}  // namespace nupa::ctl
