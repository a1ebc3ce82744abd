// SPDX-License-Identifier: BSD-3-Clause
#include "tasks.hpp"

#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace nupa::bench {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNsPerS = 1'000'000'000;
constexpr unsigned long kKernelThread = 0x00200000;  // PF_KTHREAD
constexpr int kFieldsBefore = 6;                     // state, ppid, pgrp, session, tty, tpgid

bool is_number(const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos;
}

// The flags are behind a name in brackets, with anything in it.
bool is_kernel_thread(const fs::path& process) {
    std::ifstream file(process / "stat");
    std::string line;
    if (!std::getline(file, line))
        return true;  // it has gone
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string skipped;
    unsigned long flags = 0;
    for (int i = 0; i < kFieldsBefore; i++)
        fields >> skipped;
    return !(fields >> flags) || (flags & kKernelThread);
}

uint64_t run_ns(const fs::path& task) {
    std::ifstream file(task / "schedstat");
    uint64_t ns = 0;
    file >> ns;
    return ns;
}

}  // namespace

uint64_t caller_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerS + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t others_ns() {
    const std::string caller = std::to_string(::gettid());
    uint64_t sum = 0;
    bool met = false;
    for (const auto& process : fs::directory_iterator("/proc")) {
        if (!is_number(process.path().filename()) || is_kernel_thread(process.path()))
            continue;
        std::error_code gone;
        for (const auto& task : fs::directory_iterator(process.path() / "task", gone)) {
            if (task.path().filename() == caller)
                met = true;
            else
                sum += run_ns(task.path());
        }
    }
    if (!met)
        throw std::runtime_error("/proc/*/task: the caller is not there");
    return sum;
}

}  // namespace nupa::bench
