// SPDX-License-Identifier: BSD-3-Clause
// Messages to and fro, each end asleep in an epoll with EPOLLET on its completion descriptor,
// which is not asked again between an event and the next one.  Prints the median round trip.
//
//   cq_edge --port PORT [--connect ADDR] [--engine E]
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "command.hpp"
#include "memory.hpp"
#include "verbs/attach.hpp"
#include "verbs/cq.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 400, kLimitMs = 20000;
constexpr uint32_t kBytes = 64, kReceives = 16;

class End {
public:
    explicit End(const PeerOptions& o)
        : context_(tcpqp::open_device(o.interface)),
          memory_(4096, Memory::kPages),
          mr_(memory_.registered(*context_, IBV_ACCESS_LOCAL_WRITE)),
          cq_(*context_, 64, tcpqp::Waking::kDescriptor),
          qp_(*context_, cq_,
              {.sends = 64, .receives = kReceives, .inline_bytes = kBytes, .signal_all = false}),
          listener_(o.listener()),
          socket_(o.next_socket(listener_)),
          epoll_(epoll_create1(0)) {
        epoll_event edge{EPOLLIN | EPOLLET, {}};
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, cq_.fd(), &edge))
            tcpqp::throw_errno("EPOLL_CTL_ADD");
        for (uint32_t i = 0; i < kReceives; i++)
            post_receive();
        const tcpqp::Attached result = tcpqp::attach(
            *context_, qp_, socket_.get(),
            {.engine = o.engine_id(), .flags = 0, .timeout_ms = 10000, .reserved = 0});
        if (result.error)
            tcpqp::throw_errno("attach", result.error);
    }

    // Microseconds of each.
    std::vector<long> ask() {
        std::vector<long> us;
        for (int turn = 0; turn < kTurns; turn++) {
            const auto begin = Clock::now();
            send();
            wait();
            us.push_back(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin)
                             .count());
        }
        return us;
    }

    void answer() {
        for (int turn = 0; turn < kTurns; turn++) {
            wait();
            send();
        }
        wait();  // the end
    }

private:
    void post_receive() {
        const tcpqp::Work work{0, memory_.bytes().data(), kBytes, mr_.lkey()};
        if (const int error = qp_.post_receives({&work, 1}))
            tcpqp::throw_errno("post a receive", error);
    }

    void send() {
        ibv_sge sge{reinterpret_cast<uint64_t>(memory_.bytes().data()), kBytes, 0};
        ibv_send_wr wr{}, *bad = nullptr;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_INLINE | (++sent_ % 16 ? 0U : unsigned{IBV_SEND_SIGNALED});
        wr.sg_list = &sge;
        wr.num_sge = 1;
        if (const int error = ibv_post_send(qp_.get(), &wr, &bad))
            tcpqp::throw_errno("post a send", error);
    }

    // Until a message is here, or the connection is over.  All that there is is taken.
    void wait() {
        for (bool come = false; !come;) {
            epoll_event event{};
            if (epoll_wait(epoll_.get(), &event, 1, kLimitMs) != 1)
                throw std::runtime_error("no edge");
            std::array<ibv_wc, 16> wcs{};
            for (int n = 0; (n = cq_.poll(wcs)) > 0;)
                for (int i = 0; i < n; i++) {
                    if (wcs[i].status == IBV_WC_SUCCESS && wcs[i].opcode == IBV_WC_RECV)
                        post_receive();
                    come = come || wcs[i].status != IBV_WC_SUCCESS || wcs[i].opcode == IBV_WC_RECV;
                }
        }
    }

    std::unique_ptr<tcpqp::Context> context_;
    Pages memory_;
    tcpqp::Mr mr_;
    tcpqp::CompletionQueue cq_;
    tcpqp::QueuePair qp_;
    tcpqp::Fd listener_, socket_, epoll_;
    uint32_t sent_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    PeerOptions o;
    return Command("cq_edge", "Round trips of ends that sleep in EPOLLET")
        .peer(o)
        .run(argc, argv, [&] {
            End end(o);
            std::vector<long> us;
            if (o.listens())
                end.answer();
            else
                us = end.ask();
            std::ranges::sort(us);
            std::printf("{\"us\": %ld}\n", us.empty() ? 0 : us[us.size() / 2]);
            return 0;
        });
}
