// SPDX-License-Identifier: BSD-3-Clause
// A receive whose own key is wrong, for a message that is here already: it fails with just that
// error, ahead of the receives that are flushed, and not while the device may still write for
// the queue pair.
//
// The listening side receives.  It creates FILE.waits when the message is here, posts its receives
// when FILE.go is there, and creates FILE.quiet when nothing has completed for a while.
//
//   qp_fault --port PORT [--connect ADDR] [--engine E] [--shared] --file FILE
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "command.hpp"
#include "completion.hpp"
#include "memory.hpp"
#include "verbs/attach.hpp"
#include "verbs/cq.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 32 << 10;
constexpr uint32_t kWrongKey = 0x5a5a5a;
constexpr int kLookMs = 5, kQuietMs = 500, kLimitMs = 30000;
constexpr uint64_t kBad = 1, kGood = 2, kSend = 3;

struct Options {
    PeerOptions peer;
    bool shared = false;
    std::string file;
};

struct DestroySrq {
    void operator()(ibv_srq* srq) const noexcept { ibv_destroy_srq(srq); }
};
using Srq = std::unique_ptr<ibv_srq, DestroySrq>;

Srq shared_queue(const tcpqp::Context& context) {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    Srq srq(ibv_create_srq(context.pd(), &attr));
    if (!srq)
        tcpqp::throw_errno("create a shared receive queue");
    return srq;
}

void wait_for(const char* what, const std::function<bool()>& there) {
    const auto limit = Clock::now() + std::chrono::milliseconds(kLimitMs);
    while (!there()) {
        if (Clock::now() > limit)
            throw std::runtime_error(std::string("in vain: ") + what);
        poll(nullptr, 0, kLookMs);
    }
}

void expect(const ibv_wc& wc, uint64_t id, ibv_wc_status status) {
    if (wc.wr_id != id || wc.status != status)
        throw std::runtime_error("request " + std::to_string(wc.wr_id) + " ended with \"" +
                                 ibv_wc_status_str(wc.status) + "\", not " + std::to_string(id) +
                                 " with \"" + ibv_wc_status_str(status) + "\"");
}

class End {
public:
    explicit End(const Options& o)
        : o_(o),
          context_(tcpqp::open_device(o.peer.interface)),
          memory_(kBytes, Memory::kPages),
          mr_(memory_.registered(*context_, IBV_ACCESS_LOCAL_WRITE)),
          cq_(*context_, 16),
          srq_(o.shared && o.peer.listens() ? shared_queue(*context_) : nullptr),
          qp_(*context_, cq_, {.sends = 4, .receives = 4, .srq = srq_.get()}),
          listener_(o.peer.listener()),
          socket_(o.peer.next_socket(listener_)) {
        const tcpqp::Attached result = tcpqp::attach(
            *context_, qp_, socket_.get(),
            {.engine = o.peer.engine_id(), .flags = 0, .timeout_ms = 10000, .reserved = 0});
        if (result.error)
            tcpqp::throw_errno("attach", result.error);
    }

    // TCP may have acknowledged the message before there was a receive for it.
    void send() {
        post(kGood, mr_.lkey());
        const tcpqp::Work work{kSend, memory_.bytes().data(), kBytes, mr_.lkey(), 0, true};
        if (const int error = qp_.post_sends({&work, 1}))
            tcpqp::throw_errno("post a send", error);
        if (next_completion(cq_).wr_id != kSend)
            throw std::runtime_error("something else than the message has completed");
        expect(next_completion(cq_), kGood, IBV_WC_WR_FLUSH_ERR);
    }

    void receive() {
        wait_for("the message waits for a receive", [&] { return stalls() != 0; });
        std::ofstream(o_.file + ".waits");
        wait_for("the word to go on", [&] { return access((o_.file + ".go").c_str(), F_OK) == 0; });
        post(kBad, kWrongKey);
        post(kGood, mr_.lkey());
        if (const int error = qp_.ring_doorbell())
            tcpqp::throw_errno("ring the doorbell", error);
        const auto quiet = Clock::now() + std::chrono::milliseconds(kQuietMs);
        for (ibv_wc wc{}; Clock::now() < quiet; poll(nullptr, 0, kLookMs))
            if (cq_.poll({&wc, 1}) > 0)
                throw std::runtime_error("a receive has failed, and the device may still write");
        std::ofstream(o_.file + ".quiet");
        expect(next_completion(cq_), kBad, IBV_WC_LOC_PROT_ERR);
        if (!o_.shared)
            expect(next_completion(cq_), kGood, IBV_WC_WR_FLUSH_ERR);
    }

private:
    uint64_t stalls() const {
        tcp_qp_info info{};
        if (const int error = tcpqp::query(*context_, qp_, info))
            tcpqp::throw_errno("query the queue pair", error);
        return info.rx_stalls;
    }

    void post(uint64_t id, uint32_t key) {
        ibv_sge sge{reinterpret_cast<uint64_t>(memory_.bytes().data()), kBytes, key};
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        if (const int error = srq_ ? ibv_post_srq_recv(srq_.get(), &wr, &bad)
                                   : ibv_post_recv(qp_.get(), &wr, &bad))
            tcpqp::throw_errno("post a receive", error);
    }

    const Options& o_;
    std::unique_ptr<tcpqp::Context> context_;
    Pages memory_;
    tcpqp::Mr mr_;
    tcpqp::CompletionQueue cq_;
    Srq srq_;
    tcpqp::QueuePair qp_;
    tcpqp::Fd listener_, socket_;
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_fault", "A receive that fails here")
        .peer(o.peer)
        .flag("--shared", o.shared, "it is of a shared receive queue")
        .option("--file", o.file)
        .run(argc, argv, [&] {
            End end(o);
            if (o.peer.listens())
                end.receive();
            else
                end.send();
            std::puts("{}");
            return 0;
        });
}
