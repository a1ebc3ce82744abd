// SPDX-License-Identifier: BSD-3-Clause
// What a frame costs the switch as ports are added: processor time of the daemon, with hosts that
// are part of this program.
#include <benchmark/benchmark.h>

#include <fstream>

#include "two_ports.hpp"

namespace {

using namespace nupa::testing;

constexpr uint16_t kType = 0x88b5;  // IEEE 802 local experimental
constexpr size_t kFrameBytes = 1000;
constexpr unsigned kBatch = 32;  // frames of a port in one turn

uint64_t processor_ns(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/schedstat");
    uint64_t ns = 0;
    file >> ns;
    return ns;
}

// Each port sends to the next one, all at once.
void ports(benchmark::State& state) {
    const auto count = static_cast<unsigned>(state.range(0));
    Ports p(count, kModeAll, {}, 1, 16 << 20);
    std::vector<Bytes> frames;
    for (unsigned i = 0; i < count; i++)
        frames.push_back(
            build_ethernet(p[(i + 1) % count].mac(), p[i].mac(), kType, pattern(kFrameBytes, i)));
    const uint64_t before = processor_ns(p.daemon.pid());
    int64_t sent = 0;
    for (auto _ : state) {
        for (unsigned i = 0; i < count; i++) {
            for (unsigned n = 0; n < kBatch; n++)
                p[i].stage(0, frames[i]);
            p[i].publish(0);
        }
        for (unsigned i = 0; i < count; i++) {
            for (unsigned n = 0; n < kBatch; n++)
                benchmark::DoNotOptimize(p[i].receive(0));
            p[i].wait_sent(0);
        }
        sent += int64_t{count} * kBatch;
    }
    state.SetItemsProcessed(sent);
    state.counters["switch_ns_per_frame"] =
        static_cast<double>(processor_ns(p.daemon.pid()) - before) / static_cast<double>(sent);
}
// alloc() of a port never gives memory back, so turns are few
BENCHMARK(ports)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(24)->Iterations(64)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
