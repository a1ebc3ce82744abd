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
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <tcp_qp/tcp_qp.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
    uint16_t listen = 0;
    std::string connect;
    std::string device = "tcpqp0";
    uint32_t messages = 1000;
    uint32_t max_bytes = 65536;
    uint32_t depth = 16;
    uint32_t sges = 1;
    uint32_t inline_bytes = 0;
    uint64_t seed = 1;
    std::string engine = "auto";
    int wire = -1;
    bool icrc = false;
    bool one_way = false;  // only the connecting side sends
    bool late_receives = false;
    uint32_t pause_ms = 0;  // between attach and the first receive
    uint32_t slow_ms = 0;   // before each receive is posted again
    bool doorbell = true;   // tell the kernel of posted receives
    uint32_t timeout_s = 120;
};

[[noreturn]] void die(const std::string& what, int err = errno) {
    throw std::runtime_error(what + (err ? std::string(": ") + std::strerror(err) : ""));
}

uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// What message @m of the side @side is: both ends can compute it.
struct Plan {
    const Options& o;
    int side;

    uint64_t key(uint32_t m) const { return mix(o.seed * 1000003u + side * 77u) ^ mix(m); }
    uint32_t bytes(uint32_t m) const {
        uint64_t r = mix(key(m) ^ 0x51);
        switch (r % 8) {
            case 0:
                return static_cast<uint32_t>(mix(r) % 129) % (o.max_bytes + 1);
            case 1:
                return o.max_bytes;
            default:
                return static_cast<uint32_t>(mix(r) % (uint64_t{o.max_bytes} + 1));
        }
    }
    bool imm(uint32_t m) const { return mix(key(m) ^ 0x1337) & 1; }
    uint32_t imm_value(uint32_t m) const { return static_cast<uint32_t>(key(m)); }
    void fill(uint32_t m, uint8_t* to, uint32_t n) const {
        uint64_t k = key(m);
        for (uint32_t i = 0; i < n; i += 8) {
            uint64_t v = mix(k + i);
            std::memcpy(to + i, &v, std::min(8u, n - i));
        }
    }
    bool check(uint32_t m, const uint8_t* from, uint32_t n) const {
        uint64_t k = key(m);
        for (uint32_t i = 0; i < n; i += 8) {
            uint64_t v = mix(k + i);
            if (std::memcmp(from + i, &v, std::min(8u, n - i)))
                return false;
        }
        return true;
    }
};

int tcp_socket(const Options& o) {
    int one = 1;
    if (o.listen) {
        int l = socket(AF_INET6, SOCK_STREAM, 0);
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        sockaddr_in6 a{};
        a.sin6_family = AF_INET6;
        a.sin6_port = htons(o.listen);
        if (bind(l, reinterpret_cast<sockaddr*>(&a), sizeof a) || listen(l, 1))
            die("listen");
        int s = accept(l, nullptr, nullptr);
        close(l);
        if (s < 0)
            die("accept");
        return s;
    }
    auto at = o.connect.rfind(':');
    std::string host = o.connect.substr(0, at), port = o.connect.substr(at + 1);
    sockaddr_storage a{};
    socklen_t len;
    if (host.find(':') != std::string::npos) {
        auto& a6 = reinterpret_cast<sockaddr_in6&>(a);
        a6.sin6_family = AF_INET6;
        a6.sin6_port = htons(static_cast<uint16_t>(std::stoi(port)));
        inet_pton(AF_INET6, host.c_str(), &a6.sin6_addr);
        len = sizeof a6;
    } else {
        auto& a4 = reinterpret_cast<sockaddr_in&>(a);
        a4.sin_family = AF_INET;
        a4.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
        inet_pton(AF_INET, host.c_str(), &a4.sin_addr);
        len = sizeof a4;
    }
    for (int i = 0; i < 200; i++) {
        int s = socket(a.ss_family, SOCK_STREAM, 0);
        if (!connect(s, reinterpret_cast<sockaddr*>(&a), len))
            return s;
        close(s);
        poll(nullptr, 0, 50);  // the listener may still be starting
    }
    die("connect " + o.connect);
}

