// SPDX-License-Identifier: BSD-3-Clause
// Messages that the switch completes: who sleeps until then is woken, and TCP, which has nothing
// left to do for them, hears of them a little later (NUPA_FEAT_QUIET).
//
// Whether an interrupt came is looked at within the time that it may wait; on a machine that stood
// still meanwhile the test is made once more, for a minute.
#include <chrono>
#include <thread>

#include "qp_pair.hpp"

namespace nupa::testing {
namespace {

constexpr uint32_t kCq = 3, kReceiveBytes = 256;
constexpr uint16_t kHoldUs = NUPA_RX_HOLD_MAX_US;
constexpr unsigned kVector = 1;  // of queue pair 0
constexpr unsigned kMax = 32;    // completions that may be quiet at a time
constexpr unsigned kFirst = 4;   // messages of a queue pair that are told at once
constexpr std::chrono::seconds kTries{60};
constexpr std::chrono::microseconds kQuietTime{kHoldUs / 4};

struct Quiet {
    explicit Quiet(uint32_t cq_flags = NUPA_CQ_F_WAITING, uint16_t hold_us = kHoldUs)
        : p(2),
          base(frame()),
          mr(p[1], kKey, kIova, kMrBytes, kPd, kAccess),
          cq(p[1], kCq, cq_flags),
          qp(p[1], base, shape()) {
        // nothing waits at first, so a machine may stand still
        p[1].set_rx_mode(kModeAll, p[1].mac(), 9000);
        acknowledge();
        p[0].receive(0);
        for (unsigned i = 0; i < kMax + kFirst + 8; i++)
            qp.post({{kIova + uint64_t{i} * kReceiveBytes, kReceiveBytes}}, kKey);
        qp.give_turn(base.seq);
        while (kFirst > msn) {  // these are told at once
            send();
            p[1].receive(0);
        }
        p[1].set_rx_mode(kModeAll, p[1].mac(), 9000, hold_us);
        cq.poll();
        first = cq.completions();
        began = {};
        arm();
    }
    TcpFrame frame() {
        TcpFrame f = p.frame(0, 1);
        f.seq = 0xffffff80;  // wraps in the third message
        return f;
    }
    static QpShape shape() {
        QpShape s;
        s.flags |= NUPA_QP_F_COMPLETE;
        s.cq = kCq;
        return s;
    }
    // As NAPI does when it has taken everything.
    void arm() {
        __atomic_store_n(&p[1].rxq(0)->irq_event, p[1].rx(0).comp_cons, __ATOMIC_SEQ_CST);
        p[1].take_interrupts(kVector);
    }
    // One message, of which the sender has its buffers back: so it was placed and completed.
    void send() {
        if (began == Clock::time_point{})
            began = Clock::now();
        const TcpFrame f = next();
        p[0].send(0, build_tcp(f, false), offload(f));
        p[0].wait_sent(0);
    }
    TcpFrame next() {
        TcpFrame f = send_message(base, msn, pattern(64, msn));
        f.flags |= kPsh;
        f.seq = seq;
        seq += 64;
        msn++;
        base.seq = seq;
        return f;
    }
    void acknowledge() {
        TcpFrame ack = ack_of(base, base.seq);
        p[1].send(0, build_tcp(ack, false), offload(ack));
    }
    void answer() {
        TcpFrame a = ack_of(base, base.seq);
        a.payload = pattern(16, 1);
        p[1].send(0, build_tcp(a, false), offload(a));
        p[1].wait_sent(0);
    }
    uint32_t signalled() { return __atomic_load_n(&p[1].rxq(0)->signalled, __ATOMIC_ACQUIRE); }
    uint32_t came() { return __atomic_load_n(&p[1].rxq(0)->comp_prod, __ATOMIC_ACQUIRE); }
    uint64_t stat(nupa_stat which) { return p.stat(1, which); }
    // May the interrupt for the first message have come by now?
    bool late() const { return Clock::now() - began >= kQuietTime; }

