// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/log.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace tcpqp::nccl {
namespace {

constexpr size_t kLineBytes = 512;
std::atomic<LogFunction> g_log = nullptr;

void say(int level, const char* format, va_list arguments) noexcept {
    const LogFunction log = g_log.load(std::memory_order_acquire);
    if (log == nullptr)
        return;
    char line[kLineBytes];
    std::vsnprintf(line, sizeof(line), format, arguments);
    log(level, kLogInit | kLogNet, "libnccl-net-tcpqp", 0, "NET/TCPQP : %s", line);
}

}  // namespace

void set_log(LogFunction log) noexcept { g_log.store(log, std::memory_order_release); }

void warn(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    say(kLogWarn, format, arguments);
    va_end(arguments);
}

void info(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    say(kLogInfo, format, arguments);
    va_end(arguments);
}

}  // namespace tcpqp::nccl
