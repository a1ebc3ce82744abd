// SPDX-License-Identifier: BSD-3-Clause
// What a process without privilege may try against the kernel and its neighbours, each by a
// name.  Its queue pairs meet each other in this process, over loopback.
//
//   process_attack --what foreign-socket   a socket of a network namespace of its own
//   process_attack --what ahead [--count N]  N other processes keep the producer index of its
//                                    send queue ahead of the kernel; it rings until it is killed
//   process_attack --what park [--until F]  sends that somebody's qdisc holds; ends by --then:
//                                    killed, destroy (frees all itself), close (its sockets, then
//                                    killed)
//   process_attack --what resize           a completion queue of the largest size, full
//   process_attack --what overflown        one that the NIC shares, too full, resized;
//   process_attack --what drained          the same by a train of receives, and then emptied;
//                                          both: without --connect, the plain peer that it needs
//   process_attack --what regions          many regions and windows, then it exits
//   process_attack --what claims --connect A [--until F]  N requests of rdma_cm to A, a thread each
//                                    that accepts with a queue pair whose attach waits; then each
//                                    peer says a byte
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_rxe.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "command.hpp"
#include "flushed.hpp"
#include "memory.hpp"
#include "tcp.hpp"
#include "verbs/attach.hpp"
#include "verbs/cq.hpp"
#include "verbs/device.hpp"
#include "verbs/ioctl.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kParkedBytes = 4 << 10;
constexpr uint32_t kRingSends = (1 << 14) - 1;  // the other processes may be late by as many
constexpr int kAheadMs = 500;
constexpr int kLookMs = 20;
constexpr int kCqesMax = 1 << 20;
constexpr int kResizes = 5;
constexpr int kOverflownCqes = 1 << 12;
constexpr int kDrainedCqes = 31;       // as many as it has at least
constexpr uint32_t kTrainSends = 128;  // more, in trains that do not end with the queue
constexpr uint32_t kTrainBytes = 8;
constexpr int kOverflowLimitS = 20;
constexpr int kReliable = 2;  // IB_QPT_RC

struct Options {
    std::string what = "ahead";
    PeerOptions peer;
    std::string until;
    std::string then = "killed";
    uint32_t count = 4;
};

double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
}

[[noreturn]] void wait_for_the_end() {
    for (;;)
        ::pause();
}

// ---- two sockets and two queue pairs ----

struct Sockets {
    explicit Sockets(uint16_t port) : Sockets(listen_on(port, 1), port) {}
    Sockets(const tcpqp::Fd& listener, uint16_t port)
        : near(connect_to("127.0.0.1", port)), far(accept_from(listener)) {}
    tcpqp::Fd near, far;
};

tcpqp::Attached attach(const tcpqp::Context& context, const tcpqp::QueuePair& qp,
                       const tcpqp::Fd& socket, uint32_t flags) {
    return tcpqp::attach(
        context, qp, socket.get(),
        {.engine = TCP_QP_ENGINE_SOFTWARE, .flags = flags, .timeout_ms = 10000, .reserved = 0});
}

struct Joined {
    Joined(const tcpqp::Context& context, Sockets pair, tcpqp::QpDepth depth)
        : sockets(std::move(pair)),
          cq(context, 256),
          near(context, cq, depth),
          far(context, cq, depth) {
        if (const int error = attach(context, far, sockets.far, TCP_QP_ATTACH_F_NOWAIT).error)
            tcpqp::throw_errno("attach the far end", error);
        if (const int error = attach(context, near, sockets.near, 0).error)
            tcpqp::throw_errno("attach", error);
    }
    Sockets sockets;
    tcpqp::CompletionQueue cq;
    tcpqp::QueuePair near, far;
};

// ---- foreign-socket ----

void loopback_up() {
    const tcpqp::Fd any(::socket(AF_INET, SOCK_DGRAM, 0));
    ifreq lo{};
    std::copy_n("lo", 3, lo.ifr_name);
    lo.ifr_flags = IFF_UP;
    if (::ioctl(any.get(), SIOCSIFFLAGS, &lo))
        tcpqp::throw_errno("loopback up");
}

void foreign_socket(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET))
        tcpqp::throw_errno("unshare");
    loopback_up();
    const Sockets sockets(o.peer.port);
    tcpqp::CompletionQueue cq(*context, 16);
    const tcpqp::QueuePair qp(*context, cq, {.sends = 1, .receives = 1});
    const tcpqp::Attached attached = attach(*context, qp, sockets.near, TCP_QP_ATTACH_F_NOWAIT);
    std::printf("{\"error\": %d, \"reason\": \"%s\"}\n", attached.error,
                tcpqp::reason_name(attached.response.reason));
}

