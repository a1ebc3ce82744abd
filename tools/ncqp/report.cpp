// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace ncqp {
namespace {

double elapsed_s(std::chrono::steady_clock::time_point from,
                 std::chrono::steady_clock::time_point to) noexcept {
    return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string Report::json() const {
    nlohmann::ordered_json j;
    j["role"] = role;
    j["engine"] = engine;
    j["requested_engine"] = requested_engine;
    j["reason"] = reason;
    j["bytes"] = bytes;
    j["seconds"] = seconds;
    j["gbps"] = gbps();
    j["cpu_s"] = cpu_s;
    j["process_cpu_s"] = process_cpu_s;
    j["placed_bytes"] = placed_bytes;
    j["copied_bytes"] = copied_bytes;
    j["delivered_bytes"] = delivered_bytes;
    j["tx_zerocopy_bytes"] = tx_zerocopy_bytes;
    j["segments"] = segments;
    j["retrans"] = retrans;
    j["mss"] = mss;
    if (wire_version)
        j["wire_version"] = *wire_version;
    else
        j["wire_version"] = nullptr;
    j["messages"] = messages;
    j["msg_size"] = msg_size;
    j["depth"] = depth;
    j["data_path"] = data_path;
    j["setup_s"] = setup_s;
    j["setup_cpu_s"] = setup_cpu_s;
    j["validated"] = validated;
    j["ok"] = ok;
    j["error"] = error;
    // a peer's text or a file name may not be UTF-8
    return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Report::line() const {
    std::string text =
        fmt::format("{} {} bytes in {:.3f} s, {:.3f} Gb/s, engine {}",
                    role == "sender" ? "sent" : "received", bytes, seconds, gbps(), engine);
    if (reason != "NONE")
        text += fmt::format(" ({})", reason);
    if (placed_bytes > 0)
        text += fmt::format(", {} bytes placed by the switch", placed_bytes);
    if (validated)
        text += ", pattern verified";
    return text;
}

void Meter::end_setup() noexcept {
    if (!setup_)
        return;
    const Mark now = Mark::now();
    setup_s_ += elapsed_s(setup_->at, now.at);
    setup_cpu_s_ += now.cpu.system_s - setup_->cpu.system_s;
    setup_.reset();
}

void Meter::fill(Report& report) const noexcept {
    report.setup_s = setup_s_;
    report.setup_cpu_s = setup_cpu_s_;
    if (begin_ && end_) {
        report.seconds = elapsed_s(begin_->at, end_->at);
        report.cpu_s = end_->cpu.system_s - begin_->cpu.system_s;
        report.process_cpu_s = end_->cpu.process_s - begin_->cpu.process_s;
    }
}

Progress::Progress(bool quiet) noexcept
    : on_(!quiet && ::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

void Progress::update(uint64_t bytes, std::optional<uint64_t> total) noexcept {
    if (!on_)
        return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(kProgressInterval_ms))
        return;
    last_ = now;
    shown_ = true;
    const double mib = static_cast<double>(bytes) / static_cast<double>(kMiB);
    const double rate = mib / elapsed_s(start_, now);
    if (total && *total > 0)
        fmt::print(stderr, "\r{:10.1f} MiB  {:3d} %  {:8.1f} MiB/s ", mib,
                   static_cast<int>(static_cast<double>(bytes) * 100 / static_cast<double>(*total)),
                   rate);
    else
        fmt::print(stderr, "\r{:10.1f} MiB  {:8.1f} MiB/s ", mib, rate);
}

void Progress::clear() noexcept {
    if (shown_)
        fmt::print(stderr, "\r{:60}\r", "");
    shown_ = false;
}

}  // namespace ncqp
