// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "engine/qp_table.hpp"

namespace {

// Few hashes and a small table, so that probes collide, shift and wrap around its end.
TEST(HashIndex, RandomOperationsWithCollisions) {
    std::mt19937 random(12);
    nupa::HashIndex index;
    std::map<std::uint32_t, std::uint32_t> mirror;  // number to hash
    EXPECT_EQ(index.guess(0), nupa::HashIndex::kNone);
    for (int step = 0; step < 300000; step++) {
        const std::uint32_t number = random() % 90;
        const auto at = mirror.find(number);
        if (random() % 2) {
            const std::uint32_t hash = 50 + random() % 20;
            if (at == mirror.end()) {
                index.make_room();
                index.insert(hash, number);
                mirror[number] = hash;
            } else {
                index.erase(at->second, number);
                mirror.erase(at);
            }
        }
        ASSERT_EQ(index.size(), mirror.size());
        const std::uint32_t any = random() % 90;
        for (std::uint32_t hash = 48; hash < 72; hash++) {
            const bool there = mirror.contains(any) && mirror[any] == hash;
            ASSERT_EQ(index.find(hash, [&](std::uint32_t n) { return n == any; }),
                      there ? any : nupa::HashIndex::kNone);
        }
    }
    index.clear();
    EXPECT_EQ(index.size(), 0u);
    EXPECT_EQ(index.guess(50), nupa::HashIndex::kNone);
}

TEST(Pool, ObjectsStayAndComeBackNew) {
    nupa::Pool<std::vector<int>> pool;
    std::set<std::uint32_t> numbers;
    std::map<std::uint32_t, const void*> at;
    for (int i = 0; i < 100; i++) {
        pool.reserve();
        const std::uint32_t n = pool.take();
        ASSERT_TRUE(numbers.insert(n).second);
        ASSERT_TRUE(pool[n].empty());
        pool[n].assign(3, i);
        at[n] = &pool[n];
    }
    for (const auto& [n, where] : at)
        EXPECT_EQ(&pool[n], where);
    pool.give_back(7);
    const std::uint32_t again = pool.take();
    EXPECT_EQ(again, 7u);
    EXPECT_TRUE(pool[again].empty());
    pool.clear();
    pool.reserve();
    EXPECT_TRUE(pool[pool.take()].empty());
}

nupa_cmd_qp command(std::uint32_t n) {
    nupa_cmd_qp cmd{};
    cmd.flow.family = 4;
    std::memcpy(cmd.flow.saddr, &n, 4);
    cmd.flow.daddr[0] = 10;
    cmd.flow.sport = static_cast<__be16>(n * 7), cmd.flow.dport = 99;
    cmd.flags = NUPA_QP_F_NO_RQ;
    return cmd;
}
nupa::FlowKey key(std::uint32_t n) { return {command(n).flow}; }

struct QpTableTest : testing::Test {
    nupa::HostMemory memory;
    nupa::MemoryBudget budget{nupa::kPortMemoryDefaultBytes};
    nupa::QpTable table{7, budget, 20000};

    nupa_admin_status create(std::uint32_t n) { return table.create(memory, 1000 + n, command(n)); }
    nupa_admin_status destroy(std::uint32_t n) { return table.destroy(1000 + n); }
    // By flow, by number, and by flow again after it was expected: the same context.
    bool finds(std::uint32_t n) {
        const nupa::QpContext* qp = table.find(key(n));
        nupa::QpTable::Guesses guesses;
        table.expect(std::array{key(n), key(n + 1)}, guesses);
        EXPECT_EQ(guesses[0] == nupa::HashIndex::kNone, !qp);  // no two hashes are the same here
        table.expect_contexts({guesses.data(), 2});
        EXPECT_EQ(table.find(key(n)), qp);
        EXPECT_EQ(table.find(1000 + n), qp);
        EXPECT_TRUE(!qp || (qp->qpn() == 1000 + n && qp->flow() == key(n)));
        return qp;
    }
};

TEST_F(QpTableTest, Many) {
    constexpr std::uint32_t kQps = 20000;
    for (std::uint32_t i = 0; i < kQps; i++)
        ASSERT_EQ(create(i), NUPA_OK);
    EXPECT_EQ(create(kQps), NUPA_E_NOSPACE);
    EXPECT_EQ(table.size(), kQps);
    for (std::uint32_t i = 0; i < kQps; i++)
        ASSERT_TRUE(finds(i));
    EXPECT_FALSE(finds(kQps));
    for (std::uint32_t i = 0; i < kQps; i += 2)
        ASSERT_EQ(destroy(i), NUPA_OK);
    for (std::uint32_t i = 0; i < kQps; i++)
        ASSERT_EQ(finds(i), i % 2 == 1);
}

// Against a std::set, few of them.
TEST_F(QpTableTest, RandomOperations) {
    std::mt19937 random(11);
    std::set<std::uint32_t> mirror;
    for (int step = 0; step < 100000; step++) {
        const std::uint32_t n = random() % 60;
        switch (random() % 3) {
            case 0:
                ASSERT_EQ(create(n), mirror.insert(n).second ? NUPA_OK : NUPA_E_EXISTS);
                break;
            case 1:
                ASSERT_EQ(destroy(n), mirror.erase(n) ? NUPA_OK : NUPA_E_NOENT);
                break;
            default:
                ASSERT_EQ(finds(n), mirror.contains(n));
        }
        ASSERT_EQ(table.size(), mirror.size());
    }
    table.clear();
    EXPECT_EQ(table.size(), 0u);
    EXPECT_FALSE(finds(1));
    EXPECT_EQ(table.find(nupa::FlowKey{}), nullptr);
    EXPECT_EQ(create(1), NUPA_OK);
    EXPECT_TRUE(finds(1));
}

TEST_F(QpTableTest, RefusesAndForgetsWhatItRefused) {
    ASSERT_EQ(create(1), NUPA_OK);
    EXPECT_EQ(table.create(memory, 1001, command(2)), NUPA_E_EXISTS);  // the number
    EXPECT_EQ(table.create(memory, 1002, command(1)), NUPA_E_EXISTS);  // the flow
    nupa_cmd_qp bad = command(3);
    bad.flags |= 1u << 31;
    EXPECT_EQ(table.create(memory, 1003, bad), NUPA_E_INVALID);
    EXPECT_EQ(table.size(), 1u);
    EXPECT_EQ(table.find(1002), nullptr);
    EXPECT_EQ(table.find(1003), nullptr);
    EXPECT_FALSE(finds(3));
    EXPECT_EQ(create(2), NUPA_OK);
    EXPECT_TRUE(finds(1));
    EXPECT_TRUE(finds(2));
}

// The answer of the last find() must not survive what changes it.
TEST_F(QpTableTest, TheLastOneIsForgotten) {
    ASSERT_EQ(create(9), NUPA_OK);
    EXPECT_FALSE(finds(1));
    ASSERT_EQ(create(1), NUPA_OK);
    EXPECT_TRUE(finds(1));
    ASSERT_EQ(destroy(1), NUPA_OK);
    EXPECT_EQ(table.find(key(1)), nullptr);
    ASSERT_EQ(create(2), NUPA_OK);  // where it was
    EXPECT_EQ(table.find(key(1)), nullptr);
    EXPECT_NE(table.find(key(9)), nullptr);
    EXPECT_EQ(table.find(nupa::FlowKey{}), nullptr);
}

}  // namespace
