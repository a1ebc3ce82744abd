// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-bpf: loads libtcpqp's BPF program and admits connections to it, until SIGTERM.
#include <getopt.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "activation.hpp"
#include "identity.hpp"
#include "letter.hpp"
#include "limits.hpp"
#include "server.hpp"

namespace {

constexpr mode_t kModeDefault = 0660;

struct Options {
    std::string cgroup = "/sys/fs/cgroup";
    std::string socket = TCPQP_BPF_SOCKET_PATH;
    bool socket_named = false;  // or its mode
    std::string user;
    mode_t mode = kModeDefault;
    bool verbose = false;
};

constexpr const char* kHelp =
    "tcpqp-bpf [--cgroup PATH] [--socket PATH] [--mode OCTAL] [--user NAME] [--verbose]\n"
    "Lets programs of this network namespace that use libtcpqp without the module talk to\n"
    "ends with it.  Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and Linux 6.12.\n"
    "  --cgroup  cgroup v2 whose sockets may be admitted (default /sys/fs/cgroup)\n"
    "  --socket  where programs ask (default " TCPQP_BPF_SOCKET_PATH
    ")\n"
    "  --mode    who may ask: permissions of that socket (default 0660)\n"
    "  --user    who to be once the socket is there (started by root, whose word libraries take;\n"
    "            they take another user's for that user's own programs only)\n"
    "  --verbose counters of each connection when it ends\n"
    "A listener that systemd passes (a .socket unit) is taken instead of --socket and --mode.\n";

int parse(int argc, char** argv, Options& o) {
    const option known[] = {{"cgroup", 1, nullptr, 'c'},
                            {"socket", 1, nullptr, 's'},
                            {"mode", 1, nullptr, 'm'},
                            {"user", 1, nullptr, 'u'},
                            {"verbose", 0, nullptr, 'v'},
                            {"help", 0, nullptr, 'h'},
                            {}};
    for (int c = 0; (c = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        if (c == 'c')
            o.cgroup = optarg;
        else if (c == 's')
            o.socket = optarg;
        else if (c == 'm')
            o.mode = static_cast<mode_t>(std::strtoul(optarg, nullptr, 8)) & 0777;
        else if (c == 'u')
            o.user = optarg;
        else if (c == 'v')
            o.verbose = true;
        else
            return c == 'h' ? 0 : 64;
        o.socket_named |= c == 's' || c == 'm';
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

// One for each slot, and those of each desk.
void raise_descriptors() {
    constexpr rlim_t kWanted = TCPQP_BPF_SLOTS_MAX +
                               tcpqp::bpf::kDesksMax * (tcpqp::bpf::kClientsPerDesk + 4) +
                               tcpqp::bpf::kDescriptorsSpare;
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < kWanted)
        std::fprintf(stderr, "tcpqp-bpf: descriptors are short: %llu, and not %llu\n",
                     0ULL + files.rlim_max, 0ULL + kWanted);
}

void serve(const Options& o) {
    const tcpqp::Fd stop = stop_signals();
    tcpqp::Fd listener = tcpqp::bpf::passed_listener();
    const bool passed = static_cast<bool>(listener);
    if (passed && o.socket_named)
        tcpqp::throw_errno("--socket and --mode are the .socket unit's to say", EINVAL);
    // who calls listen() is whom libraries see
    if (!passed)
        listener = tcpqp::listen_for_letters(o.socket, o.mode, tcpqp::bpf::kBacklog);
    if (!o.user.empty())
        tcpqp::bpf::become(o.user);
    tcpqp::bpf::Program program(o.cgroup);
    tcpqp::bpf::Admission admission(program, o.verbose);
    tcpqp::bpf::Server server(admission, std::move(listener));
    const tcpqp::Fd last_look(::eventfd(0, EFD_CLOEXEC));
    if (!last_look)
        tcpqp::throw_errno("eventfd");
    std::thread collector([&] { admission.collect(last_look.get()); });
    std::puts("tcpqp-bpf: ready");
    std::fflush(stdout);
    server.run(stop.get());
    if (!passed)
        ::unlink(o.socket.c_str());
    ::eventfd_write(last_look.get(), 1);
    collector.join();
    admission.close();
    // for a desk whose user holds it up nobody waits
    std::_Exit(0);
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
        raise_descriptors();
        serve(o);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-bpf: %s\n", e.what());
    }
    return 1;
}
