// SPDX-License-Identifier: BSD-3-Clause
// Many queue pairs at once between two processes: how long they take to set up,
// that every message on each arrives intact, what memory a queue pair costs.
// Prints one JSON object.
//
//   qp_many [--connect ADDR] --port PORT --count N
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "command.hpp"
#include "completion.hpp"
#include "memory.hpp"
#include "mismatch.hpp"
#include "pattern.hpp"
#include "tcp.hpp"
#include "verbs/attach.hpp"
#include "verbs/cq.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDepth = 4;  // receives and sends posted on each queue pair
constexpr uint32_t kSlots = 2 * kDepth;
constexpr uint64_t kReceive = uint64_t{1} << 63;

struct Options {
    PeerOptions peer;
    uint32_t count = 1000;
    uint32_t messages = 10;  // each way on each
    uint32_t bytes = 2000;
    uint32_t timeout_ms = 60000;  // without a completion
};

uint64_t kilobytes(const std::string& field) {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    uint64_t value = 0;
    while (file >> name >> value && std::getline(file, unit))
        if (name == field + ":")
            return value;
    throw std::runtime_error("/proc/meminfo has no " + field);
}

double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
}

struct One {
    tcpqp::Fd socket;
    std::unique_ptr<tcpqp::QueuePair> qp;
    uint32_t posted = 0, sent = 0, received = 0;
};

class Many {
public:
    explicit Many(const Options& o)
        : o_(o),
          context_(tcpqp::open_device(o.peer.interface)),
          pages_(size_t{o.count} * kSlots * o.bytes),
          cq_(*context_, static_cast<int>(std::min<uint32_t>(o.count * kSlots, 65000))),
          mr_(pages_.registered(*context_, IBV_ACCESS_LOCAL_WRITE)) {}

    void run() {
        const uint64_t before = kilobytes("MemAvailable"), slab = kilobytes("Slab");
        auto then = Clock::now();
        connect_all();
        const double connecting = seconds_since(then);
        then = Clock::now();
        attach_all();
        const double attaching = seconds_since(then);
        const auto used =
            static_cast<double>(before) - static_cast<double>(kilobytes("MemAvailable"));
        const auto slab_used = static_cast<double>(kilobytes("Slab")) - static_cast<double>(slab);
        meet(control_);  // nobody sends to one that still attaches
        then = Clock::now();
        exchange();
        const double exchanging = seconds_since(then);
        meet(control_);  // nor closes early
        then = Clock::now();
        const uint64_t placed = counters();
        all_.clear();
        std::printf(
            "{\"count\": %u, \"offload\": %u, \"connect_s\": %.2f, \"attach_s\": %.2f, "
            "\"exchange_s\": %.2f, \"destroy_s\": %.2f, \"messages\": %llu, \"placed\": %llu, "
            "\"delivered\": %llu, \"kb_per_qp\": %.1f, \"slab_kb_per_qp\": %.1f}\n",
            o_.count, offload_, connecting, attaching, exchanging, seconds_since(then),
            static_cast<unsigned long long>(done_), static_cast<unsigned long long>(placed),
            static_cast<unsigned long long>(delivered_), used / o_.count, slab_used / o_.count);
    }

private:
    void connect_all() {
        const tcpqp::Fd listener = o_.peer.listener(static_cast<int>(o_.count));
        control_ = o_.peer.next_socket(listener);
        for (tcpqp::Fd& socket : o_.peer.sockets(listener, control_, o_.count))
            all_.emplace_back().socket = std::move(socket);
    }

    void attach_all() {
        tcp_qp_attach_req request{};
        request.engine = o_.peer.engine_id();
        request.flags = TCP_QP_ATTACH_F_NOWAIT;
        request.timeout_ms = o_.timeout_ms;
        for (uint32_t i = 0; i < o_.count; i++) {
            One& one = all_[i];
            one.qp =
                std::make_unique<tcpqp::QueuePair>(*context_, cq_, tcpqp::QpDepth{kDepth, kDepth});
            for (uint32_t slot = 0; slot < kDepth; slot++)
                receive(i, slot);
            const auto attached = tcpqp::attach(*context_, *one.qp, one.socket.get(), request);
            if (attached.error)
                tcpqp::throw_errno("attach " + std::to_string(i) + ": " +
                                       tcpqp::reason_name(attached.response.reason),
                                   attached.error);
            offload_ += attached.response.engine == TCP_QP_ENGINE_OFFLOAD;
        }
    }

