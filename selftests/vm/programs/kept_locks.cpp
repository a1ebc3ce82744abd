// SPDX-License-Identifier: BSD-3-Clause
// A process that keeps the locks of its queue pairs' sockets for as long as it likes.  Each has a
// peer without a queue pair, so that the kernel repeats its handshake.
//
//   kept_locks --port P [--count N] [--until F]
//
// Says "kept" when each of them has something due.  Lets go when F is there; then the peers get
// queue pairs, and all of them are connected.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "command.hpp"
#include "lock_keeper.hpp"
#include "tcp.hpp"
#include "verbs/attach.hpp"
#include "verbs/cq.hpp"
#include "verbs/device.hpp"
#include "verbs/qp.hpp"

namespace {

using namespace nupa::programs;
using std::chrono::milliseconds;

constexpr uint32_t kHandshakeMs = 600'000, kConnectMs = 10'000;
constexpr milliseconds kAllDue(1100);  // TQP_RTR_LAST_MS, and some
constexpr milliseconds kLook(20);

struct Options {
    PeerOptions peer;
    uint32_t count = 4;
    std::string until;
};

void attach(const tcpqp::Context& context, const tcpqp::QueuePair& qp, const tcpqp::Fd& socket,
            uint32_t flags, uint32_t timeout_ms) {
    const tcpqp::Attached attached = tcpqp::attach(context, qp, socket.get(),
                                                   {.engine = TCP_QP_ENGINE_SOFTWARE,
                                                    .flags = flags,
                                                    .timeout_ms = timeout_ms,
                                                    .reserved = 0});
    if (attached.error)
        tcpqp::throw_errno("attach", attached.error);
}

void keep(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    const tcpqp::CompletionQueue cq(*context, 16);
    const tcpqp::QpDepth depth{.sends = 1, .receives = 1};
    const tcpqp::Fd listener = listen_on(o.peer.port, 1);
    std::vector<tcpqp::Fd> near, far;
    std::vector<tcpqp::QueuePair> qps;
    LockKeeper keeper(o.count);
    for (uint32_t i = 0; i < o.count; i++) {
        near.push_back(connect_to("127.0.0.1", o.peer.port));
        far.push_back(accept_from(listener));
        qps.emplace_back(*context, cq, depth);
        attach(*context, qps.back(), near.back(), TCP_QP_ATTACH_F_NOWAIT, kHandshakeMs);
        keeper.keep(near.back());
    }
    std::this_thread::sleep_for(kAllDue);
    std::puts("kept");
    std::fflush(stdout);
    while (!std::filesystem::exists(o.until))
        std::this_thread::sleep_for(kLook);
    keeper.let_go();
    for (const auto& socket : far) {
        qps.emplace_back(*context, cq, depth);
        attach(*context, qps.back(), socket, 0, kConnectMs);
    }
    std::puts("connected");
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("kept_locks", "Keep the locks of queue pairs' sockets")
        .peer(o.peer)
        .option("--count", o.count)
        .option("--until", o.until)
        .run(argc, argv, [&] {
            keep(o);
            return 0;
        });
}
