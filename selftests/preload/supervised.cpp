// SPDX-License-Identifier: BSD-3-Clause
// A supervised program without the module: supervised PROGRAM [ARGUMENT...].  With
// SUPERVISED_SIGNAL=1 each of its calls that was notified gets SIGUSR1 before it is answered.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>

#include "supervise/supervise.hpp"
#include "ulp/taken.hpp"

namespace {

constexpr int kCannotRun = 126;
constexpr std::chrono::seconds kLimit{5};

pid_t program = 0;

// The line of /proc/PID/status that begins with @name.
std::string status(const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(program) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name))
            return line;
    return {};
}

// It waits for an answer and nothing else, or the signal has ended its call.
bool has_noticed() {
    return status("State:").find('D') != std::string::npos ||
           std::strtoull(status("ShdPnd:").c_str() + std::strlen("ShdPnd:"), nullptr, 16) == 0;
}

}  // namespace

namespace tcpqp::run {

// In place of the real one: the ULP is not what is looked at here.
void take(int) noexcept {
    if (std::getenv("SUPERVISED_SIGNAL") == nullptr)
        return;
    const auto until = std::chrono::steady_clock::now() + kLimit;
    ::kill(program, SIGUSR1);
    while (!has_noticed() && std::chrono::steady_clock::now() < until)
        ::sched_yield();
}

void refuse(int) noexcept {}
void print_taken(const char*, int) noexcept {}

}  // namespace tcpqp::run

int main(int argc, char** argv) {
    if (argc < 2)
        return kCannotRun;
    program = ::getpid();
    try {
        tcpqp::run::supervise(argv[1], false);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "supervised: %s\n", e.what());
    }
    ::execvp(argv[1], argv + 1);
    return kCannotRun;
}
