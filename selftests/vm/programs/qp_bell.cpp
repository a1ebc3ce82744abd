// SPDX-License-Identifier: BSD-3-Clause
// Bells of send queues (tcp_qp.h) within one process: what they hold and let go, what is refused,
// and who may ring when.
//
//   qp_bell [--case NAME ...] [--interface IF]
//   qp_bell --ring             rings a bell until it is killed, whatever becomes of the device
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "command.hpp"
#include "flushed.hpp"
#include "lock_keeper.hpp"
#include "tcp.hpp"
#include "verbs/attach.hpp"
#include "verbs/device.hpp"
#include "verbs/ioctl.hpp"
#include "verbs/mr.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDepth = 15, kReceives = 31;
constexpr uint32_t kLate = 2;  // entries that a send queue has beyond what was asked for
constexpr size_t kBytes = 300;
constexpr int kLimitMs = 60000, kEntries = 64;
constexpr uint32_t kFloodMs = 500;
constexpr int kRounds = 20;
constexpr uint64_t kJiffiesMax = 1000;  // in a second, whatever the kernel's HZ

tcpqp::Fd event(uint32_t initial = 0, int flags = 0) {
    tcpqp::Fd fd(::eventfd(initial, EFD_CLOEXEC | flags));
    if (!fd)
        tcpqp::throw_errno("eventfd");
    return fd;
}

void ring(const tcpqp::Fd& bell, uint64_t number = 1) {
    if (::write(bell.get(), &number, sizeof number) != sizeof number)
        tcpqp::throw_errno("write an eventfd");
}

