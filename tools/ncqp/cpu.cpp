// SPDX-License-Identifier: BSD-3-Clause
#include "cpu.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "base/fd.hpp"

namespace ncqp {
namespace {

constexpr size_t kStatLineBytes = 512;

// First line of /proc/stat: "cpu user nice system idle iowait irq softirq steal ..."
double system_busy_s() noexcept {
    tcpqp::Fd fd(::open("/proc/stat", O_RDONLY | O_CLOEXEC));
    char line[kStatLineBytes + 1];
    const ssize_t n = fd ? ::read(fd.get(), line, kStatLineBytes) : -1;
    if (n <= 0)
        return 0;
    line[n] = '\0';
    unsigned long long user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
    if (std::sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
                    &iowait, &irq, &softirq) != 7)
        return 0;
    return static_cast<double>(user + nice + system + irq + softirq) /
           static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double seconds(const timeval& t) noexcept {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
}

}  // namespace

CpuTimes CpuTimes::now() noexcept {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return {system_busy_s(), seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

}  // namespace ncqp
