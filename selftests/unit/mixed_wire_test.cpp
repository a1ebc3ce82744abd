// SPDX-License-Identifier: BSD-3-Clause
// Mixed trains, from their records to options and back to messages, by the kernel's own source.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

extern "C" {
#include "wire/msgwire.h"
}

namespace {

constexpr std::uint32_t kTable = 0xffffffb0u;  // the sequence space wraps inside,
constexpr std::uint16_t kFirst = 65534;        // and so do the numbers
const std::vector<std::uint32_t> kLengths{5, 64, 1, 130, 7, 7};

// A sender's log and what its receiver knows of the train once LENGTHS is there.
struct MixedWire : testing::Test {
    MixedWire() {
        tqp_msglog_init(&log, records.data(), records.size());
        tcp_bth_mixed_begin(&all);
        for (const std::uint32_t length : kLengths)
            tcp_bth_mixed_add(&all, length);
        add(record(kTable, table_bytes, kFirst, TCP_BTH_OP_LENGTHS));
        std::uint32_t at = start;
        for (std::uint16_t i = 0; i < kLengths.size(); at += kLengths[i++]) {
            tqp_msg_rec rec = record(at, kLengths[i], static_cast<std::uint16_t>(kFirst + i),
                                     TCP_BTH_OP_SEND_ONLY);
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
        auto* bytes = reinterpret_cast<std::uint8_t*>(entries.data());
        for (std::size_t i = 0; i < kLengths.size(); i++)
            tcp_bth_put32(bytes + 4 * i, kLengths[i]);
        ASSERT_TRUE(tqp_mixed_begin(&to.mixed, TCP_BTH_OP_LENGTHS, kFirst, start, table_bytes));
    }
    // What the option of the part [from, to) of the train says to a receiver.
    tqp_skb_map map_of(std::uint32_t from, std::uint32_t to) {
        const std::uint32_t seq = start + from;
        const tqp_msg_rec* first = tqp_msglog_find(&log, seq);
        const tqp_msg_rec* last = tqp_msglog_last(&log, first, seq, to - from);
        EXPECT_NE(last, nullptr) << from << " to " << to;
        tcp_bth sent, parsed;
        if (first == last)
            tqp_bth_of(&sent, first, 1, TCP_BTH_F_TIMESTAMP, seq, to - from);
        else
            tqp_bth_of_train(&sent, first, last, TCP_BTH_F_TIMESTAMP, seq);
        EXPECT_EQ(sent.opcode, first == last ? TCP_BTH_OP_SEND_ONLY : TCP_BTH_OP_MIXED_TRAIN);
        std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> option{};
        const unsigned room = tcp_bth_build(option.data(), &sent);
        EXPECT_EQ(tcp_bth_parse(option.data(), room, seq, to - from, &parsed), TCP_BTH_OK);
        tqp_skb_map map;
        tqp_map_fill(&map, &parsed, to - from);
        return map;
    }
    // Of byte @at the message: its number in the train and where it begins.
    static std::pair<std::uint32_t, std::uint32_t> owner(std::uint32_t at) {
        std::uint32_t place = 0, begin = 0;
        while (at >= begin + kLengths[place])
            begin += kLengths[place++];
        return {place, begin};
    }

    static constexpr std::uint32_t table_bytes = 6 * TCP_BTH_LENGTHS_ENTRY_BYTES;
    static constexpr std::uint32_t start = kTable + table_bytes;
    std::array<tqp_msg_rec, 8> records{};
    std::array<std::uint32_t, TCP_BTH_MIXED_MAX_MESSAGES> entries{};
    tqp_msglog log{};
    tcp_bth_mixed all{};
    tqp_rx_train train{};
};

TEST_F(MixedWire, EachByteIsOfItsMessage) {
    for (std::uint32_t from = 0; from < all.bytes; from++)
        for (std::uint32_t to = from + 1; to <= all.bytes; to++) {
            const tqp_skb_map map = map_of(from, to);
            learn(train);
            for (std::uint32_t at = from; at < to; at++) {
                // TCP may have lost the mapping of all but the first byte
                const tqp_skb_map* one =
                    tqp_map_at(&train, at == from ? &map : nullptr, start + at);
                const auto [place, begin] = owner(at);
                ASSERT_NE(one, nullptr);
                ASSERT_EQ(one->opcode, TCP_BTH_OP_SEND_ONLY) << from << " to " << to;
                ASSERT_EQ(one->msn, static_cast<std::uint16_t>(kFirst + place));
                ASSERT_EQ(one->start_seq, start + begin);
                ASSERT_EQ(one->length, kLengths[place]);
            }
        }
    EXPECT_EQ(tqp_map_at(&train, nullptr, start + all.bytes), nullptr) << "beyond its end";
    EXPECT_EQ(train.mixed.all.bytes, 0u) << "and it is over";
}

// No segment is of the table and of the train, nor of the train and of what comes behind it.
TEST_F(MixedWire, NoOptionSaysMore) {
    add(record(start + all.bytes, 9, 5, TCP_BTH_OP_SEND_ONLY));
    const tqp_msg_rec* table = tqp_msglog_find(&log, kTable);
    EXPECT_EQ(tqp_msglog_last(&log, table, kTable, table_bytes), table);
    EXPECT_EQ(tqp_msglog_last(&log, table, kTable, table_bytes + 1), nullptr);
    const tqp_msg_rec* last = tqp_msglog_find(&log, start + all.bytes - 1);
    EXPECT_EQ(tqp_msglog_last(&log, last, start + all.bytes - 1, 2), nullptr);
}

// Also when the first of them, and the table, are acknowledged and gone.
TEST_F(MixedWire, WhatIsLeftOfIt) {
    EXPECT_EQ(tqp_msglog_ack(&log, start + 5 + 64 + 1), 4u);
    const tqp_skb_map map = map_of(5 + 64 + 1, all.bytes);
    EXPECT_EQ(map.start_seq, start);
    EXPECT_EQ(map.msn, kFirst);
    EXPECT_EQ(map.ext4, all.bytes);
    EXPECT_EQ(map.length, all.check);
}

// An option that says otherwise than the table makes no message of these bytes.
TEST_F(MixedWire, OptionsMustAgree) {
    const auto refused = [&](const tqp_skb_map& map, std::uint32_t at) {
        learn(train);
        const tqp_skb_map* one = tqp_map_at(&train, &map, start + at);
        return one && one->opcode != TCP_BTH_OP_SEND_ONLY;
    };
    const tqp_skb_map whole = map_of(0, all.bytes), part = map_of(6, 20);
    ASSERT_FALSE(refused(whole, 0));
    ASSERT_FALSE(refused(part, 6));
    for (const auto& [right, at] : {std::pair{whole, 0u}, std::pair{part, 6u}}) {
        tqp_skb_map map = right;
        map.start_seq++;
        EXPECT_TRUE(refused(map, at));
        map = right, map.msn++;
        EXPECT_TRUE(refused(map, at));
        map = right, map.length++;
        EXPECT_TRUE(refused(map, at));
        map = right, map.opcode = TCP_BTH_OP_SEND_TRAIN;
        EXPECT_TRUE(refused(map, at));
        map = right, map.opcode = TCP_BTH_OP_LENGTHS;
        EXPECT_TRUE(refused(map, at));
    }
    tqp_skb_map map = whole;
    map.ext4--;
    EXPECT_TRUE(refused(map, 0));
    map = part, map.flags |= TQP_MAP_RETH;
    EXPECT_TRUE(refused(map, 6));
}

// A train that nobody announced is no message.
TEST_F(MixedWire, NothingWithoutItsTable) {
    const tqp_skb_map map = map_of(0, all.bytes);
    tqp_rx_train none{};
    const tqp_skb_map* one = tqp_map_at(&none, &map, start);
    ASSERT_NE(one, nullptr);
    EXPECT_EQ(one->opcode, TCP_BTH_OP_MIXED_TRAIN) << "of which tqp_rx_msg_begin() makes nothing";
}

TEST(Lengths, OnlyTablesThatCanBe) {
    std::array<std::uint8_t, TCP_BTH_LENGTHS_MAX_BYTES + 4> bytes{};
    std::array<std::uint32_t, TCP_BTH_MIXED_MAX_MESSAGES> entries{};
    for (std::size_t i = 0; i < bytes.size(); i += 4)
        tcp_bth_put32(&bytes[i], TCP_BTH_LENGTHS_LENGTH_MASK);
    const auto reads = [&](std::uint32_t n) {
        tcp_bth_mixed all;
        return tcp_bth_mixed_read(bytes.data(), n, entries.data(), &all);
    };
    EXPECT_TRUE(reads(TCP_BTH_LENGTHS_MAX_BYTES)) << "all as long as they may be";
    for (const std::uint32_t n : {0u, 1u, 3u, 5u, TCP_BTH_LENGTHS_MAX_BYTES + 4u})
        EXPECT_FALSE(reads(n)) << n;
    EXPECT_TRUE(reads(8));
    for (const std::uint32_t entry : {0u, 0x80000000u, 0x01000001u, 0x40000001u}) {
        tcp_bth_put32(&bytes[4], entry);
        EXPECT_FALSE(reads(8)) << entry;
    }
    tcp_bth_put32(&bytes[4], TCP_BTH_LENGTHS_SOLICITED | 1);
    EXPECT_TRUE(reads(8));
}

// Neighbours that change places, and a byte that changes sides, make another table.
TEST(Lengths, ChecksTellTablesApart) {
    const auto check = [](std::initializer_list<std::uint32_t> lengths) {
        tcp_bth_mixed all;
        tcp_bth_mixed_begin(&all);
        for (const std::uint32_t length : lengths)
            tcp_bth_mixed_add(&all, length);
        return all.check;
    };
    EXPECT_NE(check({10, 20, 30}), check({20, 10, 30}));
    EXPECT_NE(check({10, 20, 30}), check({11, 19, 30}));
    EXPECT_NE(check({10, 20, 30}), check({10, 20, 29, 1}));
    EXPECT_NE(check({10, 20}),
              check({10 | TCP_BTH_LENGTHS_SOLICITED, 20 | TCP_BTH_LENGTHS_SOLICITED}));
}

}  // namespace
