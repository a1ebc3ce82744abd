// SPDX-License-Identifier: BSD-3-Clause
// Completion descriptors within one process: when they are readable, what the call on them
// does and refuses, who is woken, and what is left when the queue is destroyed.
//
//   cq_fd [--case NAME ...]
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "command.hpp"
#include "flushed.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;
using tcpqp::CompletionQueue;
using tcpqp::Waking;
using Clock = std::chrono::steady_clock;

constexpr int kEntries = 64;
constexpr uint64_t kNsPerMs = 1000000;
constexpr short kGone = POLLIN | POLLERR | POLLHUP;
// struct rxe_queue_buf, in words
constexpr size_t kProducerAt = 128 / 4, kConsumerAt = 256 / 4;

// A queue, its descriptor, and completions for it.
struct Bench {
    explicit Bench(const tcpqp::Context& c, int entries = kEntries)
        : context(c),
          cq(std::make_unique<CompletionQueue>(c, entries, Waking::kDescriptor)),
          source(std::make_unique<Flushed>(c, *cq)) {}

    [[nodiscard]] int fd() const { return cq->fd(); }
    void take(int count) const {
        for (ibv_wc wc{}; count > 0; count--)
            expect("completions to take", cq->poll({&wc, 1}), 1);
    }

    const tcpqp::Context& context;
    std::unique_ptr<CompletionQueue> cq;
    std::unique_ptr<Flushed> source;
};

