// SPDX-License-Identifier: BSD-3-Clause
#include "counters.hpp"

#include <linux/ethtool.h>
#include <linux/perf_event.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "clock.hpp"

namespace nupa::bench {
namespace {

constexpr const char* kTracefs = "/sys/kernel/tracing";

// The tick code's own sums: nanoseconds, where /proc/stat has hundredths of a second.
uint64_t read_idle_ns() {
    std::ifstream file("/proc/timer_list");
    std::string line;
    uint64_t idle = 0;
    while (std::getline(file, line)) {
        // a task that waits for io_uring makes it "iowait"
        if (!line.starts_with("  .idle_sleeptime") && !line.starts_with("  .iowait_sleeptime"))
            continue;
        idle += std::stoull(line.substr(line.find(':') + 1));
    }
    return idle;
}

tcpqp::Fd count_calls() {
    const std::string path = std::string(kTracefs) + "/events/raw_syscalls/sys_enter/id";
    std::ifstream file(path);
    if (!file) {
        mount("none", kTracefs, "tracefs", 0, nullptr);
        file.open(path);
    }
    perf_event_attr attr{};
    attr.type = PERF_TYPE_TRACEPOINT;
    attr.size = sizeof attr;
    if (!(file >> attr.config))
        tcpqp::throw_errno("count system calls: " + path);
    tcpqp::Fd fd(static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0)));
    if (!fd)
        tcpqp::throw_errno("count system calls");
    return fd;
}

template <class Head>
bool ethtool(int fd, const std::string& interface, Head* command) {
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(command);
    return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

uint32_t count_stats(int fd, const std::string& interface) {
    alignas(ethtool_sset_info) std::array<std::byte, sizeof(ethtool_sset_info) + 4> bytes{};
    auto* info = reinterpret_cast<ethtool_sset_info*>(bytes.data());
    info->cmd = ETHTOOL_GSSET_INFO;
    info->sset_mask = 1ull << ETH_SS_STATS;
    return ethtool(fd, interface, info) && info->sset_mask ? info->data[0] : 0;
}

// The two lines "Tcp:" of snmp: names, then values.
void read_tcp(Counters& c) {
    std::ifstream file("/proc/net/snmp");
    std::vector<std::string> names, values;
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("Tcp:"))
            continue;
        std::istringstream words(line);
        std::vector<std::string>& to = names.empty() ? names : values;
        to.assign(std::istream_iterator<std::string>(words), {});
    }
    for (size_t i = 0; i < std::min(names.size(), values.size()); i++) {
        if (names[i] == "OutSegs")
            c.tcp_segments = std::stoull(values[i]);
        else if (names[i] == "RetransSegs")
            c.tcp_segments_again = std::stoull(values[i]);
    }
}

// Free, too, but MemFree does not say so: tens of MiB, which come and go.
int64_t processors_free_pages() {
    std::ifstream file("/proc/zoneinfo");
    std::string word;
    int64_t count = 0, pages = 0;
    while (file >> word)
        if (word == "count:" && file >> count)
            pages += count;
    return pages;
}

}  // namespace

int64_t unswappable_kib() {
    constexpr std::array<std::string_view, 6> kOthers{
        "MemFree:", "Buffers:", "Cached:", "SwapCached:", "AnonPages:", "SReclaimable:"};
    std::ifstream file("/proc/meminfo");
    std::string name, rest;
    int64_t value = 0, left = -processors_free_pages() * (sysconf(_SC_PAGESIZE) / 1024);
    while (file >> name >> value && std::getline(file, rest)) {
        if (name == "MemTotal:")
            left += value;
        else if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end())
            left -= value;
    }
    return left;
}

CounterReader::CounterReader(const std::string& interface, bool calls)
    : interface_(interface), ethtool_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (calls)
        calls_ = count_calls();
}

// The driver and switch statistics by their names.
void CounterReader::read_device(Counters& c) const {
    const uint32_t count = count_stats(ethtool_.get(), interface_);
    if (!count)
        return;
    std::vector<uint8_t> names(sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN);
    std::vector<uint64_t> values(sizeof(ethtool_stats) / 8 + count);
    auto* strings = reinterpret_cast<ethtool_gstrings*>(names.data());
    auto* stats = reinterpret_cast<ethtool_stats*>(values.data());
    strings->cmd = ETHTOOL_GSTRINGS, strings->string_set = ETH_SS_STATS, strings->len = count;
    stats->cmd = ETHTOOL_GSTATS, stats->n_stats = count;
    if (!ethtool(ethtool_.get(), interface_, strings) ||
        !ethtool(ethtool_.get(), interface_, stats))
        return;
    for (uint32_t i = 0; i < count; i++) {
        const char* at = reinterpret_cast<const char*>(strings->data) + size_t{i} * ETH_GSTRING_LEN;
        const std::string_view name(at, strnlen(at, ETH_GSTRING_LEN));
        if (name == "tx_doorbells")
            c.doorbells += stats->data[i];
        else if (name == "interrupts")
            c.device_interrupts += stats->data[i];
        else if (name == "switch_rx_packets")
            c.rx_completions += stats->data[i];
    }
}

Counters CounterReader::read() {
    Counters c;
    rusage usage{};
    read_device(c);
    read_tcp(c);
    getrusage(RUSAGE_SELF, &usage);
    c.context_switches = static_cast<uint64_t>(usage.ru_nvcsw + usage.ru_nivcsw);
    if (calls_ &&
        ::read(calls_.get(), &c.system_calls, sizeof c.system_calls) != sizeof c.system_calls)
        tcpqp::throw_errno("read the count of system calls");
    c.idle_ns = read_idle_ns();
    c.wall_ns = now_ns();
    return c;
}

uint64_t Counters::busy_between(const Counters& a, const Counters& b) {
    const uint64_t wall = b.wall_ns - a.wall_ns, idle = b.idle_ns - a.idle_ns;
    return wall > idle ? wall - idle : 0;
}

std::string Counters::between(const Counters& a, const Counters& b, uint64_t reading_ns) {
    const auto field = [](const char* name, uint64_t value) {
        return std::string("\"") + name + "\": " + std::to_string(value);
    };
    const uint64_t busy = busy_between(a, b);
    return "{" + field("wall_ns", b.wall_ns - a.wall_ns) + ", " +
           field("busy_ns", busy > reading_ns ? busy - reading_ns : 0) + ", " +
           field("interrupts", b.device_interrupts - a.device_interrupts) + ", " +
           field("doorbells", b.doorbells - a.doorbells) + ", " +
           field("rx_completions", b.rx_completions - a.rx_completions) + ", " +
           field("calls", b.system_calls - a.system_calls) + ", " +
           field("switches", b.context_switches - a.context_switches) + ", " +
           field("tcp_segments", b.tcp_segments - a.tcp_segments) + ", " +
           field("tcp_segments_again", b.tcp_segments_again - a.tcp_segments_again) + "}";
}

}  // namespace nupa::bench
