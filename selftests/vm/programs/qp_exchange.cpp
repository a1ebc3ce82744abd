// SPDX-License-Identifier: BSD-3-Clause
// Two processes exchange messages of random sizes over one attached QP, both
// ways at once, and check everything that a queue pair promises: order, sizes,
// immediates, every byte, and that no byte of a buffer changes between its
// completion and its next posting (buffers rest poisoned for a while).
//
//   qp_exchange --listen PORT | --connect ADDR:PORT  [options]
//
// Prints one JSON object of counters; exit 0 only if all was right.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
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

struct Options {
    uint16_t listen = 0;
    std::string connect;
    std::string interface = "nupa0";
    uint32_t messages = 1000;
    uint32_t max_bytes = 65536;
    uint32_t depth = 16;
    uint32_t train = 1;  // messages of one kind, posted at once,
    bool mixed = false;  // of any sizes; else of one size
    uint32_t sges = 1;
    uint32_t inline_bytes = 0;
    uint64_t seed = 1;
    std::string engine = "auto";
    int wire = -1;
    bool icrc = false;
    bool one_way = false;  // only the connecting side sends
    bool late_receives = false;
    uint32_t pause_ms = 0;   // the listening side, between attach and its first receive
    uint32_t slow_ms = 0;    // before each receive is posted again
    uint32_t resize_at = 0;  // the completion queue, after so many received messages
    bool doorbell = true;    // tell the kernel of posted receives
    uint32_t timeout_s = 120;
    std::string memory = "pages";
};

[[noreturn]] void die(const std::string& what, int err = errno) {
    throw std::runtime_error(what + (err ? std::string(": ") + std::strerror(err) : ""));
}

// What message @m of the side @side is: both ends can compute it.
struct Plan {
    const Options& o;
    int side;

    uint64_t key(uint32_t m) const { return mix(o.seed * 1000003u + side * 77u) ^ mix(m); }
    uint32_t bytes(uint32_t m) const {
        uint64_t r = mix(key(o.mixed ? m : m / o.train) ^ 0x51);
        if (o.mixed && r % 2)
            return 1 + static_cast<uint32_t>(mix(r) % std::min(o.max_bytes, 1500u));
        switch (r % 8) {
            case 0:
                return static_cast<uint32_t>(mix(r) % 129) % (o.max_bytes + 1);
            case 1:
                return o.max_bytes;
            default:
                return static_cast<uint32_t>(mix(r) % (uint64_t{o.max_bytes} + 1));
        }
    }
    bool imm(uint32_t m) const { return mix(key(m / o.train) ^ 0x1337) & 1; }
    uint32_t imm_value(uint32_t m) const { return static_cast<uint32_t>(key(m)); }
};

tcpqp::Fd tcp_socket(const Options& o) {
    if (o.listen)
        return accept_from(listen_on(o.listen, 1));
    const auto at = o.connect.rfind(':');
    return connect_to(o.connect.substr(0, at),
                      static_cast<uint16_t>(std::stoi(o.connect.substr(at + 1))));
}

uint32_t attach_flags(const Options& o) {
    return (o.wire == 0 ? uint32_t{TCP_QP_ATTACH_F_WIRE_V0} : 0) |
           (o.wire == 1 ? uint32_t{TCP_QP_ATTACH_F_WIRE_V1} : 0) |
           (o.icrc ? uint32_t{TCP_QP_ATTACH_F_ICRC} : 0);
}

// Whole pages, and one more than the longest message needs.
constexpr uint32_t stride_of(uint32_t message_bytes) {
    return (message_bytes + 2 * kPageBytes - 1) & ~(kPageBytes - 1);
}

