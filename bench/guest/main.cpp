// SPDX-License-Identifier: BSD-3-Clause
// nupa_bench: moves messages between two machines in every way there is and says what it cost.
//
//   nupa_bench --port PORT                                   serves until it is killed
//   nupa_bench --connect ADDRESS --port PORT SPEC ...        one JSON line for each SPEC
//   nupa_bench --loopback SPEC ...                           both ends on this machine
//   nupa_bench --count-loop                                  nanoseconds a known instruction takes
//
// SPEC: transport=tcp,bytes=1048576,flows=1,...  (spec.hpp)
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "clock.hpp"
#include "command.hpp"
#include "control.hpp"
#include "measure.hpp"
#include "spec.hpp"
#include "tcp.hpp"

namespace {

using namespace nupa::bench;
using nupa::programs::accept_from;
using nupa::programs::connect_to;
using nupa::programs::listen_on;

struct Options {
    std::string connect;
    uint16_t port = 0;
    std::string interface = "nupa0";
    bool loopback = false;
    bool count_loop = false;
    std::vector<std::string> specs;
};

constexpr rlim_t kFilesWanted = 65536;  // a socket for each flow

void raise_file_limit() {
    const rlimit wanted{kFilesWanted, kFilesWanted};
    rlimit limit{};
    if (!setrlimit(RLIMIT_NOFILE, &wanted) || getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// False: this end failed and told the other one.
bool attempt(const Spec& spec, Control& control, const Options& o) {
    try {
        const std::string json = measure(spec, control, o.connect, o.interface);
        if (!o.connect.empty())
            std::printf("%s\n", json.c_str());
        return true;
    } catch (const std::exception& e) {
        if (control.closed())
            throw;
        control.send_error(e.what());
        std::string text = e.what();
        if (o.connect.empty())
            std::fprintf(stderr, "nupa_bench: %s: %s\n", spec.transport.c_str(), e.what());
        std::erase_if(text, [](char c) { return c == '"' || c == '\\' || c == '\n'; });
        if (!o.connect.empty())
            std::printf("{\"spec\": %s, \"ok\": false, \"problem\": \"%s\"}\n",
                        to_json(spec).c_str(), text.c_str());
        return false;
    }
}

// Each end of a failed measurement still has the other's last words coming: a fresh
// connection has not.
int connect_and_run(const Options& o) {
    bool all = true;
    for (const std::string& text : o.specs) {
        Control control(connect_to(o.connect, o.port));
        const Spec spec = parse_spec(text);
        control.send(to_text(spec));
        all &= attempt(spec, control, o);
        std::fflush(stdout);
    }
    return all ? 0 : 1;
}

[[noreturn]] void serve(const tcpqp::Fd& listener, const Options& o) {
    for (;;) {
        try {
            Control control(accept_from(listener));
            (void)attempt(parse_spec(control.receive()), control, o);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "nupa_bench: %s\n", e.what());
        }
    }
}

// Is a nanosecond an instruction here?  Two instructions a turn, and nothing else runs.
int count_loop() {
    constexpr uint64_t kTurns = 50'000'000;
    uint64_t left = kTurns;
    const uint64_t then = now_ns();
#if defined(__x86_64__)
    asm volatile("1: dec %0; jnz 1b" : "+r"(left) : : "cc");
#else
    throw std::runtime_error("no loop of known length for this processor");
#endif
    const auto ns = static_cast<double>(now_ns() - then);
    std::printf("{\"ns_per_instruction\": %.5f}\n", ns / (2.0 * kTurns));
    return 0;
}

// The serving end of --loopback: ends with us, however we end.
class Server {
public:
    Server(const tcpqp::Fd& listener, const Options& o) : pid_(fork()) {
        if (pid_ < 0)
            tcpqp::throw_errno("fork");
        if (pid_ == 0)
            serve(listener, o);
    }
    ~Server() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

private:
    pid_t pid_;
};

int loopback(Options o) {
    const tcpqp::Fd listener = listen_on(0, 1);
    sockaddr_in6 at{};
    socklen_t bytes = sizeof at;
    if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes))
        tcpqp::throw_errno("getsockname");
    const Server server(listener, o);
    o.connect = "127.0.0.1";
    o.port = ntohs(at.sin6_port);
    return connect_and_run(o);
}

int run(Options o) {
    raise_file_limit();
    signal(SIGPIPE, SIG_IGN);
    if (o.count_loop)
        return count_loop();
    if (o.loopback)
        return loopback(std::move(o));
    if (!o.connect.empty())
        return connect_and_run(o);
    serve(listen_on(o.port, 16), o);
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return nupa::programs::Command("nupa_bench", "moves messages and says what it cost")
        .option("--connect", o.connect, "serves without")
        .option("--port", o.port)
        .option("--interface", o.interface)
        .flag("--loopback", o.loopback, "both ends on this machine")
        .flag("--count-loop", o.count_loop, "nanoseconds a known instruction takes")
        .option("specs", o.specs, "transport=tcp,bytes=1048576,flows=1,...")
        .run(argc, argv, [&] { return run(std::move(o)); });
}