// Two connected queue pairs of this process; sends go from the first to the second.
class Pair {
public:
    explicit Pair(const tcpqp::Context& context)
        : context_(context),
          memory_(kBytes * (kDepth + 1)),
          mr_(context, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE),
          from_cq_(context, kEntries, tcpqp::Waking::kDescriptor),
          to_cq_(context, kEntries, tcpqp::Waking::kDescriptor),
          from_(std::make_unique<tcpqp::QueuePair>(context, from_cq_, depth())),
          to_(context, to_cq_, depth()) {
        const std::vector<tcpqp::Work> works(kReceives, work(kDepth));
        expect("post receives", to_.post_receives(works), 0);
        const tcpqp::Fd listener = listen_on(0, 1);
        sockaddr_storage at{};
        socklen_t bytes = sizeof at;
        expect("getsockname",
               ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
        from_socket_ =
            connect_to("127.0.0.1", ntohs(reinterpret_cast<const sockaddr_in6*>(&at)->sin6_port));
        to_socket_ = accept_from(listener);
        tcp_qp_attach_req request{};
        request.engine = TCP_QP_ENGINE_SOFTWARE;
        request.timeout_ms = kLimitMs;
        int other_error = 0;
        std::thread other(
            [&] { other_error = tcpqp::attach(context_, to_, to_socket_.get(), request).error; });
        const int error = tcpqp::attach(context_, *from_, from_socket_.get(), request).error;
        other.join();
        expect("attach", error, 0);
        expect("attach of the other", other_error, 0);
    }

    [[nodiscard]] int bell(int fd, uint32_t count) const {
        return tcpqp::set_bell(context_, *from_, fd, count);
    }
    void post(uint32_t count) {
        for (uint32_t i = 0; i < count; i++) {
            const tcpqp::Work one = work(i);
            expect("post", from_->post_sends({&one, 1}), 0);
        }
    }
    [[nodiscard]] uint64_t sent() const {
        tcp_qp_info info{};
        expect("query", tcpqp::query(context_, *from_, info), 0);
        return info.tx_messages;
    }
    // Waits until @count have been received since the pair was made, and finds that no more were
    // handed to TCP.
    void expect_sent(const char* what, uint64_t count) {
        while (received_ < count)
            received_ += completions(what, to_cq_, IBV_WC_SUCCESS);
        expect(what, static_cast<long>(sent()), static_cast<long>(count));
    }
    void expect_done(uint32_t count, ibv_wc_status status = IBV_WC_SUCCESS) {
        for (uint32_t n = 0; n < count;)
            n += completions("done", from_cq_, status);
    }
    [[nodiscard]] const tcpqp::Fd& socket() const { return from_socket_; }
    void close_socket() { from_socket_.reset(); }
    void reset_peer() {
        const linger now{1, 0};
        ::setsockopt(to_socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        to_socket_.reset();
    }
    void destroy() { from_.reset(); }

private:
    static tcpqp::QpDepth depth() {
        return {.sends = kDepth - kLate, .receives = kReceives, .signal_all = false};
    }
    tcpqp::Work work(uint32_t slot) {
        return {.cookie = slot,
                .address = memory_.data() + slot * kBytes,
                .bytes = uint32_t{kBytes},
                .lkey = mr_.lkey(),
                .without_imm = true};
    }
    // Some with @status; those with success are passed over where another is wanted.
    uint32_t completions(const char* what, tcpqp::CompletionQueue& cq, ibv_wc_status status) {
        std::array<ibv_wc, kDepth> done{};
        int n = 0;
        while ((n = cq.poll(done)) == 0)
            if (const int error = cq.descriptor().wait(kLimitMs); error != 0)
                tcpqp::throw_errno(std::string(what) + ": " + std::to_string(sent()) + " sent, " +
                                       std::to_string(received_) + " received",
                                   error);
        return static_cast<uint32_t>(std::count_if(
            done.begin(), done.begin() + n, [&](const ibv_wc& wc) { return wc.status == status; }));
    }

    const tcpqp::Context& context_;
    std::vector<uint8_t> memory_;
    tcpqp::Mr mr_;
    tcpqp::CompletionQueue from_cq_, to_cq_;
    std::unique_ptr<tcpqp::QueuePair> from_;
    tcpqp::QueuePair to_;
    tcpqp::Fd from_socket_, to_socket_;
    uint64_t received_ = 0;
};

uint64_t counter(const char* name) {
    uint64_t sum = 0, value = 0;
    for (const char* device : {"tcpqp0", "tcpqp1"}) {
        std::ifstream file(std::string("/sys/class/infiniband/") + device +
                           "/ports/1/hw_counters/" + name);
        if (file >> value)
            sum += value;
    }
    return sum;
}

void holds(const tcpqp::Context& context) {
    Pair p(context);
    const tcpqp::Fd bell = event();
    p.post(2);
    p.expect_sent("without a bell", 2);
    expect("bell", p.bell(bell.get(), 3), 0);
    p.post(7);  // each with a doorbell
    expect("held", static_cast<long>(p.sent()), 2);
    ring(bell);
    p.expect_sent("one ring", 5);
    ring(bell, 1000);  // whatever the number
    p.expect_sent("another ring", 8);
    expect("taken off", p.bell(-1, 0), 0);
    p.expect_sent("all", 9);
}

void adds_up(const tcpqp::Context& context) {
    for (const int flags : {0, int{EFD_SEMAPHORE}}) {
        Pair p(context);
        const tcpqp::Fd bell = event(5, flags);  // rung before it was a bell: not told
        expect("bell", p.bell(bell.get(), 1), 0);
        const auto rung = [&, rings = counter("tx_bell_rings")](uint64_t sum) {
            while (counter("tx_bell_rings") != rings + sum)
                std::this_thread::yield();
        };
        for (int i = 0; i < 3; i++)
            ring(bell);
        rung(3);
        p.post(5);
        p.expect_sent("rung before it was posted", 3);
        for (int i = 0; i < 2; i++)
            ring(bell);
        p.expect_sent("rung when it was posted", 5);
        for (uint32_t i = 0; i < 3 * kDepth; i++)
            ring(bell);
        rung(5 + 3 * kDepth);
        p.post(kDepth - 5);
        p.expect_sent("as many as there are slots", kDepth);
        p.expect_done(kDepth);
        p.post(6);
        p.expect_sent("and no more", kDepth + 5);
    }
}

// A queue pair of datagrams has no send queue that a bell could hold.
int set_bell_of_datagrams(const tcpqp::Context& context, const tcpqp::CompletionQueue& cq, int fd) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_UD;
    init.send_cq = init.recv_cq = cq.get();
    init.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    const std::unique_ptr<ibv_qp, int (*)(ibv_qp*)> qp(ibv_create_qp(context.pd(), &init),
                                                       ibv_destroy_qp);
    if (!qp)
        tcpqp::throw_errno("create a queue pair of datagrams");
    const tcp_qp_bell bell{.eventfd = fd, .count = 1};
    std::array attrs{tcpqp::value_attr(TCP_QP_ATTR_BELL_HANDLE, qp->handle),
                     tcpqp::inline_attr(TCP_QP_ATTR_BELL_REQ, bell)};
    return tcpqp::invoke(context.cmd_fd(), UVERBS_OBJECT_QP, TCP_QP_METHOD_BELL, attrs);
}

void refused(const tcpqp::Context& context) {
    Pair p(context);
    const tcpqp::Fd bell = event(), file(::memfd_create("x", MFD_CLOEXEC));
    const tcpqp::CompletionQueue cq(context, 4);
    const tcpqp::QueuePair young(context, cq, {.sends = 1, .receives = 1});
    expect("no descriptor", p.bell(12345, 1), EBADF);
    expect("no eventfd", p.bell(file.get(), 1), EINVAL);
    expect("a strange number", p.bell(-2, 1), EINVAL);
    expect("none of them", p.bell(bell.get(), 0), EINVAL);
    expect("more than slots", p.bell(bell.get(), kDepth + 1), EINVAL);
    expect("more than slots", p.bell(bell.get(), 0xffffffff), EINVAL);
    expect("off, with a count", p.bell(-1, 1), EINVAL);
    expect("off, though there is none", p.bell(-1, 0), 0);
    expect("no connection", tcpqp::set_bell(context, young, bell.get(), 1), ENOTCONN);
    expect("datagrams", set_bell_of_datagrams(context, cq, bell.get()), EOPNOTSUPP);
    p.post(1);
    p.expect_sent("nothing of it holds", 1);
    expect("as many as slots", p.bell(bell.get(), kDepth), 0);
    expect("a wrong one changes nothing", p.bell(file.get(), 1), EINVAL);
    p.post(1);
    expect("held", static_cast<long>(p.sent()), 1);
    ring(bell);
    p.expect_sent("and rung", 2);
}

void several(const tcpqp::Context& context) {
    const tcpqp::Fd bell = event();
    std::vector<std::unique_ptr<Pair>> pairs;
    for (uint32_t i = 0; i <= TCP_QP_BELL_QPS_MAX; i++) {
        pairs.push_back(std::make_unique<Pair>(context));
        expect("one more", pairs.back()->bell(bell.get(), 1), i < TCP_QP_BELL_QPS_MAX ? 0 : ENOSPC);
        pairs.back()->post(2);
    }
    ring(bell);
    for (uint32_t i = 0; i <= TCP_QP_BELL_QPS_MAX; i++)
        pairs[i]->expect_sent("of several", i < TCP_QP_BELL_QPS_MAX ? 1 : 2);
    pairs.pop_back();
    pairs.pop_back();
    Pair late(context);
    expect("there is room again", late.bell(bell.get(), 1), 0);
}

void closed(const tcpqp::Context& context) {
    Pair p(context);
    tcpqp::Fd bell = event();
    tcpqp::Fd same(::dup(bell.get()));
    expect("bell", p.bell(bell.get(), 1), 0);
    p.post(4);
    bell.reset();
    ring(same);
    p.expect_sent("by the other descriptor", 1);
    same.reset();
    const tcpqp::Fd fresh = event();
    expect("held", static_cast<long>(p.sent()), 1);
    expect("another bell", p.bell(fresh.get(), 2), 0);
    expect("still held", static_cast<long>(p.sent()), 1);
    ring(fresh);
    p.expect_sent("by another bell", 3);
}

// What is held ends as everything posted does, and never leaves.
void ended(const tcpqp::Context& context) {
    for (const bool reset : {false, true}) {
        Pair p(context);
        const tcpqp::Fd bell = event();
        expect("bell", p.bell(bell.get(), 1), 0);
        p.post(4);
        ring(bell);
        p.expect_sent("one", 1);
        if (reset)
            p.reset_peer();
        else
            p.close_socket();
        p.expect_done(3, IBV_WC_WR_FLUSH_ERR);
        ring(bell);
        expect("of a dead connection", p.bell(bell.get(), 1), ENOTCONN);
    }
}

// Rings from another process without a pause, @body meanwhile.
void rung_meanwhile(const tcpqp::Fd& bell, const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
        const uint64_t one = 1;
        while (::write(bell.get(), &one, sizeof one) > 0) {
        }
        _exit(1);
    }
    try {
        body();
    } catch (...) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        throw;
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

void destroyed(const tcpqp::Context& context) {
    const tcpqp::Fd bell = event();
    rung_meanwhile(bell, [&] {
        for (int round = 0; round < kRounds; round++) {
            Pair p(context);
            expect("bell", p.bell(bell.get(), 1), 0);
            p.post(3);
            if (round % 2)
                expect("another", p.bell(bell.get(), 2), 0);
            if (round % 4 == 3)
                expect("none", p.bell(-1, 0), 0);
            p.destroy();
        }
    });
}

// A stranger's flood brings nothing forward that is not posted, and costs next to nothing.
void flooded(const tcpqp::Context& context) {
    Pair p(context), other(context);
    const tcpqp::Fd bell = event(), honest = event();
    expect("bell", p.bell(bell.get(), 1), 0);
    expect("bell", other.bell(honest.get(), 1), 0);
    rung_meanwhile(bell, [&] {
        const uint64_t pauses = counter("tx_bell_pauses");
        const auto began = Clock::now();
        uint64_t rounds = 0;
        for (; Clock::now() - began < std::chrono::milliseconds(kFloodMs) && rounds < kDepth;
             rounds++) {
            other.post(1);
            ring(honest);
            other.expect_sent("the honest one's", rounds + 1);
        }
        while (Clock::now() - began < std::chrono::milliseconds(kFloodMs))
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const auto ms = static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count());
        const uint64_t paused = counter("tx_bell_pauses") - pauses;
        if (paused == 0 || paused > kJiffiesMax * ms / 1000 + 1)
            throw std::runtime_error(std::to_string(paused) + " pauses in " + std::to_string(ms) +
                                     " ms");
        expect("nothing is posted", static_cast<long>(p.sent()), 0);
    });
    p.post(1);
    p.expect_sent("rung long before", 1);
}

