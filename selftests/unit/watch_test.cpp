// SPDX-License-Identifier: BSD-3-Clause
// Rings whose index is looked at without a doorbell: no wake-up is lost, how long they are watched,
// and when there is no processor to spare for it.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "event/spare_time.hpp"
#include "ivshmem/consumed_ring.hpp"
#include "ivshmem/index_watch.hpp"

namespace {

using nupa::daemon::ConsumedRing;
using nupa::daemon::IndexWatch;
using nupa::daemon::SpareTime;

constexpr uint64_t kUs = 1000, kMs = 1000 * kUs;

// ---- every order of events ----

// What one side leaves out.
struct Protocol {
    bool host_barrier = true;
    bool switch_barrier = true;
    bool second_look = true;
};

// Host and switch by single steps, each with a store that nobody else sees until it is drained, as
// processors have.  The switch may end its watch whenever it likes.
struct State {
    enum SwitchAt : uint8_t { kTake, kLook, kArm, kBarrier, kLookAgain, kAsleep };
    enum HostAt : uint8_t { kStore, kHostBarrier, kReadEvent };

    uint32_t prod = 0, db_event = 0;             // in shared memory
    int32_t host_store = -1, switch_store = -1;  // on the way there; -1: none
    uint32_t produced = 0, kicked = 0, taken = 0;
    uint8_t host_at = kStore, switch_at = kTake;
    bool rung = false;

    [[nodiscard]] auto key() const {
        return std::tie(prod, db_event, host_store, switch_store, produced, kicked, taken, host_at,
                        switch_at, rung);
    }
    bool operator<(const State& other) const { return key() < other.key(); }
};

class Model {
public:
    static constexpr uint32_t kEntries = 3;

    explicit Model(Protocol protocol) : protocol_(protocol) { visit({}); }
    [[nodiscard]] bool loses() const { return loses_; }
    [[nodiscard]] size_t states() const { return seen_.size(); }

private:
    void visit(const State& first) {
        std::vector<State> left{first};
        while (!left.empty()) {
            const State s = left.back();
            left.pop_back();
            if (!seen_.insert(s).second)
                continue;
            next_.clear();
            drain(s);
            host(s);
            the_switch(s);
            // Nothing can happen any more, and the switch sleeps beside work.
            loses_ = loses_ || (next_.empty() && s.taken != s.prod);
            left.insert(left.end(), next_.begin(), next_.end());
        }
    }
    State& then(const State& s) { return next_.emplace_back(s); }

    void drain(const State& s) {
        if (s.host_store >= 0) {
            State& n = then(s);
            n.prod = static_cast<uint32_t>(s.host_store);
            n.host_store = -1;
        }
        if (s.switch_store >= 0) {
            State& n = then(s);
            n.db_event = static_cast<uint32_t>(s.switch_store);
            n.switch_store = -1;
        }
    }

    void host(const State& s) {
        if (s.host_at == State::kStore) {
            if (s.produced == kEntries || s.host_store >= 0)
                return;
            State& n = then(s);
            n.host_store = static_cast<int32_t>(++n.produced);
            n.host_at = State::kHostBarrier;
        } else if (s.host_at == State::kHostBarrier) {
            if (protocol_.host_barrier && s.host_store >= 0)
                return;
            then(s).host_at = State::kReadEvent;
        } else {
            State& n = then(s);
            n.rung = s.rung || nupa_need_event(s.db_event, s.produced, s.kicked);
            n.kicked = s.produced;
            n.host_at = State::kStore;
        }
    }

