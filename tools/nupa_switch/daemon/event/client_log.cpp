// SPDX-License-Identifier: BSD-3-Clause
#include "event/client_log.hpp"

#include <algorithm>
#include <utility>

#include "event/log.hpp"

namespace nupa::daemon {

ClientLog::ClientLog(std::string who, uint64_t (*clock)() noexcept)
    : who_(std::move(who)), clock_(clock), since_ns_(clock()) {}

bool ClientLog::take_line() noexcept {
    const uint64_t periods = (clock_() - since_ns_) / kClientLinePeriodNs;
    since_ns_ += periods * kClientLinePeriodNs;
    lines_ = std::min<uint64_t>(lines_ + periods, kClientLinesAtOnce);
    if (lines_ == 0)
        return false;
    lines_--;
    return true;
}

void ClientLog::write(fmt::string_view format, fmt::format_args args) noexcept {
    if (!take_line()) {
        left_out_++;
        return;
    }
    if (const uint64_t before = std::exchange(left_out_, 0))
        log_line("{}: {} lines were left out here", who_, before);
    try {
        log_line("{}: {}", who_, fmt::vformat(format, args));
    } catch (...) {
        // Nobody to tell.
    }
}

}  // namespace nupa::daemon
