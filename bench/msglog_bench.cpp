// SPDX-License-Identifier: BSD-3-Clause
// The kernel's message log, compiled here from its own source.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

extern "C" {
#include "wire/msglog.h"
}

namespace {

constexpr std::uint32_t kBytes = 4096;  // of a message

struct Log {
    explicit Log(std::uint32_t entries) : records(entries) {
        tqp_msglog_init(&log, records.data(), entries);
    }
    void push() {
        tqp_msg_rec* rec = tqp_msglog_next(&log);
        *rec = {};
        rec->start_seq = next, rec->length = kBytes;
        next += kBytes;
        tqp_msglog_commit(&log);
    }

    std::vector<tqp_msg_rec> records;
    tqp_msglog log{};
    std::uint32_t next = 0;
};

// A message's whole life: logged, found by its segment, acknowledged; others are under way.
void message_log(benchmark::State& state) {
    const auto under_way = static_cast<std::uint32_t>(state.range(0));
    Log l(2 * under_way);
    for (std::uint32_t i = 0; i < under_way; i++)
        l.push();
    for (auto _ : state) {
        l.push();
        benchmark::DoNotOptimize(tqp_msglog_find(&l.log, l.next - kBytes));
        benchmark::DoNotOptimize(tqp_msglog_ack(&l.log, l.next - under_way * kBytes));
    }
}
BENCHMARK(message_log)->Arg(1)->Arg(64)->Arg(4096);

// A retransmission names a sequence number in the middle.
void message_log_find(benchmark::State& state) {
    const auto under_way = static_cast<std::uint32_t>(state.range(0));
    Log l(under_way);
    for (std::uint32_t i = 0; i < under_way; i++)
        l.push();
    std::uint32_t at = 0;
    for (auto _ : state)
        benchmark::DoNotOptimize(
            tqp_msglog_find(&l.log, ((at += 7919) % under_way) * kBytes + 100));
}
BENCHMARK(message_log_find)->Arg(64)->Arg(4096);

}  // namespace
