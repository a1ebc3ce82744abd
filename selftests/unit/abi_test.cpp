// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>

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
    EXPECT_EQ(NUPA_STAT_completed_messages, 53);
    EXPECT_EQ(NUPA_STAT_rx_quiet, 54);
    EXPECT_EQ(NUPA_STAT_completed_sends, 55);
    EXPECT_EQ(NUPA_QP_STAT_disorder_overflows, 7);
    EXPECT_EQ(NUPA_QP_STAT_completed_messages, 8);
    EXPECT_EQ(NUPA_ADMIN_CQ_DESTROY, 18);
    EXPECT_EQ(NUPA_TURN_BUSY, 2);
    EXPECT_EQ(NUPA_CQ_OWNER_SWITCH, 2);
    EXPECT_EQ(TCP_QP_REASON_PROTOCOL, 10);
    EXPECT_EQ(TCP_BTH_OP_SEND_ONLY_INV, 0x17);
    EXPECT_EQ(NUPA_POOL_RELEASE, 0x41);
    EXPECT_EQ(NUPA_POOL_E_NOSPACE, 5);
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

// nupa_rx_bufs_right() against the definition: each buffer in turn takes what it holds, and one
// that gets nothing is not named.  Counts and lengths as a lying switch may write them.
TEST(Abi, RxBufsRight) {
    const auto definition = [](__u64 payload, __u32 longs, __u64 long_bytes, __u32 shorts) {
        if (longs + shorts > NUPA_RX_BUFS_PER_PACKET_MAX || (longs && !long_bytes))
            return false;
        for (__u32 i = 0; i < longs + shorts; i++) {
            if (!payload)
                return false;
            payload -= std::min<__u64>(payload, i < longs ? long_bytes : 4096);
        }
        return payload == 0;
    };
    unsigned right = 0;
    for (const __u32 long_bytes : {0u, 8192u, 65536u})
        for (const __u32 longs : {0u, 1u, 2u, 15u, 16u, 17u, 18u, 32768u, 65535u})
            for (const __u32 shorts : {0u, 1u, 2u, 16u, 17u, 18u, 65535u})
                for (const __u64 base : {__u64{0}, __u64{longs} * long_bytes,
                                         __u64{longs} * long_bytes + __u64{shorts} * 4096,
                                         __u64{1} << 31, (__u64{1} << 32) - 2})
                    for (const int step : {-65536, -4097, -4096, -4095, -1, 0, 1, 4096, 65536}) {
                        const auto payload = static_cast<__u32>(base + static_cast<__u64>(step));
                        const bool is = definition(payload, longs, long_bytes, shorts);
                        ASSERT_EQ(nupa_rx_bufs_right(payload, longs, long_bytes, shorts, 4096), is)
                            << payload << ' ' << longs << ' ' << long_bytes << ' ' << shorts;
                        right += is;
                    }
    EXPECT_GT(right, 50u);
}

}  // namespace