    std::span<uint8_t> slot(uint32_t i, uint32_t index) {
        return pages_.bytes().subspan((size_t{i} * kSlots + index) * o_.bytes, o_.bytes);
    }
    // What message @m of queue pair @i is, in this direction.
    uint64_t key(uint32_t i, uint32_t m, bool to_listener) const {
        return mix(uint64_t{i} << 32 | uint64_t{m} << 1 | to_listener);
    }
    tcpqp::Work work(uint32_t i, uint32_t index, uint64_t flags, uint32_t m) {
        return {flags | uint64_t{i} << 8 | index, slot(i, index).data(), o_.bytes, mr_.lkey(), m};
    }

    void receive(uint32_t i, uint32_t index) {
        const tcpqp::Work w = work(i, index, kReceive, 0);
        if (int error = all_[i].qp->post_receives({&w, 1}))
            tcpqp::throw_errno("post a receive", error);
    }

    void send(uint32_t i) {
        One& one = all_[i];
        while (one.posted < o_.messages && one.posted - one.sent < kDepth) {
            const uint32_t m = one.posted++, index = kDepth + m % kDepth;
            fill(slot(i, index), key(i, m, !o_.peer.listens()));
            const tcpqp::Work w = work(i, index, 0, m);
            if (int error = one.qp->post_sends({&w, 1}))
                tcpqp::throw_errno("post a send", error);
        }
    }

    void exchange() {
        for (uint32_t i = 0; i < o_.count; i++)
            send(i);
        const uint64_t wanted = uint64_t{2} * o_.count * o_.messages;
        while (done_ < wanted)
            if (!drain_next(cq_, static_cast<int>(o_.timeout_ms),
                            [this](const ibv_wc& wc) { completion(wc); }))
                throw std::runtime_error("silence after " + std::to_string(done_) + " of " +
                                         std::to_string(wanted) + " completions");
    }

    void completion(const ibv_wc& wc) {
        const auto i = static_cast<uint32_t>((wc.wr_id & ~kReceive) >> 8);
        const auto index = static_cast<uint32_t>(wc.wr_id & 0xff);
        if (wc.status)
            throw std::runtime_error("queue pair " + std::to_string(i) + ": " +
                                     ibv_wc_status_str(wc.status));
        One& one = all_[i];
        done_++;
        if (!(wc.wr_id & kReceive)) {
            one.sent++;
            return send(i);
        }
        const uint32_t m = one.received++;
        const std::string wrong =
            mismatch(slot(i, index), wc.byte_len, o_.bytes, key(i, m, o_.peer.listens()));
        if (!wrong.empty())
            throw std::runtime_error("queue pair " + std::to_string(i) + ": message " +
                                     std::to_string(m) + " is wrong: " + wrong + ";" +
                                     whose(slot(i, index)) + counted(one));
        if (one.received + kDepth <= o_.messages) {
            receive(i, index);
            (void)one.qp->ring_doorbell();
        }
    }

    // Whose message @in is, if it is one of this exchange: another queue pair's, another's number.
    std::string whose(std::span<const uint8_t> in) const {
        for (uint32_t i = 0; i < o_.count; i++)
            for (uint32_t m = 0; m < o_.messages; m++)
                for (const bool to_listener : {true, false})
                    if (first_wrong(in, key(i, m, to_listener)) == in.size())
                        return " it is message " + std::to_string(m) + " of queue pair " +
                               std::to_string(i) + " to the " +
                               (to_listener ? "listener" : "connector");
        return " no message of any queue pair has these bytes";
    }

    std::string counted(const One& one) const {
        tcp_qp_info info{};
        if (tcpqp::query(*context_, *one.qp, info))
            return "";
        return "; of this queue pair's bytes " + std::to_string(info.rx_placed_bytes) +
               " were placed and " + std::to_string(info.rx_copied_bytes) + " copied";
    }

    uint64_t counters() {
        uint64_t placed = 0;
        for (const One& one : all_) {
            tcp_qp_info info{};
            if (int error = tcpqp::query(*context_, *one.qp, info))
                tcpqp::throw_errno("query", error);
            placed += info.rx_placed_bytes;
            delivered_ += info.rx_delivered_bytes;
            if (info.rx_placed_bytes + info.rx_copied_bytes != info.rx_delivered_bytes)
                throw std::runtime_error("placed + copied is not what was delivered");
        }
        return placed;
    }

    const Options& o_;
    std::unique_ptr<tcpqp::Context> context_;
    Pages pages_;
    tcpqp::CompletionQueue cq_;
    tcpqp::Mr mr_;
    std::vector<One> all_;
    tcpqp::Fd control_;
    uint64_t done_ = 0, delivered_ = 0;
    uint32_t offload_ = 0;
};

void raise_file_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_many", "Exchange checked messages over many queue pairs at once")
        .peer(o.peer)
        .option("--count", o.count)
        .option("--messages", o.messages)
        .option("--bytes", o.bytes)
        .run(argc, argv, [&] {
            raise_file_limit();
            Many(o).run();
            return 0;
        });
}
