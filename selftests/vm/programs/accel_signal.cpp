// SPDX-License-Identifier: BSD-3-Clause
// Messages to and fro between the accelerators of two machines while the processes that posted them
// sleep or are stopped.
//
//   accel_signal [--connect ADDR] --port PORT [--rounds N] [--payload BYTES] [--told FILE]
//
// When the batch of commands has begun, the descriptors of the buffers are closed.  One more
// process, the starter, does nothing until it is told: SIGUSR1 starts this end's chain, SIGUSR2
// lets it end.  FILE gets "PID STARTER-PID" when both ends are ready.  Without
// --told they start at once.  Exit 0 only if the accelerator found every byte right.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "command.hpp"
#include "direct_signal.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

struct Options {
    PeerOptions peer;
    DirectOptions direct;
    std::string told;
};

sigset_t starting_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    return set;
}

// Shares the starting page with its parent and nothing else that it would use.
[[noreturn]] void starter(const DirectSignal& direct, const sigset_t& set) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close_range(STDERR_FILENO + 1, ~0u, 0);
    for (;;) {
        int number = 0;
        if (sigwait(&set, &number) != 0)
            _exit(1);
        if (number == SIGUSR1)
            direct.start();
        else
            direct.release();
    }
}

pid_t start_starter(const DirectSignal& direct) {
    const sigset_t set = starting_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    const pid_t pid = fork();
    if (pid < 0)
        tcpqp::throw_errno("fork");
    if (pid == 0)
        starter(direct, set);
    return pid;
}

void tell(const Options& o, pid_t starter_pid) {
    if (o.told.empty()) {
        kill(starter_pid, SIGUSR1);
        kill(starter_pid, SIGUSR2);
        return;
    }
    const std::string fresh = o.told + ".new";
    std::ofstream(fresh) << getpid() << ' ' << starter_pid << '\n';
    if (rename(fresh.c_str(), o.told.c_str()) != 0)
        tcpqp::throw_errno(o.told);
}

int run(Options& o) {
    o.direct.begins = !o.peer.listens();
    const auto context = tcpqp::open_device(o.peer.interface);
    const tcpqp::Fd listener = o.peer.listener(2);
    const tcpqp::Fd control = o.peer.next_socket(listener);
    DirectSignal direct(*context, control, std::move(o.peer.sockets(listener, control, 1)[0]),
                        o.direct);
    const pid_t child = start_starter(direct);
    direct.post_held(control);
    std::thread closer([&] {
        direct.wait_begun();
        direct.close_buffers();
        tell(o, child);
    });
    direct.run_chain();
    closer.join();
    direct.check();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    direct.leave(control);
    std::printf("{\"rounds\": %u, \"bytes\": %u}\n", o.direct.rounds,
                o.direct.payload_bytes + DirectSignal::kLineBytes);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("accel_signal", "Messages between accelerators that no process sends")
        .peer(o.peer)
        .option("--rounds", o.direct.rounds, {1, DirectSignal::kRoundsMax}, "there and back")
        .option("--payload", o.direct.payload_bytes, "bytes before the line with the flag")
        .flag("--copied", o.direct.may_copy, "a processor may have to copy some of it")
        .option("--told", o.told, "written when this end is ready; SIGUSR1 then starts it")
        .run(argc, argv, [&o] { return run(o); });
}
