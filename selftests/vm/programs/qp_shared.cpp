// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs with one shared receive queue at each end exchange messages of random sizes, both
// ways at once.  Each receive is used once, for the next message of some queue pair: its bytes,
// length and immediate are right, and no byte of a buffer changes between its completion and its
// next posting (buffers rest poisoned for a while).
//
//   qp_shared [--connect ADDR] --port PORT [options]
//
// Prints one JSON object of counters; exit 0 only if all was right.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
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

constexpr uint8_t kPoison = 0xa5;
constexpr uint64_t kSend = uint64_t{1} << 63;
constexpr uint32_t kSlackBytes = 64;  // beyond the longest message

struct Options {
    PeerOptions peer;
    uint32_t count = 4;       // queue pairs
    uint32_t messages = 500;  // each way on each
    uint32_t max_bytes = 8000;
    uint32_t receives = 64;  // of the shared queue
    uint32_t sends = 16;     // under way on each queue pair
    uint32_t train = 1;      // of one length and kind, posted at once
    uint32_t sges = 2;
    uint32_t limit = 0;    // an event when fewer receives are left
    uint32_t slow_ms = 0;  // before receives are posted again
    uint32_t timeout_ms = 60000;
    uint64_t seed = 1;
};

class SharedQueue {
public:
    SharedQueue(const tcpqp::Context& context, uint32_t receives, uint32_t sges, uint32_t limit)
        : context_(context), limit_(limit) {
        ibv_srq_init_attr attr{};
        attr.attr = {.max_wr = receives, .max_sge = sges, .srq_limit = 0};
        srq_.reset(ibv_create_srq(context.pd(), &attr));
        if (!srq_)
            tcpqp::throw_errno("create a shared receive queue");
        const int fd = srq_->context->async_fd;
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        arm();
    }
    ibv_srq* get() const noexcept { return srq_.get(); }

    void post(uint64_t cookie, std::vector<ibv_sge>& sges) {
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = cookie;
        wr.sg_list = sges.data();
        wr.num_sge = static_cast<int>(sges.size());
        if (const int error = ibv_post_srq_recv(get(), &wr, &bad))
            tcpqp::throw_errno("post a receive", error);
    }
    // How many events that few receives were left, in all.
    uint32_t events() {
        ibv_async_event event;
        while (ibv_get_async_event(srq_->context, &event) == 0) {
            const bool low = event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
            ibv_ack_async_event(&event);
            if (!low)
                continue;
            events_++;
            arm();
        }
        return events_;
    }

private:
    void arm() {
        ibv_srq_attr attr{};
        attr.srq_limit = limit_;
        if (const int error = limit_ ? ibv_modify_srq(get(), &attr, IBV_SRQ_LIMIT) : 0)
            tcpqp::throw_errno("arm the limit", error);
    }
    struct Destroy {
        void operator()(ibv_srq* s) const noexcept { ibv_destroy_srq(s); }
    };
    const tcpqp::Context& context_;
    std::unique_ptr<ibv_srq, Destroy> srq_;
    uint32_t limit_, events_ = 0;
};

// What message @m of queue pair @i is, of one side.
struct Plan {
    const Options& o;
    bool to_listener;

    uint64_t key(uint32_t i, uint32_t m) const {
        return mix(mix(o.seed) ^ (uint64_t{i} << 33 | uint64_t{m} << 1 | to_listener));
    }
    uint32_t bytes(uint32_t i, uint32_t m) const {
        const uint64_t r = mix(key(i, m / o.train) ^ 0x51);
        return static_cast<uint32_t>(r % 4 ? mix(r) % (o.max_bytes + 1) : mix(r) % 129) %
               (o.max_bytes + 1);
    }
    bool imm(uint32_t i, uint32_t m) const { return o.train == 1 && mix(key(i, m) ^ 0x1337) & 1; }
};

struct One {
    tcpqp::Fd socket;
    std::unique_ptr<tcpqp::QueuePair> qp;
    uint32_t posted = 0, sent = 0, received = 0;
};

class Shared {
public:
    explicit Shared(const Options& o)
        : o_(o),
          mine_{o, !o.peer.listens()},
          theirs_{o, o.peer.listens()},
          context_(tcpqp::open_device(o.peer.interface)),
          stride_(o.max_bytes + kSlackBytes),
          slots_(2 * o.receives + o.count * o.sends),
          pages_(size_t{stride_} * slots_),
          mr_(pages_.registered(*context_, IBV_ACCESS_LOCAL_WRITE)),
          cq_(*context_, static_cast<int>(o.receives + o.count * o.sends + 16)),
          srq_(*context_, o.receives, o.sges, o.limit),
          posted_(slots_) {
        std::memset(pages_.bytes().data(), kPoison, pages_.bytes().size());
        for (uint32_t s = 0; s < slots_; s++)
            (s < 2 * o.receives ? free_rx_ : free_tx_).push_back(s);
    }

