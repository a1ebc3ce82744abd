// SPDX-License-Identifier: BSD-3-Clause
// What every thread of every process did last, and how often each operation ended how: in memory
// that all share, so that it outlives whoever is killed, and shows calls that never return.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace nupa::fuzz {

struct Op;

constexpr size_t kOpsMax = 160;
constexpr size_t kErrorsMax = 540;  // errnos, also those that user space should never see
constexpr size_t kTracksMax = 48;   // processes times threads
constexpr size_t kEntries = 128;    // of each thread
constexpr int kNothing = -1;        // an operation found nothing to work on
constexpr int kUnderWay = -2;       // an operation has not returned

struct Entry {
    uint64_t ns;  // CLOCK_MONOTONIC
    int64_t args[3];
    int32_t pid;
    int16_t op;
    int16_t error;
};

struct Track {
    std::atomic<uint32_t> next;
    std::array<Entry, kEntries> entries;
};

struct Shared {
    std::atomic<uint64_t> calls;
    std::atomic<uint32_t> started, crashed, loyal_messages;
    std::array<std::array<std::atomic<uint32_t>, kErrorsMax>, kOpsMax> outcomes;
    std::array<std::atomic<uint32_t>, kOpsMax> idle;    // nothing to work on
    std::array<std::atomic<uint64_t>, kOpsMax> cpu_ns;  // of the caller
    std::array<Track, kTracksMax> tracks;

    // Anonymous memory that children inherit; throws.
    static Shared& make();
    void count(size_t op, int error) noexcept;
};

// The last calls of all threads in the order of time, one a line.
void dump(const Shared& shared, std::span<const Op> ops, const std::string& path);
// A JSON object: executions, and for each operation how often it ended with which errno.
[[nodiscard]] std::string outcomes_json(const Shared& shared, std::span<const Op> ops,
                                        double seconds);

}  // namespace nupa::fuzz