    Ports p;
    TcpFrame base;
    FakeMr mr;
    FakeCq cq;
    FakeQp qp;
    uint32_t seq = base.seq;
    uint16_t msn = 0;
    uint32_t first = 0;  // completions of before

private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point began{};
};

// @body looks first, and says with true that it was in time and compared.
template <class Body>
void in_time(Body body) {
    const auto end = std::chrono::steady_clock::now() + kTries;
    while (std::chrono::steady_clock::now() < end) {
        Quiet q;
        if (body(q))
            return;
    }
    FAIL() << "this machine stands still too often";
}

TEST(Quiet, NobodyWaits) {
    in_time([](Quiet& q) {
        const uint32_t before = q.came();
        q.send();
        const uint64_t interrupts = q.p[1].take_interrupts(kVector);
        const uint32_t signalled = q.signalled();
        const auto got = q.p[1].try_receive(0);  // who looks finds it
        if (q.late())
            return false;
        EXPECT_EQ(interrupts, 0u);
        EXPECT_EQ(signalled, before);
        EXPECT_EQ(q.came(), before + 1);
        EXPECT_EQ(q.cq.completions(), q.first + 1);
        EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), 1u);
        EXPECT_TRUE(got && got->comp.flags & NUPA_RX_F_PLACED);
        EXPECT_FALSE(got && got->comp.flags & NUPA_RX_F_WAKE);
        return true;
    });
}

// It is not forgotten: who waits for an interrupt gets one.
TEST(Quiet, TcpHearsOfItAfterAWhile) {
    Quiet q(NUPA_CQ_F_WAITING, 100);
    const uint64_t before = q.stat(NUPA_STAT_rx_interrupts);
    q.send();
    q.p[1].wait_until([&] { return q.signalled() == q.came(); }, kVector, "the interrupt");
    EXPECT_FALSE(q.p[1].receive(0).comp.flags & NUPA_RX_F_WAKE);
    EXPECT_EQ(q.stat(NUPA_STAT_rx_interrupts), before + 1);
    EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), 1u);
    q.arm();
    q.send();  // it was in vain
    EXPECT_EQ(q.p[1].take_interrupts(kVector), 1u);
    EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), 1u);
}

// A host whose answers take longer than the shortest time is waited for, once it has answered.
TEST(Quiet, SlowAnswersAreWaitedFor) {
    using std::chrono::microseconds;
    using Clock = std::chrono::steady_clock;
    constexpr uint16_t kShortHoldUs = 200;
    constexpr microseconds kShort{kShortHoldUs / 4}, kLong = 16 * kShort;
    const auto end = Clock::now() + kTries;
    while (Clock::now() < end) {
        Quiet q(NUPA_CQ_F_WAITING, kShortHoldUs);
        const auto be_told = [&] {
            q.p[1].wait_until([&] { return q.signalled() == q.came(); }, kVector, "the interrupt");
            q.p[1].receive(0);
            q.arm();
        };
        q.send();
        be_told();  // in vain
        q.answer();
        for (unsigned i = 0; i < kFirst; i++) {
            q.send();
            be_told();
        }
        const auto sent = Clock::now();
        q.send();
        std::this_thread::sleep_for(2 * kShort);
        const bool told = q.signalled() == q.came();
        if (Clock::now() - sent > kLong)
            continue;
        EXPECT_FALSE(told);
        be_told();
        EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), 2u);
        return;
    }
    FAIL() << "this machine stands still too often";
}

TEST(Quiet, WhoSleepsIsWoken) {
    in_time([](Quiet& q) {
        q.cq.wait();
        const uint32_t before = q.came();
        q.send();
        const uint64_t interrupts = q.p[1].take_interrupts(kVector);
        const uint32_t signalled = q.signalled();
        q.send();
        const uint64_t again = q.p[1].take_interrupts(kVector);
        const auto got = q.p[1].try_receive(0);
        if (q.late())
            return false;
        EXPECT_EQ(interrupts, 1u);
        EXPECT_EQ(signalled, before);  // for who sleeps, and not for the packet
        EXPECT_EQ(again, 0u);
        EXPECT_FALSE(q.cq.waiting());
        EXPECT_TRUE(got && got->comp.flags & NUPA_RX_F_WAKE);
        EXPECT_EQ(got ? got->comp.cq : 0, kCq);
        return true;
    });
}

// The waker's interrupt is no reason to leave out the packet's.
TEST(Quiet, AWokenHostStillHearsOfThePacket) {
    Quiet q(NUPA_CQ_F_WAITING, 100);
    const uint64_t before = q.stat(NUPA_STAT_rx_interrupts);
    q.cq.wait();
    q.send();
    q.p[1].wait_until([&] { return q.signalled() == q.came(); }, kVector, "the interrupt");
    EXPECT_EQ(q.stat(NUPA_STAT_rx_interrupts), before + 2);
}

TEST(Quiet, NotForAHostThatDoesNotSayWhoWaits) {
    Quiet q(0);
    const uint32_t before = q.came();
    q.send();
    EXPECT_EQ(q.cq.completions(), q.first + 1);
    EXPECT_EQ(q.signalled(), before + 1);
    EXPECT_EQ(q.p[1].take_interrupts(kVector), 1u);
    EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), 0u);
}

