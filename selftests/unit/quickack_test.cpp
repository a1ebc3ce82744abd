// SPDX-License-Identifier: BSD-3-Clause
// When the ACK of a message's end goes at once: the kernel's own source.
#include <gtest/gtest.h>

extern "C" {
#include "wire/quickack.h"
}

namespace {

constexpr uint32_t kRttUs = 100;
constexpr uint32_t kApartUs = 10 * kRttUs, kTimerUs = 4000;
constexpr int kTries = 2;  // of a hundred messages: the 16th, and 64 later

class Quickack : public testing::Test {
protected:
    // Whether the ACK of a message of @length bytes that comes @after_us behind the one before goes
    // at once.
    bool ends(uint32_t after_us = kApartUs, uint32_t length = 64) {
        now_us_ += after_us;
        return tqp_quickack_end(&q_, tqp_quickack_slot(1, length), now_us_, kRttUs, 1) != 0;
    }
    void leaves(uint32_t after_us, bool has_data) {
        now_us_ += after_us;
        tqp_quickack_left(&q_, now_us_, static_cast<int>(has_data));
    }
    // An answer to what a NIC has completed, before TCP hears of that.
    void goes_ahead(uint32_t after_us) {
        now_us_ += after_us;
        tqp_quickack_goes_ahead(&q_, now_us_);
        tqp_quickack_left(&q_, now_us_, 1);
    }
    void wait(uint32_t us) { now_us_ += us; }
    bool may_wait() const { return tqp_quickack_may_wait(&q_) != 0; }
    bool is_carried() const { return tqp_quickack_is_carried(&q_) != 0; }
    // Ends that are answered soon, until TCP's own ACK is left to the answer: how many?
    int answers_until_carried(uint32_t length = 64) {
        int n = 0;
        for (; n < 1000 && !is_carried(); n++) {
            ends(kApartUs, length);
            leaves(kRttUs, true);
        }
        return n;
    }
    // One that somebody waits for: was its ACK sent at once?
    bool unanswered(uint32_t length = 64) {
        const bool at_once = ends(kApartUs, length);
        leaves(at_once ? 0 : kTimerUs, false);
        return at_once;
    }
    void learn() {
        EXPECT_FALSE(ends());
        leaves(kTimerUs, false);
    }

private:
    tqp_quickack q_{};
    uint32_t now_us_ = 0xffff0000;  // wraps soon
};

TEST_F(Quickack, OneLateAckIsEnough) {
    learn();
    for (int i = 0; i < TQP_QUICKACK_TRIES - 1; i++) {
        EXPECT_TRUE(ends());
        leaves(0, false);
    }
}

// Who waits loses the time of TCP's own timer now and then, ever more seldom.
TEST_F(Quickack, WhoWaitsIsTriedEverMoreSeldom) {
    constexpr int kMessages = 10000;
    learn();
    int late = 0, last = 0;
    for (int i = 0; i < kMessages; i++) {
        if (ends()) {
            leaves(0, false);
            continue;
        }
        leaves(kTimerUs, false);
        late++;
        last = i;
    }
    EXPECT_GE(late, kMessages / TQP_QUICKACK_TRIES_MAX);
    EXPECT_LE(late, kMessages / TQP_QUICKACK_TRIES_MAX + 4);
    EXPECT_GE(last, kMessages - TQP_QUICKACK_TRIES_MAX - 1);
}

// Who goes on without any ACK does not wait for one, however slow it is.
TEST_F(Quickack, WhoGoesOnNeedsNone) {
    learn();
    int at_once = 0;
    for (int i = 0; i < 1000; i++) {
        if (ends()) {
            at_once++;
            leaves(0, false);
        } else if (i % 5 == 4) {  // TCP's timer
            leaves(kApartUs - 1, false);
            wait(1 - kApartUs);
        }
    }
    EXPECT_LT(at_once, TQP_QUICKACK_TRIES);
}

// .. and one that is held up now and then, its processor busy with something else, is still one.
TEST_F(Quickack, WhoIsHeldUpGoesOnAgain) {
    constexpr int kStalls = 50, kBetween = 20;
    int at_once = 0;
    for (int stall = 0; stall < kStalls; stall++) {
        for (int i = 0; i < kBetween; i++) {
            if (ends()) {
                at_once++;
                leaves(0, false);
            }
        }
        leaves(kTimerUs, false);
        wait(2 * kTimerUs);
    }
    EXPECT_LE(at_once, kStalls * (TQP_QUICKACK_TRIES_AGAIN - 1));
}

// Who stops going on, and waits, loses TCP's timer once more for it.
TEST_F(Quickack, WhoWentOnAndNowWaitsIsLearnt) {
    constexpr int kMessages = 100;
    for (int i = 0; i < kMessages; i++)
        EXPECT_FALSE(ends());
    int late = 0;
    for (int i = 0; i < kMessages; i++)
        late += !unanswered();
    EXPECT_LE(late, 1 + kTries);
}

// It can't have heard of an ACK that left just before; a round trip later it may have waited.
TEST_F(Quickack, WhoGoesOnAfterAnAck) {
    learn();
    EXPECT_TRUE(ends(kRttUs / 2));
    leaves(kTimerUs, false);
    EXPECT_FALSE(ends(kRttUs / 2 - 1));
}

// .. and so few ACKs do: one for each four.
TEST_F(Quickack, WhoGoesOnIsAcknowledgedTogether) {
    EXPECT_FALSE(may_wait());
    EXPECT_FALSE(ends());
    EXPECT_FALSE(ends());
    leaves(0, false);
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < TQP_QUICKACK_OWED - 1; k++) {
            EXPECT_TRUE(may_wait());
            EXPECT_FALSE(ends());
        }
        EXPECT_FALSE(may_wait());
        EXPECT_FALSE(ends());
        leaves(0, false);
    }
    for (int i = 0; i < 10; i++)  // and then it waits
        unanswered();
    EXPECT_FALSE(may_wait());
}

