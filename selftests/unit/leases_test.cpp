// SPDX-License-Identifier: BSD-3-Clause
// Who owns which page of a pool, and what a host may name of it.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/host_memory.hpp"
#include "engine/mr.hpp"
#include "guest.hpp"
#include "seed.hpp"

namespace {

using namespace test;
using nupa::Leases;

constexpr std::uint64_t kPool = 64 * kPage;
constexpr Leases::Owner kA = 0, kB = 1;

std::uint64_t lease(Leases& leases, Leases::Owner owner, std::uint64_t bytes) {
    const auto at = leases.begin(owner, bytes);
    EXPECT_TRUE(at);
    leases.granted(at.value_or(0));
    return at.value_or(0);
}

TEST(Leases, BelongToOneHost) {
    Leases leases(kPool);
    const std::uint64_t a = lease(leases, kA, 2 * kPage), b = lease(leases, kB, kPage);
    EXPECT_TRUE(leases.covers(kA, a, 2 * kPage));
    EXPECT_FALSE(leases.covers(kB, a, 1));
    EXPECT_FALSE(leases.covers(kA, b, 1));
    EXPECT_FALSE(leases.covers(kA, a, 2 * kPage + 1)) << "into the neighbour's";
    EXPECT_FALSE(leases.covers(kA, a + kPage, UINT64_MAX));
    EXPECT_FALSE(leases.covers(kA, UINT64_MAX, 1));
    EXPECT_EQ(leases.leave(kB, a), NUPA_POOL_E_NOENT);
    EXPECT_EQ(leases.leave(kA, a + kPage), NUPA_POOL_E_NOENT) << "its middle";
    EXPECT_EQ(leases.free_bytes(), kPool - 3 * kPage);
}

TEST(Leases, AreNobodysWhileTheyComeAndLeave) {
    Leases leases(kPool);
    const auto at = leases.begin(kA, kPool);
    ASSERT_TRUE(at);
    EXPECT_FALSE(leases.covers(kA, *at, 1));
    EXPECT_EQ(leases.leave(kA, *at), NUPA_POOL_E_NOENT) << "not zero yet";
    leases.granted(*at);
    EXPECT_EQ(leases.leave(kA, *at), NUPA_ACCEL_OK);
    EXPECT_FALSE(leases.covers(kA, *at, 1));
    EXPECT_EQ(leases.leave(kA, *at), NUPA_POOL_E_NOENT) << "twice";
    EXPECT_FALSE(leases.begin(kB, kPage)) << "not zero yet";
    leases.freed(*at);
    EXPECT_TRUE(leases.begin(kB, kPool));
}

TEST(Leases, AreNobodysWhileTheyAreOffered) {
    Leases leases(kPool);
    const std::uint64_t at = lease(leases, kA, 2 * kPage);
    Leases::Taken taken{};
    leases.pin(at);
    EXPECT_EQ(leases.offer(kA, at, 7), NUPA_POOL_E_BUSY);
    leases.unpin(at);
    EXPECT_EQ(leases.offer(kB, at, 7), NUPA_POOL_E_NOENT);
    EXPECT_EQ(leases.offer(kA, at, 7), NUPA_ACCEL_OK);
    EXPECT_FALSE(leases.covers(kA, at, 1));
    EXPECT_EQ(leases.take(kB, 8, 2 * kPage, taken), NUPA_POOL_E_NOENT);
    EXPECT_EQ(leases.take(kB, 7, kPage, taken), NUPA_POOL_E_NOENT);
    EXPECT_EQ(leases.take(kB, 7, 2 * kPage, taken), NUPA_ACCEL_OK);
    EXPECT_EQ(taken.at, at);
    EXPECT_EQ(taken.from, kA);
    EXPECT_FALSE(leases.covers(kB, at, 1)) << "not there yet";
    leases.granted(at);
    EXPECT_TRUE(leases.covers(kB, at, 2 * kPage));
    EXPECT_EQ(leases.take(kB, 7, 2 * kPage, taken), NUPA_POOL_E_NOENT) << "twice";
    EXPECT_EQ(leases.leave(kA, at), NUPA_POOL_E_NOENT);
    EXPECT_EQ(leases.offer(kB, at, 9), NUPA_ACCEL_OK);
    EXPECT_EQ(leases.leave(kB, at, 7), NUPA_POOL_E_NOENT) << "an old token";
    EXPECT_EQ(leases.leave(kB, at, 9), NUPA_ACCEL_OK);
    leases.freed(at);
    EXPECT_EQ(leases.free_bytes(), kPool);
}

// Offers are their host's, and count to its share, until they are taken.
TEST(Leases, AShareBoundsWhatIsTaken) {
    Leases leases(4 * kPage);
    leases.join(kA);
    leases.join(kB);
    const std::uint64_t a = lease(leases, kA, 2 * kPage), b = lease(leases, kB, kPage);
    Leases::Taken taken{};
    ASSERT_EQ(leases.offer(kA, a, 7), NUPA_ACCEL_OK);
    EXPECT_TRUE(leases.over_share(kA, kPage));
    EXPECT_EQ(leases.take(kB, 7, 2 * kPage, taken), NUPA_POOL_E_SHARE);
    ASSERT_EQ(leases.leave(kB, b), NUPA_ACCEL_OK);
    leases.freed(b);
    EXPECT_EQ(leases.take(kB, 7, 2 * kPage, taken), NUPA_ACCEL_OK);
    EXPECT_FALSE(leases.over_share(kA, 2 * kPage));
    EXPECT_TRUE(leases.over_share(kB, kPage));
    leases.drop(kB);
    EXPECT_EQ(leases.free_bytes(), 4 * kPage);
}

TEST(Leases, AShareIsAnEqualPartOrWhatWasSaid) {
    Leases leases(10 * kPage);
    EXPECT_EQ(leases.share(kA), 10 * kPage) << "nobody joined";
    leases.join(kA);
    EXPECT_EQ(leases.share(kA), 10 * kPage) << "alone";
    leases.join(kB);
    leases.join(2);
    EXPECT_EQ(leases.share(kA), 3 * kPage);
    leases.join(kB, 8 * kPage);
    EXPECT_EQ(leases.share(kB), 8 * kPage);
    leases.join(kB, UINT64_MAX);
    EXPECT_EQ(leases.share(kB), 10 * kPage);
}

// Whatever one host takes, the others' parts are left.
TEST(Leases, NobodyLeasesMoreThanItsShare) {
    Leases leases(4 * kPage);
    leases.join(kA);
    leases.join(kB);
    EXPECT_FALSE(leases.begin(kA, 3 * kPage));
    const std::uint64_t first = lease(leases, kA, kPage);
    const auto second = leases.begin(kA, kPage);
    ASSERT_TRUE(second);
    EXPECT_TRUE(leases.over_share(kA, 1)) << "what comes counts";
    EXPECT_FALSE(leases.begin(kA, kPage));
    EXPECT_EQ(leases.leave(kA, first), NUPA_ACCEL_OK);
    EXPECT_FALSE(leases.begin(kA, kPage)) << "what leaves counts";
    leases.freed(first);
    EXPECT_TRUE(leases.begin(kA, kPage));
    EXPECT_TRUE(leases.begin(kB, 2 * kPage)) << "its own part, all of it";
    leases.drop(kA);
    EXPECT_FALSE(leases.over_share(kA, 2 * kPage));
}

TEST(Leases, RefusesWhatThereIsNot) {
    Leases leases(kPool);
    EXPECT_FALSE(leases.begin(kA, 0));
    EXPECT_FALSE(leases.begin(kA, kPage + 1));
    EXPECT_FALSE(leases.begin(kA, kPool + kPage));
    EXPECT_FALSE(leases.begin(kA, ~(kPage - 1)));
    const std::uint64_t first = lease(leases, kA, kPage);
    lease(leases, kB, kPage);
    ASSERT_EQ(leases.leave(kA, first), NUPA_ACCEL_OK);
    leases.freed(first);
    EXPECT_FALSE(leases.begin(kA, kPool - kPage)) << "free, but in two parts";
}

TEST(Leases, OfOneHostAreBounded) {
    Leases leases(2ull * NUPA_POOL_LEASES_MAX * kPage);
    for (unsigned i = 0; i < NUPA_POOL_LEASES_MAX; i++)
        ASSERT_TRUE(leases.begin(kA, kPage));
    EXPECT_FALSE(leases.begin(kA, kPage));
    EXPECT_TRUE(leases.begin(kB, kPage)) << "the neighbour's share";
    leases.drop(kA);
    EXPECT_TRUE(leases.begin(kA, kPage));
}

// Any order of what hosts may ask: no page has two owners, none is lost.
TEST(Leases, AgreeWithAModel) {
    const std::uint32_t seed = chosen_seed();
    SCOPED_TRACE("NUPA_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    Leases leases(kPool);
    std::vector<int> owners(kPool / kPage, -1);
    const auto set = [&](std::uint64_t at, std::uint64_t bytes, int owner) {
        for (std::uint64_t page = at / kPage; page < (at + bytes) / kPage; page++) {
            ASSERT_EQ(owners[page] == -1, owner != -1) << "page " << page;
            owners[page] = owner;
        }
    };
    for (unsigned step = 0; step < 20000; step++) {
        const auto owner = static_cast<Leases::Owner>(random() % 3);
        const std::uint64_t at = random() % owners.size() * kPage;
        if (random() % 2) {
            const std::uint64_t bytes = (1 + random() % 8) * kPage;
            if (const auto got = leases.begin(owner, bytes)) {
                leases.granted(*got);
                set(*got, bytes, owner);
            }
        } else if (leases.leave(owner, at) == NUPA_ACCEL_OK) {
            const std::uint64_t bytes = leases.all().at(at).bytes;
            leases.freed(at);
            set(at, bytes, -1);
        }
        const int whose = owners[at / kPage];
        for (Leases::Owner other = 0; other < 3; other++)
            ASSERT_EQ(leases.covers(other, at, kPage), whose == other);
    }
    for (Leases::Owner owner = 0; owner < 3; owner++)
        leases.drop(owner);
    EXPECT_EQ(leases.free_bytes(), kPool);
    EXPECT_TRUE(leases.all().empty());
}

// ---- what a host may name ----

constexpr std::uint64_t kWindowAt = 1ull << 40;

struct Window : testing::Test {
    Guest guest;
    Leases leases{kPool};
    std::vector<std::byte> memory = std::vector<std::byte>(2 * kPool);
    nupa::LeasedMemory window{leases, kA};
    nupa::MemoryBudget budget{nupa::kPortMemoryDefaultBytes};
    nupa::MrTable mrs{1, budget, 8};
    std::uint64_t a = 0, b = 0, c = 0;

    Window() {
        window.map(memory);
        EXPECT_TRUE(guest.memory.add_leased(kWindowAt, window));
        a = lease(leases, kA, 2 * kPage);
        b = lease(leases, kB, 2 * kPage);
        c = lease(leases, kA, kPage);
    }
    nupa_admin_status reg(std::uint32_t key, const std::vector<std::uint64_t>& pages) {
        nupa_cmd_mr cmd{};
        cmd.bytes = pages.size() * kPage;
        cmd.table_addr = guest.table(pages);
        cmd.pages = static_cast<std::uint32_t>(pages.size());
        cmd.page_shift = 12;
        return mrs.reg(guest.memory, key, cmd);
    }
};

TEST_F(Window, PayloadIsSentFromLeasesOnly) {
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + a, 2 * kPage), &memory[a]);
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + a, 2 * kPage + 1), nullptr);
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + b, 1), nullptr) << "the neighbour's";
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + kPool, 1), nullptr) << "beyond the pool";
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + 2 * kPool, 1), nullptr) << "beyond the window";
    EXPECT_EQ(guest.memory.payload_at(kWindowAt - 1, 2), nullptr);
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + a, 0), nullptr);
    EXPECT_NE(guest.memory.payload_at(kPage, kPage), nullptr) << "RAM as ever";
}

