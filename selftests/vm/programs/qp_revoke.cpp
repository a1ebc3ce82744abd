// SPDX-License-Identifier: BSD-3-Clause
// Taking memory back while it is in use.  In each round messages run to the
// other side at full speed; at a random moment one side takes its memory region
// or its queue pair back, or moves that to the error state, and, the moment the
// call returns or the last work request is flushed, writes over the memory.  The
// receiver's bytes must stay as written from then on.  What the sender overwrites
// must never arrive: a message that completes at the receiver has the old bytes,
// whatever the wire still carries.
//
//   qp_revoke --listen|--connect ADDR --port PORT [--revoke memory|qp|error]
//
// The listening side receives, the other one sends.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "command.hpp"
#include "flood.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kStepMs = 2;
constexpr int kEndMs = 45000;  // for the other side to notice: by keepalive, if the RST is lost
constexpr uint8_t kMark = 0x5a;

struct Options {
    PeerOptions peer;
    std::string revoke = "none";
    uint32_t rounds = 20;
    uint32_t seed = 1;
    uint32_t moment_ms = 60;  // at most this long after the first message
    uint32_t watch_ms = 40;
    FloodOptions flood;
};

// Something wrote to memory after it was taken back.
size_t changed(std::span<const uint8_t> memory) {
    return static_cast<size_t>(
        std::find_if(memory.begin(), memory.end(), [](uint8_t b) { return b != kMark; }) -
        memory.begin());
}

void watch(std::span<const uint8_t> memory, uint32_t ms) {
    const auto end = Clock::now() + milliseconds(ms);
    do {
        if (const size_t at = changed(memory); at != memory.size())
            throw WrongData("byte " + std::to_string(at) + " was written after it was taken back");
        poll(nullptr, 0, kStepMs);
    } while (Clock::now() < end);
}

void step_for(Flood& flood, uint32_t ms) {
    const auto end = Clock::now() + milliseconds(ms);
    while (Clock::now() < end && flood.step(kStepMs)) {
    }
}

bool moving(const Flood& flood) { return flood.sent() + flood.received() > 0; }

// Until the other side ended it; throws on silence.
void run_to_the_end(Flood& flood) {
    const auto limit = Clock::now() + milliseconds(kEndMs);
    while (flood.step(kStepMs))
        if (Clock::now() > limit)
            throw std::runtime_error("silence: the other side took its memory back, no error here");
    if (const size_t left = flood.drain(kEndMs))
        throw std::runtime_error(std::to_string(left) + " work requests never completed");
}

std::span<uint8_t> take_back(Flood& flood, const std::string& what) {
    if (what == "memory")
        return flood.revoke_memory();
    return what == "qp" ? flood.destroy_queue_pair() : flood.fail_queue_pair(kEndMs);
}

void one_round(const tcpqp::Context& context, tcpqp::Fd socket, const Options& o, uint32_t round) {
    FloodOptions f = o.flood;
    f.key = o.seed * 1000 + round;
    Flood flood(context, std::move(socket), f);
    if (o.revoke == "none")
        return run_to_the_end(flood);
    while (!moving(flood) && flood.step(kStepMs)) {
    }
    std::minstd_rand dice(f.key);
    step_for(flood, dice() % o.moment_ms);
    const auto memory = take_back(flood, o.revoke);
    std::fill(memory.begin(), memory.end(), kMark);
    watch(memory, o.watch_ms);
    if (o.revoke == "memory")
        flood.close_socket();
    watch(memory, o.watch_ms);
}

void all(Options& o) {
    o.flood.engine = o.peer.engine_id();
    o.flood.sends = !o.peer.listens();
    o.flood.receives = o.peer.listens();
    o.flood.attach_ms = kEndMs;  // the other side may still be in the round before
    auto context = tcpqp::open_device(o.peer.interface);
    const tcpqp::Fd listener = o.peer.listener();
    for (uint32_t round = 0; round < o.rounds; round++) {
        tcpqp::Fd socket = o.peer.next_socket(listener);
        try {
            one_round(*context, std::move(socket), o, round);
        } catch (const std::exception& e) {
            throw std::runtime_error("round " + std::to_string(round) + ": " + e.what());
        }
    }
    std::printf("{\"rounds\": %u}\n", o.rounds);
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_revoke", "Take memory or a queue pair back while messages run")
        .peer(o.peer)
        .choice("--revoke", o.revoke, {"none", "memory", "qp", "error"})
        .option("--rounds", o.rounds)
        .option("--seed", o.seed)
        .option("--moment-ms", o.moment_ms, {1, UINT32_MAX}, "the latest moment")
        .option("--bytes", o.flood.bytes)
        .option("--depth", o.flood.depth)
        .option("--train", o.flood.train, {1, 4096}, "messages posted at once")
        .run(argc, argv, [&] {
            all(o);
            return 0;
        });
}