// Two of the same kind and length: one that nobody waits for, and one that somebody does.
TEST_F(Quickack, WhoGoesOnOnceAndThenWaits) {
    int late = 0;
    for (int i = 0; i < 1000; i++) {
        if (ends())
            leaves(0, false);
        if (ends()) {
            leaves(0, false);
        } else {
            leaves(kTimerUs - kApartUs, false);
            late++;
        }
    }
    EXPECT_LT(late, 100);
}

TEST_F(Quickack, AnswersNeedNone) {
    for (int i = 0; i < 100; i++) {
        EXPECT_FALSE(ends());
        leaves(50, true);
    }
}

TEST_F(Quickack, AnswersAreLearntAgain) {
    for (int i = 0; i < 100; i++) {
        static_cast<void>(ends());
        leaves(kTimerUs, false);
    }
    int at_once = 0;
    for (int i = 0; i < 100; i++) {
        if (ends()) {
            at_once++;
            leaves(0, false);
        }
        leaves(50, true);
    }
    EXPECT_LE(at_once, TQP_QUICKACK_MAX);
}

TEST_F(Quickack, OneOfSeveralIsNotAnswered) {
    learn();
    for (int i = 0; i < 100; i++) {
        for (int answered = 0; answered < 4; answered++) {
            if (ends())
                leaves(0, false);
            leaves(50, true);
            leaves(50, true);  // more data is no second answer
        }
        if (ends())
            leaves(0, false);
        else
            leaves(kTimerUs, false);
    }
    EXPECT_TRUE(ends());
}

// A rendezvous: a request that a READ answers, then a message that nothing answers.
TEST_F(Quickack, OtherLengthsAreLearntApart) {
    constexpr uint32_t kAnswered = 64, kUnanswered = 96;
    ASSERT_NE(tqp_quickack_slot(1, kAnswered), tqp_quickack_slot(1, kUnanswered));
    EXPECT_FALSE(ends(kApartUs, kUnanswered));
    leaves(kTimerUs, false);
    int at_once = 0;
    for (int i = 0; i < 100; i++) {
        for (int answered = 0; answered < 4; answered++) {
            EXPECT_FALSE(ends(kApartUs, kAnswered));
            leaves(50, true);
        }
        at_once += unanswered(kUnanswered);
    }
    EXPECT_GE(at_once, 100 - kTries);
}

TEST_F(Quickack, KindsAreLearntApart) {
    for (uint8_t kind = 1; kind < 8; kind++)
        EXPECT_NE(tqp_quickack_slot(kind, 64), tqp_quickack_slot(kind - 1, 64)) << int{kind};
}

// TCP would not have waited for it.
TEST_F(Quickack, AnAnswerThatComesLateIsNone) {
    learn();
    int at_once = 0;
    for (int i = 0; i < 100; i++) {
        at_once += unanswered();
        leaves(TQP_QUICKACK_SOON_US, true);
    }
    EXPECT_GE(at_once, 100 - kTries);
}

// A NIC that completes lets who waits answer before TCP hears of the question.
TEST_F(Quickack, WhatLeftJustBeforeIsAnAnswer) {
    learn();
    for (int i = 0; i < 2 * TQP_QUICKACK_MAX; i++) {
        leaves(kApartUs, true);
        EXPECT_FALSE(ends(kRttUs / 2 - 1));
    }
    EXPECT_FALSE(ends());  // what was learnt is forgotten
}

// Who has few sends waits for the ACK, too, which the answer did not carry.
TEST_F(Quickack, AnswersThatGoAheadAreNone) {
    constexpr int kMessages = 100;
    goes_ahead(kApartUs);
    EXPECT_FALSE(ends(kRttUs / 4));
    leaves(kTimerUs, false);
    int at_once = 0;
    for (int i = 0; i < kMessages; i++) {
        goes_ahead(kApartUs);
        const bool now = ends(kRttUs / 4);
        at_once += static_cast<int>(now);
        leaves(now ? 0 : kTimerUs, false);
    }
    EXPECT_EQ(at_once, kMessages - kTries);
}

