// SPDX-License-Identifier: BSD-3-Clause
// Posts that nobody looks after: one side posts bursts of small WRITEs and then sleeps in read() on
// a socket of its own, without a look at its completion queue.  The other side answers on that
// socket when the burst's last WRITE is in its memory.  A post that the kernel neither was rung for
// nor found by itself is one that this waits for in vain.
//
//   qp_posts --port PORT [--connect ADDR] [--rounds N] [--burst N] [--seed N]
//
// The connecting side posts.  Between its posts it sometimes waits, up to the time after which the
// kernel stops looking and beyond.
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "command.hpp"
#include "rdma_peer.hpp"
#include "tcp.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::seconds;

constexpr uint32_t kBytes = 64;
constexpr uint32_t kDepth = 64;  // RdmaPeer's
constexpr uint32_t kPauseMaxUs = 400;
constexpr uint32_t kPauseOneOf = 8;
constexpr int kRoundLimitS = 20;

struct Options {
    PeerOptions peer;
    uint32_t rounds = 1000;
    uint32_t burst = 16;
    uint32_t seed = 1;
};

// By spinning: to sleep is to let the other side of the machine go on.
void pause(std::mt19937& dice) {
    if (dice() % kPauseOneOf != 0)
        return;
    const auto end = Clock::now() + microseconds(dice() % kPauseMaxUs);
    while (Clock::now() < end) {
    }
}

void exchange_byte(const tcpqp::Fd& control, bool send_it) {
    uint8_t byte = 0;
    const ssize_t n = send_it ? send(control.get(), &byte, 1, 0) : recv(control.get(), &byte, 1, 0);
    if (n != 1)
        throw std::runtime_error("the other side's answer did not come");
}

class Poster {
public:
    Poster(RdmaPeer& peer, const Options& o) : peer_(peer), options_(o), dice_(o.seed) {}

    void run(const tcpqp::Fd& control) {
        const timeval limit{kRoundLimitS, 0};
        setsockopt(control.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        for (uint32_t round = 1; round <= options_.rounds; round++) {
            post_burst(round);
            exchange_byte(control, false);
        }
        reap(0);
        std::printf("{\"rounds\": %u, \"posts\": %u}\n", options_.rounds, posts_);
    }

private:
    void post_burst(uint32_t round) {
        const uint32_t count = 1 + dice_() % options_.burst;
        reap(kDepth - options_.burst);  // all that is polled: when there may be no room otherwise
        for (uint32_t i = count; i-- > 0;) {
            pause(dice_);
            post(i, round);
        }
        pause(dice_);
    }

    // The burst's last goes to the region's begin, and says which round it is.
    void post(uint32_t slot, uint32_t round) {
        auto* word = reinterpret_cast<uint32_t*>(&peer_.scratch()[size_t{slot} * kBytes]);
        *word = round;
        ibv_sge sge{reinterpret_cast<uint64_t>(word), kBytes, peer_.scratch_key()};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.wr.rdma.remote_addr = peer_.peer().address + uint64_t{slot} * kBytes;
        wr.wr.rdma.rkey = peer_.peer().key;
        peer_.post(wr);
        posts_++;
        under_way_++;
    }

    void reap(uint32_t leave) {
        for (; under_way_ > leave; under_way_--)
            if (const ibv_wc wc = peer_.wait(); wc.status != IBV_WC_SUCCESS)
                throw std::runtime_error(ibv_wc_status_str(wc.status));
    }

    RdmaPeer& peer_;
    const Options& options_;
    std::mt19937 dice_;
    uint32_t posts_ = 0, under_way_ = 0;
};

// Looks into its memory, as programs do that have no receives.
void answer(const RdmaPeer& peer, const Options& o, const tcpqp::Fd& control) {
    auto* flag = reinterpret_cast<uint32_t*>(peer.region().data());
    for (uint32_t round = 1; round <= o.rounds; round++) {
        const auto end = Clock::now() + seconds(kRoundLimitS);
        while (std::atomic_ref(*flag).load(std::memory_order_acquire) != round) {
            if (Clock::now() > end)
                throw std::runtime_error("round " + std::to_string(round) + ": lost a post");
            std::this_thread::yield();
        }
        exchange_byte(control, true);
    }
    std::printf("{\"rounds\": %u, \"posts\": 0}\n", o.rounds);
}

int run(const Options& o) {
    const tcpqp::Fd listener = o.peer.listener(2);
    tcpqp::Fd control = o.peer.next_socket(listener);
    std::vector<tcpqp::Fd> one = o.peer.sockets(listener, control, 1);
    const auto context = tcpqp::open_device(o.peer.interface);
    RdmaPeer peer(*context, std::move(one[0]), {.engine = o.peer.engine_id()});
    if (o.peer.listens())
        answer(peer, o, control);
    else
        Poster(peer, o).run(control);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_posts", "Bursts of WRITEs whose poster then sleeps elsewhere.")
        .peer(o.peer)
        .option("--rounds", o.rounds)
        .option("--burst", o.burst, Range{1, kDepth / 2})
        .option("--seed", o.seed)
        .run(argc, argv, [&] { return run(o); });
}
