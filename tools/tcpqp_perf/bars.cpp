// SPDX-License-Identifier: BSD-3-Clause
#include "bars.hpp"

#include <algorithm>
#include <cstdio>

namespace perf {
namespace {

constexpr uint32_t kLarge = 65536, kLarger = 1 << 20, kSmall = 64;

// Round trips come first: a send that has to wait starts a thread, and in a process that ever
// had two, locks are atomic for good.
constexpr BarTest kTests[] = {{Test::kLatency, kSmall, 4000, 5},
                              {Test::kBandwidth, kLarge, 3000, 5},
                              {Test::kBandwidth, kLarger, 200, 5},
                              {Test::kRate, kSmall, 100000, 1}};

// Speeds to plain TCP's: of time, what it may take is the inverse.
struct Bar {
    uint32_t engine;
    uint32_t framing;
    Test test;
    uint32_t bytes;
    double speed;
};
constexpr Bar kBars[] = {
    {TCPQP_ENGINE_STOCK, TCPQP_FRAMING_STREAM, Test::kBandwidth, kLarge, 0.95},
    {TCPQP_ENGINE_STOCK, TCPQP_FRAMING_STREAM, Test::kBandwidth, kLarger, 0.95},
    {TCPQP_ENGINE_STOCK, TCPQP_FRAMING_STREAM, Test::kLatency, kSmall, 1 / 1.05},
    {TCPQP_ENGINE_STOCK, TCPQP_FRAMING_STREAM, Test::kRate, kSmall, 5},
    {TCPQP_ENGINE_STOCK, TCPQP_FRAMING_OPTION, Test::kBandwidth, kLarge, 0.90},
    {TCPQP_ENGINE_STOCK, TCPQP_FRAMING_OPTION, Test::kBandwidth, kLarger, 0.90},
    {TCPQP_ENGINE_OFFLOAD, TCPQP_FRAMING_NONE, Test::kBandwidth, kLarger, 3},
    {TCPQP_ENGINE_OFFLOAD, TCPQP_FRAMING_NONE, Test::kLatency, kSmall, 1},
};

const Bar* bar_of(const Result& r) noexcept {
    const auto* at = std::find_if(std::begin(kBars), std::end(kBars), [&r](const Bar& b) {
        return b.engine == r.client.engine && b.framing == r.client.framing &&
               b.test == r.round.test && b.bytes == r.round.bytes;
    });
    return at == std::end(kBars) ? nullptr : at;
}

const char* framing_name(uint32_t framing) noexcept {
    return framing == TCPQP_FRAMING_STREAM   ? "stream"
           : framing == TCPQP_FRAMING_OPTION ? "option"
                                             : "-";
}

}  // namespace

std::span<const BarTest> bar_tests() noexcept { return kTests; }

Options options_of(const BarTest& bar, const Options& o) {
    Options one = o;
    one.test = bar.test;
    one.sizes = {bar.bytes};
    one.batch = default_batch(bar.test);
    if (o.messages == 0)
        one.messages = bar.messages;
    if (o.rounds == 0)
        one.rounds = bar.rounds;
    return one;
}

void print_bar_header() {
    std::printf("%-8s %-8s %-5s %8s  %-14s %8s  %-16s  %-8s %s\n", "engine", "framing", "test",
                "bytes", "to plain TCP", "value", "connections'", "bar", "met");
}

bool print_bar(const std::vector<Result>& connections) {
    const Result& r = connections.front();
    const Bar* bar = bar_of(r);
    const bool is_time = r.round.test == Test::kLatency;
    std::vector<double> speeds;
    speeds.reserve(connections.size());
    for (const Result& one : connections)
        speeds.push_back(speed_to_tcp(one));
    const double speed = median(speeds);
    const bool met = bar == nullptr || speed >= bar->speed;
    const auto shown = [is_time](double v) { return is_time ? 1 / v : v; };
    const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
    const double a = shown(*slowest), b = shown(*fastest);
    std::printf("%-8s %-8s %-5s %8u  %-14s %8.3f  %6.3f to %6.3f  ",
                tcpqp_engine_name(r.client.engine), framing_name(r.client.framing),
                name(r.round.test), r.round.bytes, is_time ? "time of a trip" : "speed",
                shown(speed), std::min(a, b), std::max(a, b));
    if (bar == nullptr)
        std::printf("%-8s -\n", "-");
    else
        std::printf("%s %-5.2f %s\n", is_time ? "<=" : ">=", is_time ? 1 / bar->speed : bar->speed,
                    met ? "yes" : "NO");
    std::fflush(stdout);
    return met;
}

}  // namespace perf
