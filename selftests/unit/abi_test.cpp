// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "abi_layout.h"

namespace {

constexpr abi_entry kCxxEntries[] = {ABI_SIZES(ABI_SIZE_ENTRY) ABI_OFFSETS(ABI_OFFSET_ENTRY)};

TEST(Abi, LayoutInCxx) {
    for (const abi_entry& e : kCxxEntries)
        EXPECT_EQ(e.found, e.fixed) << e.what;
}

TEST(Abi, LayoutInC) {
    ASSERT_EQ(abi_c_count, std::size(kCxxEntries));
    for (std::size_t i = 0; i < abi_c_count; i++)
        EXPECT_EQ(abi_c_entries[i].found, abi_c_entries[i].fixed) << abi_c_entries[i].what;
}

TEST(Abi, BarHoldsAllControlBlocks) {
    EXPECT_LE(NUPA_BAR2_ADMIN_AT + sizeof(nupa_admin_ctl), std::size_t{NUPA_BAR2_TXQ_AT});
    EXPECT_LE(NUPA_BAR2_TXQ_AT + NUPA_QUEUE_PAIRS_MAX * sizeof(nupa_ring_ctl),
              std::size_t{NUPA_BAR2_RXQ_AT});
    EXPECT_LE(NUPA_BAR2_RXQ_AT + NUPA_QUEUE_PAIRS_MAX * sizeof(nupa_rxq_ctl),
              std::size_t{NUPA_BAR2_BYTES});
}

TEST(Abi, EnumsKeepTheirNumbers) {
    EXPECT_EQ(NUPA_ADMIN_QP_STATS, 14);
    EXPECT_EQ(NUPA_E_ADDRESS, 6);
    EXPECT_EQ(NUPA_STAT_rx_packets, 0);
    EXPECT_EQ(NUPA_STAT_placed_segments, 16);
    EXPECT_EQ(NUPA_STAT_abi_errors, 41);
    EXPECT_EQ(NUPA_QP_STAT_COUNT, 8);
    EXPECT_EQ(TCP_QP_REASON_PROTOCOL, 10);
    EXPECT_EQ(TCP_BTH_OP_SEND_ONLY_INV, 0x17);
}

// nupa_need_event() against the definition: was @event passed by the move old -> now?
TEST(Abi, NeedEvent) {
    for (const __u32 base : {0u, 100u, 0xfffffff0u})
        for (__u32 step = 0; step < 20; step++)
            for (__u32 event = 0; event < 40; event++) {
                bool passed = false;
                for (__u32 i = 0; i < step; i++)
                    passed = passed || base + i == base - 10 + event;
                EXPECT_EQ(nupa_need_event(base - 10 + event, base + step, base), passed)
                    << base << ' ' << step << ' ' << event;
            }
}

}  // namespace