class Exchange {
public:
    explicit Exchange(const Options& o)
        : o_(o),
          mine_{o, o.listen ? 1 : 0},
          theirs_{o, o.listen ? 0 : 1},
          to_send_(o.one_way && o.listen ? 0 : o.messages),
          to_receive_(o.one_way && !o.listen ? 0 : o.messages),
          socket_(tcp_socket(o)),
          context_(tcpqp::open_device(o.interface)),
          stride_(stride_of(o.max_bytes)),
          pages_(size_t{stride_} * kSlotsPerDepth * o.depth, memory_of(o.memory)),
          cq_(*context_, static_cast<int>(4 * o.depth + 16)),
          mr_(pages_.registered(*context_, IBV_ACCESS_LOCAL_WRITE)),
          qp_(*context_, cq_,
              {.sends = o.depth,
               .receives = o.depth,
               .sges = o.sges,
               .inline_bytes = o.inline_bytes}) {
        std::memset(pages_.bytes().data(), kPoison, pages_.bytes().size());
        for (uint32_t i = 0; i < kSlotsPerDepth * o.depth; i++)
            (i < o.depth ? free_tx_ : free_rx_).push_back(i);
    }

    void run() {
        if (!o_.late_receives)
            while (!free_rx_.empty() && posted_rx_.size() < o_.depth)
                post_receive();
        attach();
        if (o_.listen)  // one side only: else who pauses longer is a matter of chance
            poll(nullptr, 0, static_cast<int>(o_.pause_ms));
        while (received_ < to_receive_ || completed_ < to_send_)
            step();
        await_peer_end();
        report();
    }

private:
    static constexpr uint8_t kPoison = 0xa5;
    // one to send from, two to receive into: half of these rest, poisoned
    static constexpr uint32_t kSlotsPerDepth = 3;

    uint8_t* slot(uint32_t i) { return pages_.bytes().data() + size_t{stride_} * i; }

    // @n bytes at @p cut into at most o_.sges uneven pieces
    std::vector<ibv_sge> pieces(uint8_t* p, uint32_t n, uint64_t r) {
        std::vector<ibv_sge> v;
        uint32_t k = 1 + static_cast<uint32_t>(r % o_.sges), at = 0;
        for (uint32_t i = 0; i < k; i++) {
            uint32_t len = i + 1 == k ? n - at : static_cast<uint32_t>(mix(r + i) % (n - at + 1));
            v.push_back({reinterpret_cast<uint64_t>(p + at), len, mr_.lkey()});
            at += len;
        }
        return v;
    }

    void post_receive() {
        uint32_t s = free_rx_.front();
        free_rx_.pop_front();
        for (uint32_t i = 0; i < stride_; i++)
            if (slot(s)[i] != kPoison)
                die("a resting buffer was written", 0);
        auto sg = pieces(slot(s), o_.max_bytes, mix(o_.seed ^ posts_++));
        ibv_recv_wr wr{}, *bad;
        wr.wr_id = s;
        wr.sg_list = sg.data();
        wr.num_sge = static_cast<int>(sg.size());
        if (int e = ibv_post_recv(qp_.get(), &wr, &bad))
            die("ibv_post_recv", e);
        posted_rx_.push_back(s);
        rang_ = false;
    }

    void ring() {
        if (rang_ || !o_.doorbell)
            return;
        rang_ = true;
        if (int e = qp_.ring_doorbell())
            die("doorbell", e);
    }

    void attach() {
        tcp_qp_attach_req request{};
        request.engine = engine_of(o_.engine);
        request.flags = attach_flags(o_);
        const tcpqp::Attached attached = tcpqp::attach(*context_, qp_, socket_.get(), request);
        const tcp_qp_attach_resp& resp = attached.response;
        if (attached.error)
            die("attach (reason " + std::to_string(resp.reason) + ")", attached.error);
        fprintf(stderr, "qp_exchange: attached, engine %u reason %u wire %u mss %u\n", resp.engine,
                resp.reason, resp.wire_version, resp.mss);
    }

