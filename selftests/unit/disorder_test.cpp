// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/disorder.hpp"

namespace {

using nupa::Disorder;

class AtBase : public testing::TestWithParam<std::uint32_t> {
protected:
    const std::uint32_t base = GetParam();
};

TEST_P(AtBase, InOrder) {
    Disorder d(base);
    EXPECT_FALSE(d.seen(base, 10));
    d.record(base, 10);
    EXPECT_EQ(d.next(), base + 10);
    EXPECT_TRUE(d.seen(base, 10));
    EXPECT_TRUE(d.seen(base + 9, 5));  // partly old is old
    EXPECT_FALSE(d.seen(base + 10, 5));
    EXPECT_EQ(d.blocks(), 0u);
}

TEST_P(AtBase, HoleAndFill) {
    Disorder d(base);
    d.record(base + 20, 10);
    EXPECT_EQ(d.next(), base);
    EXPECT_TRUE(d.seen(base + 20, 1));
    EXPECT_TRUE(d.seen(base + 15, 6));
    EXPECT_TRUE(d.seen(base + 10, 100));
    EXPECT_FALSE(d.seen(base + 10, 10));
    EXPECT_FALSE(d.seen(base + 30, 10));
    d.record(base, 20);
    EXPECT_EQ(d.next(), base + 30);
    EXPECT_EQ(d.blocks(), 0u);
}

TEST_P(AtBase, BlocksJoin) {
    Disorder d(base);
    d.record(base + 20, 10);
    d.record(base + 40, 10);
    d.record(base + 60, 10);
    EXPECT_EQ(d.blocks(), 3u);
    d.record(base + 30, 10);  // touches both neighbours
    EXPECT_EQ(d.blocks(), 2u);
    d.record(base + 15, 60);  // swallows all
    ASSERT_EQ(d.blocks(), 1u);
    EXPECT_EQ(d.block(0).begin, base + 15);
    EXPECT_EQ(d.block(0).end, base + 75);
    d.record(base + 5, 2);
    EXPECT_EQ(d.block(0).begin, base + 5);
    EXPECT_EQ(d.blocks(), 2u);
}

TEST_P(AtBase, HostAckRaises) {
    Disorder d(base);
    d.record(base + 20, 10);
    d.record(base + 40, 10);
    d.raise(base + 25);
    EXPECT_EQ(d.next(), base + 30);
    EXPECT_EQ(d.blocks(), 1u);
    d.raise(base + 10);  // an old ACK
    EXPECT_EQ(d.next(), base + 30);
    d.raise(base + 100);
    EXPECT_EQ(d.next(), base + 100);
    EXPECT_EQ(d.blocks(), 0u);
    EXPECT_TRUE(d.seen(base + 60, 5));
}

std::uint32_t fill(Disorder& d, std::uint32_t base) {
    for (std::uint32_t i = 0; i < nupa::kBlocksMax; i++)
        EXPECT_FALSE(d.record(base + 10 + 20 * i, 10));
    EXPECT_EQ(d.blocks(), nupa::kBlocksMax);
    return base + 10 + 20 * nupa::kBlocksMax;
}

TEST_P(AtBase, OverflowResyncsAtTheHighest) {
    Disorder d(base);
    const std::uint32_t beyond = fill(d, base);
    EXPECT_FALSE(d.resyncing());
    EXPECT_TRUE(d.record(beyond + 10, 10));
    EXPECT_TRUE(d.resyncing());
    EXPECT_FALSE(d.record(beyond + 50, 10));  // overflowed already, but moves the mark
    d.raise(beyond + 59);
    EXPECT_TRUE(d.resyncing());
    d.raise(beyond + 60);
    EXPECT_FALSE(d.resyncing());
    EXPECT_EQ(d.next(), beyond + 60);
    EXPECT_EQ(d.blocks(), 0u);
}

// Or placement would not resume as long as segments are lost.
TEST_P(AtBase, WhatABlockHoldsDoesNotMoveTheMark) {
    Disorder d(base);
    const std::uint32_t beyond = fill(d, base);
    EXPECT_TRUE(d.record(beyond + 10, 10));
    d.raise(base + 30);  // room for new blocks
    EXPECT_FALSE(d.record(beyond + 50, 10));
    EXPECT_TRUE(d.resyncing());
    d.raise(beyond + 20);
    EXPECT_FALSE(d.resyncing());
    EXPECT_FALSE(d.seen(beyond + 20, 30));
    EXPECT_TRUE(d.seen(beyond + 50, 10));
}

TEST_P(AtBase, OverflowInTheMiddle) {
    Disorder d(base);
    fill(d, base);
    EXPECT_TRUE(d.record(base + 2, 4));  // a new lowest block: no room either
    d.raise(base + 7);                   // beyond it, but not beyond all that was passed up
    EXPECT_TRUE(d.resyncing());
    d.record(base, 10 + 20 * nupa::kBlocksMax);
    EXPECT_FALSE(d.resyncing());
}

TEST_P(AtBase, FullButJoiningIsNoOverflow) {
    Disorder d(base);
    fill(d, base);
    EXPECT_FALSE(d.record(base + 20, 10));  // closes a gap
    EXPECT_EQ(d.blocks(), nupa::kBlocksMax - 1);
    EXPECT_FALSE(d.resyncing());
}

TEST_P(AtBase, Distrust) {
    Disorder d(base);
    d.distrust(base + 1000);
    EXPECT_TRUE(d.resyncing());
    d.distrust(base + 500);
    d.record(base, 999);
    EXPECT_TRUE(d.resyncing());
    d.record(base + 999, 1);
    EXPECT_FALSE(d.resyncing());
    d.distrust(base + 10);  // long past
    EXPECT_FALSE(d.resyncing());
}

INSTANTIATE_TEST_SUITE_P(Wraps, AtBase,
                         testing::Values(0u, 5000u, 0xffffffffu, 0xfffffff0u, 0xffffff00u,
                                         0x7ffffff0u, 0x80000000u));

}  // namespace