// Rung while a process keeps the socket's lock: what another bell lets go waits for nobody, and
// what this one does is sent once the lock is let go.
void rung_under_lock(const tcpqp::Context& context) {
    Pair p(context), other(context);
    const tcpqp::Fd bell = event(), honest = event();
    expect("bell", p.bell(bell.get(), 1), 0);
    expect("bell", other.bell(honest.get(), 1), 0);
    for (uint32_t round = 1; round <= kDepth / 2; round++) {
        LockKeeper keeper(1);
        p.post(2);
        other.post(1);
        keeper.keep(p.socket());
        ring(bell);
        ring(honest);
        other.expect_sent("the other's", round);
        ring(bell);
        keeper.let_go();
        p.expect_sent("rung while the lock was kept", uint64_t{2} * round);
    }
}

// The queue pair goes meanwhile, or its bell does.
void ended_under_lock(const tcpqp::Context& context) {
    for (int round = 0; round < kRounds; round++) {
        Pair p(context);
        const tcpqp::Fd bell = event();
        LockKeeper keeper(1);
        expect("bell", p.bell(bell.get(), 1), 0);
        p.post(2);
        keeper.keep(p.socket());
        ring(bell);
        std::thread end([&] { round % 2 ? p.destroy() : (void)p.bell(-1, 0); });
        ring(bell);
        keeper.let_go();
        end.join();
    }
}

const Cases kCases{
    {"holds", holds},
    {"adds-up", adds_up},
    {"refused", refused},
    {"several", several},
    {"closed", closed},
    {"ended", ended},
    {"destroyed", destroyed},
    {"flooded", flooded},
    {"rung-under-lock", rung_under_lock},
    {"ended-under-lock", ended_under_lock},
};

[[noreturn]] void ring_on(const tcpqp::Context& context) {
    Pair p(context);
    const tcpqp::Fd bell = event();
    expect("bell", p.bell(bell.get(), 1), 0);
    p.post(kDepth);
    ring(bell);
    p.expect_sent("one", 1);
    std::puts("ringing");
    std::fflush(stdout);
    for (;;)
        ring(bell);
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> wanted;
    std::string interface = "lo";
    bool rings = false;
    return Command("qp_bell", "Bells of send queues within one process")
        .option("--case", wanted, "these alone")
        .option("--interface", interface)
        .flag("--ring", rings, "without end")
        .run(argc, argv, [&] {
            if (rings)
                ring_on(*tcpqp::open_device(interface));
            run_cases(kCases, wanted, interface);
            return 0;
        });
}
