// SPDX-License-Identifier: BSD-3-Clause
// From a message's record to the option of a segment and back, by the kernel's own source.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <array>
#include <cstdint>

extern "C" {
#include "wire/msgwire.h"
#include "wire/rxmsg.h"
}

namespace {

constexpr std::uint32_t kStart = 0xfffffff8u;  // the sequence space wraps inside

tqp_msg_rec record(std::uint8_t opcode, std::uint32_t length) {
    tqp_msg_rec rec{};
    rec.start_seq = kStart;
    rec.length = length;
    rec.msn = 7;
    rec.opcode = opcode;
    rec.ext_bytes = static_cast<std::uint8_t>(tcp_bth_ext_bytes(opcode));
    return rec;
}

// What a receiver learns of @bytes from offset @at on.
tqp_skb_map map_of(const tqp_msg_rec& rec, std::uint8_t version, std::uint32_t at,
                   std::uint32_t bytes) {
    tcp_bth sent, parsed;
    tqp_bth_of(&sent, &rec, version, 0, kStart + at, bytes);
    std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> option{};
    const unsigned room = tcp_bth_build(option.data(), &sent);
    EXPECT_EQ(tcp_bth_parse(option.data(), room, kStart + at, bytes, &parsed), TCP_BTH_OK);
    tqp_skb_map map;
    tqp_map_fill(&map, &parsed, bytes);
    EXPECT_EQ(map.start_seq, kStart);
    EXPECT_EQ(map.msn, 7);
    return map;
}

TEST(RxNumbers, EveryMessageOfEverySpaceIsCounted) {
    const tqp_rx_numbers before{0xffff, 0xfff0, 7, 0xffff};  // these wrap
    tqp_rx_numbers now = before;
    EXPECT_EQ(tqp_rx_numbers_since(&now, &before), 0u);
    for (__u16* number : {&now.untagged, &now.write, &now.request, &now.response})
        *number = static_cast<__u16>(*number + TCP_BTH_TRAIN_MAX_MESSAGES);
    EXPECT_EQ(tqp_rx_numbers_since(&now, &before), 4u * TCP_BTH_TRAIN_MAX_MESSAGES);
}

// Requests have no FIRST and LAST: cut by TCP, each part must still be known as one.
TEST(MsgWire, PartsOfARequest) {
    for (const std::uint8_t opcode :
         {TCP_BTH_OP_READ_REQUEST, TCP_BTH_OP_CMP_SWAP, TCP_BTH_OP_FETCH_ADD, TCP_BTH_OP_TERMINATE})
        for (const std::uint8_t version : {0, 1})
            for (std::uint32_t cut = 0; cut <= 28; cut++) {
                const tqp_msg_rec rec = record(opcode, 28);
                for (const auto& [at, bytes] : {std::pair{0u, cut}, std::pair{cut, 28 - cut}}) {
                    if (!bytes)
                        continue;
                    const tqp_skb_map map = map_of(rec, version, at, bytes);
                    EXPECT_EQ(map.opcode, opcode);
                    EXPECT_TRUE(map.flags & TQP_MAP_LENGTH_KNOWN);
                    EXPECT_EQ(map.length, 28u) << "version " << +version << " cut at " << cut;
                }
            }
}

// Each part of a WRITE tells its whole length, and the last one the immediate.
TEST(MsgWire, PartsOfAWriteWithImmediate) {
    tqp_msg_rec rec = record(TCP_BTH_OP_WRITE_ONLY_IMM, 100);
    rec.va = 0x123456789a, rec.rkey = 5, rec.dma_length = 0xabcd;
    for (const auto& [at, bytes] : {std::pair{0u, 40u}, std::pair{40u, 20u}, std::pair{60u, 40u}}) {
        const tqp_skb_map map = map_of(rec, 0, at, bytes);
        EXPECT_EQ(map.length, 100u);
        EXPECT_EQ(map.va, rec.va);
        EXPECT_EQ(map.rkey, rec.rkey);
        EXPECT_EQ(bool(map.flags & TQP_MAP_OPCODE_KNOWN), at == 60);
        EXPECT_EQ(map.ext4, at == 60 ? 0xabcdu : 0u);
    }
}

// Whatever part of a train a segment holds, each of its bytes is of the same message.
TEST(MsgWire, PartsOfATrain) {
    constexpr std::uint32_t kBytes = 12, kMessages = 5;
    std::array<tqp_msg_rec, kMessages> records;
    for (std::uint32_t i = 0; i < kMessages; i++) {
        records[i] = record(TCP_BTH_OP_SEND_ONLY, kBytes);
        records[i].start_seq += i * kBytes;
        records[i].msn = static_cast<std::uint16_t>(65534 + i);
    }
    for (std::uint32_t from = 0; from < kBytes * kMessages; from++)
        for (std::uint32_t to = from + 1; to <= kBytes * kMessages; to++) {
            const tqp_msg_rec &first = records[from / kBytes], &last = records[(to - 1) / kBytes];
            if (&first == &last)
                continue;
            tcp_bth sent, parsed;
            tqp_bth_of_train(&sent, &first, &last, TCP_BTH_F_TIMESTAMP, kStart + from);
            std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> option{};
            const unsigned room = tcp_bth_build(option.data(), &sent);
            ASSERT_EQ(tcp_bth_parse(option.data(), room, kStart + from, to - from, &parsed),
                      TCP_BTH_OK);
            tqp_skb_map map;
            tqp_rx_train train{};
            tqp_map_fill(&map, &parsed, to - from);
            for (std::uint32_t at = from; at < to; at++) {
                // TCP may have lost the mapping of all but the first byte
                const tqp_skb_map* one =
                    tqp_map_at(&train, at == from ? &map : nullptr, kStart + at);
                ASSERT_NE(one, nullptr);
                EXPECT_EQ(one->msn, records[at / kBytes].msn);
                EXPECT_EQ(one->start_seq, records[at / kBytes].start_seq);
                EXPECT_EQ(one->length, kBytes);
                EXPECT_EQ(one->opcode, TCP_BTH_OP_SEND_ONLY);
                EXPECT_EQ(one->flags, TQP_MAP_LENGTH_KNOWN | TQP_MAP_OPCODE_KNOWN);
            }
            const std::uint32_t end = (to + kBytes - 1) / kBytes * kBytes;
            EXPECT_EQ(tqp_map_at(&train, nullptr, kStart + end), nullptr) << "beyond its end";
        }
}

// What comes after a train, or takes its place, says what it is itself.
TEST(MsgWire, AnotherMessageEndsATrain) {
    tqp_msg_rec first = record(TCP_BTH_OP_SEND_ONLY, 10), last = first;
    last.start_seq += 30;
    tcp_bth bth;
    tqp_bth_of_train(&bth, &first, &last, 0, kStart);
    tqp_skb_map of_train, other;
    tqp_map_fill(&of_train, &bth, 40);
    other = map_of(record(TCP_BTH_OP_SEND_ONLY, 100), 1, 0, 100);
    tqp_rx_train train{};
    EXPECT_NE(tqp_map_at(&train, &of_train, kStart + 10), nullptr);
    EXPECT_EQ(tqp_map_at(&train, &other, kStart + 20), &other);
    EXPECT_EQ(tqp_map_at(&train, nullptr, kStart + 20), nullptr);
}

}  // namespace