TEST_F(Window, NoRingIsInIt) { EXPECT_EQ(guest.memory.at(kWindowAt + a, kPage), nullptr); }

TEST_F(Window, RegionsAreInOneLease) {
    EXPECT_EQ(reg(1, {kWindowAt + a, kWindowAt + a + kPage}), NUPA_OK);
    EXPECT_EQ(reg(2, {kWindowAt + b}), NUPA_E_ADDRESS) << "the neighbour's";
    EXPECT_EQ(reg(2, {kWindowAt + a, kWindowAt + c}), NUPA_E_ADDRESS) << "of two leases";
    EXPECT_EQ(reg(2, {kWindowAt + kPool}), NUPA_E_ADDRESS);
    EXPECT_EQ(mrs.find(1)->run(0, 2 * kPage).data(), &memory[a]);
}

TEST_F(Window, ALeaseStaysWhileARegionIsInIt) {
    ASSERT_EQ(reg(1, {kWindowAt + a, kWindowAt + a + kPage}), NUPA_OK);
    ASSERT_EQ(reg(2, {kWindowAt + a}), NUPA_OK);
    EXPECT_EQ(leases.leave(kA, a), NUPA_POOL_E_BUSY);
    EXPECT_EQ(mrs.dereg(1), NUPA_OK);
    EXPECT_EQ(leases.leave(kA, a), NUPA_POOL_E_BUSY);
    EXPECT_EQ(mrs.dereg(2), NUPA_OK);
    EXPECT_EQ(leases.leave(kA, a), NUPA_ACCEL_OK);
    EXPECT_EQ(reg(1, {kWindowAt + a}), NUPA_E_ADDRESS) << "it leaves";
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + a, 1), nullptr);
}

