// SPDX-License-Identifier: BSD-3-Clause
// signal_bench: a message from one accelerator to another and back, driven by the accelerators
// alone or by processes; what each machine executes for it.
//
//   signal_bench --port PORT                          one round after another, until it is killed
//   signal_bench --connect ADDRESS --port PORT --way direct|processes --rounds N [--payload BYTES]
//                                                     one JSON line: this end's counts
#include <poll.h>
#include <sys/socket.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <thread>

#include "clock.hpp"
#include "command.hpp"
#include "counters.hpp"
#include "direct_signal.hpp"
#include "tasks.hpp"
#include "tcp.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::bench;
using nupa::programs::DirectOptions;
using nupa::programs::DirectSignal;

constexpr int kOverLimitMs = 60000;
constexpr uint32_t kPayloadMax = 1 << 18;

struct Options {
    nupa::programs::PeerOptions peer;
    std::string way = "direct";
    DirectOptions direct;
};

// What the connecting end asks of the other.
struct Asked {
    uint32_t processes, rounds, payload_bytes;
};

struct Spent {
    uint64_t others_ns = 0, caller_ns = 0;
    Counters counters;
};

// What takes longest to read lies outermost: most of the reading is not counted.
Spent read_before(CounterReader& counters) {
    Spent spent;
    spent.others_ns = others_ns();
    spent.counters = counters.read();
    spent.caller_ns = caller_ns();
    return spent;
}

Spent read_after(CounterReader& counters) {
    Spent spent;
    spent.caller_ns = caller_ns();
    spent.counters = counters.read();
    spent.others_ns = others_ns();
    return spent;
}

std::string said(const Options& o, const Spent& before, const Spent& after, uint64_t reading_ns) {
    const uint64_t busy = Counters::busy_between(before.counters, after.counters);
    const auto field = [](const char* name, uint64_t value) {
        return std::string("\"") + name + "\": " + std::to_string(value) + ", ";
    };
    return "{\"ok\": true, " + field("rounds", o.direct.rounds) +
           field("bytes", o.direct.payload_bytes + DirectSignal::kLineBytes) +
           field("wall_ns", after.counters.wall_ns - before.counters.wall_ns) +
           field("busy_ns", busy > reading_ns ? busy - reading_ns : 0) +
           field("processes_ns", after.others_ns - before.others_ns) +
           "\"caller_ns\": " + std::to_string(after.caller_ns - before.caller_ns) + "}";
}

void wait_over(const DirectSignal& direct) {
    pollfd rung{direct.over(), POLLIN, 0};
    if (::poll(&rung, 1, kOverLimitMs) != 1)
        throw std::runtime_error("the accelerator's last ring did not come");
}

void by_accelerators(DirectSignal& direct, const tcpqp::Fd& control,
                     const std::function<void()>& begins, const std::function<void()>& ends) {
    direct.post_held(control);
    std::string problem;
    std::thread sleeper([&] {
        try {
            direct.run_chain();
        } catch (const std::exception& e) {
            problem = e.what();
        }
    });
    direct.wait_begun();
    begins();
    direct.start();
    wait_over(direct);
    ends();
    direct.release();
    sleeper.join();
    if (!problem.empty())
        throw std::runtime_error(problem);
}

std::string measure(const Options& o, DirectSignal& direct, const tcpqp::Fd& control) {
    CounterReader counters(o.peer.interface, false);
    const Counters first = counters.read(), second = counters.read();
    Spent before{}, after{};
    const auto begins = [&] { before = read_before(counters); };
    const auto ends = [&] { after = read_after(counters); };
    if (o.way == "processes") {
        direct.post_receives(control);
        begins();
        direct.run_processes();
        ends();
    } else {
        by_accelerators(direct, control, begins, ends);
    }
    direct.check();
    return said(o, before, after, Counters::busy_between(first, second));
}

std::string one(Options o, const tcpqp::Fd& listener, tcpqp::Fd control) {
    Asked asked{o.way == "processes", o.direct.rounds, o.direct.payload_bytes};
    o.direct.begins = !o.peer.listens();
    if (o.direct.begins ? ::send(control.get(), &asked, sizeof asked, MSG_NOSIGNAL) != sizeof asked
                        : ::recv(control.get(), &asked, sizeof asked, MSG_WAITALL) != sizeof asked)
        tcpqp::throw_errno("say what is asked for");
    if (asked.payload_bytes > kPayloadMax)
        throw std::invalid_argument("payload");
    o.way = asked.processes ? "processes" : "direct";
    o.direct.rounds = asked.rounds;
    o.direct.payload_bytes = asked.payload_bytes;
    const auto context = tcpqp::open_device(o.peer.interface);
    DirectSignal direct(*context, control, std::move(o.peer.sockets(listener, control, 1)[0]),
                        o.direct);
    std::string result = measure(o, direct, control);
    direct.leave(control);
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return nupa::programs::Command("signal_bench", "messages between accelerators, counted")
        .address(o.peer)
        .option("--interface", o.peer.interface)
        .choice("--way", o.way, {"direct", "processes"})
        .option("--rounds", o.direct.rounds, {1, DirectSignal::kRoundsMax}, "there and back")
        .option("--payload", o.direct.payload_bytes, "bytes before the line with the flag")
        .run(argc, argv, [&o] {
            const tcpqp::Fd listener = o.peer.listener(2);
            for (bool more = true; more; more = o.peer.listens())
                std::printf("%s\n", one(o, listener, o.peer.next_socket(listener)).c_str());
            return 0;
        });
}
