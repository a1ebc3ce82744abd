// SPDX-License-Identifier: BSD-3-Clause
// A hostile process and its rings.  In each round one side makes a queue pair and
// writes over its send, receive and completion rings, indices and entries, while
// doorbells ring and data arrive.  A second queue pair between the same processes
// carries checked messages all the time: the kernel must keep the two apart.
//
//   ring_fuzz [--connect ADDR] --port PORT
//
// The connecting side is the hostile one.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "command.hpp"
#include "flood.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kDepth = 16;
constexpr size_t kMessageBytes = 4096;
constexpr int kRoundEndMs = 30000;  // for the other side to notice
// struct rxe_queue_buf, in words
constexpr size_t kProducerAt = 128 / 4, kConsumerAt = 256 / 4, kEntriesAt = 384 / 4;

struct Options {
    PeerOptions peer;
    uint32_t rounds = 20;
    uint32_t round_ms = 300;
    uint32_t seed = 1;
};

struct Ring {
    uint32_t* words;
    size_t count;
    bool operator<(const Ring& other) const { return words < other.words; }
};

// What is mapped from the verbs device: every ring, and nothing else.
std::set<Ring> mapped_rings() {
    std::set<Ring> rings;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        char rights[5] = {};
        if (line.find("/uverbs") != std::string::npos &&
            std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) == 3 && rights[1] == 'w')
            rings.insert({reinterpret_cast<uint32_t*>(begin), (end - begin) / sizeof(uint32_t)});
    }
    return rings;
}

class Scribbler {
public:
    Scribbler(std::vector<Ring> rings, std::vector<uint32_t> likely, uint32_t seed)
        : rings_(std::move(rings)),
          likely_(std::move(likely)),
          dice_(seed),
          thread_([this] { run(); }) {}
    ~Scribbler() {
        stop_ = true;
        thread_.join();
    }
    Scribbler(const Scribbler&) = delete;
    Scribbler& operator=(const Scribbler&) = delete;

private:
    void run() {
        while (!stop_) {
            for (int i = 0; i < 64; i++)
                write_one();
            std::this_thread::yield();
        }
    }
    void write_one() {
        const Ring& ring = rings_[dice_() % rings_.size()];
        const uint32_t where = dice_() % 8;
        size_t at = kEntriesAt + dice_() % (ring.count - kEntriesAt);
        if (where == 0)
            at = kProducerAt;
        else if (where == 1)
            at = kConsumerAt;
        else if (where == 2)
            at = dice_() % kEntriesAt;  // size, mask, padding
        __atomic_store_n(ring.words + at, value(), __ATOMIC_RELAXED);
    }
    uint32_t value() {
        switch (dice_() % 4) {
            case 0:
                return likely_[dice_() % likely_.size()];
            case 1:
                return dice_() % 64;  // opcodes, SGE counts, indices
            case 2:
                return uint32_t{1} << dice_() % 32;
            default:
                return static_cast<uint32_t>(dice_());
        }
    }

    std::vector<Ring> rings_;
    std::vector<uint32_t> likely_;
    std::mt19937 dice_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

// A queue pair whose data nobody trusts.
struct Loose {
    Loose(const tcpqp::Context& context, int socket, const Options& o)
        : before(mapped_rings()),
          memory(2 * kDepth * kMessageBytes),
          cq(context, 4 * kDepth),
          mr(context, memory.bytes().data(), memory.bytes().size(), IBV_ACCESS_LOCAL_WRITE),
          qp(context, cq, {kDepth, kDepth}) {
        if (!mr)
            tcpqp::throw_errno("register memory");
        receives = works(kDepth), sends = works(0);
        if (int error = qp.post_receives(receives))
            tcpqp::throw_errno("post receives", error);
        tcp_qp_attach_req request{};
        request.engine = o.peer.engine_id();
        const tcpqp::Attached attached = tcpqp::attach(context, qp, socket, request);
        if (attached.error)
            tcpqp::throw_errno("attach", attached.error);
    }
    std::vector<tcpqp::Work> works(uint32_t first) {
        std::vector<tcpqp::Work> list;
        for (uint32_t i = 0; i + 1 < kDepth; i++)
            list.push_back({.cookie = first + i,
                            .address = memory.bytes().data() + (first + i) * kMessageBytes,
                            .bytes = kMessageBytes,
                            .lkey = mr.lkey()});
        return list;
    }
    std::vector<Ring> rings() const {
        std::vector<Ring> list;
        for (const Ring& ring : mapped_rings())
            if (!before.contains(ring))
                list.push_back(ring);
        return list;
    }