// ---- ahead ----

class SendMemory {
public:
    SendMemory(const tcpqp::Context& context, const tcpqp::QueuePair& qp) {
        std::array attrs{tcpqp::value_attr(TCP_QP_ATTR_SQ_HANDLE, qp.handle()),
                         tcpqp::pointer_attr(TCP_QP_ATTR_SQ_RESP, &sq_, sizeof(sq_))};
        if (const int error =
                tcpqp::invoke(context.cmd_fd(), UVERBS_OBJECT_QP, TCP_QP_METHOD_SQ, attrs))
            tcpqp::throw_errno("find the send queue", error);
        at_ = static_cast<unsigned char*>(::mmap(nullptr, sq_.bytes, PROT_READ | PROT_WRITE,
                                                 MAP_SHARED, context.cmd_fd(),
                                                 static_cast<off_t>(sq_.offset)));
        if (at_ == MAP_FAILED)
            tcpqp::throw_errno("map the send queue");
    }
    rxe_queue_buf& header() const { return *reinterpret_cast<rxe_queue_buf*>(at_); }
    rxe_send_wqe& slot(uint32_t i) const {
        return *reinterpret_cast<rxe_send_wqe*>(at_ + sizeof(rxe_queue_buf) +
                                                size_t{i} * sq_.slot_bytes);
    }
    uint32_t slots() const { return sq_.slots; }

private:
    tcp_qp_sq sq_{};
    unsigned char* at_ = nullptr;
};

// A window is unbound that is not bound: a work request that always succeeds and sends nothing.
void fill_with_nothing(const SendMemory& memory, uint32_t key) {
    for (uint32_t i = 0; i < memory.slots(); i++) {
        rxe_send_wqe& wqe = memory.slot(i);
        wqe.wr.opcode = IBV_WR_BIND_MW;
        wqe.wr.send_flags = 0;
        wqe.wr.wr.mw.mw_rkey = key;
        wqe.wr.wr.mw.rkey = key;
        wqe.wr.wr.mw.length = 0;
    }
}

// Returns never; *@taken is how many work requests the kernel was seen to take.
[[noreturn]] void keep_ahead(const SendMemory& memory, std::atomic<uint64_t>& taken) {
    const std::atomic_ref consumer(memory.header().consumer_index);
    const std::atomic_ref producer(memory.header().producer_index);
    for (uint32_t before = consumer.load();;) {
        const uint32_t now = consumer.load();
        producer.store((now - 1) & (memory.slots() - 1));
        taken += (now - before) & (memory.slots() - 1);
        before = now;
    }
}

// Several: one of them runs, whoever the host stops.  They hold the queue pair, too.
void start_feeders(const SendMemory& memory, uint32_t count, std::atomic<uint64_t>* taken) {
    for (uint32_t i = 0; i < count; i++) {
        if (::fork() != 0)
            continue;
        ::close(STDOUT_FILENO);
        ::close(STDERR_FILENO);
        keep_ahead(memory, taken[i]);
    }
}

[[noreturn]] void ring_for_ever(tcpqp::QueuePair& qp, std::span<std::atomic<uint64_t>> taken) {
    uint64_t rung = 0;
    double longest_ms = 0;
    for (auto shown = Clock::now();;) {
        const auto then = Clock::now();
        if (const int error = qp.ring_doorbell())
            tcpqp::throw_errno("ring the doorbell", error);
        longest_ms = std::max(longest_ms, 1000 * seconds_since(then));
        rung++;
        if (Clock::now() - shown < milliseconds(kAheadMs))
            continue;
        shown = Clock::now();
        uint64_t most = 0;  // each has seen a part
        for (const auto& one : taken)
            most = std::max(most, one.load());
        std::printf("{\"rung\": %ju, \"longest_ms\": %.1f, \"taken\": %ju}\n", uintmax_t{rung},
                    longest_ms, uintmax_t{most});
        std::fflush(stdout);
    }
}

