// SPDX-License-Identifier: BSD-3-Clause
// Messages arrive whole, in order, in the buffer they were posted to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>

#include "../vm/programs/zerocopy_asked.hpp"
#include "pair.hpp"

namespace stock_test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBufferBytes = 300000;
constexpr size_t kWindow = 16;
constexpr std::byte kGuard{0xa5};

uint32_t seed() {
    const char* word = ::getenv("SEED");
    const uint32_t s = word != nullptr ? static_cast<uint32_t>(std::strtoul(word, nullptr, 0))
                                       : std::random_device{}();
    std::printf("SEED=%u\n", s);
    return s;
}

// Both directions of one end: sends @sizes, checks what the other sends.
class Talker {
public:
    Talker(End& end, std::vector<uint32_t> out, std::vector<uint32_t> in)
        : end_(end), out_(std::move(out)), in_(std::move(in)) {
        buffers_.assign(kWindow, std::vector<std::byte>(kBufferBytes + 1, kGuard));
    }
    void start() {
        for (size_t i = 0; i < kWindow; i++)
            post();
        fill();
    }
    [[nodiscard]] bool done() const { return sent_ == out_.size() && received_ == in_.size(); }
    void take(const tcpqp_completion& c) {
        ASSERT_EQ(c.status, 0);
        if (c.opcode == TCPQP_OP_SEND) {
            ASSERT_EQ(c.id, sent_);
            std::fill(messages_[sent_ % kWindow].begin(), messages_[sent_ % kWindow].end(),
                      kGuard);  // ours again
            sent_++;
            return fill();
        }
        ASSERT_EQ(c.id, received_);
        check(c);
        received_++;
        post();
    }

private:
    void post() {
        std::vector<std::byte>& b = buffers_[posted_ % kWindow];
        ASSERT_EQ(end_.recv(posted_++, b.data(), kBufferBytes), 1);
    }
    void fill() {
        std::vector<tcpqp_work> batch;
        for (; launched_ < out_.size() && launched_ < sent_ + kWindow; launched_++) {
            std::vector<std::byte>& m = messages_[launched_ % kWindow];
            m = pattern(out_[launched_], static_cast<uint32_t>(launched_));
            batch.push_back({launched_, m.data(), out_[launched_], static_cast<uint32_t>(launched_),
                             launched_ % 3 == 0 ? uint32_t{TCPQP_F_IMM} : 0, 0, nullptr});
        }
        if (!batch.empty())
            ASSERT_EQ(end_.qp.post_send(batch), static_cast<int>(batch.size()));
    }
    void check(const tcpqp_completion& c) {
        std::vector<std::byte>& b = buffers_[received_ % kWindow];
        const std::vector<std::byte> want =
            pattern(in_[received_], static_cast<uint32_t>(received_));
        ASSERT_EQ(c.length, want.size());
        ASSERT_TRUE(std::equal(want.begin(), want.end(), b.begin()));
        ASSERT_TRUE(
            std::all_of(b.begin() + c.length, b.end(), [](std::byte x) { return x == kGuard; }));
        ASSERT_EQ(c.flags, received_ % 3 == 0 ? TCPQP_F_IMM : 0);
        ASSERT_EQ(c.imm, received_ % 3 == 0 ? received_ : 0);
        std::fill(b.begin(), b.end(), kGuard);
    }

    End& end_;
    std::vector<uint32_t> out_, in_;
    std::array<std::vector<std::byte>, kWindow> messages_;
    std::vector<std::vector<std::byte>> buffers_;
    size_t launched_ = 0, sent_ = 0, posted_ = 0, received_ = 0;
};

void talk(Pair& pair, const std::vector<uint32_t>& there, const std::vector<uint32_t>& back) {
    Talker a(*pair.end_a, there, back), b(*pair.end_b, back, there);
    auto run = [](Talker& t, End& end) {
        t.start();
        while (!t.done() && !testing::Test::HasFailure())
            t.take(end.next());
    };
    auto other = std::async(std::launch::async, [&] { run(b, *pair.end_b); });
    run(a, *pair.end_a);
    other.get();
}

// One thread for both ends, which sleeps for neither alone.
void talk_alone(Pair& pair, const std::vector<uint32_t>& there, const std::vector<uint32_t>& back) {
    Talker a(*pair.end_a, there, back), b(*pair.end_b, back, there);
    const auto take = [](Talker& t, End& end) {
        tcpqp_completion c{};
        const int n = end.cq.poll({&c, 1});
        ASSERT_GE(n, 0);
        if (n == 1)
            return t.take(c);
        const int error = end.cq.wait(1);
        ASSERT_TRUE(error == 0 || error == -ETIMEDOUT || error == -EINTR) << error;
    };
    a.start();
    b.start();
    for (const auto start = Clock::now();
         !(a.done() && b.done()) && !testing::Test::HasFailure();) {
        take(a, *pair.end_a);
        take(b, *pair.end_b);
        ASSERT_LT(Clock::now() - start, 10 * std::chrono::milliseconds(kLimit_ms));
    }
}