    void the_switch(const State& s) {
        switch (s.switch_at) {
            case State::kTake: {
                State& n = then(s);
                n.taken = s.prod;
                n.switch_at = State::kLook;
                break;
            }
            case State::kLook:
                if (s.prod != s.taken)
                    then(s).switch_at = State::kTake;
                else
                    then(s).switch_at = State::kArm;  // to go on looking is this state again
                break;
            case State::kArm:
                if (s.switch_store < 0) {
                    State& n = then(s);
                    n.switch_store = static_cast<int32_t>(s.taken);
                    n.switch_at = State::kBarrier;
                }
                break;
            case State::kBarrier:
                if (!protocol_.switch_barrier || s.switch_store < 0)
                    then(s).switch_at = State::kLookAgain;
                break;
            case State::kLookAgain:
                then(s).switch_at =
                    protocol_.second_look && s.prod != s.taken ? State::kTake : State::kAsleep;
                break;
            default:
                if (s.rung) {
                    State& n = then(s);
                    n.rung = false;
                    n.switch_at = State::kTake;
                }
        }
    }

    Protocol protocol_;
    std::set<State> seen_;
    std::vector<State> next_;
    bool loses_ = false;
};

TEST(WatchedRing, LosesNoWakeUpInAnyOrder) {
    const Model model({});
    EXPECT_FALSE(model.loses());
    EXPECT_GT(model.states(), 100u);
}

TEST(WatchedRing, NeedsBothBarriersAndTheSecondLook) {
    EXPECT_TRUE(Model({.host_barrier = false}).loses());
    EXPECT_TRUE(Model({.switch_barrier = false}).loses());
    EXPECT_TRUE(Model({.second_look = false}).loses());
}

// ---- the ring's own code, for what the model takes for granted ----

struct Ring : ::testing::Test {
    // True: rings.
    bool produce(uint32_t count) {
        const uint32_t old = ctl.prod;
        ctl.prod += count;
        return nupa_need_event(ctl.db_event, ctl.prod, old);
    }
    void take_all() { ring.take(ring.pending()); }

