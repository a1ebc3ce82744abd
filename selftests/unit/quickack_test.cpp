// SPDX-License-Identifier: BSD-3-Clause
// When the ACK of a message's end goes at once: the kernel's own source.
#include <gtest/gtest.h>

extern "C" {
#include "wire/quickack.h"
}

namespace {

constexpr uint32_t kRttUs = 100;
constexpr uint32_t kApartUs = 10 * kRttUs, kTimerUs = 4000;

class Quickack : public testing::Test {
protected:
    // Whether the ACK of a message of @length bytes that comes @after_us behind the one before goes
    // at once.
    bool ends(uint32_t after_us = kApartUs, uint32_t length = 64) {
        now_us_ += after_us;
        return tqp_quickack_end(&q_, tqp_quickack_slot(1, length), now_us_, kRttUs) != 0;
    }
    void leaves(uint32_t after_us, bool has_data) {
        now_us_ += after_us;
        tqp_quickack_left(&q_, now_us_, static_cast<int>(has_data));
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
    for (int i = 0; i < 100; i++) {
        EXPECT_TRUE(ends());
        leaves(0, false);
    }
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
    for (int i = 0; i < 100; i++) {
        for (int answered = 0; answered < 4; answered++) {
            EXPECT_FALSE(ends(kApartUs, kAnswered));
            leaves(50, true);
        }
        EXPECT_TRUE(ends(kApartUs, kUnanswered));
        leaves(0, false);
    }
}

TEST_F(Quickack, KindsAreLearntApart) {
    for (uint8_t kind = 1; kind < 8; kind++)
        EXPECT_NE(tqp_quickack_slot(kind, 64), tqp_quickack_slot(kind - 1, 64)) << int{kind};
}

// TCP would not have waited for it.
TEST_F(Quickack, AnAnswerThatComesLateIsNone) {
    learn();
    for (int i = 0; i < 100; i++) {
        EXPECT_TRUE(ends());
        leaves(0, false);
        leaves(TQP_QUICKACK_SOON_US, true);
    }
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
    EXPECT_EQ(tqp_quickack_end(&q, 0, 1'000'000, ~0U), 0);
}

}  // namespace