// It sent what is answered while the ACK of what came before was owed.
TEST_F(Quickack, WhoSendsMoreThanItsAnswersGoesOn) {
    learn();
    for (int i = 0; i < TQP_QUICKACK_TRIES; i++) {
        goes_ahead(kApartUs);
        if (ends(kRttUs / 4))
            leaves(0, false);
    }
    for (int i = 0; i < 100; i++) {
        goes_ahead(kApartUs);
        EXPECT_FALSE(ends(kRttUs / 4));
    }
}

TEST_F(Quickack, WhatLeftARoundTripBeforeIsNone) {
    learn();
    leaves(kApartUs, true);
    EXPECT_TRUE(ends(kRttUs));
}

TEST_F(Quickack, BulkIsTcps) {
    learn();
    EXPECT_TRUE(ends());  // nobody knows yet what follows
    for (int i = 0; i < 100; i++) {
        EXPECT_FALSE(ends(kRttUs / 10));
        if (i % 2 != 0)
            leaves(0, false);
    }
}

TEST_F(Quickack, AnAckInTimeSaysNothing) {
    for (int i = 0; i < 100; i++) {
        EXPECT_FALSE(ends());
        leaves(TQP_QUICKACK_LATE_US - 1, false);
    }
}

TEST_F(Quickack, AcksOfNothingSayNothing) {
    EXPECT_FALSE(ends());
    leaves(0, false);
    for (int i = 0; i < 100; i++)
        leaves(kTimerUs, false);  // credits, keepalive
    EXPECT_FALSE(ends());
}

TEST_F(Quickack, WithoutARoundTripMeasuredNever) {
    learn();
    tqp_quickack q{};
    for (uint8_t& score : q.score)
        score = TQP_QUICKACK_MAX;
    EXPECT_EQ(tqp_quickack_end(&q, 0, 1'000'000, ~0U, 1), 0);
}

TEST_F(Quickack, AcksAreCarriedOnceAllIsAnswered) {
    EXPECT_FALSE(is_carried());
    EXPECT_EQ(answers_until_carried(), TQP_QUICKACK_ANSWERS);
    for (int i = 0; i < 1000; i++) {
        EXPECT_FALSE(ends());
        EXPECT_TRUE(is_carried());
        leaves(kRttUs, true);
    }
}

// A NIC that completes is ahead of TCP, and the answer of it.
TEST_F(Quickack, AcksAreCarriedBehindAnswers) {
    for (int i = 0; i < TQP_QUICKACK_ANSWERS; i++) {
        EXPECT_FALSE(is_carried());
        leaves(kApartUs, true);
        ends(kRttUs / 4);
    }
    EXPECT_TRUE(is_carried());
}

// TCP hears of several at once, when all were answered.
TEST_F(Quickack, AcksAreCarriedBehindSeveralAnswers) {
    for (int i = 0; i < TQP_QUICKACK_ANSWERS; i += TQP_QUICKACK_AHEAD_MAX) {
        for (int n = 0; n < TQP_QUICKACK_AHEAD_MAX; n++)
            leaves(kApartUs, true);
        for (int n = 0; n < TQP_QUICKACK_AHEAD_MAX; n++)
            ends(2 * kRttUs);
    }
    EXPECT_TRUE(is_carried());
}

// Who has sent much before answers no more for that.
TEST_F(Quickack, DataOfBeforeIsNoAnswerToMuch) {
    for (int i = 0; i < 1000; i++)
        leaves(kApartUs, true);
    for (int i = 0; i < 2 * TQP_QUICKACK_ANSWERS; i++) {
        ends();
        EXPECT_FALSE(is_carried());
    }
}

TEST_F(Quickack, TwoEndsBeforeAnAnswerAreNotCarried) {
    for (int i = 0; i < 100; i++) {
        ends();
        ends();
        EXPECT_FALSE(is_carried());
        leaves(kRttUs, true);
    }
}

// A wrong guess costs the sender TCP's timer, so it is made ever more seldom, until all is well.
TEST_F(Quickack, WhatIsNotAnsweredIsCarriedEverMoreSeldom) {
    int before = answers_until_carried();
    for (int turn = 0; turn < TQP_QUICKACK_ANSWERS_LOG2_MAX; turn++) {
        ends();
        leaves(kTimerUs, false);
        EXPECT_FALSE(is_carried());
        const int now = answers_until_carried();
        EXPECT_GE(now, 2 * before) << turn;
        before = now;
    }
    ends();
    leaves(kTimerUs, false);
    EXPECT_EQ(answers_until_carried(), before) << "and no more seldom than that";
    for (int i = 0; i <= TQP_QUICKACK_ANSWERS_MAX; i++) {
        ends();
        leaves(kRttUs, true);
    }
    ends();
    leaves(kTimerUs, false);
    EXPECT_LT(answers_until_carried(), before);
}

TEST_F(Quickack, OtherLengthsMayWaitForTheirAcks) {
    answers_until_carried();
    ends(kApartUs, 4096);
    leaves(kTimerUs, false);
    EXPECT_EQ(answers_until_carried(64), 2 * TQP_QUICKACK_ANSWERS);
    ends(kApartUs, 4096);
    EXPECT_FALSE(is_carried()) << "nobody answered one of these";
}

}  // namespace