void ahead(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    Joined joined(*context, Sockets(o.peer.port),
                  {.sends = kRingSends, .receives = 1, .signal_all = false});
    ibv_mw* window = ibv_alloc_mw(context->pd(), IBV_MW_TYPE_1);
    if (!window)
        tcpqp::throw_errno("allocate a window");
    const SendMemory memory(*context, joined.near);
    fill_with_nothing(memory, window->rkey);
    void* shared = ::mmap(nullptr, o.count * sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        tcpqp::throw_errno("share memory");
    auto* taken = static_cast<std::atomic<uint64_t>*>(shared);
    start_feeders(memory, o.count, taken);
    std::puts("feeding");
    std::fflush(stdout);
    ring_for_ever(joined.near, {taken, o.count});
}

// ---- park ----

struct Parked {
    Parked(const tcpqp::Context& context, uint16_t port)
        : memory(2 * kParkedBytes),
          mr(context, memory.bytes().data(), memory.bytes().size(), IBV_ACCESS_LOCAL_WRITE),
          joined(context, Sockets(port), {.sends = 1, .receives = 1}) {
        if (!mr)
            tcpqp::throw_errno("register memory");
        const tcpqp::Work receive{2, memory.bytes().data() + kParkedBytes, kParkedBytes, mr.lkey()};
        if (const int error = joined.far.post_receives({&receive, 1}))
            tcpqp::throw_errno("post a receive", error);
    }
    void send() {
        const tcpqp::Work work{.cookie = 1,
                               .address = memory.bytes().data(),
                               .bytes = kParkedBytes,
                               .lkey = mr.lkey(),
                               .without_imm = true};
        if (const int error = joined.near.post_sends({&work, 1}))
            tcpqp::throw_errno("post a send", error);
    }
    Pages memory;
    tcpqp::Mr mr;
    Joined joined;
};

void wait_for_file(const std::string& path) {
    while (!path.empty() && !std::filesystem::exists(path))
        std::this_thread::sleep_for(milliseconds(kLookMs));
}

void park(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    std::vector<std::unique_ptr<Parked>> all;
    for (uint32_t i = 0; i < o.count; i++)
        all.push_back(std::make_unique<Parked>(*context, o.peer.port));
    std::puts("ready");
    std::fflush(stdout);
    wait_for_file(o.until);
    for (auto& one : all)
        one->send();
    std::puts("parked");
    std::fflush(stdout);
    if (o.then == "destroy") {
        const auto then = Clock::now();
        for (auto& one : all)
            one->mr = {};
        all.clear();
        std::printf("destroyed in %.1f s\n", seconds_since(then));
        return;
    }
    if (o.then == "close")
        for (auto& one : all)
            one->joined.sockets.near.reset(), one->joined.sockets.far.reset();
    std::puts("waiting");
    std::fflush(stdout);
    wait_for_the_end();
}

// ---- resize ----

// How late a thread is that wants to run every millisecond.
class Ticker {
public:
    Ticker() : thread_([this] { run(); }) {}
    double latest_ms() {
        stop_ = true;
        thread_.join();
        return latest_ms_;
    }

private:
    void run() {
        for (auto then = Clock::now(); !stop_;) {
            std::this_thread::sleep_for(milliseconds(1));
            const auto now = Clock::now();
            latest_ms_ =
                std::max(latest_ms_, 1000 * std::chrono::duration<double>(now - then).count());
            then = now;
        }
    }
    std::atomic<bool> stop_ = false;
    double latest_ms_ = 0;
    std::thread thread_;
};

// The largest ring is full, by what its consumer index says.
void fill_largest_ring() {
    unsigned char* ring = nullptr;
    size_t ring_bytes = 0;
    std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "r"), std::fclose);
    for (char line[512]; std::fgets(line, sizeof line, maps.get());) {
        unsigned long begin = 0, end = 0;
        if (std::string(line).find("/uverbs") != std::string::npos &&
            std::sscanf(line, "%lx-%lx", &begin, &end) == 2 && end - begin > ring_bytes)
            ring = reinterpret_cast<unsigned char*>(begin), ring_bytes = end - begin;
    }
    auto& header = *reinterpret_cast<rxe_queue_buf*>(ring);
    std::atomic_ref(header.consumer_index).store(header.producer_index + 1);
}

void resize_to(const tcpqp::CompletionQueue& cq, int entries) {
    if (const int error = ibv_resize_cq(cq.get(), entries))
        tcpqp::throw_errno("resize", error);
}

void resize(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    tcpqp::CompletionQueue cq(*context, kCqesMax - 1);
    fill_largest_ring();
    // The best of several: a busy host makes everybody late, a copy with interrupts off each time.
    double late_ms = 1e9, took_ms = 0;
    for (int i = 0; i < kResizes; i++) {
        Ticker ticker;
        std::this_thread::sleep_for(milliseconds(10));
        const auto then = Clock::now();
        resize_to(cq, kCqesMax - 1);
        took_ms = 1000 * seconds_since(then);
        late_ms = std::min(late_ms, ticker.latest_ms());
    }
    std::printf("{\"took_ms\": %.1f, \"late_ms\": %.1f}\n", took_ms, late_ms);
}

