// SPDX-License-Identifier: BSD-3-Clause
// Mixed trains of WRITEs, from their records to options and back to messages, by the kernel's own
// source; and that no two of their targets lie one over the other.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

extern "C" {
#include "wire/msgwire.h"
#include "wire/targets.h"
}

namespace {

constexpr std::uint32_t kWriteTable = 0xffffffb0u;  // the sequence space wraps inside,
constexpr std::uint16_t kWriteFirst = 65534;        // and so do the numbers
constexpr std::uint32_t kKey = 0xabcd0123u;

struct Write {
    std::uint32_t length;
    std::uint64_t va;
};
const std::vector<Write> kWrites{{5, 0x7fff00001000}, {64, 0x7fff00000fc0}, {1, 0x7fff00001005},
                                 {130, 0x10},         {7, 0x7fff00002000},  {7, 0x7fff00002007}};

struct WriteMixedWire : testing::Test {
    WriteMixedWire() {
        tqp_msglog_init(&log, records.data(), records.size());
        tqp_targets targets;
        tqp_targets_begin(&targets, sent.data(), kKey);
        tcp_bth_targets_begin(&all, kKey);
        for (const Write& w : kWrites) {
            EXPECT_TRUE(tqp_targets_add(&targets, w.length, w.va));
            tcp_bth_targets_add(&all, w.length, w.va);
        }
        add(record(kWriteTable, table_bytes, kWriteFirst, TCP_BTH_OP_TARGETS));
        std::uint32_t at = start;
        for (std::uint16_t i = 0; i < kWrites.size(); at += kWrites[i++].length) {
            tqp_msg_rec rec =
                record(at, kWrites[i].length, static_cast<std::uint16_t>(kWriteFirst + i),
                       TCP_BTH_OP_WRITE_ONLY);
            rec.ext_bytes = TCP_BTH_RETH_BYTES, rec.va = kWrites[i].va, rec.rkey = kKey;
            rec.mixed = true, rec.train_place = i;
            rec.mixed_start = start, rec.mixed_bytes = all.bytes, rec.mixed_check = all.check;
            add(rec);
        }
        learn(train);
    }
    static tqp_msg_rec record(std::uint32_t start, std::uint32_t length, std::uint16_t msn,
                              std::uint8_t opcode) {
        tqp_msg_rec rec{};
        rec.start_seq = start, rec.length = length, rec.msn = msn, rec.opcode = opcode;
        return rec;
    }
    void add(const tqp_msg_rec& rec) {
        *tqp_msglog_next(&log) = rec;
        tqp_msglog_commit(&log);
    }
    void learn(tqp_rx_train& to) {
        to = {};
        to.mixed.entries = entries.data();
        std::memcpy(entries.data(), sent.data(), table_bytes);
        ASSERT_TRUE(
            tqp_mixed_begin(&to.mixed, TCP_BTH_OP_TARGETS, kWriteFirst, start, table_bytes));
    }
    // What the option of the part [from, to) of the train says to a receiver.
    tqp_skb_map map_of(std::uint32_t from, std::uint32_t to, std::uint8_t version = 1) {
        const std::uint32_t seq = start + from;
        const tqp_msg_rec* first = tqp_msglog_find(&log, seq);
        const tqp_msg_rec* last = tqp_msglog_last(&log, first, seq, to - from);
        EXPECT_NE(last, nullptr) << from << " to " << to;
        tcp_bth option, parsed;
        if (first == last)
            tqp_bth_of(&option, first, version, TCP_BTH_F_TIMESTAMP, seq, to - from);
        else
            tqp_bth_of_train(&option, first, last, TCP_BTH_F_TIMESTAMP, seq);
        if (version == 1)
            EXPECT_EQ(option.opcode,
                      first == last ? TCP_BTH_OP_WRITE_ONLY : TCP_BTH_OP_WRITE_MIXED_TRAIN);
        std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> bytes{};
        const unsigned room = tcp_bth_build(bytes.data(), &option);
        EXPECT_EQ(tcp_bth_parse(bytes.data(), room, seq, to - from, &parsed), TCP_BTH_OK);
        tqp_skb_map map;
        tqp_map_fill(&map, &parsed, to - from);
        return map;
    }
    // Of byte @at the message: its number in the train and where it begins.
    static std::pair<std::uint32_t, std::uint32_t> owner(std::uint32_t at) {
        std::uint32_t place = 0, begin = 0;
        while (at >= begin + kWrites[place].length)
            begin += kWrites[place++].length;
        return {place, begin};
    }
    void expect_write(const tqp_skb_map* one, std::uint32_t at) {
        const auto [place, begin] = owner(at);
        ASSERT_NE(one, nullptr);
        ASSERT_EQ(one->opcode, TCP_BTH_OP_WRITE_ONLY) << at;
        ASSERT_TRUE(one->flags & TQP_MAP_RETH);
        ASSERT_EQ(one->msn, static_cast<std::uint16_t>(kWriteFirst + place));
        ASSERT_EQ(one->start_seq, start + begin);
        ASSERT_EQ(one->length, kWrites[place].length);
        ASSERT_EQ(one->va, kWrites[place].va);
        ASSERT_EQ(one->rkey, kKey);
    }