class Ioctl {
public:
    Ioctl(uint16_t method) {
        hdr_.object_id = UVERBS_OBJECT_QP;
        hdr_.method_id = method;
        hdr_.driver_id = RDMA_DRIVER_RXE;
    }
    void handle(uint16_t id, uint32_t v) { add(id, 0, v); }
    void fd(uint16_t id, int v) { add(id, 0, static_cast<uint64_t>(v)); }
    void ptr(uint16_t id, void* p, uint16_t n) { add(id, n, reinterpret_cast<uint64_t>(p)); }
    int call(int cmd_fd) {
        std::vector<uint8_t> buf(sizeof hdr_ + attrs_.size() * sizeof(ib_uverbs_attr));
        hdr_.length = static_cast<uint16_t>(buf.size());
        hdr_.num_attrs = static_cast<uint16_t>(attrs_.size());
        std::memcpy(buf.data(), &hdr_, sizeof hdr_);
        std::memcpy(buf.data() + sizeof hdr_, attrs_.data(),
                    attrs_.size() * sizeof(ib_uverbs_attr));
        return ioctl(cmd_fd, RDMA_VERBS_IOCTL, buf.data()) ? errno : 0;
    }

private:
    void add(uint16_t id, uint16_t len, uint64_t data) {
        ib_uverbs_attr a{};
        a.attr_id = id;
        a.len = len;
        a.flags = UVERBS_ATTR_F_MANDATORY;
        a.data = data;
        attrs_.push_back(a);
    }
    std::vector<ib_uverbs_attr> attrs_;
    ib_uverbs_ioctl_hdr hdr_{};  // last: it ends in a flexible array
};

class Exchange {
public:
    explicit Exchange(const Options& o)
        : o_(o),
          mine_{o, o.listen ? 1 : 0},
          theirs_{o, o.listen ? 0 : 1},
          to_send_(o.one_way && o.listen ? 0 : o.messages),
          to_receive_(o.one_way && !o.listen ? 0 : o.messages) {}

    void run() {
        sock_ = tcp_socket(o_);
        open();
        if (!o_.late_receives)
            while (!free_rx_.empty() && posted_rx_.size() < o_.depth)
                post_receive();
        attach();
        poll(nullptr, 0, static_cast<int>(o_.pause_ms));
        while (received_ < to_receive_ || completed_ < to_send_)
            step();
        farewell();
        report();
    }

private:
    static constexpr uint8_t kPoison = 0xa5;

