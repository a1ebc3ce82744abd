// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-bpf: loads libtcpqp's BPF program and admits connections to it, until SIGTERM.
#include <getopt.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "server.hpp"
#include "shared.h"

namespace {

constexpr mode_t kModeDefault = 0660;

struct Options {
    std::string cgroup = "/sys/fs/cgroup";
    std::string socket = TCPQP_BPF_SOCKET_PATH;
    mode_t mode = kModeDefault;
    bool verbose = false;
};

constexpr const char* kHelp =
    "tcpqp-bpf [--cgroup PATH] [--socket PATH] [--mode OCTAL] [--verbose]\n"
    "Lets programs of this network namespace that use libtcpqp without the module talk to\n"
    "ends with it.  Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and Linux 6.12.\n"
    "  --cgroup  cgroup v2 whose sockets may be admitted (default /sys/fs/cgroup)\n"
    "  --socket  where programs ask (default " TCPQP_BPF_SOCKET_PATH
    ")\n"
    "  --mode    who may ask: permissions of that socket (default 0660)\n"
    "  --verbose counters of each connection when it ends\n";

int parse(int argc, char** argv, Options& o) {
    const option known[] = {{"cgroup", 1, nullptr, 'c'}, {"socket", 1, nullptr, 's'},
                            {"mode", 1, nullptr, 'm'},   {"verbose", 0, nullptr, 'v'},
                            {"help", 0, nullptr, 'h'},   {}};
    for (int c = 0; (c = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        if (c == 'c')
            o.cgroup = optarg;
        else if (c == 's')
            o.socket = optarg;
        else if (c == 'm')
            o.mode = static_cast<mode_t>(std::strtoul(optarg, nullptr, 8)) & 0777;
        else if (c == 'v')
            o.verbose = true;
        else
            return c == 'h' ? 0 : 64;
    }
    return optind == argc ? -1 : 64;
}

// Readable at SIGTERM or SIGINT.
tcpqp::Fd stop_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    tcpqp::Fd fd(::signalfd(-1, &set, SFD_CLOEXEC));
    if (!fd)
        tcpqp::throw_errno("signalfd");
    return fd;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    const int status = parse(argc, argv, o);
    if (status >= 0) {
        std::fputs(kHelp, status == 0 ? stdout : stderr);
        return status;
    }
    try {
        const tcpqp::Fd stop = stop_signals();
        tcpqp::bpf::Program program(o.cgroup);
        tcpqp::bpf::Server server(program, o.socket, o.mode, o.verbose);
        std::puts("tcpqp-bpf: ready");
        std::fflush(stdout);
        server.run(stop.get());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-bpf: %s\n", e.what());
        return 1;
    }
}
