// SPDX-License-Identifier: BSD-3-Clause
// Signals whose handlers don't have system calls restarted: which calls they end, and which not.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/unix_listener.hpp"
#include "conn_pair.hpp"

namespace stock_test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetween{
    2};  // less than any sleep that is limited for another reason

// A signal for this thread every kBetween.
class Storm {
public:
    Storm() : thread_([this, of = ::pthread_self()] { run(of); }) {
        struct sigaction action {};
        action.sa_handler = [](int) {};
        ::sigaction(SIGUSR1, &action, &before_);
        begin_ = true;
    }
    ~Storm() {
        end_ = true;
        thread_.join();
        ::sigaction(SIGUSR1, &before_, nullptr);
    }
    void end() noexcept { end_ = true; }
    Storm(const Storm&) = delete;
    Storm& operator=(const Storm&) = delete;

private:
    void run(pthread_t of) const {
        while (!end_) {
            std::this_thread::sleep_for(kBetween);
            if (begin_)
                ::pthread_kill(of, SIGUSR1);
        }
    }
    struct sigaction before_ {};
    std::atomic<bool> begin_{false}, end_{false};
    std::thread thread_;
};

tcpqp_conn_opts with_flags(uint32_t flags) {
    tcpqp_conn_opts o{};
    o.engine = TCPQP_ENGINE_STOCK;
    o.flags = flags;
    return o;
}

// Our hello has left: who opened again would send another.
TEST(Signals, DontEndAnOpen) {
    for (const uint32_t flags : {0u, uint32_t{TCPQP_CONN_F_REFERENCES}}) {
        std::array<Fd, 2> sockets = tcp_pair();
        auto later = std::async(std::launch::async, [&] {
            std::this_thread::sleep_for(20 * kBetween);
            return std::make_unique<Connection>(sockets[1].get(), with_flags(flags));
        });
        const Storm storm;
        Connection first(sockets[0].get(), with_flags(flags));
        const auto other = later.get();
        EXPECT_EQ(first.send(pattern(100, 1), kLimit_ms), 0);
        View in;
        EXPECT_EQ(other->recv(in, kLimit_ms), 0);
    }
}

// How an open ends that waits for its whole time, whatever signals come.
int timed_open(const Fd& socket, uint32_t flags) {
    tcpqp_conn_opts o = with_flags(flags);
    o.size = sizeof(o);
    o.timeout_ms = 300;
    const Storm storm;
    const auto begin = Clock::now();
    tcpqp_conn* conn = nullptr;
    const int error = tcpqp_open(socket.get(), &o, &conn, nullptr);
    EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(300));
    EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(3000));
    return error;
}

// ... of which the queue pair is there, and the peer's first message is not.
TEST(Signals, DontEndAGreeting) {
    std::array<Fd, 2> sockets = tcp_pair();
    End peer(sockets[1].get(), nowait());
    EXPECT_EQ(timed_open(sockets[0], TCPQP_CONN_F_REFERENCES), -EPROTO);
}

TEST(Signals, DontMakeAnOpenLonger) {
    std::array<Fd, 2> sockets = tcp_pair();
    EXPECT_EQ(timed_open(sockets[0], 0), -ETIMEDOUT);
}

// A helper for option framing that listens, and answers nobody.
class SilentHelper {
public:
    SilentHelper() {
        EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
        const std::string path = folder_ + "/socket";
        listener_.emplace(path, 0600, 8);
        ::setenv("TCPQP_BPF_SOCKET", path.c_str(), 1);
    }
    ~SilentHelper() {
        ::unsetenv("TCPQP_BPF_SOCKET");
        listener_.reset();
        ::rmdir(folder_.c_str());
    }
    SilentHelper(const SilentHelper&) = delete;
    SilentHelper& operator=(const SilentHelper&) = delete;

private:
    std::string folder_ = testing::TempDir() + "helper-XXXXXX";
    std::optional<tcpqp::UnixListener> listener_;
};

TEST(Signals, DontWaitLongerForASilentHelper) {
    constexpr std::chrono::seconds kLimit{2}, kStorm{8};
    const SilentHelper helper;
    const auto sockets = tcp_pair();
    Storm storm;
    std::promise<void> done;
    auto watch = std::async(std::launch::async, [&, ended = done.get_future()] {
        if (ended.wait_for(kStorm) == std::future_status::timeout)
            storm.end();  // so that this test does not wait for ever
    });
    const auto begin = Clock::now();
    auto peer = std::async(std::launch::async, [&] { return End(sockets[1].get(), {}); });
    const End end(sockets[0].get(), {});
    EXPECT_GE(Clock::now() - begin, kLimit) << "nobody was asked: nothing was shown";
    EXPECT_LT(Clock::now() - begin, 3 * kLimit);
    done.set_value();
    peer.get();
}

TEST(Signals, EndAReceive) {
    ConnPair p;
    const Storm storm;
    View in;
    EXPECT_EQ(p.a->recv(in, 3000), -EINTR);
}

std::pair<End, End> ends(const std::array<Fd, 2>& sockets, tcpqp_cq_opts opts = {}) {
    auto peer = std::async(std::launch::async, [&] { return End(sockets[1].get(), {}); });
    End end(sockets[0].get(), {}, opts);
    return {std::move(end), peer.get()};
}

TEST(Signals, EndAWait) {
    const auto sockets = tcp_pair();
    tcpqp_cq_opts opts{};
    opts.flags = TCPQP_CQ_F_SINGLE_THREADED;
    auto [end, peer] = ends(sockets, opts);
    std::array<std::byte, 8> room{};
    ASSERT_EQ(end.recv(1, room.data(), room.size()), 1);
    tcpqp_completion c{};
    const Storm storm;
    for (int i = 0; i < 20; i++) {
        EXPECT_EQ(end.cq.poll({&c, 1}), 0);
        EXPECT_EQ(end.cq.wait(-1), -EINTR);
    }
}

// io_uring ends a limited recv() of this thread some time after another ring of it has gone.
TEST(Signals, AreNotWhatRingsThatAreGoneDo) {
    const auto sockets = tcp_pair();
    auto [end, peer] = ends(sockets);
    std::array<std::byte, 8> room{};
    ASSERT_EQ(end.recv(1, room.data(), room.size()), 1);
    tcpqp_completion c{};
    for (int i = 0; i < 20; i++) {
        const auto others = tcp_pair();
        ends(others);
        const auto until = Clock::now() + std::chrono::milliseconds(50);
        while (Clock::now() < until && end.cq.poll({&c, 1}) == 0)
            EXPECT_NE(end.cq.wait(20), -EINTR);
    }
}

// Closing waits for what was sent, however many signals come, and no longer than it is told.
TEST(Signals, DontEndAClose) {
    tcpqp_conn_opts o = small(64, 1 << 20);
    ConnPair p(o);
    const auto message = pattern(1 << 20, 1);
    int sent = 0;
    while (p.a->send(message, 0) == 0)
        sent++;
    auto reader = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(20 * kBetween);
        View in;
        int n = 0;
        for (; n < sent && p.b->recv(in, kLimit_ms) == 0; n++)
            in = View();
        return n;
    });
    const Storm storm;
    EXPECT_EQ(p.a->close(kLimit_ms), 0);
    EXPECT_EQ(reader.get(), sent);
}

}  // namespace
}  // namespace stock_test