    void run() {
        post_receives();
        connect_all();
        const uint64_t wanted = uint64_t{2} * o_.count * o_.messages;
        while (done_ < wanted)
            step(wanted);
        meet(control_);  // nobody closes early
        report();
    }

private:
    std::span<uint8_t> slot(uint32_t s) {
        return pages_.bytes().subspan(size_t{stride_} * s, stride_);
    }

    // @bytes of slot @s cut into at most o_.sges uneven pieces.
    std::vector<ibv_sge> pieces(uint32_t s, uint32_t bytes, uint64_t r) {
        std::vector<ibv_sge> all;
        const auto count = 1 + static_cast<uint32_t>(r % o_.sges);
        for (uint32_t i = 0, at = 0; i < count; i++) {
            const uint32_t left = bytes - at;
            const auto n = i + 1 == count ? left : static_cast<uint32_t>(mix(r + i) % (left + 1));
            all.push_back({reinterpret_cast<uint64_t>(slot(s).data() + at), n, mr_.lkey()});
            at += n;
        }
        return all;
    }

    void connect_all() {
        const tcpqp::Fd listener = o_.peer.listener(static_cast<int>(o_.count) + 1);
        control_ = o_.peer.next_socket(listener);
        tcp_qp_attach_req request{};
        request.engine = o_.peer.engine_id();
        request.flags = TCP_QP_ATTACH_F_NOWAIT;
        request.timeout_ms = o_.timeout_ms;
        for (tcpqp::Fd& socket : o_.peer.sockets(listener, control_, o_.count)) {
            One& one = all_.emplace_back();
            one.socket = std::move(socket);
            tcpqp::QpDepth depth{.sends = o_.sends, .sges = o_.sges};
            depth.srq = srq_.get();
            one.qp = std::make_unique<tcpqp::QueuePair>(*context_, cq_, depth);
            by_number_[one.qp->get()->qp_num] = static_cast<uint32_t>(all_.size() - 1);
            const auto attached = tcpqp::attach(*context_, *one.qp, one.socket.get(), request);
            if (attached.error)
                tcpqp::throw_errno(
                    "attach: " + std::string(tcpqp::reason_name(attached.response.reason)),
                    attached.error);
        }
    }