// ---- overflown ----

void be_plain_peer(const Options& o) {
    const tcpqp::Fd socket = o.peer.socket();
    char byte = 0;
    (void)::recv(socket.get(), &byte, 1, 0);
}

// What makes the NIC write to @cq, too: a queue pair of its own, which nobody answers.
struct Sharer {
    Sharer(const tcpqp::Context& context, const tcpqp::CompletionQueue& cq, const Options& o)
        : socket(o.peer.socket()), qp(context, cq, {.sends = 1, .receives = 1}) {
        const tcpqp::Attached attached = tcpqp::attach(context, qp, socket.get(),
                                                       {.engine = TCP_QP_ENGINE_OFFLOAD,
                                                        .flags = TCP_QP_ATTACH_F_NOWAIT,
                                                        .timeout_ms = 60000,
                                                        .reserved = 0});
        if (attached.error)
            tcpqp::throw_errno("attach", attached.error);
    }
    tcpqp::Fd socket;
    tcpqp::QueuePair qp;
};

// Nobody writes to the queue any more, so its resize waits for nobody.
void overflown(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    tcpqp::CompletionQueue cq(*context, kOverflownCqes - 1);
    const Sharer sharer(*context, cq, o);
    Flushed source(*context, cq);
    fill_largest_ring();
    source.complete(1);
    const auto then = Clock::now();
    resize_to(cq, kOverflownCqes - 1);
    std::printf("{\"took_ms\": %.1f}\n", 1000 * seconds_since(then));
}

// ---- drained ----

// Of a train that the queue had no room for, it has the first ones; then it is empty, and says so.
void drained(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    tcpqp::CompletionQueue cq(*context, kDrainedCqes, tcpqp::Waking::kDescriptor);
    tcpqp::CompletionQueue sends(*context, 2 * kTrainSends);
    const Sharer sharer(*context, cq, o);
    const Sockets sockets(o.peer.port);
    const Pages page(4096);
    const tcpqp::Mr mr = page.registered(*context, IBV_ACCESS_LOCAL_WRITE);
    tcpqp::QueuePair from(*context, sends, {.sends = kTrainSends, .receives = 1});
    tcpqp::QueuePair to(*context, cq, {.sends = 1, .receives = kTrainSends});
    const std::vector<tcpqp::Work> works(kTrainSends, {.cookie = 1,
                                                       .address = page.bytes().data(),
                                                       .bytes = kTrainBytes,
                                                       .lkey = mr.lkey(),
                                                       .without_imm = true});
    if (const int error = to.post_receives(works))
        tcpqp::throw_errno("post receives", error);
    if (const int error = attach(*context, to, sockets.far, TCP_QP_ATTACH_F_NOWAIT).error)
        tcpqp::throw_errno("attach the far end", error);
    if (const int error = attach(*context, from, sockets.near, 0).error)
        tcpqp::throw_errno("attach", error);
    if (const int error = from.post_sends(works))
        tcpqp::throw_errno("post sends", error);
    for (const auto then = Clock::now(); !(polled(cq.fd()) & POLLERR);) {
        if (seconds_since(then) > kOverflowLimitS)
            throw std::runtime_error("it does not overflow");
        std::this_thread::sleep_for(milliseconds(1));
    }
    uint32_t taken = 0;
    for (ibv_wc wc{}; cq.poll({&wc, 1}) > 0; taken++)
        ;
    expect("polled when empty", polled(cq.fd()), POLLERR);
    expect("waited when empty", call_cq(cq.fd(), TCP_QP_CQ_WAIT), EOVERFLOW);
    std::printf("{\"taken\": %u}\n", taken);
}

// ---- regions ----

void regions(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    const Pages page(4096);
    std::vector<tcpqp::Mr> all;
    for (uint32_t i = 0; i < o.count; i++) {
        all.push_back(page.registered(*context, IBV_ACCESS_LOCAL_WRITE));
        if (!ibv_alloc_mw(context->pd(), IBV_MW_TYPE_1))
            tcpqp::throw_errno("allocate a window");
    }
    std::puts("waiting");
    std::fflush(stdout);
    wait_for_the_end();
}

// ---- claims ----

