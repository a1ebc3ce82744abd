// SPDX-License-Identifier: BSD-3-Clause
// When the ACK of a message's end goes at once: the kernel's own source.
#include <gtest/gtest.h>

extern "C" {
#include "wire/quickack.h"
}

namespace {

constexpr uint32_t kRttUs = 100;
constexpr uint64_t kApartUs = uint64_t{10} * kRttUs, kTimerUs = 4000;

class Quickack : public testing::Test {
protected:
    // Whether the ACK of a message that comes @after_us behind the one before goes at once.
    bool ends(uint64_t after_us = kApartUs) {
        now_us_ += after_us;
        return tqp_quickack_end(&q_, now_us_, kRttUs) != 0;
    }
    void leaves(uint64_t after_us, bool has_data) {
        now_us_ += after_us;
        tqp_quickack_left(&q_, now_us_, static_cast<int>(has_data));
    }
    void learn() {
        EXPECT_FALSE(ends());
        leaves(kTimerUs, false);
    }

private:
    tqp_quickack q_{};
    uint64_t now_us_ = 1'000'000;
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
    tqp_quickack q{.end_us = 0, .score = TQP_QUICKACK_MAX, .owed = 0, .open = 0};
    EXPECT_EQ(tqp_quickack_end(&q, 1'000'000, ~0U), 0);
}

}  // namespace
