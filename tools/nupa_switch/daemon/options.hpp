// SPDX-License-Identifier: BSD-3-Clause
// What the command line asks for, checked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/port_engine.hpp"

namespace nupa::daemon {

using MacAddress = std::array<uint8_t, 6>;

inline constexpr unsigned kPortsMax = 256;
inline constexpr unsigned kNameMaxBytes = 32;
inline constexpr unsigned kQueuePairsDefault = 4;
inline constexpr size_t kPortMemoryMaxMib = 1 << 20;
inline constexpr size_t kPortObjectsMax = 1 << 24;

struct PortOptions {
    enum class Kind : uint8_t { kVm, kTap };
    Kind kind = Kind::kVm;
    std::string name;
    std::string socket;  // VM: where QEMU connects
    std::string ram;     // VM: guest memory file
    std::string ifname;  // tap
    MacAddress mac{};    // VM: zero means one made from the port number
    unsigned queue_pairs = kQueuePairsDefault;
    PortEngine::Limits limits;  // VM
};

struct Options {
    std::string control;
    std::vector<PortOptions> ports;
    int ready_fd = -1;
};

// Thrown for every mistake in the arguments; what() says what to do instead.
class OptionError : public std::exception {
public:
    explicit OptionError(std::string text) : text_(std::move(text)) {}
    [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

private:
    std::string text_;
};

// "name=n0,socket=/s,ram=/r[,mac=..][,queues=N]" or "name=up0,ifname=nupatap0".
PortOptions parse_port(PortOptions::Kind kind, const std::string& text);
std::optional<MacAddress> parse_mac(const std::string& text);
std::string format_mac(const uint8_t* mac);

// Empty when the program should exit with @exit_code (help, version, mistakes; already told).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace nupa::daemon