std::vector<uint32_t> sizes(size_t count, uint32_t s) {
    std::mt19937 random(s);
    constexpr uint32_t kEdges[] = {0,    1,    23,    24,    25,    1023,  1024,        1025,
                                   4095, 4096, 16383, 16384, 16385, 65536, kBufferBytes};
    std::vector<uint32_t> v(count);
    for (uint32_t& x : v) {
        const uint32_t kind = random() % 4;
        x = kind == 0   ? kEdges[random() % std::size(kEdges)]
            : kind == 1 ? random() % kBufferBytes
                        : random() % 2000;
    }
    return v;
}

TEST(Exchange, RandomBothWays) {
    const uint32_t s = seed();
    Pair pair;
    talk(pair, sizes(600, s), sizes(600, s + 1));
    const tcpqp_qp_info i = pair.end_a->qp.info();
    EXPECT_EQ(i.tx_messages, 600u);
    EXPECT_EQ(i.rx_messages, 600u);
    EXPECT_EQ(i.rx_copied_bytes, i.rx_bytes);
}

TEST(Exchange, RandomBothWaysByOneThread) {
    const uint32_t s = seed();
    Pair pair;
    talk_alone(pair, sizes(600, s), sizes(600, s + 1));
    EXPECT_EQ(pair.end_a->qp.info().rx_messages, 600u);
    EXPECT_EQ(pair.end_b->qp.info().rx_messages, 600u);
}

TEST(Exchange, SmallOnesAreBatched) {
    Pair pair;
    talk(pair, std::vector<uint32_t>(5000, 64), std::vector<uint32_t>(5000, 64));
}

TEST(Exchange, LargeOnesAreNotStaged) {
    Pair pair;
    constexpr uint32_t kBytes = 200000, kCount = 200;
    talk(pair, std::vector<uint32_t>(kCount, kBytes), {});
    // only what came with the very first header
    EXPECT_LE(pair.end_b->qp.info().rx_staged_bytes, 16384u);
    EXPECT_EQ(pair.end_b->qp.info().rx_bytes, uint64_t{kBytes} * kCount);
}

// The sender fills each buffer with garbage as soon as its completion says so.
TEST(Exchange, ZeroCopyBuffersAreOursAfterTheNotification) {
    tcpqp_qp_opts opts{};
    opts.zerocopy_bytes = 20000;
    const uint64_t before = nupa::programs::zerocopy_asked();
    Pair pair(opts);
    talk(pair, std::vector<uint32_t>(300, 150000), sizes(300, 7));
    EXPECT_NE(nupa::programs::zerocopy_asked(), before);
    EXPECT_EQ(pair.end_a->qp.info().tx_zerocopy_bytes, 0u) << "loopback copies";
}

TEST(Exchange, NonBlockingSocket) {
    Pair pair;
    for (const Fd& s : pair.sockets)
        ASSERT_EQ(::fcntl(s.get(), F_SETFL, O_NONBLOCK), 0);
    talk(pair, sizes(200, 3), sizes(200, 4));
}

TEST(Exchange, ReceiverWithoutReceivesStopsTheSender) {
    tcpqp_qp_opts opts{};
    opts.sends = 64;
    Pair pair(opts);
    const std::vector<std::byte> message = pattern(1 << 20, 1);
    int posted = 0;
    while (pair.end_a->send(posted, message.data(), message.size()) == 1)
        posted++;
    EXPECT_EQ(posted, 64);
    tcpqp_completion c{};
    int completed = 0;
    // TCP's window ends it: some are taken, never all
    while (pair.end_a->cq.wait(300) == 0)
        completed += pair.end_a->cq.poll({&c, 1});
    EXPECT_LT(completed, 64);
    std::vector<std::byte> buffer(message.size());
    for (int i = 0; i < posted; i++) {
        ASSERT_EQ(pair.end_b->recv(i, buffer.data(), buffer.size()), 1);
        tcpqp_completion r{};
        while (pair.end_b->cq.poll({&r, 1}) == 0) {  // each end goes on when its queue is polled
            pair.end_a->cq.poll({&c, 1});
            pair.end_b->cq.wait(10);
        }
        ASSERT_EQ(r.length, message.size());
        ASSERT_EQ(buffer, message);
    }
}

TEST(Exchange, KilledPeer) {
    std::array<Fd, 2> sockets = tcp_pair();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        sockets[0].reset();
        End end(sockets[1].get(), nowait());
        static std::vector<std::byte> forever(1 << 20);
        for (uint64_t i = 0;; i++) {
            end.send(i, forever.data(), forever.size());
            end.next();
        }
    }
    sockets[1].reset();
    End end(sockets[0].get(), {});
    std::vector<std::byte> buffer(1 << 20);
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(end.recv(i, buffer.data(), buffer.size()), 1);
        ASSERT_EQ(end.next().status, 0);
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    tcpqp_completion c{};
    for (int i = 0; c.status == 0; i++) {
        const int n = end.recv(i, buffer.data(), buffer.size());
        ASSERT_TRUE(n == 1 || n == -ENOTCONN);
        c = end.next();
    }
    EXPECT_EQ(c.status, -ECANCELED);
    const uint32_t why = end.qp.info().reason;
    EXPECT_TRUE(why == TCPQP_REASON_TRUNCATED || why == TCPQP_REASON_CLOSED ||
                why == TCPQP_REASON_RESET)
        << tcpqp_reason_name(why);
}

}  // namespace
}  // namespace stock_test