    // Whole trains, or what is left.
    bool post_sends() {
        const uint32_t n = std::min(o_.train - posted_ % o_.train, to_send_ - posted_);
        if (!n || free_tx_.size() < n)
            return false;
        std::vector<ibv_send_wr> wrs(n);
        std::vector<std::vector<ibv_sge>> sges(n);
        for (uint32_t i = 0; i < n; i++) {
            prepare(wrs[i], sges[i]);
            wrs[i].next = i + 1 < n ? &wrs[i + 1] : nullptr;
        }
        ibv_send_wr* bad = nullptr;
        if (int e = ibv_post_send(qp_.get(), wrs.data(), &bad))
            die("ibv_post_send", e);
        return true;
    }

    void prepare(ibv_send_wr& wr, std::vector<ibv_sge>& sg) {
        uint32_t s = free_tx_.front();
        free_tx_.pop_front();
        uint32_t m = posted_++, n = mine_.bytes(m);
        fill({slot(s), n}, mine_.key(m));
        sg = pieces(slot(s), n, mix(mine_.key(m)));
        wr.wr_id = uint64_t{1} << 32 | s;
        wr.sg_list = sg.data();
        wr.num_sge = static_cast<int>(sg.size());
        wr.send_flags = IBV_SEND_SIGNALED;
        if (n <= o_.inline_bytes)
            wr.send_flags |= IBV_SEND_INLINE;
        wr.opcode = mine_.imm(m) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = htonl(mine_.imm_value(m));
    }

    void step() {
        while (post_sends())
            ;
        if (received_ && posted_rx_.size() < o_.depth)
            poll(nullptr, 0, static_cast<int>(o_.slow_ms));
        while (posted_rx_.size() < o_.depth && !free_rx_.empty())
            post_receive();
        ring();
        resize();
        if (!drain_next(cq_, static_cast<int>(o_.timeout_s) * 1000,
                        [this](const ibv_wc& wc) { completion(wc); }))
            die("no completion for " + std::to_string(o_.timeout_s) + " s: sent " +
                    std::to_string(completed_) + " received " + std::to_string(received_),
                0);
    }

    // In mid-traffic, each time to another size.
    void resize() {
        if (!o_.resize_at || received_ < next_resize_)
            return;
        next_resize_ = received_ + o_.resize_at;
        const int entries = static_cast<int>(4 * o_.depth + 16 + ++resizes_ % 3 * 4 * o_.depth);
        if (const int error = ibv_resize_cq(cq_.get(), entries); error != 0)
            die("resize_cq", error);
    }

    void completion(const ibv_wc& wc) {
        // the peer is done and has closed: what is left posted is flushed
        if (wc.status == IBV_WC_WR_FLUSH_ERR && received_ == to_receive_ && completed_ == to_send_)
            return;
        if (wc.status)
            die("completion " + std::to_string(wc.wr_id) + ": " + ibv_wc_status_str(wc.status) +
                    " after sent " + std::to_string(completed_) + " received " +
                    std::to_string(received_),
                0);
        uint32_t s = static_cast<uint32_t>(wc.wr_id);
        if (wc.wr_id >> 32) {
            std::memset(slot(s), kPoison, stride_);
            completed_++;
            free_tx_.push_back(s);
            return;
        }
        if (posted_rx_.empty() || posted_rx_.front() != s)
            die("receives complete out of order", 0);
        posted_rx_.pop_front();
        uint32_t m = received_++, n = theirs_.bytes(m);
        if (!!(wc.wc_flags & IBV_WC_WITH_IMM) != theirs_.imm(m) ||
            (theirs_.imm(m) && ntohl(wc.imm_data) != theirs_.imm_value(m)))
            die("message " + std::to_string(m) + ": wrong immediate", 0);
        const std::string wrong = mismatch({slot(s), n}, wc.byte_len, n, theirs_.key(m));
        if (!wrong.empty())
            die("message " + std::to_string(m) + ": " + wrong, 0);
        for (uint32_t i = n; i < stride_; i++)
            if (slot(s)[i] != kPoison)
                die("message " + std::to_string(m) + ": bytes beyond its end", 0);
        bytes_ += n;
        std::memset(slot(s), kPoison, n);
        free_rx_.push_back(s);
    }

