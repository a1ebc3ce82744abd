// SPDX-License-Identifier: BSD-3-Clause
// How long TCP may hear later of a completed message, by what came of the last ones.
#include <gtest/gtest.h>

#include "engine/quiet.hpp"

namespace {

using nupa::QuietPolicy;

// Messages until one is quiet, that one included; 0: none of 2,000.
unsigned next(QuietPolicy& policy) {
    for (unsigned i = 1; i <= 2000; i++)
        if (policy.may())
            return i;
    return 0;
}

TEST(QuietPolicy, NoAnswerIsWaitedForEverMoreSeldomAndNeverLonger) {
    QuietPolicy policy;
    unsigned last = next(policy);
    for (int i = 0; i < 20; i++) {
        EXPECT_EQ(policy.patience(), 1);
        policy.in_vain();
        const unsigned now = next(policy);
        EXPECT_GE(now, last);
        last = now;
    }
    EXPECT_EQ(last, 1025u);
}

TEST(QuietPolicy, AnswersThatAreLateAreWaitedForLonger) {
    QuietPolicy policy;
    next(policy);
    policy.answered();  // nothing was in vain
    EXPECT_EQ(policy.patience(), 1);
    for (const unsigned patience : {16u, 256u, 256u}) {
        policy.in_vain();
        policy.answered();
        EXPECT_LE(next(policy), 13u);
        EXPECT_EQ(policy.patience(), patience);
    }
}

TEST(QuietPolicy, PatienceEndsWithTheFirstMessageThatNobodyAnswers) {
    QuietPolicy policy;
    next(policy);
    policy.in_vain();
    policy.answered();
    next(policy);
    policy.in_vain();
    next(policy);
    EXPECT_EQ(policy.patience(), 1);
    policy.answered();  // of another one
    EXPECT_EQ(policy.patience(), 1);
}

TEST(QuietPolicy, AtMostPatienceItGetsAsSeldomAsWithoutAnswers) {
    QuietPolicy policy;
    unsigned last = 0;
    for (int i = 0; i < 20; i++) {
        last = next(policy);
        policy.in_vain();
        policy.answered();
    }
    EXPECT_EQ(last, 1025u);
}

}  // namespace