// Runs @call in a thread, which is asleep when the constructor returns.
class Sleeper {
public:
    explicit Sleeper(std::function<int()> call)
        : thread_([this, call = std::move(call)] {
              id_ = ::gettid();
              result_ = call();
              done_ = true;
          }) {
        while (!asleep())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ~Sleeper() {
        if (thread_.joinable())
            thread_.join();
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    [[nodiscard]] int result() {
        thread_.join();
        return result_;
    }
    [[nodiscard]] bool done() const { return done_; }
    void signal(int number) { pthread_kill(thread_.native_handle(), number); }

private:
    [[nodiscard]] bool asleep() const {
        if (done_)
            throw std::runtime_error("a call that should sleep returned " +
                                     std::to_string(result_));
        std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/wchan");
        std::string where;
        file >> where;
        return id_ != 0 && where.find("tqp_cq_fd") != std::string::npos;
    }

    std::atomic<pid_t> id_{0};
    std::atomic<int> result_{0};
    std::atomic<bool> done_{false};
    std::thread thread_;
};

int wait_on(int fd) { return call_cq(fd, TCP_QP_CQ_WAIT); }

void level(const tcpqp::Context& context) {
    Bench b(context);
    expect("an empty queue polled", polled(b.fd()), 0);
    b.source->complete(2);
    for (int left = 2; left > 0; left--) {
        expect("a queue that holds some polled", polled(b.fd(), -1), POLLIN);
        expect("polled again", polled(b.fd()), POLLIN);
        expect("waited for", wait_on(b.fd()), 0);
        b.take(1);
    }
    expect("an emptied queue polled", polled(b.fd()), 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(b.fd(), &set);
    timeval none{};
    expect("an emptied queue selected", ::select(b.fd() + 1, &set, nullptr, nullptr, &none), 0);
    FD_SET(b.fd(), &set);
    b.source->complete(1);
    expect("select", ::select(b.fd() + 1, &set, nullptr, nullptr, nullptr), 1);
}

int epoll_once(int epoll, int timeout_ms) {
    epoll_event event{};
    int n = 0;
    while ((n = ::epoll_wait(epoll, &event, 1, timeout_ms)) < 0 && errno == EINTR) {
    }
    return n;
}

void edges(const tcpqp::Context& context) {
    Bench b(context);
    const tcpqp::Fd edge(::epoll_create1(0)), levels(::epoll_create1(0));
    epoll_event in{EPOLLIN, {}}, in_edge{EPOLLIN | EPOLLET, {}};
    expect("EPOLL_CTL_ADD", ::epoll_ctl(levels.get(), EPOLL_CTL_ADD, b.fd(), &in), 0);
    expect("EPOLL_CTL_ADD", ::epoll_ctl(edge.get(), EPOLL_CTL_ADD, b.fd(), &in_edge), 0);
    for (int round = 0; round < 3; round++) {
        b.source->complete(1);  // with those before it untaken
        expect("an edge", epoll_once(edge.get(), -1), 1);
        expect("the same edge", epoll_once(edge.get(), 0), 0);
        expect("a level", epoll_once(levels.get(), -1), 1);
        expect("the same level", epoll_once(levels.get(), 0), 1);
    }
    b.take(3);
    expect("no level", epoll_once(levels.get(), 0), 0);
}

void one_call(const tcpqp::Context& context) {
    Bench b(context);
    const uint32_t number = b.source->number();
    b.source->post(1);
    expect("posted, no doorbell", polled(b.fd()), 0);
    expect("doorbell and wait", call_cq(b.fd(), TCP_QP_CQ_DOORBELL | TCP_QP_CQ_WAIT, number), 0);
    b.take(1);
    b.source->post(1);
    expect("doorbell", call_cq(b.fd(), TCP_QP_CQ_DOORBELL, number), 0);
    b.take(1);
    expect("nothing at all", call_cq(b.fd(), 0), 0);
}

// The descriptor remembers for whom it was rung last; others come between, and go.
void in_turns(const tcpqp::Context& context) {
    constexpr uint32_t kRing = TCP_QP_CQ_DOORBELL;
    Bench b(context);
    auto second = std::make_unique<Flushed>(context, *b.cq);
    const uint32_t one = b.source->number(), two = second->number();
    for (int round = 0; round < 3; round++) {
        b.source->post(1);
        second->post(1);
        expect("the one", call_cq(b.fd(), kRing, one), 0);
        b.take(1);
        expect("empty but for the other's", polled(b.fd()), 0);
        expect("the other", call_cq(b.fd(), kRing, two), 0);
        b.take(1);
        expect("nobody", call_cq(b.fd(), kRing, 0), ENOENT);
    }
    second.reset();
    expect("who is gone", call_cq(b.fd(), kRing, two), ENOENT);
    b.source->post(1);
    expect("who is not", call_cq(b.fd(), kRing | TCP_QP_CQ_WAIT, one), 0);
    b.take(1);
}

void refused(const tcpqp::Context& context) {
    Bench b(context), other(context);
    constexpr uint32_t kRing = TCP_QP_CQ_DOORBELL, kWait = TCP_QP_CQ_WAIT;
    for (uint32_t bit = TCP_QP_CQ_CLEAR << 1; bit != 0; bit <<= 1)
        expect("an unknown flag", call_cq(b.fd(), kWait | bit), EINVAL);
    expect("signal and clear", call_cq(b.fd(), TCP_QP_CQ_SIGNAL | TCP_QP_CQ_CLEAR), EINVAL);
    expect("a time for nothing", call_cq(b.fd(), TCP_QP_CQ_TIMEOUT), EINVAL);
    expect("a time, no flag", call_cq(b.fd(), kWait, 0, 1), EINVAL);
    expect("a number, no doorbell", call_cq(b.fd(), kWait, b.source->number()), EINVAL);
    expect("another queue's", call_cq(b.fd(), kRing | kWait, other.source->number()), ENOENT);
    for (uint32_t number : {0u, 1u, other.source->number() + 1, 0x00ffffffu, 0xffffffffu})
        expect("nobody's number", call_cq(b.fd(), kRing, number), ENOENT);
    const tcpqp::QueuePair young(context, *b.cq, {.sends = 1, .receives = 1});
    expect("in INIT", call_cq(b.fd(), kRing, young.get()->qp_num), 0);
    expect("no such call", ::ioctl(b.fd(), TCP_QP_IOCTL_CQ + 1, nullptr), -1);
    expect("no such call", errno, ENOTTY);
    expect("no memory", ::ioctl(b.fd(), TCP_QP_IOCTL_CQ, 8), -1);
    expect("no memory", errno, EFAULT);
    char byte = 0;
    expect("read", ::read(b.fd(), &byte, 1), -1);
    expect("write", ::write(b.fd(), &byte, 1), -1);
    expect("untouched", polled(b.fd()) | polled(other.fd()), 0);
}

void times(const tcpqp::Context& context) {
    Bench b(context);
    constexpr uint32_t kTimed = TCP_QP_CQ_WAIT | TCP_QP_CQ_TIMEOUT;
    for (uint64_t ms : {0, 1, 30, 1000, 1200}) {
        const auto then = Clock::now();
        expect("in vain", call_cq(b.fd(), kTimed, 0, ms * kNsPerMs), ETIMEDOUT);
        if (Clock::now() - then < std::chrono::milliseconds(ms))
            throw std::runtime_error("a wait of " + std::to_string(ms) + " ms was too short");
    }
    for (uint64_t ns : {uint64_t{60} * 1000 * kNsPerMs, uint64_t{1} << 63, ~uint64_t{0}}) {
        Sleeper sleeper([&] { return call_cq(b.fd(), kTimed, 0, ns); });
        b.source->complete(1);
        expect("in time", sleeper.result(), 0);
        expect("at once", call_cq(b.fd(), kTimed, 0, ns), 0);
        b.take(1);
    }
}

void signals(const tcpqp::Context& context) {
    Bench b(context);
    for (const int flags : {0, SA_RESTART}) {
        struct sigaction action {};
        action.sa_handler = [](int) {};
        action.sa_flags = flags;
        expect("sigaction", ::sigaction(SIGUSR1, &action, nullptr), 0);
        Sleeper sleeper([&] { return wait_on(b.fd()); });
        sleeper.signal(SIGUSR1);
        expect("a signal", sleeper.result(), EINTR);
    }
}

// All that wait are woken, since who comes first may take it all.
void waiters(const tcpqp::Context& context) {
    constexpr int kCount = 3;
    Bench b(context);
    for (int round = 0; round < 20; round++) {
        std::vector<std::unique_ptr<Sleeper>> sleepers;
        for (int i = 0; i < kCount; i++)
            sleepers.push_back(std::make_unique<Sleeper>([&] { return wait_on(b.fd()); }));
        b.source->complete(1);
        for (auto& sleeper : sleepers)
            expect("one of several", sleeper->result(), 0);
        b.take(1);
    }
}

void destroyed(const tcpqp::Context& context) {
    for (int round = 0; round < 10; round++) {
        Bench b(context);
        const tcpqp::Fd mine(::dup(b.fd())), epoll(::epoll_create1(0));
        epoll_event in{EPOLLIN | EPOLLET, {}};
        expect("EPOLL_CTL_ADD", ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, mine.get(), &in), 0);
        const uint32_t number = b.source->number();
        Sleeper one([&] { return wait_on(mine.get()); }), two([&] { return wait_on(mine.get()); });
        std::thread polls([&] { expect("polled", polled(mine.get(), -1), kGone); });
        b.source.reset();
        b.cq.reset();
        expect("who waited", one.result(), EIDRM);
        expect("who waited too", two.result(), EIDRM);
        polls.join();
        expect("an edge", epoll_once(epoll.get(), -1), 1);
        expect("polled later", polled(mine.get()), kGone);
        expect("waited later", wait_on(mine.get()), EIDRM);
        expect("rung later", call_cq(mine.get(), TCP_QP_CQ_DOORBELL, number), EIDRM);
        expect("signalled later", call_cq(mine.get(), TCP_QP_CQ_SIGNAL), 0);
    }
}

// A doorbell that comes while its queue pair goes either finds it or does not.
void qp_destroyed(const tcpqp::Context& context) {
    Bench b(context);
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> number{b.source->number()};
    std::thread rings([&] {
        while (!stop)
            if (const int error = call_cq(b.fd(), TCP_QP_CQ_DOORBELL, number);
                error != 0 && error != ENOENT && error != EINVAL)
                std::abort();
    });
    for (int round = 0; round < 200; round++) {
        b.source->post(2);
        b.source.reset();
        std::vector<ibv_wc> wcs(kEntries);
        while (b.cq->poll(wcs) > 0) {
        }
        b.source = std::make_unique<Flushed>(context, *b.cq);
        number = b.source->number();
    }
    stop = true;
    rings.join();
}

void several(const tcpqp::Context& context) {
    Bench b(context);
    auto second = std::make_unique<tcpqp::CqDescriptor>(context, *b.cq->get());
    const tcpqp::CqDescriptor third(context, *b.cq->get());
    if ((::fcntl(second->fd(), F_GETFD) & FD_CLOEXEC) == 0)
        throw std::runtime_error("a descriptor that exec() passes on");
    {
        Sleeper sleeper([&] { return second->wait(-1); });
        b.source->complete(1);
        expect("the second", sleeper.result(), 0);
    }
    second.reset();
    expect("the third", polled(third.fd()), POLLIN);
    b.take(1);
    expect("the third, emptied", polled(third.fd()), 0);
}

void signalled(const tcpqp::Context& context) {
    Bench b(context);
    Sleeper sleeper([&] { return wait_on(b.fd()); });
    expect("signal", call_cq(b.fd(), TCP_QP_CQ_SIGNAL), 0);
    expect("who waited", sleeper.result(), 0);
    expect("signalled and polled", polled(b.fd()), POLLIN);
    expect("clear", call_cq(b.fd(), TCP_QP_CQ_CLEAR), 0);
    expect("clear and polled", polled(b.fd()), 0);
}

void overflown(const tcpqp::Context& context) {
    Bench b(context, 4);
    Sleeper sleeper([&] { return wait_on(b.fd()); });
    b.source->complete(Flushed::kReceivesMax);
    expect("who waited", sleeper.result(), 0);
    expect("polled", polled(b.fd()), POLLIN | POLLERR);
    for (ibv_wc wc{}; b.cq->poll({&wc, 1}) > 0;)
        ;
    expect("polled when empty", polled(b.fd()), POLLERR);
    expect("waited when empty", wait_on(b.fd()), EOVERFLOW);
}

void resized(const tcpqp::Context& context) {
    Bench b(context);
    b.source->complete(1);
    for (int entries : {8, 1000, 16}) {
        if (const int error = ibv_resize_cq(b.cq->get(), entries); error != 0)
            tcpqp::throw_errno("resize", error);
        expect("resized and polled", polled(b.fd()), POLLIN);
        b.take(1);
        expect("emptied", polled(b.fd()), 0);
        Sleeper sleeper([&] { return wait_on(b.fd()); });
        b.source->complete(1);
        expect("waited", sleeper.result(), 0);
    }
}

std::set<uint32_t*> mapped_rings() {
    std::set<uint32_t*> rings;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("/uverbs") != std::string::npos)
            rings.insert(reinterpret_cast<uint32_t*>(std::stoul(line, nullptr, 16)));
    return rings;
}

// The indices are in memory that anybody may write: they decide what is said here, and no more.
void hostile(const tcpqp::Context& context) {
    const std::set<uint32_t*> before = mapped_rings();
    CompletionQueue cq(context, kEntries, Waking::kDescriptor);
    std::set<uint32_t*> after = mapped_rings();
    std::erase_if(after, [&](uint32_t* ring) { return before.contains(ring); });
    expect("rings of a queue", static_cast<long>(after.size()), 1);
    uint32_t* ring = *after.begin();
    Flushed source(context, cq);
    source.complete(3);
    const uint32_t produced = __atomic_load_n(ring + kProducerAt, __ATOMIC_ACQUIRE);
    for (uint64_t value = 0; value <= 0xffffffff; value += value < 512 ? 1 : value / 3) {
        __atomic_store_n(ring + kProducerAt, static_cast<uint32_t>(value * 7), __ATOMIC_RELEASE);
        __atomic_store_n(ring + kConsumerAt, static_cast<uint32_t>(value), __ATOMIC_RELEASE);
        const int slots = cq.get()->cqe + 1;
        const bool empty = (value - produced) % static_cast<uint64_t>(slots) == 0;
        expect("polled", polled(cq.fd()), empty ? 0 : POLLIN);
        expect("waited", call_cq(cq.fd(), TCP_QP_CQ_WAIT | TCP_QP_CQ_TIMEOUT),
               empty ? ETIMEDOUT : 0);
    }
}

const Cases kCases{
    {"level", level},         {"edges", edges},
    {"one-call", one_call},   {"in-turns", in_turns},
    {"refused", refused},     {"times", times},
    {"signals", signals},     {"waiters", waiters},
    {"destroyed", destroyed}, {"qp-destroyed", qp_destroyed},
    {"several", several},     {"signalled", signalled},
    {"overflown", overflown}, {"resized", resized},
    {"hostile", hostile},
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> wanted;
    return Command("cq_fd", "Completion descriptors within one process")
        .option("--case", wanted, "these alone")
        .run(argc, argv, [&] {
            run_cases(kCases, wanted, "nupa0");
            return 0;
        });
}
