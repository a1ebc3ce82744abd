// SPDX-License-Identifier: BSD-3-Clause
// The hello of kernel/tcp_qp/wire/cm_wire.c, the kernel's own source.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
#include "wire/cm_wire.h"
}

namespace {

using Frame = std::vector<uint8_t>;

Frame build(tqp_hello_kind kind, const tqp_hello& hello, const Frame& data) {
    Frame frame(TQP_HELLO_MAX_BYTES);
    frame.resize(tqp_hello_build(frame.data(), kind, &hello, data.data()));
    return frame;
}

Frame data_of(size_t bytes) {
    Frame data(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = static_cast<uint8_t>(i * 7 + 3);
    return data;
}

tqp_hello hello_of(size_t bytes, uint8_t flags = 0) {
    return {.flags = flags, .private_bytes = static_cast<uint16_t>(bytes), .ird = 16, .ord = 255};
}

int parse(const Frame& frame, size_t have, tqp_hello_kind kind, tqp_hello* hello) {
    Frame exactly(
        frame.begin(),
        frame.begin() + static_cast<long>(have));  // so that a sanitizer sees reads beyond
    exactly.shrink_to_fit();
    return tqp_hello_parse(exactly.data(), static_cast<uint32_t>(have), kind, hello);
}

TEST(Hello, ReadsWhatWasBuilt) {
    for (auto kind : {TQP_HELLO_REQUEST, TQP_HELLO_REPLY})
        for (size_t bytes : {0, 1, 56, 255}) {
            Frame data = data_of(bytes), frame = build(kind, hello_of(bytes), data);
            ASSERT_EQ(frame.size(), TQP_HELLO_HEAD_BYTES + bytes);
            tqp_hello got{};
            ASSERT_EQ(parse(frame, frame.size(), kind, &got), 0);
            EXPECT_EQ(got.private_bytes, bytes);
            EXPECT_EQ(got.ird, 16);
            EXPECT_EQ(got.ord, 255);
            EXPECT_EQ(got.flags, 0);
            EXPECT_EQ(Frame(frame.begin() + TQP_HELLO_HEAD_BYTES, frame.end()), data);
        }
}

TEST(Hello, AsksForTheHeadThenForTheData) {
    Frame frame = build(TQP_HELLO_REQUEST, hello_of(100), data_of(100));
    tqp_hello got{};
    for (size_t have = 0; have < TQP_HELLO_HEAD_BYTES; have++)
        EXPECT_EQ(parse(frame, have, TQP_HELLO_REQUEST, &got),
                  static_cast<int>(TQP_HELLO_HEAD_BYTES - have));
    for (size_t have = TQP_HELLO_HEAD_BYTES; have <= frame.size(); have++)
        EXPECT_EQ(parse(frame, have, TQP_HELLO_REQUEST, &got),
                  static_cast<int>(frame.size() - have));
}

TEST(Hello, BytesBeyondTheFrameAreRefused) {
    Frame frame = build(TQP_HELLO_REPLY, hello_of(4), data_of(4));
    tqp_hello got{};
    frame.push_back(0);
    EXPECT_EQ(parse(frame, frame.size(), TQP_HELLO_REPLY, &got), -TQP_HELLO_E_LENGTH);
}

TEST(Hello, AnyWrongByteOfTheKeyShowsAtOnce) {
    const Frame good = build(TQP_HELLO_REQUEST, hello_of(0), {});
    tqp_hello got{};
    for (size_t i = 0; i < TQP_HELLO_KEY_BYTES; i++) {
        Frame bad = good;
        bad[i] ^= 0x40;
        EXPECT_GT(parse(bad, i, TQP_HELLO_REQUEST, &got), 0) << i;
        EXPECT_EQ(parse(bad, i + 1, TQP_HELLO_REQUEST, &got), -TQP_HELLO_E_KEY) << i;
    }
}

TEST(Hello, ARequestIsNoReply) {
    tqp_hello got{};
    Frame request = build(TQP_HELLO_REQUEST, hello_of(0), {}),
          reply = build(TQP_HELLO_REPLY, hello_of(0), {});
    EXPECT_EQ(parse(request, request.size(), TQP_HELLO_REPLY, &got), -TQP_HELLO_E_KEY);
    EXPECT_EQ(parse(reply, reply.size(), TQP_HELLO_REQUEST, &got), -TQP_HELLO_E_KEY);
}

TEST(Hello, OnlyAReplyMayReject) {
    tqp_hello got{};
    Frame reply = build(TQP_HELLO_REPLY, hello_of(3, TQP_HELLO_F_REJECT), data_of(3));
    EXPECT_EQ(parse(reply, reply.size(), TQP_HELLO_REPLY, &got), 0);
    EXPECT_EQ(got.flags, TQP_HELLO_F_REJECT);
    Frame request = build(TQP_HELLO_REQUEST, hello_of(3, TQP_HELLO_F_REJECT), data_of(3));
    EXPECT_EQ(parse(request, request.size(), TQP_HELLO_REQUEST, &got), -TQP_HELLO_E_FLAGS);
}

TEST(Hello, EveryOtherFlagIsRefused) {
    tqp_hello got{};
    for (int bit = 0; bit < 8; bit++) {
        Frame reply = build(TQP_HELLO_REPLY, hello_of(0, static_cast<uint8_t>(1 << bit)), {});
        int expected = (1 << bit) == TQP_HELLO_F_REJECT ? 0 : -TQP_HELLO_E_FLAGS;
        EXPECT_EQ(parse(reply, reply.size(), TQP_HELLO_REPLY, &got), expected) << bit;
    }
}

TEST(Hello, AnotherRevisionIsRefused) {
    tqp_hello got{};
    Frame frame = build(TQP_HELLO_REQUEST, hello_of(0), {});
    for (int revision = 0; revision < 256; revision++) {
        frame[17] = static_cast<uint8_t>(revision);
        int expected = revision == TQP_HELLO_REVISION ? 0 : -TQP_HELLO_E_REVISION;
        EXPECT_EQ(parse(frame, frame.size(), TQP_HELLO_REQUEST, &got), expected) << revision;
    }
}

TEST(Hello, MoreDataThanAnEventCarriesIsRefused) {
    tqp_hello got{};
    Frame frame = build(TQP_HELLO_REQUEST, hello_of(255), data_of(255));
    for (uint32_t bytes : {256u, 512u, 65535u}) {
        frame[18] = static_cast<uint8_t>(bytes >> 8);
        frame[19] = static_cast<uint8_t>(bytes & 0xff);
        EXPECT_EQ(parse(frame, TQP_HELLO_HEAD_BYTES, TQP_HELLO_REQUEST, &got), -TQP_HELLO_E_LENGTH)
            << bytes;
    }
}

Frame number_frame(uint32_t dest_qpn, uint32_t src_qpn, uint32_t rq_psn) {
    const tqp_hello_number number{.dest_qpn = dest_qpn, .src_qpn = src_qpn, .rq_psn = rq_psn};
    Frame frame(TQP_HELLO_HEAD_BYTES + TQP_HELLO_NUMBER_BYTES);
    EXPECT_EQ(tqp_hello_build_number(frame.data(), &number), frame.size());
    return frame;
}

TEST(Number, ReadsWhatWasBuilt) {
    for (uint32_t value : {0u, 2u, 0x123456u, 0xffffffu}) {
        Frame frame = number_frame(value, value ^ 1, value / 2);
        tqp_hello head{};
        tqp_hello_number got{};
        ASSERT_EQ(parse(frame, frame.size(), TQP_HELLO_NUMBER, &head), 0);
        ASSERT_EQ(tqp_hello_get_number(frame.data(), &got), 0);
        EXPECT_EQ(got.dest_qpn, value);
        EXPECT_EQ(got.src_qpn, value ^ 1);
        EXPECT_EQ(got.rq_psn, value / 2);
    }
}

TEST(Number, IsNoOtherHello) {
    tqp_hello got{};
    Frame number = number_frame(2, 3, 4);
    for (auto kind : {TQP_HELLO_REQUEST, TQP_HELLO_REPLY}) {
        EXPECT_EQ(parse(number, number.size(), kind, &got), -TQP_HELLO_E_KEY);
        Frame other = build(kind, hello_of(12), data_of(12));
        EXPECT_EQ(parse(other, other.size(), TQP_HELLO_NUMBER, &got), -TQP_HELLO_E_KEY);
    }
}

TEST(Number, ItsHeadSaysNothingElse) {
    tqp_hello got{};
    const Frame good = number_frame(2, 3, 4);
    for (size_t at = TQP_HELLO_KEY_BYTES; at < TQP_HELLO_HEAD_BYTES; at++)
        for (int bit = 0; bit < 8; bit++) {
            Frame bad = good;
            bad[at] ^= static_cast<uint8_t>(1 << bit);
            EXPECT_LT(parse(bad, bad.size(), TQP_HELLO_NUMBER, &got), 0) << at << " " << bit;
        }
}

TEST(Number, MoreThan24BitsAreRefused) {
    tqp_hello_number got{};
    for (size_t field : {24, 28, 32}) {
        Frame frame = number_frame(0xffffff, 0xffffff, 0xffffff);
        frame[field] = 1;
        EXPECT_EQ(tqp_hello_get_number(frame.data(), &got), -TQP_HELLO_E_RANGE) << field;
    }
}

// However the bytes come and whatever they are, a reader that does as told ends, within the buffer.
TEST(Hello, AReaderStaysWithinTheBuffer) {
    constexpr uint32_t kSeed = 20261121;
    std::mt19937 random(kSeed);
    SCOPED_TRACE(kSeed);
    for (int round = 0; round < 20000; round++) {
        Frame wire = build(round % 2 ? TQP_HELLO_REQUEST : TQP_HELLO_REPLY,
                           hello_of(random() % 256), data_of(255));
        for (uint32_t flips = random() % 4; flips; flips--)
            wire[random() % wire.size()] ^= static_cast<uint8_t>(random());
        tqp_hello got{};
        size_t have = 0;
        int missing;
        while ((missing = parse(wire, have, TQP_HELLO_REQUEST, &got)) > 0) {
            ASSERT_LE(have + static_cast<size_t>(missing),
                      static_cast<size_t>(TQP_HELLO_MAX_BYTES));
            have += 1 + random() % static_cast<uint32_t>(missing);
            if (have > wire.size())
                break;  // the peer closed
        }
        if (missing == 0)
            ASSERT_LE(got.private_bytes, TQP_HELLO_PRIVATE_MAX_BYTES);
    }
}

}  // namespace
