// SPDX-License-Identifier: BSD-3-Clause
// The kernel's message log, compiled here from its own source.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

extern "C" {
#include "wire/msglog.h"
}

namespace {

class Log {
public:
    explicit Log(std::uint32_t entries) : records_(entries) {
        tqp_msglog_init(&log_, records_.data(), entries);
    }

    bool push(std::uint32_t start, std::uint32_t length, std::uint16_t msn,
              std::uint16_t place = 0) {
        tqp_msg_rec* rec = tqp_msglog_next(&log_);
        if (!rec)
            return false;
        *rec = {};
        rec->start_seq = start;
        rec->length = length;
        rec->msn = msn;
        rec->train_place = place;
        tqp_msglog_commit(&log_);
        return true;
    }
    const tqp_msg_rec* find(std::uint32_t seq) { return tqp_msglog_find(&log_, seq); }
    const tqp_msg_rec* last(std::uint32_t seq, std::uint32_t bytes) {
        return tqp_msglog_last(&log_, find(seq), seq, bytes);
    }
    std::uint32_t ack(std::uint32_t una) { return tqp_msglog_ack(&log_, una); }

    void grow(std::uint32_t entries) {
        std::vector<tqp_msg_rec> more(entries);
        tqp_msglog_move(&log_, more.data(), entries);
        records_ = std::move(more);  // the old ones are freed
    }

private:
    std::vector<tqp_msg_rec> records_;
    tqp_msglog log_{};
};

TEST(MsgLog, FindsEachByteOfEachMessage) {
    Log log(8);
    const std::uint32_t start = 0xfffffff0u;  // the sequence space wraps inside
    ASSERT_TRUE(log.push(start, 10, 1));
    ASSERT_TRUE(log.push(start + 10, 100, 2));
    EXPECT_EQ(log.find(start - 1), nullptr);
    for (std::uint32_t i = 0; i < 110; i++) {
        ASSERT_NE(log.find(start + i), nullptr) << i;
        EXPECT_EQ(log.find(start + i)->msn, i < 10 ? 1 : 2) << i;
    }
    EXPECT_EQ(log.find(start + 110), nullptr);
}

// Every stretch of bytes: the message that ends it, if all before it are of its train.
TEST(MsgLog, LastOfATrain) {
    Log log(8);
    const std::uint32_t start = 0xffffffd0u;
    constexpr std::uint16_t kPlaces[] = {0, 0, 1, 2, 3, 0};  // one alone, a train of four, another
    constexpr std::uint32_t kBytes = 10;
    for (std::uint16_t i = 0; i < std::size(kPlaces); i++)
        ASSERT_TRUE(log.push(start + i * kBytes, kBytes, i, kPlaces[i]));
    const std::uint32_t end = std::size(kPlaces) * kBytes;
    for (std::uint32_t from = 0; from < end; from++)
        for (std::uint32_t to = from + 1; to <= end + kBytes; to++) {
            const std::uint32_t first = from / kBytes, last = (to - 1) / kBytes;
            const tqp_msg_rec* found = log.last(start + from, to - from);
            if (first == last || (first >= 1 && last <= 4)) {
                ASSERT_NE(found, nullptr) << from << " to " << to;
                EXPECT_EQ(found->msn, last) << from << " to " << to;
            } else {
                EXPECT_EQ(found, nullptr) << from << " to " << to;
            }
        }
}

// The ring wraps within the train; what is acknowledged is not looked at.
TEST(MsgLog, TrainWhereTheRingWraps) {
    Log log(4);
    for (std::uint16_t i = 0; i < 3; i++)
        ASSERT_TRUE(log.push(100u * i, 100, i, i));
    ASSERT_EQ(log.ack(200), 2u);
    ASSERT_TRUE(log.push(300, 100, 3, 3));
    ASSERT_TRUE(log.push(400, 100, 4, 4));
    ASSERT_NE(log.last(250, 200), nullptr);
    EXPECT_EQ(log.last(250, 200)->msn, 4);
    EXPECT_EQ(log.last(250, 251), nullptr);  // beyond what was logged: an old record lies there
}

TEST(MsgLog, EmptyMessageOwnsOneByte) {
    Log log(4);
    ASSERT_TRUE(log.push(100, 0, 7));
    ASSERT_TRUE(log.push(101, 5, 8));
    EXPECT_EQ(log.find(100)->msn, 7);
    EXPECT_EQ(log.find(101)->msn, 8);
    EXPECT_EQ(log.ack(100), 0u);
    EXPECT_EQ(log.ack(101), 1u);
}

TEST(MsgLog, FullRefusesAndAckMakesRoom) {
    Log log(2);
    ASSERT_TRUE(log.push(0, 4, 0));
    ASSERT_TRUE(log.push(4, 4, 1));
    EXPECT_FALSE(log.push(8, 4, 2));
    EXPECT_EQ(log.ack(3), 0u);  // part of a message is not a message
    EXPECT_EQ(log.ack(4), 1u);
    EXPECT_EQ(log.find(3), nullptr);
    EXPECT_TRUE(log.push(8, 4, 2));
}

TEST(MsgLog, GrowsInMidRing) {
    Log log(4);
    std::uint16_t msn = 0;
    for (; msn < 7; msn++) {
        ASSERT_TRUE(log.push(10u * msn, 10, msn));
        if (msn >= 3 && msn < 6) {
            ASSERT_EQ(log.ack(10u * (msn - 2)), 1u);
        }
    }
    ASSERT_FALSE(log.push(70, 10, 7));  // 3 .. 6 are there, around the ring's end
    log.grow(16);
    for (; msn < 19; msn++)
        ASSERT_TRUE(log.push(10u * msn, 10, msn));
    EXPECT_FALSE(log.push(190, 10, 19));
    EXPECT_EQ(log.find(29), nullptr);
    for (std::uint32_t seq = 30; seq < 190; seq++)
        ASSERT_EQ(log.find(seq)->msn, seq / 10);
    EXPECT_EQ(log.ack(189), 15u);
    EXPECT_EQ(log.find(189)->msn, 18);
}

// Random sends, retransmissions anywhere, and ACKs, against the obvious list.
TEST(MsgLog, AgreesWithAList) {
    struct Entry {
        std::uint32_t start, length;
        std::uint16_t msn;
        std::uint32_t end() const { return start + tqp_msg_stream_bytes(length); }
    };
    for (std::uint32_t seed = 1; seed <= 200; seed++) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        constexpr std::uint32_t kRoom = 64;
        Log log(kRoom);
        std::deque<Entry> list;
        std::uint32_t next = random(), una = next;
        std::uint16_t msn = 0;
        for (int step = 0; step < 2000; step++) {
            switch (random() % 5) {
                case 0:
                case 1:
                case 2: {
                    const std::uint32_t length = random() % 4 ? random() % 5000 : 0;
                    const bool room = list.size() < kRoom;
                    ASSERT_EQ(log.push(next, length, msn), room);
                    if (room) {
                        list.push_back({next, length, msn++});
                        next = list.back().end();
                    }
                    break;
                }
                case 3: {
                    const std::uint32_t seq = una + random() % (next - una + 3) - 1;
                    const tqp_msg_rec* rec = log.find(seq);
                    const Entry* expect = nullptr;
                    for (const Entry& e : list)
                        if (seq - e.start < e.end() - e.start)
                            expect = &e;
                    ASSERT_EQ(rec != nullptr, expect != nullptr);
                    if (rec) {
                        ASSERT_EQ(rec->msn, expect->msn);
                    }
                    break;
                }
                default: {
                    una += random() % (next - una + 1);
                    std::uint32_t gone = 0;
                    while (!list.empty() &&
                           static_cast<std::int32_t>(una - list.front().end()) >= 0) {
                        list.pop_front();
                        gone++;
                    }
                    ASSERT_EQ(log.ack(una), gone);
                }
            }
        }
    }
}

}  // namespace
