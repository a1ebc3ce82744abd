// SPDX-License-Identifier: BSD-3-Clause
#include "engine/ack_pace.hpp"

#include <gtest/gtest.h>

namespace {

constexpr std::uint32_t kStart = 0xfffffff0;  // wraps at once
constexpr std::uint32_t kWide = 1u << 30;

TEST(AckPace, NothingWaitsBeforeAWindowIsKnown) {
    const nupa::AckPace pace(kStart);
    EXPECT_FALSE(pace.may_wait(kStart + 1, kStart));
    EXPECT_TRUE(pace.may_wait(kStart + 1, kStart + kWide));
}

TEST(AckPace, HalfOfTheWindowIsTheLimit) {
    const nupa::AckPace pace(kStart);
    EXPECT_TRUE(pace.may_wait(kStart + 9999, kStart + 20000));
    EXPECT_FALSE(pace.may_wait(kStart + 10000, kStart + 20000));
}

TEST(AckPace, LongStretchesMakeItGrow) {
    nupa::AckPace pace(kStart);
    std::uint32_t at = kStart;
    EXPECT_FALSE(pace.may_wait(at + nupa::kAckStretchFirstBytes, at + kWide));
    for (int i = 0; i < 40; i++) {
        while (pace.may_wait(at, at + kWide) && at - kStart < kWide)
            at += 1000;
        pace.acknowledged(at);
    }
    EXPECT_TRUE(pace.may_wait(at + nupa::kAckStretchMaxBytes - 1, at + kWide));
    EXPECT_FALSE(pace.may_wait(at + nupa::kAckStretchMaxBytes, at + kWide));
}

TEST(AckPace, ShortStretchesAndOldAcksChangeNothing) {
    nupa::AckPace pace(kStart);
    for (std::uint32_t i = 1; i < 1000; i++) {
        pace.acknowledged(kStart + 100 * i);
        pace.acknowledged(kStart);
        pace.acknowledged(kStart + 100 * i);
    }
    const std::uint32_t at = kStart + 99900;
    EXPECT_TRUE(pace.may_wait(at + nupa::kAckStretchFirstBytes - 1, at + kWide));
    EXPECT_FALSE(pace.may_wait(at + nupa::kAckStretchFirstBytes, at + kWide));
}

// A sender that can have only @flight under way: how often does it fall silent?
int silences(std::uint32_t flight, int flights) {
    nupa::AckPace pace(kStart);
    std::uint32_t sent = kStart, acked = kStart;
    int silent = 0;
    while (sent - kStart < flight * static_cast<std::uint32_t>(flights)) {
        if (sent - acked < flight) {
            sent += 1000;
            if (pace.may_wait(sent, acked + kWide))
                continue;
        } else {
            pace.silent(sent);
            silent++;
        }
        pace.acknowledged(sent);
        acked = sent;
    }
    return silent;
}

TEST(AckPace, ASenderRarelyWaitsForUs) {
    for (const std::uint32_t flight : {10000u, 40000u, 200000u, 1000000u})
        EXPECT_LE(silences(flight, 200), 20) << flight;
    EXPECT_GE(silences(40000, 200), 1) << "or nothing was tried";
}

TEST(AckPace, SilenceWithNothingUnderWaySaysNothing) {
    nupa::AckPace pace(kStart);
    pace.silent(kStart);
    pace.silent(kStart - 5);
    EXPECT_TRUE(pace.may_wait(kStart + nupa::kAckStretchFirstBytes - 1, kStart + kWide));
}

TEST(AckPace, NothingWaitsOnAPathWithTrouble) {
    nupa::AckPace pace(kStart);
    EXPECT_TRUE(pace.may_wait(kStart + 1, kStart + kWide));
    pace.note_loss(kStart);
    EXPECT_FALSE(pace.may_wait(kStart + 1, kStart + kWide));
    pace.reached(kStart + nupa::kAckQuietBytes - 1);
    pace.acknowledged(kStart + nupa::kAckQuietBytes - 1);
    EXPECT_FALSE(pace.may_wait(kStart + nupa::kAckQuietBytes, kStart + kWide));
    pace.reached(kStart + nupa::kAckQuietBytes);
    EXPECT_TRUE(pace.may_wait(kStart + nupa::kAckQuietBytes, kStart + kWide));
}

}  // namespace