    void open() {
        int n = 0;
        ibv_device** list = ibv_get_device_list(&n);
        ibv_device* dev = nullptr;
        for (int i = 0; i < n; i++)
            if (o_.device == ibv_get_device_name(list[i]))
                dev = list[i];
        if (!dev)
            die("no RDMA device " + o_.device, 0);
        ctx_ = ibv_open_device(dev);
        if (!ctx_)
            die("ibv_open_device");
        pd_ = ibv_alloc_pd(ctx_);
        channel_ = ibv_create_comp_channel(ctx_);
        cq_ = ibv_create_cq(ctx_, static_cast<int>(4 * o_.depth + 16), nullptr, channel_, 0);
        if (!pd_ || !channel_ || !cq_)
            die("verbs objects");
        ibv_qp_init_attr qa{};
        qa.send_cq = qa.recv_cq = cq_;
        qa.cap.max_send_wr = qa.cap.max_recv_wr = o_.depth;
        qa.cap.max_send_sge = qa.cap.max_recv_sge = o_.sges;
        qa.cap.max_inline_data = o_.inline_bytes;
        qa.qp_type = IBV_QPT_RC;
        qp_ = ibv_create_qp(pd_, &qa);
        if (!qp_)
            die("ibv_create_qp");
        ibv_qp_attr at{};
        at.qp_state = IBV_QPS_INIT;
        at.port_num = 1;
        if (ibv_modify_qp(qp_, &at,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
            die("modify to INIT");
        // twice the depth of receive buffers: half of them rest, poisoned
        stride_ = (o_.max_bytes + 4095u + 4096u) & ~4095u;
        slots_ = 3 * o_.depth;
        size_t bytes = size_t{stride_} * slots_;
        mem_ = static_cast<uint8_t*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (mem_ == MAP_FAILED)
            die("mmap");
        std::memset(mem_, kPoison, bytes);
        mr_ = ibv_reg_mr(pd_, mem_, bytes, IBV_ACCESS_LOCAL_WRITE);
        if (!mr_)
            die("ibv_reg_mr");
        for (uint32_t i = 0; i < slots_; i++)
            (i < o_.depth ? free_tx_ : free_rx_).push_back(i);
    }

    uint8_t* slot(uint32_t i) { return mem_ + size_t{stride_} * i; }

    // @n bytes at @p cut into at most o_.sges uneven pieces
    std::vector<ibv_sge> pieces(uint8_t* p, uint32_t n, uint64_t r) {
        std::vector<ibv_sge> v;
        uint32_t k = 1 + static_cast<uint32_t>(r % o_.sges), at = 0;
        for (uint32_t i = 0; i < k; i++) {
            uint32_t len = i + 1 == k ? n - at : static_cast<uint32_t>(mix(r + i) % (n - at + 1));
            v.push_back({reinterpret_cast<uint64_t>(p + at), len, mr_->lkey});
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
        if (int e = ibv_post_recv(qp_, &wr, &bad))
            die("ibv_post_recv", e);
        posted_rx_.push_back(s);
        rang_ = false;
    }

    void ring() {
        if (rang_ || !o_.doorbell)
            return;
        rang_ = true;
        struct {
            ib_uverbs_cmd_hdr hdr;
            uint64_t response;
            uint32_t qp_handle, wr_count, sge_count, wqe_size;
        } cmd{};
        struct {
            uint32_t bad_wr;
        } resp{};
        cmd.hdr.command = IB_USER_VERBS_CMD_POST_SEND;
        cmd.hdr.in_words = sizeof cmd / 4;
        cmd.hdr.out_words = sizeof resp / 4;
        cmd.response = reinterpret_cast<uint64_t>(&resp);
        cmd.qp_handle = qp_->handle;
        cmd.wqe_size = sizeof(ib_uverbs_send_wr);
        if (write(ctx_->cmd_fd, &cmd, sizeof cmd) != sizeof cmd)
            die("doorbell");
    }

    void attach() {
        tcp_qp_attach_req req{};
        tcp_qp_attach_resp resp{};
        req.engine = o_.engine == "offload"    ? TCP_QP_ENGINE_OFFLOAD
                     : o_.engine == "software" ? TCP_QP_ENGINE_SOFTWARE
                                               : TCP_QP_ENGINE_AUTO;
        if (o_.wire == 0)
            req.flags |= TCP_QP_ATTACH_F_WIRE_V0;
        if (o_.wire == 1)
            req.flags |= TCP_QP_ATTACH_F_WIRE_V1;
        if (o_.icrc)
            req.flags |= TCP_QP_ATTACH_F_ICRC;
        Ioctl io(TCP_QP_METHOD_ATTACH);
        io.handle(TCP_QP_ATTR_ATTACH_HANDLE, qp_->handle);
        io.fd(TCP_QP_ATTR_ATTACH_SOCKET, sock_);
        io.ptr(TCP_QP_ATTR_ATTACH_REQ, &req, sizeof req);
        io.ptr(TCP_QP_ATTR_ATTACH_RESP, &resp, sizeof resp);
        if (int e = io.call(ctx_->cmd_fd))
            die("attach (reason " + std::to_string(resp.reason) + ")", e);
        fprintf(stderr, "qp_exchange: attached, engine %u reason %u wire %u mss %u\n", resp.engine,
                resp.reason, resp.wire_version, resp.mss);
    }

    void post_send() {
        uint32_t s = free_tx_.front();
        free_tx_.pop_front();
        uint32_t m = posted_++, n = mine_.bytes(m);
        mine_.fill(m, slot(s), n);
        auto sg = pieces(slot(s), n, mix(mine_.key(m)));
        ibv_send_wr wr{}, *bad;
        wr.wr_id = uint64_t{1} << 32 | s;
        wr.sg_list = sg.data();
        wr.num_sge = static_cast<int>(sg.size());
        wr.send_flags = IBV_SEND_SIGNALED;
        if (n <= o_.inline_bytes)
            wr.send_flags |= IBV_SEND_INLINE;
        wr.opcode = mine_.imm(m) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = htonl(mine_.imm_value(m));
        if (int e = ibv_post_send(qp_, &wr, &bad))
            die("ibv_post_send", e);
    }

    void step() {
        while (posted_ < to_send_ && !free_tx_.empty())
            post_send();
        if (received_ && posted_rx_.size() < o_.depth)
            poll(nullptr, 0, static_cast<int>(o_.slow_ms));
        while (posted_rx_.size() < o_.depth && !free_rx_.empty())
            post_receive();
        ring();
        if (ibv_req_notify_cq(cq_, 0))
            die("req_notify");
        if (drain())
            return;
        pollfd p{channel_->fd, POLLIN, 0};
        if (poll(&p, 1, static_cast<int>(o_.timeout_s) * 1000) <= 0)
            die("no completion for " + std::to_string(o_.timeout_s) + " s: sent " +
                    std::to_string(completed_) + " received " + std::to_string(received_),
                0);
        ibv_cq* cq;
        void* arg;
        if (ibv_get_cq_event(channel_, &cq, &arg))
            die("get_cq_event");
        ibv_ack_cq_events(cq, 1);
        drain();
    }

    bool drain() {
        ibv_wc wc[32];
        bool any = false;
        int n;
        while ((n = ibv_poll_cq(cq_, 32, wc)) > 0) {
            any = true;
            for (int i = 0; i < n; i++)
                completion(wc[i]);
        }
        if (n < 0)
            die("poll_cq");
        return any;
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
        if (wc.byte_len != n)
            die("message " + std::to_string(m) + ": " + std::to_string(wc.byte_len) +
                    " bytes, not " + std::to_string(n),
                0);
        if (!!(wc.wc_flags & IBV_WC_WITH_IMM) != theirs_.imm(m) ||
            (theirs_.imm(m) && ntohl(wc.imm_data) != theirs_.imm_value(m)))
            die("message " + std::to_string(m) + ": wrong immediate", 0);
        if (!theirs_.check(m, slot(s), n))
            die("message " + std::to_string(m) + ": wrong bytes", 0);
        for (uint32_t i = n; i < stride_; i++)
            if (slot(s)[i] != kPoison)
                die("message " + std::to_string(m) + ": bytes beyond its end", 0);
        bytes_ += n;
        std::memset(slot(s), kPoison, n);
        free_rx_.push_back(s);
    }

    // Both sides are done when both say so; each has its receives counted by then.
    void farewell() {
        shutdown(sock_, SHUT_WR);
        pollfd p{sock_, POLLRDHUP, 0};
        poll(&p, 1, 10000);
    }

    void report() {
        tcp_qp_info info{};
        Ioctl io(TCP_QP_METHOD_QUERY);
        io.handle(TCP_QP_ATTR_QUERY_HANDLE, qp_->handle);
        io.ptr(TCP_QP_ATTR_QUERY_INFO, &info, sizeof info);
        if (int e = io.call(ctx_->cmd_fd))
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
    int sock_ = -1;
    ibv_context* ctx_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_qp* qp_ = nullptr;
    ibv_mr* mr_ = nullptr;
    uint8_t* mem_ = nullptr;
    uint32_t stride_ = 0, slots_ = 0, posted_ = 0, completed_ = 0, received_ = 0, posts_ = 0;
    uint64_t bytes_ = 0;
    bool rang_ = true;
    std::deque<uint32_t> free_tx_, free_rx_, posted_rx_;
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app{"Exchange checked messages over an attached queue pair"};
    app.add_option("--listen", o.listen);
    app.add_option("--connect", o.connect, "ADDR:PORT");
    app.add_option("--device", o.device);
    app.add_option("--messages", o.messages);
    app.add_option("--max-bytes", o.max_bytes);
    app.add_option("--depth", o.depth);
    app.add_option("--sges", o.sges)->check(CLI::Range(1, 32));
    app.add_option("--inline", o.inline_bytes);
    app.add_option("--seed", o.seed);
    app.add_option("--engine", o.engine);
    app.add_option("--wire", o.wire);
    app.add_flag("--icrc", o.icrc, "a CRC on each segment sent");
    app.add_flag("--one-way", o.one_way);
    app.add_flag("--late-receives", o.late_receives, "attach before any receive is posted");
    app.add_option("--pause-ms", o.pause_ms, "between attach and the first receive");
    app.add_option("--slow-ms", o.slow_ms, "before receives are posted again");
    app.add_flag("!--no-doorbell", o.doorbell, "post receives as stock librxe does");
    app.add_option("--timeout", o.timeout_s, "seconds without a completion");
    CLI11_PARSE(app, argc, argv);
    try {
        if (!o.listen == o.connect.empty())
            die("give one of --listen and --connect", 0);
        Exchange(o).run();
        return 0;
    } catch (const std::exception& e) {
        fprintf(stderr, "qp_exchange: FAILED: %s\n", e.what());
        return 1;
    }
}
