// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/start_table.hpp"

namespace {

using nupa::Extent;
using nupa::MsnSpace;

constexpr std::uint32_t kLength = 500;

class StartTable : public nupa::StartTable {
public:
    using nupa::StartTable::agree;
    bool agree(MsnSpace space, std::uint16_t msn, std::uint32_t target,
               std::uint32_t start) noexcept {
        return agree(space, msn, target, {start, start + kLength, true});
    }
};

TEST(StartTable, SameMessageSameStart) {
    StartTable t;
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, 7, 0, 1001));
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, 7, 0, 999));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
}

TEST(StartTable, SpacesAreApart) {
    StartTable t;
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
    EXPECT_TRUE(t.agree(MsnSpace::kWrite, 7, 0x99, 2000));
    EXPECT_TRUE(t.agree(MsnSpace::kReadResponse, 7, 0x99, 3000));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
    EXPECT_FALSE(t.agree(MsnSpace::kWrite, 7, 0x99, 2001));
}

// A WRITE and a WRITE_IMM may have the same number: the target tells them apart.
TEST(StartTable, TargetsAreApart) {
    StartTable t;
    EXPECT_TRUE(t.agree(MsnSpace::kWrite, 7, 1, 1000));
    EXPECT_TRUE(t.agree(MsnSpace::kWrite, 7, 2, 2000));
    EXPECT_FALSE(t.agree(MsnSpace::kWrite, 7, 2, 2001));
    EXPECT_FALSE(t.agree(MsnSpace::kWrite, 7, 1, 1000));  // its place is taken: nobody can tell
}

TEST(StartTable, LaterMessagesReplaceEarlier) {
    StartTable t;
    for (std::uint32_t i = 0; i < 200000; i++)  // msn wraps three times
        ASSERT_TRUE(
            t.agree(MsnSpace::kUntagged, static_cast<std::uint16_t>(i), 0, 0xffff0000 + i * 1000));
    const std::uint32_t last = 199999;
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, static_cast<std::uint16_t>(last), 0,
                        0xffff0000 + last * 1000));
    const std::uint32_t old = last - nupa::kStartsMax;
    EXPECT_FALSE(
        t.agree(MsnSpace::kUntagged, static_cast<std::uint16_t>(old), 0, 0xffff0000 + old * 1000));
}

// What a middlebox that rewrites options might say: an older message, now.
TEST(StartTable, OlderNumberAtALaterPlaceIsRefused) {
    StartTable t;
    const std::uint16_t old = 0xfff0;
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, old, 0, 1000));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, std::uint16_t(old + nupa::kStartsMax), 0,
                        65000));  // took its place
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, old, 0, 66000));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, std::uint16_t(old + nupa::kStartsMax), 0, 65000));
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, std::uint16_t(old + 2 * nupa::kStartsMax), 0, 64000));
}

TEST(StartTable, TaggedMessagesDoNotDisplaceUntagged) {
    StartTable t;
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
    for (std::uint16_t msn = 0; msn < 4 * nupa::kStartsMax; msn++)
        t.agree(MsnSpace::kWrite, msn, msn, 2000u + msn);
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, 7, 0, 9000));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, 1000));
}

// A number whose message was completed is used again, for more bytes in the same receive.
TEST(StartTable, AMessageHasOneEnd) {
    for (const MsnSpace space : {MsnSpace::kUntagged, MsnSpace::kReadResponse}) {
        StartTable t;
        EXPECT_TRUE(t.agree(space, 7, 1, {1000, 1500, true}));
        EXPECT_FALSE(t.agree(space, 7, 1, {1000, 1600, true}));
        EXPECT_FALSE(t.agree(space, 7, 1, {1000, 1400, true}));
        EXPECT_FALSE(t.agree(space, 7, 1, {1000, 1501, false}));
        EXPECT_TRUE(t.agree(space, 7, 1, {1000, 1200, false}));
        EXPECT_TRUE(t.agree(space, 7, 1, {1000, 1500, true}));
    }
}

// As ver 0 says it.
TEST(StartTable, TheLastSegmentTellsTheEnd) {
    StartTable t;
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, {1000, 1400, false}));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, {1000, 1800, true}));
    EXPECT_TRUE(t.agree(MsnSpace::kUntagged, 7, 0, {1000, 1600, false}));
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, 7, 0, {1000, 1900, false}));
    EXPECT_FALSE(t.agree(MsnSpace::kUntagged, 7, 0, {1000, 1900, true}));
}

TEST(StartTable, NothingDisplacesResponsesButLaterOnes) {
    StartTable t;
    EXPECT_TRUE(t.agree(MsnSpace::kReadResponse, 7, 1, 1000));
    for (std::uint16_t msn = 0; msn < 4 * nupa::kStartsMax; msn++)
        t.agree(MsnSpace::kWrite, msn, msn, 2000u + msn);
    EXPECT_FALSE(t.agree(MsnSpace::kReadResponse, 7, 1, 9000));
    EXPECT_TRUE(t.agree(MsnSpace::kReadResponse, 7, 1, 1000));
    EXPECT_TRUE(t.agree(MsnSpace::kReadResponse, 7 + NUPA_READS_MAX, 1, 9000));
    EXPECT_FALSE(t.agree(MsnSpace::kReadResponse, 7, 1, 10000));
}

}  // namespace
