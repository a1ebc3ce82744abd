// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-bpf: loads libtcpqp's BPF program and admits connections to it, until SIGTERM.
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "activation.hpp"
#include "base/stop_signals.hpp"
#include "base/unix_listener.hpp"
#include "egress.hpp"
#include "identity.hpp"
#include "limits.hpp"
#include "options.hpp"
#include "server.hpp"

namespace {

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

// A helper that takes the place of one that was killed has its handle; of those that live each is
// asked elsewhere.
uint32_t egress_handle(const tcpqp::bpf::Program& program, const tcpqp::Fd& listener) {
    sockaddr_un where{};
    socklen_t bytes = sizeof(where);
    if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&where), &bytes) != 0)
        tcpqp::throw_errno("the listener's address");
    return tcpqp::bpf::Egress::handle_of(program.cgroup_number(), where.sun_path);
}

void serve(const tcpqp::bpf::Options& o) {
    const tcpqp::Fd stop = tcpqp::stop_signals();
    tcpqp::Fd listener = tcpqp::bpf::passed_listener();
    const bool passed = static_cast<bool>(listener);
    if (passed && o.socket_named)
        tcpqp::throw_errno("--socket and --mode are the .socket unit's to say", EINVAL);
    // who calls listen() is whom libraries see
    std::optional<tcpqp::UnixListener> own;
    if (!passed)
        listener = own.emplace(o.socket, o.mode, tcpqp::bpf::kBacklog).take();
    if (!o.user.empty())
        tcpqp::bpf::become(o.user);
    tcpqp::bpf::Program program(o.cgroup);
    tcpqp::bpf::Admission admission(program, egress_handle(program, listener), o.verbose);
    tcpqp::bpf::Server server(admission, std::move(listener));
    const tcpqp::Fd last_look(::eventfd(0, EFD_CLOEXEC));
    if (!last_look)
        tcpqp::throw_errno("eventfd");
    std::thread collector([&] { admission.collect(last_look.get()); });
    std::puts("tcpqp-bpf: ready");
    std::fflush(stdout);
    server.run(stop.get());
    own.reset();
    ::eventfd_write(last_look.get(), 1);
    collector.join();
    admission.close();
    // for a desk whose user holds it up nobody waits
    std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto options = tcpqp::bpf::parse_options(argc, argv, exit_code);
    if (!options)
        return exit_code;
    try {
        raise_descriptors();
        serve(*options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-bpf: %s\n", e.what());
    }
    return 1;
}
