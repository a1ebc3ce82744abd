// SPDX-License-Identifier: BSD-3-Clause
// How a busy queue pair ends.  Messages run both ways; then one side ends it in
// the way asked for, and each side waits until every work request it posted has
// completed.  Prints one JSON object; exit 0 if all did in time and every byte
// that arrived was right.
//
//   qp_end --listen PORT | --connect ADDR --port PORT  [--how close ...]
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "command.hpp"
#include "flood.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;

constexpr int kStepMs = 100;

struct Options {
    PeerOptions peer;
    std::string how = "wait";
    uint64_t after = 50;        // messages received, then the end
    bool when_told = false;     // they count from SIGUSR1 on
    uint32_t limit_ms = 20000;  // for the end to come, and for all to complete
    uint32_t user_timeout_ms = 0;
    int keepalive_s = 0;
    bool one_way = false;  // only the connecting side sends
    FloodOptions flood;
};

// What the side that ends does.  "wait": the other one does it.
const std::map<std::string, std::function<void(Flood&)>> kEnds{
    {"wait", nullptr},
    {"close", [](Flood& f) { f.close_socket(); }},
    {"reset", [](Flood& f) { f.reset_connection(); }},
    {"fin", [](Flood& f) { f.shut_down_sending(); }},
    {"abandon", [](Flood&) { _exit(0); }},
};

volatile std::sig_atomic_t told = 0;

tcpqp::Fd make_socket(const Options& o) {
    tcpqp::Fd fd = o.peer.socket();
    if (o.user_timeout_ms)
        setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &o.user_timeout_ms,
                   sizeof o.user_timeout_ms);
    if (const int on = 1; o.keepalive_s) {
        for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL})
            setsockopt(fd.get(), IPPROTO_TCP, option, &o.keepalive_s, sizeof o.keepalive_s);
        setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    return fd;
}

// Runs until this side ends it or, if it only waits, the other has.  What went wrong, or nothing.
std::string run(Flood& flood, const Options& o) {
    const auto& end = kEnds.at(o.how);
    uint64_t last = 0;
    std::optional<uint64_t> from;  // received before the count began
    auto moved = Clock::now();
    while (flood.step(kStepMs)) {
        const uint64_t now = flood.sent() + flood.received();
        if (now != last) {
            last = now;
            moved = Clock::now();
        } else if (Clock::now() - moved > std::chrono::milliseconds(o.limit_ms)) {
            return "silence: no end in " + std::to_string(o.limit_ms) + " ms";
        }
        if (!from && (told || !o.when_told))
            from = o.when_told ? flood.received() : 0;
        if (end && from && flood.received() >= *from + o.after) {
            flood.post();  // there is something to complete
            end(flood);
            return {};
        }
    }
    return end ? "it ended before this side's end" : "";
}

int all(Options& o) {
    o.flood.engine = o.peer.engine_id();
    o.flood.sends = !o.one_way || !o.peer.listens();
    o.flood.receives = !o.one_way || o.peer.listens();
    if (o.when_told)
        std::signal(SIGUSR1, [](int) { told = 1; });
    auto context = tcpqp::open_device(o.peer.interface);
    Flood flood(*context, make_socket(o), o.flood);
    std::fprintf(stderr, "qp_end: attached\n");
    std::string wrong = run(flood, o);
    const size_t unfinished = flood.drain(static_cast<int>(o.limit_ms));
    std::printf("%s\n", flood.json().c_str());
    if (wrong.empty() && unfinished)
        wrong = std::to_string(unfinished) + " work requests never completed";
    if (!wrong.empty())
        std::fprintf(stderr, "qp_end: FAILED: %s\n", wrong.c_str());
    return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    std::vector<std::string> ends;
    for (const auto& [name, end] : kEnds)
        ends.push_back(name);
    return Command("qp_end", "End a busy queue pair and account for every work request")
        .peer(o.peer)
        .choice("--how", o.how, ends)
        .option("--after", o.after, "messages received before the end")
        .option("--limit-ms", o.limit_ms)
        .flag("--when-told", o.when_told, "they count from SIGUSR1 on")
        .option("--user-timeout-ms", o.user_timeout_ms, "TCP_USER_TIMEOUT of the socket")
        .option("--keepalive-s", o.keepalive_s,
                "SO_KEEPALIVE after this silence; without: tcp_qp's")
        .flag("--one-way", o.one_way, "only the connecting side sends")
        .option("--bytes", o.flood.bytes)
        .option("--depth", o.flood.depth)
        .option("--train", o.flood.train, "messages posted at once; several have no immediate")
        .option("--messages", o.flood.messages_max, "to send; then no more")
        .run(argc, argv, [&] { return all(o); });
}