// rdma_cm's device: librdmacm accepts with no queue pair but the id's own.
class CmDevice {
public:
    CmDevice() : fd_(::open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC)) {
        if (!fd_)
            tcpqp::throw_errno("open rdma_cm");
    }
    // 0 or an errno.
    template <typename Body>
    int command(uint32_t number, const Body& body, size_t answer_bytes = 0) const noexcept {
        struct {
            rdma_ucm_cmd_hdr header;
            unsigned char body[sizeof(Body)];
        } all{};
        all.header = {number, sizeof(Body), static_cast<uint16_t>(answer_bytes)};
        std::memcpy(all.body, &body, sizeof body);
        return ::write(fd_.get(), &all, sizeof all) < 0 ? errno : 0;
    }

private:
    tcpqp::Fd fd_;
};

void must(int error, const char* what) {
    if (error)
        tcpqp::throw_errno(what, error);
}

void listen_for_requests(const CmDevice& cm, const PeerOptions& at, uint32_t backlog) {
    rdma_ucm_create_id_resp made{};
    rdma_ucm_create_id create{};
    create.response = reinterpret_cast<uintptr_t>(&made);
    create.ps = RDMA_PS_TCP;
    create.qp_type = kReliable;
    must(cm.command(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof made), "create an id");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(at.port);
    ::inet_pton(AF_INET, at.connect.c_str(), &address.sin_addr);
    rdma_ucm_bind bind{};
    bind.id = made.id;
    bind.addr_size = sizeof address;
    std::memcpy(&bind.addr, &address, sizeof address);
    must(cm.command(RDMA_USER_CM_CMD_BIND, bind), "bind");
    must(cm.command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{made.id, backlog}), "listen");
}

// A connection that says the hello of rdma_cm (cm_wire.h), and the id that its request has.
std::pair<tcpqp::Fd, uint32_t> request(const CmDevice& cm, const PeerOptions& to) {
    constexpr char kHello[24 + 1] = "tcp_qp cm req  \n\0\1\0\0\0\0\0";
    tcpqp::Fd peer = connect_to(to.connect, to.port);
    if (::write(peer.get(), kHello, sizeof kHello - 1) != sizeof kHello - 1)
        tcpqp::throw_errno("say hello");
    rdma_ucm_event_resp event{};
    const rdma_ucm_get_event get{reinterpret_cast<uintptr_t>(&event)};
    must(cm.command(RDMA_USER_CM_CMD_GET_EVENT, get, sizeof event), "wait for a request");
    return {std::move(peer), event.id};
}

void claims(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    const tcpqp::CompletionQueue cq(*context, 16);
    const tcpqp::QueuePair qp(*context, cq, {.sends = 1, .receives = 1});
    const Sockets sockets(o.peer.port);
    std::thread([&] {
        (void)tcpqp::attach(*context, qp, sockets.near.get(),
                            {.engine = TCP_QP_ENGINE_SOFTWARE,
                             .flags = 0,
                             .timeout_ms = TCP_QP_ATTACH_TIMEOUT_MAX_MS,
                             .reserved = 0});
    }).detach();
    const CmDevice cm;
    listen_for_requests(cm, o.peer, o.count);
    std::vector<tcpqp::Fd> peers;
    for (uint32_t i = 0; i < o.count; i++) {
        auto [peer, id] = request(cm, o.peer);
        peers.push_back(std::move(peer));
        rdma_ucm_accept accept{};
        accept.id = id;
        accept.conn_param.qp_num = qp.get()->qp_num;
        accept.conn_param.valid = 1;
        std::thread([&cm, accept] { (void)cm.command(RDMA_USER_CM_CMD_ACCEPT, accept); }).detach();
    }
    std::puts("ready");
    std::fflush(stdout);
    wait_for_file(o.until);
    for (const auto& peer : peers)
        (void)::send(peer.get(), "", 1, MSG_NOSIGNAL);  // it was reset, where its accept failed
    std::puts("waiting");
    std::fflush(stdout);
    wait_for_the_end();
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("process_attack", "What a process without privilege may try")
        .choice("--what", o.what,
                {"foreign-socket", "ahead", "park", "resize", "overflown", "drained", "regions",
                 "claims"})
        .peer(o.peer)
        .option("--until", o.until)
        .choice("--then", o.then, {"killed", "destroy", "close"})
        .option("--count", o.count)
        .run(argc, argv, [&] {
            if (o.what == "foreign-socket")
                foreign_socket(o);
            else if (o.what == "ahead")
                ahead(o);
            else if (o.what == "park")
                park(o);
            else if (o.what == "resize")
                resize(o);
            else if ((o.what == "overflown" || o.what == "drained") && o.peer.listens())
                be_plain_peer(o);
            else if (o.what == "overflown")
                overflown(o);
            else if (o.what == "drained")
                drained(o);
            else if (o.what == "claims")
                claims(o);
            else
                regions(o);
            return 0;
        });
}
