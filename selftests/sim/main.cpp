// SPDX-License-Identifier: BSD-3-Clause
// Plays seeded schedules until one breaks an invariant: `make sim SEEDS=2000`,
// `make sim SEED=77`.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>

#include "post_world.hpp"
#include "world.hpp"

namespace {

struct Options {
    std::uint64_t first = 1, count = 1000;
    bool one = false;       // --seed: print its events
    bool complete = false;  // --complete: every kind of event must have happened
};

void add_options(CLI::App& app, Options& o) {
    CLI::Option* one = app.add_option_function<std::uint64_t>(
        "--seed", [&](std::uint64_t seed) { o.first = seed, o.count = 1, o.one = true; });
    app.add_option("--seeds", o.count, "how many")->excludes(one);
    app.add_option("--first", o.first, "of these")->excludes(one);
    app.add_flag("--complete", o.complete, "each kind of event must have happened");
}

// True: no invariant was broken.
template <class Kind>
bool play(std::uint64_t seed, bool print, sim::Coverage& coverage) {
    const auto world = std::make_unique<Kind>(seed, coverage);
    bool good = true;
    try {
        world->run();
    } catch (const sim::Violation& violation) {
        good = false;
        world->log.print(stderr);
        std::fprintf(stderr,
                     "sim: FAIL: seed %" PRIu64 ": %s\nsim: again: make sim SEED=%" PRIu64 "\n",
                     seed, violation.what(), seed);
    }
    if (good && print)
        world->log.print(stdout);
    return good;
}

bool report(const sim::Coverage& coverage, bool complete) {
    bool all = true;
    const auto line = [&](const char* kind, const char* name, std::uint64_t n) {
        std::printf("  %-9s %-18s %" PRIu64 "\n", kind, name, n);
        if (complete && n == 0) {
            std::fprintf(stderr, "sim: FAIL: %s %s never happened\n", kind, name);
            all = false;
        }
    };
    for (std::size_t i = 0; i < sim::kCounters; i++)
        line("count", sim::counter_name(i), coverage.counts[i]);
    for (std::size_t i = 0; i < coverage.reasons.size(); i++)
        line("segments", nupa::reason_name(static_cast<nupa::Reason>(i)), coverage.reasons[i]);
    return all;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app("plays seeded schedules until one breaks an invariant");
    add_options(app, o);
    CLI11_PARSE(app, argc, argv);
    sim::Coverage coverage;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < o.count; i++)
        if (!play<sim::World>(o.first + i, o.one, coverage) ||
            !play<sim::PostWorld>(o.first + i, o.one, coverage))
            return 1;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    const bool all = report(coverage, o.complete);
    std::printf("sim: %" PRIu64 " schedules from seed %" PRIu64 " in %.1f s, no violation\n",
                o.count, o.first, spent.count());
    return all ? 0 : 1;
}