    void post_receives() {
        for (; outstanding_ < o_.receives; outstanding_++) {
            const uint32_t s = free_rx_.front();
            free_rx_.pop_front();
            const auto bytes = slot(s);
            if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b != kPoison; }))
                throw std::runtime_error("a resting buffer was written");
            auto sges = pieces(s, o_.max_bytes, mix(o_.seed ^ posts_++));
            posted_[s] = true;
            srq_.post(s, sges);
        }
    }

    // Whole trains, or what is left.
    void send(uint32_t i) {
        One& one = all_[i];
        for (;;) {
            const uint32_t n = std::min(o_.train - one.posted % o_.train, o_.messages - one.posted);
            if (!n || one.posted - one.sent + n > o_.sends)
                return;
            std::vector<ibv_send_wr> wrs(n);
            std::vector<std::vector<ibv_sge>> sges(n);
            for (uint32_t k = 0; k < n; k++) {
                prepare(i, wrs[k], sges[k]);
                wrs[k].next = k + 1 < n ? &wrs[k + 1] : nullptr;
            }
            ibv_send_wr* bad = nullptr;
            if (const int error = ibv_post_send(one.qp->get(), wrs.data(), &bad))
                tcpqp::throw_errno("post a send", error);
        }
    }

    void prepare(uint32_t i, ibv_send_wr& wr, std::vector<ibv_sge>& sges) {
        const uint32_t s = free_tx_.front(), m = all_[i].posted++, n = mine_.bytes(i, m);
        free_tx_.pop_front();
        fill(slot(s).first(n), mine_.key(i, m));
        sges = pieces(s, n, mix(mine_.key(i, m)));
        wr.wr_id = kSend | s;
        wr.sg_list = sges.data();
        wr.num_sge = static_cast<int>(sges.size());
        wr.opcode = mine_.imm(i, m) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = htonl(m);
    }

    void step(uint64_t wanted) {
        for (uint32_t i = 0; i < o_.count; i++)
            send(i);
        if (o_.slow_ms && outstanding_ < o_.receives)
            poll(nullptr, 0, static_cast<int>(o_.slow_ms));
        post_receives();
        events_ = srq_.events();
        if (!drain_next(cq_, static_cast<int>(o_.timeout_ms),
                        [this](const ibv_wc& wc) { completion(wc); }))
            throw std::runtime_error("silence after " + std::to_string(done_) + " of " +
                                     std::to_string(wanted) + " completions");
    }

    void completion(const ibv_wc& wc) {
        const auto it = by_number_.find(wc.qp_num);
        if (it == by_number_.end())
            throw std::runtime_error("a completion of no queue pair of ours");
        const uint32_t i = it->second;
        const auto s = static_cast<uint32_t>(wc.wr_id);
        if (wc.status)
            throw std::runtime_error("queue pair " + std::to_string(i) + ": " +
                                     ibv_wc_status_str(wc.status));
        done_++;
        if (wc.wr_id & kSend) {
            all_[i].sent++;
            std::memset(slot(s).data(), kPoison, stride_);
            free_tx_.push_back(s);
            return;
        }
        if (s >= posted_.size() || !posted_[s])
            throw std::runtime_error("a receive completes that is not posted");
        posted_[s] = false;
        outstanding_--;
        check(i, all_[i].received++, slot(s), wc);
        free_rx_.push_back(s);
    }

    void check(uint32_t i, uint32_t m, std::span<uint8_t> in, const ibv_wc& wc) {
        const uint32_t n = theirs_.bytes(i, m);
        std::string wrong = mismatch(in.first(n), wc.byte_len, n, theirs_.key(i, m));
        const bool imm = wc.wc_flags & IBV_WC_WITH_IMM;
        if (imm != theirs_.imm(i, m) || (imm && ntohl(wc.imm_data) != m))
            wrong += " wrong immediate";
        if (std::any_of(in.begin() + n, in.end(), [](uint8_t b) { return b != kPoison; }))
            wrong += " bytes beyond its end";
        if (!wrong.empty())
            throw std::runtime_error("queue pair " + std::to_string(i) + ": message " +
                                     std::to_string(m) + ": " + wrong);
        bytes_ += n;
        std::memset(in.data(), kPoison, n);
    }

    void report() {
        uint64_t placed = 0, copied = 0, stalls = 0;
        for (const One& one : all_) {
            tcp_qp_info info{};
            if (const int error = tcpqp::query(*context_, *one.qp, info))
                tcpqp::throw_errno("query", error);
            placed += info.rx_placed_bytes;
            copied += info.rx_copied_bytes;
            stalls += info.rx_stalls;
        }
        std::printf(
            "{\"messages\": %llu, \"bytes\": %llu, \"placed\": %llu, \"copied\": %llu, "
            "\"stalls\": %llu, \"limit_events\": %u}\n",
            static_cast<unsigned long long>(done_), static_cast<unsigned long long>(bytes_),
            static_cast<unsigned long long>(placed), static_cast<unsigned long long>(copied),
            static_cast<unsigned long long>(stalls), events_);
        if (placed + copied != bytes_)
            throw std::runtime_error("counters do not add up");
    }

    const Options& o_;
    Plan mine_, theirs_;
    std::unique_ptr<tcpqp::Context> context_;
    uint32_t stride_, slots_;
    Pages pages_;
    tcpqp::Mr mr_;
    tcpqp::CompletionQueue cq_;
    SharedQueue srq_;
    std::vector<One> all_;
    std::map<uint32_t, uint32_t> by_number_;
    tcpqp::Fd control_;
    std::deque<uint32_t> free_rx_, free_tx_;
    std::vector<bool> posted_;
    uint32_t outstanding_ = 0, posts_ = 0, events_ = 0;
    uint64_t done_ = 0, bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_shared", "Exchange checked messages over queue pairs that share receives")
        .peer(o.peer)
        .option("--count", o.count)
        .option("--messages", o.messages)
        .option("--max-bytes", o.max_bytes)
        .option("--receives", o.receives)
        .option("--sends", o.sends)
        .option("--train", o.train, {1, 4096})
        .option("--sges", o.sges, {1, 32})
        .option("--limit", o.limit, "an event when fewer receives are left")
        .option("--slow-ms", o.slow_ms, "before receives are posted again")
        .option("--timeout-ms", o.timeout_ms, "without a completion")
        .option("--seed", o.seed)
        .run(argc, argv, [&] {
            if (o.train > o.sends)
                throw std::runtime_error("a train is longer than the queue");
            Shared(o).run();
            return 0;
        });
}
