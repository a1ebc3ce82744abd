// SPDX-License-Identifier: BSD-3-Clause
// What happened: timed, counted, and said as JSON and as one line.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "cpu.hpp"
#include "options.hpp"

namespace ncqp {

struct Report {
    std::string role;
    std::string engine;
    std::string requested_engine;
    std::string reason = "NONE";
    uint64_t bytes = 0;
    double seconds = 0;
    double cpu_s = 0;
    double process_cpu_s = 0;
    double setup_s = 0;
    double setup_cpu_s = 0;
    uint64_t placed_bytes = 0;
    uint64_t copied_bytes = 0;
    uint64_t delivered_bytes = 0;
    uint64_t tx_zerocopy_bytes = 0;
    uint64_t segments = 0;
    uint64_t retrans = 0;
    uint32_t mss = 0;
    std::optional<uint32_t> wire_version;
    uint64_t messages = 0;
    uint64_t msg_size = 0;
    uint32_t depth = 0;
    std::string data_path;  // what held the bytes: docs/ncqp.md
    bool validated = false;
    bool ok = false;
    std::string error;

    [[nodiscard]] double gbps() const noexcept {
        return seconds > 0 ? static_cast<double>(bytes) * 8 / seconds / 1e9 : 0;
    }
    [[nodiscard]] std::string json() const;
    [[nodiscard]] std::string line() const;
};

// Set-up may come in pieces; begin (docs/ncqp.md: seconds) -> end (last completion) is the
// transfer.
class Meter {
public:
    void begin_setup() noexcept { setup_ = Mark::now(); }
    void end_setup() noexcept;
    void begin() noexcept {
        if (!begin_)
            begin_ = Mark::now();
    }
    void end() noexcept { end_ = Mark::now(); }
    void fill(Report& report) const noexcept;

private:
    struct Mark {
        std::chrono::steady_clock::time_point at;
        CpuTimes cpu;
        static Mark now() noexcept { return {std::chrono::steady_clock::now(), CpuTimes::now()}; }
    };
    std::optional<Mark> setup_, begin_, end_;
    double setup_s_ = 0;
    double setup_cpu_s_ = 0;
};

// A line that rewrites itself, on a terminal only.
class Progress {
public:
    explicit Progress(bool quiet) noexcept;
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void update(uint64_t bytes, std::optional<uint64_t> total) noexcept;
    void clear() noexcept;

private:
    bool on_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace ncqp
