// SPDX-License-Identifier: BSD-3-Clause
// What the command line asks for, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "limits.hpp"

namespace ncqp {

enum class Engine { kAuto, kOffload, kSoftware, kTcp };
enum class DeviceKind { kNone, kHbm, kUdmabuf, kPool };
enum class TcpSend { kCopy, kSendfile };

struct Options {
    bool listen = false;
    bool sends = false;    // role; by default whoever connects sends
    std::string server;    // -s
    std::string client;    // -c
    std::string port;      // -p
    std::string ifname;    // -f
    int family = 0;        // AF_UNSPEC, AF_INET, AF_INET6
    double timeout_s = 0;  // 0: not given
    Engine engine = Engine::kAuto;
    std::optional<int> wire;
    TcpSend tcp_send = TcpSend::kSendfile;
    uint64_t msg_bytes = kMessageDefaultBytes;
    uint32_t depth = kDepthDefault;
    uint64_t sockbuf_bytes = 0;             // 0: the kernel tunes them
    uint32_t period = 0;                    // -v; 0: none
    std::optional<uint64_t> bytes;          // -n
    DeviceKind device = DeviceKind::kNone;  // -d
    std::string json;
    bool quiet = false;

    // -1: wait for ever
    [[nodiscard]] int timeout_ms(int without) const noexcept {
        return timeout_s > 0 ? static_cast<int>(timeout_s * 1000) : without;
    }
};

enum ExitCode { kExitOk = 0, kExitFailure = 1, kExitUsage = 64 };

[[nodiscard]] const char* engine_name(Engine engine) noexcept;

// Empty after --help or wrong usage: then exit_code says which.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace ncqp
