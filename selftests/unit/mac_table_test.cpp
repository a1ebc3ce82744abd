// SPDX-License-Identifier: BSD-3-Clause
// Who may use which Ethernet address, and for how long a switch remembers.
#include "fabric/mac_table.hpp"

#include <gtest/gtest.h>

namespace {

using nupa::daemon::kMacIdleS;
using nupa::daemon::kMacsPerGuestMax;
using nupa::daemon::kMacsPerUplinkMax;
using nupa::daemon::MacAddress;
using nupa::daemon::MacTable;

constexpr uint16_t kGuest = 1, kOther = 2, kUplink = 3;
uint32_t clock_s;

class Macs : public testing::Test {
protected:
    static MacAddress mac(uint32_t number) {
        return {2,
                0,
                static_cast<uint8_t>(number >> 24),
                static_cast<uint8_t>(number >> 16),
                static_cast<uint8_t>(number >> 8),
                static_cast<uint8_t>(number)};
    }
    bool sends(uint32_t number, uint16_t port = kGuest) {
        return table_.learn(mac(number).data(), port,
                            port == kUplink ? MacTable::Kind::kUplink : MacTable::Kind::kGuest);
    }
    int found(uint32_t number) const { return table_.find(mac(number).data()); }
    // Numbers from 1 on, as many as a guest may have.
    void fill() {
        for (uint32_t number = 1; number <= kMacsPerGuestMax; number++)
            ASSERT_TRUE(sends(number));
    }
    void SetUp() override { clock_s = 0xffffff00; }  // wraps soon

    MacTable table_{[]() noexcept { return clock_s; }};
};

constexpr uint32_t kOneMore = kMacsPerGuestMax + 1;

TEST_F(Macs, WhatIsIdleMakesRoom) {
    fill();
    EXPECT_FALSE(sends(kOneMore));
    clock_s += kMacIdleS - 1;
    EXPECT_FALSE(sends(kOneMore));
    EXPECT_TRUE(sends(1));
    clock_s += 1;
    EXPECT_TRUE(sends(kOneMore));
    EXPECT_EQ(found(kOneMore), kGuest);
    EXPECT_EQ(found(1), kGuest) << "it was used";
    EXPECT_EQ(found(2), MacTable::kUnknown);
    EXPECT_TRUE(sends(2)) << "and there is room";
}

// What there is room for stays, however long nobody uses it.
TEST_F(Macs, NothingIsForgottenForAge) {
    EXPECT_TRUE(sends(1));
    clock_s += 100 * kMacIdleS;
    EXPECT_TRUE(sends(2));
    EXPECT_EQ(found(1), kGuest);
    EXPECT_FALSE(sends(1, kOther));
}

TEST_F(Macs, TheLastSenderIsNotIdle) {
    fill();
    for (int i = 0; i < 3; i++) {
        clock_s += kMacIdleS;
        EXPECT_TRUE(sends(kMacsPerGuestMax));  // the last one that fill() had
    }
    EXPECT_TRUE(sends(kOneMore));
    EXPECT_EQ(found(kMacsPerGuestMax), kGuest);
    EXPECT_EQ(found(1), MacTable::kUnknown);
}

TEST_F(Macs, NorIsItOnceAnotherPortIsGone) {
    fill();
    EXPECT_TRUE(sends(1000, kOther));
    EXPECT_TRUE(sends(1));
    clock_s += kMacIdleS;
    EXPECT_TRUE(sends(1));
    table_.forget_port(kOther);
    EXPECT_TRUE(sends(kOneMore));
    EXPECT_EQ(found(1), kGuest);
}

TEST_F(Macs, WhatIsKeptStays) {
    const MacAddress kept = mac(500), own = mac(600);
    table_.reserve(own.data(), kGuest);
    EXPECT_TRUE(table_.keep(kept.data(), kGuest, MacTable::Kind::kGuest));
    EXPECT_TRUE(sends(600));
    for (uint32_t number = 1; number <= kMacsPerGuestMax - 2; number++)
        EXPECT_TRUE(sends(number));
    clock_s += kMacIdleS;
    EXPECT_TRUE(sends(kOneMore));
    EXPECT_EQ(found(500), kGuest);
    EXPECT_EQ(found(600), kGuest);
    table_.forget(kept.data(), kGuest);
    EXPECT_EQ(found(500), MacTable::kUnknown);
}

// A guest that boots with another address each time.
TEST_F(Macs, WhatIsReleasedMakesRoom) {
    for (uint32_t number = 1; number <= kMacsPerGuestMax; number++) {
        EXPECT_TRUE(table_.keep(mac(number).data(), kGuest, MacTable::Kind::kGuest));
        table_.release(mac(number).data(), kOther);
        if (number != 1)
            table_.release(mac(number).data(), kGuest);
    }
    EXPECT_EQ(found(2), kGuest);
    EXPECT_FALSE(sends(2, kOther)) << "it may come back";
    EXPECT_FALSE(table_.keep(mac(kOneMore).data(), kGuest, MacTable::Kind::kGuest));
    clock_s += kMacIdleS;
    EXPECT_TRUE(table_.keep(mac(kOneMore).data(), kGuest, MacTable::Kind::kGuest));
    EXPECT_EQ(found(1), kGuest) << "it is kept";
    EXPECT_EQ(found(2), MacTable::kUnknown);
}

// Who invents addresses makes no other port's idle ones free.
TEST_F(Macs, OthersKeepTheirs) {
    EXPECT_TRUE(sends(1000, kOther));
    fill();
    clock_s += kMacIdleS;
    EXPECT_TRUE(sends(kOneMore));
    EXPECT_FALSE(sends(1000));
    EXPECT_EQ(found(1000), kOther);
}

TEST_F(Macs, AnUplinksIdleOnesMakeRoomToo) {
    for (uint32_t number = 1; number <= kMacsPerUplinkMax; number++)
        EXPECT_TRUE(sends(number, kUplink));
    EXPECT_TRUE(sends(5000, kUplink)) << "flooded";
    EXPECT_EQ(found(5000), MacTable::kUnknown);
    clock_s += kMacIdleS;
    EXPECT_TRUE(sends(5000, kUplink));
    EXPECT_EQ(found(5000), kUplink);
}

}  // namespace
