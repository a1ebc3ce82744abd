// SPDX-License-Identifier: BSD-3-Clause
// What needs no connection: stripes, names of interfaces, the copy that a poller may watch.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "nccl/plugin/connector.hpp"
#include "nccl/plugin/receive_comm.hpp"

namespace tcpqp::nccl {
namespace {

TEST(Striping, CoversEachByteOnce) {
    const size_t sizes[] = {0,      1,      65535,  65536,   131071,  131072,
                            131073, 262144, 524288, 1000003, 4 << 20, kMessageMaxBytes};
    for (uint32_t rails = 1; rails <= kRailsMax; rails++)
        for (const size_t capacity : sizes)
            for (const size_t bytes : sizes) {
                if (bytes > capacity)
                    continue;
                for (uint32_t sequence = 0; sequence < rails; sequence++) {
                    const Striping s(capacity, rails, sequence);
                    ASSERT_LE(s.first() + s.count(), rails);
                    size_t end = 0;
                    for (uint32_t i = 0; i < s.count(); i++) {
                        const Stripe part = s.at(i, bytes);
                        ASSERT_EQ(part.begin, end) << capacity << " " << bytes << " " << rails;
                        ASSERT_LE(part.begin, part.end);
                        end = part.end;
                        // what the receiver posted has room for it, and begins where it does
                        const Stripe posted = s.at(i, capacity);
                        ASSERT_LE(part.end - part.begin, posted.end - posted.begin);
                        if (part.end != part.begin) {
                            ASSERT_EQ(part.begin, posted.begin);
                        }
                        ASSERT_TRUE(i == 0 || part.begin == bytes ||
                                    part.begin % kStripeAlignBytes == 0);
                    }
                    ASSERT_EQ(end, bytes) << capacity << " " << rails;
                }
            }
}

TEST(Striping, ShortOnesTakeTheRailsInTurns) {
    for (uint32_t sequence = 0; sequence < 8; sequence++) {
        const Striping s(1000, 4, sequence);
        EXPECT_EQ(s.count(), 1u);
        EXPECT_EQ(s.first(), sequence % 4);
    }
}

TEST(Interfaces, AreChosenAsByNccl) {
    EXPECT_TRUE(is_chosen("eth0", "eth"));
    EXPECT_TRUE(is_chosen("ib0", "eth,ib"));
    EXPECT_FALSE(is_chosen("lo", "eth,ib"));
    EXPECT_TRUE(is_chosen("eth1", "=eth1"));
    EXPECT_FALSE(is_chosen("eth10", "=eth1"));
    EXPECT_FALSE(is_chosen("docker0", "^lo,docker"));
    EXPECT_TRUE(is_chosen("eth0", "^lo,docker"));
    EXPECT_FALSE(is_chosen("eth0", "^=eth0"));
    EXPECT_FALSE(is_chosen("eth0", ",,"));
}

TEST(CopyInOrder, CopiesAllOfIt) {
    std::vector<std::byte> from(300), to(400);
    for (size_t i = 0; i < from.size(); i++)
        from[i] = static_cast<std::byte>(i * 7 + 1);
    for (const size_t offset : {0u, 1u, 8u, 13u})
        for (size_t bytes = 0; bytes < 200; bytes++) {
            std::fill(to.begin(), to.end(), std::byte{0});
            copy_in_order(to.data() + offset, from.data(), bytes);
            ASSERT_EQ(std::memcmp(to.data() + offset, from.data(), bytes), 0);
            ASSERT_EQ(to[offset + bytes], std::byte{0});
        }
}

TEST(Handle, OfAnotherKindIsRefused) {
    Handle good{};
    good.magic = kMagic;
    good.version = kProtocolVersion;
    good.rails = 1;
    EXPECT_EQ(Connector::check(good), kSuccess);
    Handle bad = good;
    bad.magic++;
    EXPECT_EQ(Connector::check(bad), kInvalidArgument);
    bad = good;
    bad.version++;
    EXPECT_EQ(Connector::check(bad), kInvalidArgument);
    for (const unsigned rails : {0u, kRailsMax + 1, 255u}) {
        bad = good;
        bad.rails = static_cast<uint8_t>(rails);
        EXPECT_EQ(Connector::check(bad), kInvalidArgument);
    }
}

}  // namespace
}  // namespace tcpqp::nccl