    // Both sides are done when both say so; each has its receives counted by then.
    void await_peer_end() {
        shutdown(socket_.get(), SHUT_WR);
        pollfd p{socket_.get(), POLLRDHUP, 0};
        poll(&p, 1, 10000);
    }

    void report() {
        tcp_qp_info info{};
        if (int e = tcpqp::query(*context_, qp_, info))
            die("query", e);
        printf(
            "{\"engine\":%u,\"wire\":%u,\"mss\":%u,\"received_bytes\":%llu,\"delivered\":%llu,"
            "\"placed\":%llu,\"copied\":%llu,\"tx_bytes\":%llu,\"tx_zerocopy\":%llu,\"tx_"
            "segments\":%llu,"
            "\"sack_stripped\":%llu,\"rx_stalls\":%llu,\"credit_waits\":%llu}\n",
            info.engine, info.wire_version, info.mss, static_cast<unsigned long long>(bytes_),
            info.rx_delivered_bytes, info.rx_placed_bytes, info.rx_copied_bytes, info.tx_bytes,
            info.tx_zerocopy_bytes, info.tx_segments, info.tx_sack_stripped, info.rx_stalls,
            info.tx_credit_waits);
        if (info.rx_placed_bytes + info.rx_copied_bytes != info.rx_delivered_bytes ||
            info.rx_delivered_bytes != bytes_)
            die("counters do not add up", 0);
    }

    const Options& o_;
    Plan mine_, theirs_;
    uint32_t to_send_, to_receive_;
    tcpqp::Fd socket_;
    std::unique_ptr<tcpqp::Context> context_;
    uint32_t stride_;
    Pages pages_;
    tcpqp::CompletionQueue cq_;
    uint32_t next_resize_ = 1, resizes_ = 0;
    tcpqp::Mr mr_;
    tcpqp::QueuePair qp_;
    uint32_t posted_ = 0, completed_ = 0, received_ = 0, posts_ = 0;
    uint64_t bytes_ = 0;
    bool rang_ = true;
    std::deque<uint32_t> free_tx_, free_rx_, posted_rx_;
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_exchange", "Exchange checked messages over an attached queue pair")
        .option("--listen", o.listen)
        .option("--connect", o.connect, "ADDR:PORT")
        .option("--interface", o.interface)
        .option("--messages", o.messages)
        .option("--max-bytes", o.max_bytes)
        .option("--depth", o.depth)
        .option("--train", o.train, {1, 4096},
                "messages of one size, posted at once; at most the depth")
        .flag("--mixed", o.mixed, "but of one kind and many sizes")
        .option("--sges", o.sges, {1, 32})
        .option("--inline", o.inline_bytes)
        .option("--seed", o.seed)
        .engine(o.engine)
        .option("--wire", o.wire)
        .flag("--icrc", o.icrc, "a CRC on each segment sent")
        .flag("--one-way", o.one_way)
        .flag("--late-receives", o.late_receives, "attach before any receive is posted")
        .option("--pause-ms", o.pause_ms,
                "the listening side, between attach and its first receive")
        .option("--slow-ms", o.slow_ms, "before receives are posted again")
        .option("--resize-at", o.resize_at,
                "messages received between two resizes of the completion queue")
        .flag("!--no-doorbell", o.doorbell, "post receives as stock librxe does")
        .choice("--memory", o.memory, {"pages", "huge", "udmabuf", "dma-heap", "hbm", "pool"})
        .option("--timeout", o.timeout_s, "seconds without a completion")
        .run(argc, argv, [&] {
            if (!o.listen == o.connect.empty())
                die("give one of --listen and --connect", 0);
            if (o.train > o.depth)
                die("a train is longer than the queue", 0);
            Exchange(o).run();
            return 0;
        });
}