// A reset takes many turns: nothing of it can be named from its begin on.
TEST_F(Window, NoRegionComesIntoLeasesThatLeave) {
    leases.leave_all(kA);
    EXPECT_EQ(reg(1, {kWindowAt + a}), NUPA_E_ADDRESS);
    EXPECT_EQ(reg(1, {kWindowAt + c}), NUPA_E_ADDRESS);
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + c, 1), nullptr);
    EXPECT_TRUE(leases.covers(kB, b, 2 * kPage));
    while (const auto at = leases.leaving(kA))
        leases.freed(*at);
    EXPECT_EQ(leases.free_bytes(), kPool - 2 * kPage);
}

TEST_F(Window, ARegionThatFailsHoldsNothing) {
    EXPECT_EQ(reg(1, {kWindowAt + a, kWindowAt + b}), NUPA_E_ADDRESS);
    EXPECT_FALSE(leases.pinned(kA));
    EXPECT_EQ(leases.leave(kA, a), NUPA_ACCEL_OK);
}

TEST_F(Window, HasAPlaceOfItsOwn) {
    EXPECT_FALSE(guest.memory.add_leased(kWindowAt * 2, window)) << "a second one";
    std::vector<std::byte> more(kPage);
    EXPECT_FALSE(guest.memory.add(kWindowAt + kPool, more)) << "over it";
    guest.memory.remove_leased();
    EXPECT_EQ(guest.memory.payload_at(kWindowAt + a, 1), nullptr);
    EXPECT_FALSE(guest.memory.add_leased(kPage, window)) << "over RAM";
    EXPECT_TRUE(guest.memory.add(kWindowAt + kPool, more));
    EXPECT_FALSE(guest.memory.add_leased(kWindowAt, window)) << "over an accelerator";
}

}  // namespace
