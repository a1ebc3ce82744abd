// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstring>

#include "engine/flow.hpp"

namespace {

nupa::FlowKey ipv4_key(std::uint32_t n) {
    nupa::FlowKey k;
    k.raw.family = 4;
    std::memcpy(k.raw.saddr, &n, 4);
    k.raw.daddr[0] = 10;
    k.raw.sport = static_cast<__be16>(n * 7), k.raw.dport = 99;
    return k;
}

TEST(FlowKey, ReversedTwiceIsItself) {
    const nupa::FlowKey k = ipv4_key(5);
    EXPECT_FALSE(k == k.reversed());
    EXPECT_TRUE(k == k.reversed().reversed());
    EXPECT_EQ(k.reversed().raw.sport, k.raw.dport);
    EXPECT_EQ(k.reversed().raw.dport, k.raw.sport);
    EXPECT_EQ(std::memcmp(k.reversed().raw.saddr, k.raw.daddr, sizeof k.raw.daddr), 0);
    EXPECT_EQ(std::memcmp(k.reversed().raw.daddr, k.raw.saddr, sizeof k.raw.saddr), 0);
    EXPECT_EQ(k.reversed().raw.family, k.raw.family);
}

TEST(FlowKey, Valid) {
    nupa::FlowKey k = ipv4_key(5);
    EXPECT_TRUE(k.valid());
    k.raw.saddr[4] = 1;
    EXPECT_FALSE(k.valid());
    k.raw.family = 6;
    EXPECT_TRUE(k.valid());
    k.raw.reserved[2] = 1;
    EXPECT_FALSE(k.valid());
    EXPECT_FALSE(nupa::FlowKey{}.valid());
}

TEST(FlowKey, HashAndEqualityDependOnEveryField) {
    const nupa::FlowKey k = ipv4_key(5);
    EXPECT_NE(k.hash(1), k.hash(2));
    for (std::size_t i = 0; i < sizeof k.raw; i++) {
        nupa::FlowKey other = k;
        reinterpret_cast<std::uint8_t*>(&other.raw)[i] ^= 1;
        EXPECT_NE(k.hash(1), other.hash(1)) << i;
        EXPECT_FALSE(k == other) << i;
    }
}

}  // namespace