    static constexpr std::uint32_t table_bytes =
        4 * (TCP_BTH_TARGETS_HEAD_WORDS + TCP_BTH_TARGET_WORDS * 6);
    static constexpr std::uint32_t start = kWriteTable + table_bytes;
    std::array<std::uint8_t, TCP_BTH_TARGETS_MAX_BYTES> sent{};
    std::array<tqp_msg_rec, 8> records{};
    std::array<std::uint32_t, TCP_BTH_TABLE_MAX_WORDS> entries{};
    tqp_msglog log{};
    tcp_bth_mixed all{};
    tqp_rx_train train{};
};

TEST_F(WriteMixedWire, EachByteIsOfItsMessage) {
    for (std::uint32_t from = 0; from < all.bytes; from++)
        for (std::uint32_t to = from + 1; to <= all.bytes; to++) {
            const tqp_skb_map map = map_of(from, to);
            learn(train);
            // TCP may have lost the mapping of all but the first byte
            for (std::uint32_t at = from; at < to; at++)
                expect_write(tqp_map_at(&train, at == from ? &map : nullptr, start + at), at);
        }
    EXPECT_EQ(tqp_map_at(&train, nullptr, start + all.bytes), nullptr) << "beyond its end";
}

// A part of one message alone, as the switch rewrites it.
TEST_F(WriteMixedWire, Version0) {
    const std::pair<std::uint32_t, std::uint32_t> parts[] = {{0, 5}, {5, 9}, {20, 30}, {60, 69}};
    for (const auto& [from, to] : parts) {
        const tqp_skb_map map = map_of(from, to, 0);
        learn(train);
        expect_write(tqp_map_at(&train, &map, start + from), from);
    }
}

// Also when the first of them, and the table, are acknowledged and gone.
TEST_F(WriteMixedWire, WhatIsLeftOfIt) {
    EXPECT_EQ(tqp_msglog_ack(&log, start + 5 + 64 + 1), 4u);
    const tqp_skb_map map = map_of(5 + 64 + 1, all.bytes);
    EXPECT_EQ(map.start_seq, start);
    EXPECT_EQ(map.msn, kWriteFirst);
    EXPECT_EQ(map.ext4, all.bytes);
    EXPECT_EQ(map.length, all.check);
}

// An option that says otherwise than the table makes no message of these bytes.
TEST_F(WriteMixedWire, OptionsMustAgree) {
    const auto refused = [&](const tqp_skb_map& map, std::uint32_t at) {
        learn(train);
        const tqp_skb_map* one = tqp_map_at(&train, &map, start + at);
        return one && one->opcode != TCP_BTH_OP_WRITE_ONLY;
    };
    const tqp_skb_map whole = map_of(0, all.bytes), part = map_of(6, 20), middle = map_of(6, 20, 0);
    ASSERT_FALSE(refused(whole, 0));
    ASSERT_FALSE(refused(part, 6));
    ASSERT_FALSE(refused(middle, 6));
    for (const auto& [right, at] :
         {std::pair{whole, 0u}, std::pair{part, 6u}, std::pair{middle, 6u}}) {
        tqp_skb_map map = right;
        map.start_seq++;
        EXPECT_TRUE(refused(map, at));
        map = right, map.msn++;
        EXPECT_TRUE(refused(map, at));
        map = right, map.length++;
        EXPECT_TRUE(refused(map, at));
        for (const int opcode : {TCP_BTH_OP_WRITE_TRAIN, TCP_BTH_OP_MIXED_TRAIN,
                                 TCP_BTH_OP_SEND_ONLY, TCP_BTH_OP_TARGETS}) {
            map = right, map.opcode = static_cast<__u8>(opcode);
            EXPECT_TRUE(refused(map, at)) << opcode;
        }
    }
    tqp_skb_map map = whole;
    map.ext4--;
    EXPECT_TRUE(refused(map, 0));
    for (const tqp_skb_map& right : {part, middle}) {
        map = right, map.flags &= static_cast<__u8>(~TQP_MAP_RETH);
        EXPECT_TRUE(refused(map, 6));
        map = right, map.flags |= TQP_MAP_EXT4;
        EXPECT_TRUE(refused(map, 6));
        map = right, map.va++;
        EXPECT_TRUE(refused(map, 6));
        map = right, map.rkey++;
        EXPECT_TRUE(refused(map, 6));
    }
}

TEST(Targets, OnlyTablesThatCanBe) {
    std::array<std::uint8_t, TCP_BTH_TARGETS_MAX_BYTES + 12> bytes{};
    std::array<std::uint32_t, TCP_BTH_TABLE_MAX_WORDS> words{};
    for (std::uint32_t i = 0; i <= TCP_BTH_TARGETS_MAX_MESSAGES; i++)
        tcp_bth_targets_put(bytes.data(), i, TCP_BTH_LENGTHS_LENGTH_MASK, UINT64_MAX - i);
    const auto reads = [&](std::uint32_t n) {
        tcp_bth_mixed all;
        return tcp_bth_targets_read(bytes.data(), n, words.data(), &all);
    };
    EXPECT_TRUE(reads(TCP_BTH_TARGETS_MAX_BYTES)) << "all as long as they may be";
    for (const std::uint32_t n :
         {0u, 4u, 12u, 15u, 17u, 20u, 24u, TCP_BTH_TARGETS_MAX_BYTES + 12u, 0xfffffff4u})
        EXPECT_FALSE(reads(n)) << n;
    EXPECT_TRUE(reads(tcp_bth_targets_bytes(2)));
    for (const std::uint32_t length : {0u, 0x80000001u, 0x01000001u}) {
        tcp_bth_targets_put(bytes.data(), 1, length, 0);
        EXPECT_FALSE(reads(tcp_bth_targets_bytes(2))) << length;
        EXPECT_TRUE(reads(tcp_bth_targets_bytes(1)));
    }
}

TEST(Targets, ChecksTellTablesApart) {
    const auto check = [](std::uint32_t rkey, std::initializer_list<Write> writes) {
        tcp_bth_mixed all;
        tcp_bth_targets_begin(&all, rkey);
        for (const Write& w : writes)
            tcp_bth_targets_add(&all, w.length, w.va);
        return all.check;
    };
    const std::uint32_t right = check(1, {{10, 100}, {20, 200}});
    EXPECT_NE(right, check(2, {{10, 100}, {20, 200}}));
    EXPECT_NE(right, check(1, {{20, 100}, {10, 200}}));
    EXPECT_NE(right, check(1, {{10, 200}, {20, 100}}));
    EXPECT_NE(right, check(1, {{10, 100}, {20, 200 + (1ull << 32)}}));
    EXPECT_NE(right, check(1, {{10, 100}, {20, 201}}));
}

// What joins is exactly what lies over none before it, in any order.
TEST(Targets, NoTwoOverlap) {
    std::mt19937_64 dice(7);
    for (int round = 0; round < 400; round++) {
        std::array<std::uint8_t, TCP_BTH_TARGETS_MAX_BYTES> table{};
        tqp_targets targets;
        tqp_targets_begin(&targets, table.data(), kKey);
        std::vector<Write> in;
        const std::uint64_t base = round % 3 ? 0x10000 : UINT64_MAX - 2000;
        for (int i = 0; i < 300; i++) {
            const auto length = static_cast<std::uint32_t>(1 + dice() % 9);
            const Write w{length, base + dice() % 2000};
            const bool apart = std::ranges::none_of(in, [&](const Write& other) {
                return other.va < w.va + w.length && w.va < other.va + other.length;
            });
            const bool joins =
                apart && w.va + w.length > w.va && in.size() < TCP_BTH_TARGETS_MAX_MESSAGES;
            ASSERT_EQ(tqp_targets_add(&targets, w.length, w.va), joins) << round << " " << i;
            if (!joins)
                continue;
            in.push_back(w);
            if (dice() % 8 == 0) {
                tqp_targets_undo(&targets);
                in.pop_back();
            }
        }
        std::array<std::uint32_t, TCP_BTH_TABLE_MAX_WORDS> words{};
        tcp_bth_mixed all;
        const auto count = static_cast<std::uint32_t>(in.size());
        ASSERT_EQ(targets.messages, count);
        ASSERT_TRUE(
            tcp_bth_targets_read(table.data(), tcp_bth_targets_bytes(count), words.data(), &all));
        EXPECT_EQ(tcp_bth_targets_rkey(words.data()), kKey);
        for (std::uint32_t i = 0; i < count; i++) {
            EXPECT_EQ(tcp_bth_target_length(words.data(), i), in[i].length);
            EXPECT_EQ(tcp_bth_target_va(words.data(), i), in[i].va);
        }
    }
}

}  // namespace