    nupa_ring_ctl ctl{};
    ConsumedRing ring{ctl, 64};
};

TEST_F(Ring, IsQuietWhileItIsNotArmed) {
    EXPECT_TRUE(produce(1)) << "a new ring is armed";
    take_all();
    for (int i = 0; i < 100; i++) {
        EXPECT_FALSE(produce(1));
        EXPECT_EQ(ring.pending(), 1u) << "seen without a doorbell";
        take_all();
    }
    EXPECT_FALSE(ring.rearm());
    EXPECT_TRUE(produce(1));
}

TEST_F(Ring, ArmingFindsWhatCameSinceTheLastLook) {
    produce(1);
    take_all();
    EXPECT_EQ(ring.pending(), 0u);
    EXPECT_FALSE(produce(1));
    EXPECT_TRUE(ring.rearm());
    take_all();
    EXPECT_FALSE(ring.rearm());
}

// Once in 2^32 entries an event that was left behind is ahead again: a doorbell for nothing.
TEST_F(Ring, AnEventLeftFarBehindRingsInVainAtMost) {
    ctl.db_event = 10;
    ctl.prod = 8;
    EXPECT_TRUE(produce(3));
    EXPECT_FALSE(produce(0x80000000u));
    EXPECT_FALSE(produce(0x7ffffff0u));
}

// ---- how long ----

// Rings with work each @gap_ns; true: a watch would be on when the last one came.
bool watched_after(IndexWatch& watch, unsigned rings, uint64_t gap_ns) {
    uint64_t now = 1000 * kMs;
    watch.emptied(now);
    watch.armed();
    for (unsigned i = 0; i < rings; i++) {
        now += gap_ns;
        watch.begin(now);
        watch.emptied(now);
        watch.armed();
    }
    return !watch.over(now + gap_ns - 1);
}

TEST(IndexWatch, BeginsWithWorkThatComesOften) {
    IndexWatch watch;
    EXPECT_TRUE(watch.over(0)) << "a new ring is not watched";
    EXPECT_FALSE(watched_after(watch, 1, 300 * kUs));
    EXPECT_TRUE(watched_after(watch, 3, 300 * kUs)) << "after a few doorbells";
}

TEST(IndexWatch, IsNotForWorkThatComesNowAndThen) {
    IndexWatch watch;
    watched_after(watch, 100, IndexWatch::kMaxNs + 1);
    EXPECT_EQ(watch.length_ns(), 0u);
}

TEST(IndexWatch, IsBoundedAndFallsBack) {
    IndexWatch watch;
    watched_after(watch, 100, 10 * kUs);
    EXPECT_EQ(watch.length_ns(), IndexWatch::kMaxNs);
    watched_after(watch, 20, 10 * kMs);
    EXPECT_EQ(watch.length_ns(), 0u);
}

TEST(IndexWatch, LastsAsLongAsTheOperatorSays) {
    IndexWatch watch(10 * kMs);
    watched_after(watch, 100, 5 * kMs);
    EXPECT_EQ(watch.length_ns(), 10 * kMs);
}

TEST(IndexWatch, GoesOnWithWorkThatItFinds) {
    IndexWatch watch;
    watched_after(watch, 1, 10 * kUs);
    uint64_t now = 1000 * kMs + 20 * kUs;
    watch.begin(now);  // it was armed
    watch.emptied(now);
    const uint64_t length = watch.length_ns();
    for (int i = 0; i < 100; i++) {
        EXPECT_TRUE(watch.over(now + length));
        now += length - 1;
        EXPECT_FALSE(watch.over(now));
        watch.begin(now);  // found by a look: says nothing of its length
        watch.emptied(now);
    }
    EXPECT_EQ(watch.length_ns(), length);
}

// ---- whether ----

uint64_t thread_ns;
uint64_t thread_clock() noexcept { return thread_ns; }

// Looks for @ns, of which the thread runs @percent.
uint64_t look(SpareTime& spare, uint64_t now, uint64_t ns, unsigned percent) {
    constexpr uint64_t kStepNs = 100 * kUs;
    for (uint64_t done = 0; done < ns; done += kStepNs) {
        spare.turn(true, now, thread_clock);
        now += kStepNs;
        thread_ns += kStepNs * percent / 100;
    }
    spare.turn(false, now, thread_clock);
    return now;
}

TEST(SpareTime, OneProcessorHasNone) {
    SpareTime spare(1);
    EXPECT_FALSE(spare.any(UINT64_MAX - 1));
}

TEST(SpareTime, LastsWhileTheThreadRuns) {
    SpareTime spare(2);
    const uint64_t now = look(spare, 1000 * kMs, 500 * kMs, 95);
    EXPECT_TRUE(spare.any(now));
}

TEST(SpareTime, EndsWhereOthersWantTheProcessor) {
    SpareTime spare(2);
    uint64_t now = look(spare, 1000 * kMs, 12 * kMs, 66);
    EXPECT_FALSE(spare.any(now));
    now += SpareTime::kClosedMinNs;
    EXPECT_TRUE(spare.any(now)) << "tried again";
    now = look(spare, now, 12 * kMs, 66);
    EXPECT_FALSE(spare.any(now + SpareTime::kClosedMinNs)) << "for longer than before";
    now += SpareTime::kClosedMaxNs;
    now = look(spare, now, 40 * kMs, 100);
    now = look(spare, now, 12 * kMs, 66);
    EXPECT_FALSE(spare.any(now));
    EXPECT_TRUE(spare.any(now + SpareTime::kClosedMinNs)) << "the first time again";
}

// Short looks between sleeps are judged together, and sleep is nobody's fault.
TEST(SpareTime, SleepDoesNotCount) {
    SpareTime spare(2);
    uint64_t now = 1000 * kMs;
    for (int i = 0; i < 1000; i++)
        now = look(spare, now, 300 * kUs, 100) + 50 * kMs;
    EXPECT_TRUE(spare.any(now));
    for (int i = 0; i < 80 && spare.any(now); i++)
        now = look(spare, now, 300 * kUs, 50) + 50 * kUs;
    EXPECT_FALSE(spare.any(now));
}

}  // namespace