TEST(Quiet, NotWithoutAHoldTime) {
    Quiet q(NUPA_CQ_F_WAITING, 0);
    q.send();
    EXPECT_EQ(q.p[1].take_interrupts(kVector), 1u);
    EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), 0u);
}

// Anything else tells of what was quiet, too.
TEST(Quiet, AnotherPacketEndsIt) {
    in_time([](Quiet& q) {
        q.send();
        const uint64_t before = q.p[1].take_interrupts(kVector);
        TcpFrame other = q.p.frame(0, 1);
        other.dport = 99;
        other.payload = pattern(100, 1);
        q.p[0].send(0, build_tcp(other, false), offload(other));
        q.p[0].wait_sent(0);
        if (q.late())
            return false;
        EXPECT_EQ(before, 0u);
        EXPECT_EQ(q.p[1].take_interrupts(kVector), 1u);
        EXPECT_EQ(q.signalled(), q.came());
        return true;
    });
}

TEST(Quiet, SoManyAndNoMore) {
    in_time([](Quiet& q) {
        for (unsigned i = 0; i < kMax; i++) {
            q.send();
            q.cq.poll();
        }
        if (q.late())
            return false;
        EXPECT_EQ(q.p[1].take_interrupts(kVector), 1u);
        EXPECT_EQ(q.signalled(), q.came());
        EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), kMax - 1);
        return true;
    });
}

// A host that looks by itself, as it does when it sends, is never told.
TEST(Quiet, WhoLooksIsNotTold) {
    in_time([](Quiet& q) {
        const uint64_t before = q.stat(NUPA_STAT_rx_interrupts);
        for (unsigned i = 0; i < kMax + 4; i++) {
            q.send();
            q.cq.poll();
            EXPECT_TRUE(q.p[1].try_receive(0));
            q.arm();
        }
        if (q.late())
            return false;
        EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), kMax + 4);
        EXPECT_EQ(q.stat(NUPA_STAT_rx_interrupts), before);
        return true;
    });
}

// Nobody looked before the time was over: the next ones are told at once.  But whoever has looked,
// and takes it later, has nothing against it.
bool quiet_until_told(Quiet& q, bool seen) {
    q.send();
    if (seen)
        __atomic_store_n(&q.p[1].rxq(0)->seen, q.came(), __ATOMIC_RELEASE);
    if (q.late())
        return false;
    q.p[1].wait_until([&] { return q.signalled() == q.came(); }, kVector, "the interrupt");
    q.cq.poll();
    EXPECT_TRUE(q.p[1].try_receive(0));
    q.arm();
    q.send();
    EXPECT_EQ(q.stat(NUPA_STAT_rx_quiet), seen ? 2u : 1u);
    return true;
}

TEST(Quiet, InVain) {
    in_time([](Quiet& q) { return quiet_until_told(q, false); });
}

TEST(Quiet, SeenIsNotInVain) {
    in_time([](Quiet& q) { return quiet_until_told(q, true); });
}

// Who sends looks for what is before this: all, unless both ends have room for late sends, and then
// for the first ones.
TEST(Quiet, HurryUnlessBothEndsHaveRoom) {
    in_time([](Quiet& q) {
        const auto hurry = [&] { return __atomic_load_n(&q.p[1].rxq(0)->hurry, __ATOMIC_ACQUIRE); };
        bool first_ones = true;  // are not to wait
        const auto send = [&] {
            q.send();
            first_ones = first_ones && hurry() == q.came();
        };
        send();
        q.qp.have_room();
        for (unsigned i = 0; i < kFirst; i++)
            send();
        const uint32_t before = q.came();
        q.send();
        q.send();
        const uint32_t came = q.came(), hurries = hurry();
        if (q.late())
            return false;
        EXPECT_TRUE(first_ones);
        EXPECT_EQ(came, before + 2);
        EXPECT_EQ(hurries, before);
        return true;
    });
}

// What the host may join with what follows (kernel/nupa_dev/rx_join.c).
TEST(Quiet, SaysThatItIsCompleted) {
    Quiet q(NUPA_CQ_F_WAITING, 0);
    q.send();
    const auto completed = q.p[1].receive(0);
    EXPECT_TRUE(completed.comp.flags & NUPA_RX_F_COMPLETED);
    q.qp.take_turn();
    q.send();
    const auto placed = q.p[1].receive(0);
    EXPECT_TRUE(placed.comp.flags & NUPA_RX_F_PLACED);
    EXPECT_FALSE(placed.comp.flags & NUPA_RX_F_COMPLETED);
}

}  // namespace
}  // namespace nupa::testing
