// SPDX-License-Identifier: BSD-3-Clause
#include "preload/stats.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "ulp/stats_place.hpp"
#include "ulp/taken.hpp"

namespace tcpqp::preload {
namespace {

constinit run::StatsPlace place{};

}  // namespace

void begin_stats() noexcept {
    const char* said = std::getenv(run::kStatsVariable);
    if (said != nullptr && run::parse(said, place))
        ::pthread_atfork(nullptr, nullptr, run::forget_taken);
}

void print_stats() noexcept {
    if (place.is_at(STDERR_FILENO))
        run::print_taken(program_invocation_short_name, ::getpid());
}

}  // namespace tcpqp::preload
