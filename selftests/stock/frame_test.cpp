// SPDX-License-Identifier: BSD-3-Clause
// The frame header and the receiving half, without a socket.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "stock/receiver.hpp"

namespace tcpqp::stock {
namespace {

TEST(Frame, Layout) {
    FrameBytes b;
    encode({FrameType::kMessage, 0x01020304, 0x05060708, 0x090a0b0c, true}, b.data());
    constexpr std::array<uint8_t, kFrameBytes> kWant{0x51, 0x50, 1, 2, 1,  2,  3,  4, 5,
                                                     6,    7,    8, 9, 10, 11, 12, 1};
    EXPECT_EQ(std::memcmp(b.data(), kWant.data(), kFrameBytes), 0);
    Frame f;
    ASSERT_EQ(decode(b.data(), f), uint32_t{TCPQP_REASON_NONE});
    EXPECT_EQ(f.length, 0x01020304u);
    EXPECT_EQ(f.msn, 0x05060708u);
    EXPECT_EQ(f.imm, 0x090a0b0cu);
    EXPECT_TRUE(f.has_imm);
}

TEST(Frame, EveryOtherHeaderByteIsRefused) {
    for (size_t at = 0; at < kFrameBytes; at++) {
        if (at >= 5 && at < 16)
            continue;  // length, msn and immediate may be anything
        FrameBytes b;
        encode({FrameType::kMessage, 7, 3, 9, true}, b.data());
        b[at] ^= std::byte{0x80};
        Frame f;
        EXPECT_NE(decode(b.data(), f), uint32_t{TCPQP_REASON_NONE}) << "byte " << at;
    }
}

TEST(Frame, ImmediateWithoutItsFlag) {
    FrameBytes b;
    encode({FrameType::kMessage, 7, 3, 9, false}, b.data());
    Frame f;
    EXPECT_EQ(decode(b.data(), f), uint32_t{TCPQP_REASON_BAD_FRAME});
}

TEST(Frame, VersionHasItsOwnReason) {
    FrameBytes b;
    encode({FrameType::kHello, 0, 0, 0, false}, b.data());
    b[2] = std::byte{2};
    Frame f;
    EXPECT_EQ(decode(b.data(), f), uint32_t{TCPQP_REASON_VERSION});
}

// The short way takes nothing that decode() would not, and nothing with immediate data.
TEST(Frame, PlainMessagesAreWhatDecodeSays) {
    for (size_t bit = 0; bit <= 8 * kFrameBytes; bit++) {
        FrameBytes b;
        encode({FrameType::kMessage, 7, 3, 0, false}, b.data());
        if (bit < 8 * kFrameBytes)  // the last time round it is whole
            b[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
        Frame f;
        const bool sane = decode(b.data(), f) == uint32_t{TCPQP_REASON_NONE} &&
                          f.type == FrameType::kMessage && !f.has_imm;
        uint32_t length = 0;
        EXPECT_EQ(is_plain_message(b.data(), 3, length), sane && f.msn == 3) << "bit " << bit;
        if (sane)
            EXPECT_EQ(length, f.length);
    }
}

// ... nor where it has no place: step() goes on as if nobody had asked.
TEST(Receiver, TakesOnlyWhatIsWholeAndFits) {
    Receiver rx(true);
    const auto feed = [&rx](const void* from, size_t bytes) {
        std::memcpy(rx.where()[0].iov_base, from, bytes);
        rx.took(bytes);
    };
    std::array<std::byte, kFrameBytes + 7> whole{};
    encode({FrameType::kMessage, 7, 0, 0, false}, whole.data());
    whole.back() = std::byte{'z'};
    std::array<std::byte, 7> buffer{};
    EXPECT_FALSE(rx.take_whole(buffer.data(), buffer.size()));  // nothing
    feed(whole.data(), kFrameBytes + 6);
    EXPECT_FALSE(rx.take_whole(buffer.data(), buffer.size()));  // a byte is missing
    feed(&whole.back(), 1);
    EXPECT_FALSE(rx.take_whole(buffer.data(), buffer.size() - 1));  // too long
    ASSERT_TRUE(rx.take_whole(buffer.data(), buffer.size()));
    EXPECT_EQ(buffer.back(), std::byte{'z'});
    EXPECT_EQ(rx.frame().length, 7u);
    EXPECT_TRUE(rx.at_boundary());
    feed(whole.data(), whole.size());
    EXPECT_FALSE(rx.take_whole(buffer.data(), buffer.size()));  // message 0 again
    EXPECT_EQ(rx.step(), Receiver::Step::kBroken);
}

// However the stream is cut, and whichever way messages are taken, they are the same.
TEST(Receiver, AnyCut) {
    std::mt19937 random(5);
    std::vector<std::byte> stream(kFrameBytes);
    encode({FrameType::kHello, 0, 0, 0, false}, stream.data());
    std::vector<std::vector<std::byte>> messages;
    for (uint32_t msn = 0; msn < 400; msn++) {
        std::vector<std::byte> m(msn % 5 == 0 ? random() % 50000 : random() % 100);
        for (std::byte& b : m)
            b = static_cast<std::byte>(random());
        FrameBytes head;
        encode({FrameType::kMessage, static_cast<uint32_t>(m.size()), msn, 0, false}, head.data());
        stream.insert(stream.end(), head.begin(), head.end());
        stream.insert(stream.end(), m.begin(), m.end());
        messages.push_back(std::move(m));
    }
    for (const size_t most : {1u, 7u, 24u, 1000u, 100000u}) {
        Receiver rx(false);
        std::vector<std::byte> buffer(50000);
        size_t at = 0, got = 0;
        while (got < messages.size()) {
            if (random() % 2 == 0 && rx.take_whole(buffer.data(), buffer.size())) {
                ASSERT_EQ(rx.frame().length, messages[got].size());
                ASSERT_TRUE(std::equal(messages[got].begin(), messages[got].end(), buffer.begin()));
                got++;
                continue;
            }
            switch (rx.step()) {
                case Receiver::Step::kNeedBuffer:
                    rx.give(buffer.data(), buffer.size());
                    break;
                case Receiver::Step::kMessage:
                    ASSERT_EQ(rx.frame().length, messages[got].size());
                    ASSERT_TRUE(
                        std::equal(messages[got].begin(), messages[got].end(), buffer.begin()));
                    got++;
                    rx.next();
                    break;
                case Receiver::Step::kNeedBytes: {
                    size_t left = std::min(stream.size() - at, 1 + random() % most), taken = 0;
                    ASSERT_NE(left, 0u);
                    for (const iovec& place : rx.where()) {
                        const size_t n = std::min(left, place.iov_len);
                        std::memcpy(place.iov_base, stream.data() + at, n);
                        at += n, left -= n, taken += n;
                    }
                    rx.took(taken);
                    break;
                }
                default:
                    FAIL() << "broken at " << at << ", reason " << rx.reason();
            }
        }
        EXPECT_TRUE(rx.at_boundary());
    }
}

}  // namespace
}  // namespace tcpqp::stock