    std::set<Ring> before;
    Pages memory;
    tcpqp::CompletionQueue cq;
    tcpqp::Mr mr;
    tcpqp::QueuePair qp;
    std::vector<tcpqp::Work> receives, sends;
};

void step_bystander(Flood& bystander) {
    if (!bystander.step(1))
        throw std::runtime_error("the other queue pair failed");
}

void hostile_round(const tcpqp::Context& context, tcpqp::Fd socket, Flood& bystander,
                   const Options& o, uint32_t seed) {
    Loose loose(context, socket.get(), o);
    if (int error = loose.qp.post_sends(loose.sends))
        tcpqp::throw_errno("post sends", error);
    const std::vector<Ring> rings = loose.rings();
    if (rings.size() != 3)
        throw std::runtime_error(std::to_string(rings.size()) + " rings found, not 3");
    const auto address = reinterpret_cast<uint64_t>(loose.memory.bytes().data());
    Scribbler scribbler(
        rings,
        {loose.mr.lkey(), static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32),
         kMessageBytes, 0, UINT32_MAX, INT32_MAX},
        seed);
    for (const auto end = Clock::now() + milliseconds(o.round_ms); Clock::now() < end;) {
        (void)loose.qp.ring_doorbell();  // may well be refused
        step_bystander(bystander);
    }
}

// Sends and receives whatever comes until the hostile side is gone.
void peer_round(const tcpqp::Context& context, tcpqp::Fd socket, Flood& bystander,
                const Options& o) {
    Loose loose(context, socket.get(), o);
    bool failed = false;
    for (const auto limit = Clock::now() + milliseconds(kRoundEndMs); Clock::now() < limit;) {
        ibv_wc wc[kDepth];
        for (int n; (n = loose.cq.poll(wc)) > 0;)
            for (int i = 0; i < n; i++) {
                failed = failed || wc[i].status != IBV_WC_SUCCESS;
                if (!failed && wc[i].wr_id >= kDepth)
                    (void)loose.qp.post_receives({&loose.receives[wc[i].wr_id - kDepth], 1});
            }
        (void)loose.qp.ring_doorbell();
        step_bystander(bystander);
        pollfd closed{socket.get(), POLLRDHUP, 0};
        if (poll(&closed, 1, 0) > 0 && closed.revents & (POLLRDHUP | POLLHUP | POLLERR))
            return;
    }
    throw std::runtime_error("the hostile side did not end");
}

void all(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    const tcpqp::Fd listener = o.peer.listener();
    FloodOptions f;
    f.engine = o.peer.engine_id(), f.bytes = 8 << 10, f.key = o.seed;
    Flood bystander(*context, o.peer.next_socket(listener), f);
    for (uint32_t round = 0; round < o.rounds; round++) {
        tcpqp::Fd socket = o.peer.next_socket(listener);
        if (o.peer.listens())
            peer_round(*context, std::move(socket), bystander, o);
        else
            hostile_round(*context, std::move(socket), bystander, o, o.seed * 1000 + round);
    }
    // The hostile side ends last: its queue pair may fail long before its round is over.
    if (o.peer.listens())
        for (const auto limit = Clock::now() + milliseconds(kRoundEndMs);
             bystander.step(1) && Clock::now() < limit;) {
        }
    std::printf("{\"rounds\": %u, \"sent\": %llu, \"received\": %llu}\n", o.rounds,
                static_cast<unsigned long long>(bystander.sent()),
                static_cast<unsigned long long>(bystander.received()));
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("ring_fuzz", "Write over a queue pair's rings while it works")
        .peer(o.peer)
        .option("--rounds", o.rounds)
        .option("--round-ms", o.round_ms)
        .option("--seed", o.seed)
        .run(argc, argv, [&] {
            all(o);
            return 0;
        });
}
