// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/start_table.hpp"

namespace {

using nupa::MsnSpace;
using nupa::StartTable;

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

}  // namespace
