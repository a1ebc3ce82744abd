// SPDX-License-Identifier: BSD-3-Clause
// Every way an option can be wrong, and that a wrong one leaves no trace.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_bth_option.h>

namespace {

constexpr __u32 kErrorSeq = 70000;

struct Option {
    std::vector<__u8> bytes;
    explicit Option(const tcp_bth& b) : bytes(tcp_bth_opt_bytes(&b)) {
        tcp_bth_build(bytes.data(), &b);
    }
    tcp_bth_error parse(__u32 payload = 100, __u32 seq = kErrorSeq) const {
        tcp_bth out;
        memset(&out, 0x5a, sizeof out);
        const tcp_bth_error error =
            tcp_bth_parse(bytes.data(), static_cast<unsigned>(bytes.size()), seq, payload, &out);
        tcp_bth untouched;
        memset(&untouched, 0x5a, sizeof untouched);
        EXPECT_EQ(error != TCP_BTH_OK, memcmp(&out, &untouched, sizeof out) == 0);
        return error;
    }
};

tcp_bth ver0(__u8 opcode = TCP_BTH_OP_SEND_ONLY) {
    tcp_bth b{};
    b.opcode = opcode;
    return b;
}

tcp_bth ver1(__u32 start, __u32 length, __u8 opcode = TCP_BTH_OP_SEND_ONLY) {
    tcp_bth b{};
    b.ver = 1, b.opcode = opcode, b.start_seq = start, b.length = length;
    return b;
}

TEST(BthErrors, None) {
    Option o(ver0());
    o.bytes[0] = 254;
    EXPECT_EQ(o.parse(), TCP_BTH_E_NONE);
    o.bytes[0] = 253, o.bytes[3] ^= 1;
    EXPECT_EQ(o.parse(), TCP_BTH_E_NONE);
    o.bytes[3] ^= 1, o.bytes[1] = 3;
    EXPECT_EQ(o.parse(), TCP_BTH_E_NONE);
    o.bytes[1] = 24;
    EXPECT_EQ(o.parse(), TCP_BTH_OK);
    tcp_bth b;
    EXPECT_EQ(tcp_bth_parse(o.bytes.data(), 3, kErrorSeq, 1, &b), TCP_BTH_E_NONE);
}

TEST(BthErrors, LengthIsExact) {
    for (const __u8 ver : {0, 1}) {
        std::vector<unsigned> accepted;
        for (unsigned len = 4; len <= 60; len++) {
            std::vector<__u8> o(64);
            o[0] = 253, o[1] = static_cast<__u8>(len), o[2] = 0x51, o[3] = 0x50, o[4] = ver,
            o[5] = TCP_BTH_OP_SEND_ONLY;
            tcp_bth_put32(&o[8], ver ? kErrorSeq : 0);
            tcp_bth_put32(&o[12], ver ? 100 : 0);
            tcp_bth b;
            const tcp_bth_error error = tcp_bth_parse(o.data(), 64, kErrorSeq, 100, &b);
            if (error == TCP_BTH_OK)
                accepted.push_back(len);
            else
                EXPECT_EQ(error, TCP_BTH_E_LENGTH) << len;
        }
        EXPECT_EQ(accepted,
                  ver ? (std::vector<unsigned>{16, 20, 32}) : (std::vector<unsigned>{24, 28, 40}));
    }
}

TEST(BthErrors, LengthBeyondTheHeader) {
    const Option o(ver0());
    tcp_bth b;
    EXPECT_EQ(tcp_bth_parse(o.bytes.data(), 23, kErrorSeq, 100, &b), TCP_BTH_E_LENGTH);
}

TEST(BthErrors, Version) {
    for (const __u8 ver : {2, 3}) {
        Option o(ver0());
        o.bytes[4] = ver;
        EXPECT_EQ(o.parse(), TCP_BTH_E_VERSION);
    }
}

TEST(BthErrors, Reserved) {
    Option p(ver1(kErrorSeq, 100));
    p.bytes[4] |= TCP_BTH_F_ICRC;  // ver 1 has none
    EXPECT_EQ(p.parse(), TCP_BTH_E_RESERVED);
}

TEST(BthErrors, Opcode) {
    for (int opcode = TCP_BTH_OP_COUNT; opcode < 256; opcode++)
        EXPECT_EQ(Option(ver0(static_cast<__u8>(opcode))).parse(), TCP_BTH_E_OPCODE);
    for (int opcode = 0; opcode < TCP_BTH_OP_COUNT; opcode++) {
        const __u8 op = static_cast<__u8>(opcode);
        const bool only = tcp_bth_position(op) == TCP_BTH_POS_ONLY;
        const tcp_bth_error expected = tcp_bth_is_train(op) ? TCP_BTH_E_LENGTH
                                       : only               ? TCP_BTH_OK
                                                            : TCP_BTH_E_OPCODE;
        EXPECT_EQ(Option(ver1(kErrorSeq, 100, op)).parse(), expected) << opcode;
    }
}

TEST(BthErrors, RangeOfVer1) {
    EXPECT_EQ(Option(ver1(kErrorSeq, 100)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(ver1(kErrorSeq, 99)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(ver1(kErrorSeq - 50, 150)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(ver1(kErrorSeq - 50, 149)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(ver1(kErrorSeq + 1, 1000)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(ver1(kErrorSeq - 1001, 1000)).parse(1), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(ver1(kErrorSeq + 1, 0xffffffff)).parse(100),
              TCP_BTH_E_RANGE);  // mbo + payload would wrap
    EXPECT_EQ(Option(ver1(kErrorSeq + 1000, 0)).parse(0),
              TCP_BTH_OK);  // nothing to be out of range
}

tcp_bth train(__u32 start, __u32 length, __u32 bytes) {
    tcp_bth b = ver1(start, length, TCP_BTH_OP_SEND_TRAIN);
    b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = bytes;
    return b;
}

TEST(BthErrors, Trains) {
    EXPECT_EQ(Option(train(kErrorSeq, 10, 100)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(train(kErrorSeq, 100, 100)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(train(kErrorSeq - 95, 10, 200)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(train(kErrorSeq - 105, 10, 200)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(train(kErrorSeq + 1, 10, 200)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(train(kErrorSeq, 10, 90)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(train(kErrorSeq, 10, 101)).parse(100), TCP_BTH_E_RANGE);  // no whole messages
    EXPECT_EQ(Option(train(kErrorSeq, 200, 100)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(train(kErrorSeq, 0, 100)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(train(kErrorSeq, 10, 0)).parse(0), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(train(kErrorSeq, 2, 2 * TCP_BTH_TRAIN_MAX_MESSAGES)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(train(kErrorSeq, 2, 2 * TCP_BTH_TRAIN_MAX_MESSAGES + 2)).parse(100),
              TCP_BTH_E_RANGE);
    tcp_bth reth = train(kErrorSeq, 10, 100);
    reth.ext_bytes = TCP_BTH_RETH_BYTES;
    EXPECT_EQ(Option(reth).parse(100), TCP_BTH_E_LENGTH);
    tcp_bth in_ver0 = ver0(TCP_BTH_OP_SEND_TRAIN);
    in_ver0.ext_bytes = TCP_BTH_EXT4_BYTES, in_ver0.ext4 = 100;
    EXPECT_EQ(Option(in_ver0).parse(), TCP_BTH_E_OPCODE);
}

tcp_bth write_train(__u32 start, __u32 length, __u16 messages, __u16 step = 1) {
    tcp_bth b = ver1(start, length, TCP_BTH_OP_WRITE_TRAIN);
    b.ext_bytes = TCP_BTH_RETH_BYTES, b.dma_length = tcp_bth_train_word(messages, step);
    return b;
}

TEST(BthErrors, TrainsOfWrites) {
    EXPECT_EQ(Option(write_train(kErrorSeq, 10, 10)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(write_train(kErrorSeq, 100, 1, 0)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(write_train(kErrorSeq, 50, 2, 0)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(write_train(kErrorSeq - 95, 10, 20, 0xffff)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(write_train(kErrorSeq - 105, 10, 20)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(write_train(kErrorSeq + 1, 10, 20)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(write_train(kErrorSeq, 10, 9)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(write_train(kErrorSeq, 0, 100)).parse(100), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(write_train(kErrorSeq, 10, 0)).parse(0), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(write_train(kErrorSeq, 2, TCP_BTH_TRAIN_MAX_MESSAGES)).parse(100), TCP_BTH_OK);
    EXPECT_EQ(Option(write_train(kErrorSeq, 2, TCP_BTH_TRAIN_MAX_MESSAGES + 1)).parse(100),
              TCP_BTH_E_RANGE);
    // more than sequence numbers there are: 2^31 * 2 would be none
    EXPECT_EQ(Option(write_train(kErrorSeq, 0x80000000, 2)).parse(100), TCP_BTH_E_RANGE);
    tcp_bth ext4 = write_train(kErrorSeq, 10, 10);
    ext4.ext_bytes = TCP_BTH_EXT4_BYTES;
    EXPECT_EQ(Option(ext4).parse(100), TCP_BTH_E_LENGTH);
    tcp_bth in_ver0 = ver0(TCP_BTH_OP_WRITE_TRAIN);
    in_ver0.ext_bytes = TCP_BTH_RETH_BYTES, in_ver0.dma_length = tcp_bth_train_word(10, 1);
    EXPECT_EQ(Option(in_ver0).parse(), TCP_BTH_E_OPCODE);
}

tcp_bth mixed_train(__u32 start, __u32 bytes, __u8 opcode) {
    tcp_bth b = ver1(start, 0xcafe, opcode);
    b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = bytes;
    return b;
}

TEST(BthErrors, MixedTrains) {
    for (const __u8 opcode : {TCP_BTH_OP_MIXED_TRAIN, TCP_BTH_OP_WRITE_MIXED_TRAIN}) {
        EXPECT_EQ(Option(mixed_train(kErrorSeq, 100, opcode)).parse(100), TCP_BTH_OK);
        EXPECT_EQ(Option(mixed_train(kErrorSeq - 7, 107, opcode)).parse(100), TCP_BTH_OK);
        EXPECT_EQ(Option(mixed_train(kErrorSeq - 7, 106, opcode)).parse(100), TCP_BTH_E_RANGE);
        EXPECT_EQ(Option(mixed_train(kErrorSeq + 1, 200, opcode)).parse(100), TCP_BTH_E_RANGE);
        EXPECT_EQ(Option(mixed_train(kErrorSeq, 0, opcode)).parse(0), TCP_BTH_E_RANGE);
        tcp_bth reth = mixed_train(kErrorSeq, 100, opcode);
        reth.ext_bytes = TCP_BTH_RETH_BYTES;
        EXPECT_EQ(Option(reth).parse(100), TCP_BTH_E_LENGTH);
        tcp_bth in_ver0 = ver0(opcode);
        in_ver0.ext_bytes = TCP_BTH_EXT4_BYTES, in_ver0.ext4 = 100;
        EXPECT_EQ(Option(in_ver0).parse(), TCP_BTH_E_OPCODE);
    }
}

// A message of no bytes takes one byte of the stream.
TEST(BthErrors, RangeOfAnEmptyMessage) {
    EXPECT_EQ(Option(ver1(kErrorSeq, 0)).parse(1), TCP_BTH_OK);
    EXPECT_EQ(Option(ver1(kErrorSeq, 0)).parse(2), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(ver1(kErrorSeq - 1, 0)).parse(1), TCP_BTH_E_RANGE);
}

TEST(BthErrors, RangeOfVer0) {
    tcp_bth b = ver0(TCP_BTH_OP_SEND_FIRST);
    b.mbo = 1;
    EXPECT_EQ(Option(b).parse(), TCP_BTH_E_RANGE);
    EXPECT_EQ(Option(b).parse(0), TCP_BTH_OK);
    b.opcode = TCP_BTH_OP_SEND_MIDDLE;
    EXPECT_EQ(Option(b).parse(), TCP_BTH_OK);
}

TEST(BthErrors, Twice) {
    const Option o(ver1(kErrorSeq, 100));
    std::vector<__u8> two(o.bytes);
    two.insert(two.end(), o.bytes.begin(), o.bytes.end());
    tcp_bth b;
    EXPECT_EQ(tcp_bth_find(two.data(), 32, kErrorSeq, 100, &b, nullptr), TCP_BTH_E_TWICE);
    two[16 + 5] = 99;  // even when the second is wrong
    EXPECT_EQ(tcp_bth_find(two.data(), 32, kErrorSeq, 100, &b, nullptr), TCP_BTH_E_TWICE);
}

TEST(BthErrors, FindStopsAtBrokenOptions) {
    tcp_bth b;
    const __u8 end[] = {0, 253, 4, 0x51, 0x50};
    EXPECT_EQ(tcp_bth_find(end, sizeof end, kErrorSeq, 1, &b, nullptr), TCP_BTH_E_NONE);
    const __u8 zero_length[] = {8, 0, 253, 4, 0x51, 0x50};
    EXPECT_EQ(tcp_bth_find(zero_length, sizeof zero_length, kErrorSeq, 1, &b, nullptr),
              TCP_BTH_E_NONE);
    const __u8 too_long[] = {253, 24, 0x51, 0x50, 0};
    EXPECT_EQ(tcp_bth_find(too_long, sizeof too_long, kErrorSeq, 1, &b, nullptr), TCP_BTH_E_NONE);
    const __u8 cut[] = {253};
    EXPECT_EQ(tcp_bth_find(cut, sizeof cut, kErrorSeq, 1, &b, nullptr), TCP_BTH_E_NONE);
}

// Whatever is accepted builds back to the same meaning.
TEST(BthErrors, RandomBytes) {
    std::mt19937 random(20240611);
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        __u8 o[40];
        for (__u8& byte : o)
            byte = static_cast<__u8>(random());
        o[0] = 253, o[2] = 0x51, o[3] = 0x50;
        if (round % 2)
            o[1] = static_cast<__u8>(random() % 11 * 4), o[4] &= 0x7d, o[5] %= 0x18;
        const unsigned room = random() % 41;
        tcp_bth b, again;
        if (tcp_bth_parse(o, room, kErrorSeq, 0, &b) != TCP_BTH_OK)
            continue;
        accepted++;
        ASSERT_LE(o[1], room);
        __u8 built[TCP_BTH_OPT_MAX_BYTES];
        ASSERT_EQ(tcp_bth_build(built, &b), o[1]);
        ASSERT_EQ(tcp_bth_parse(built, o[1], kErrorSeq, 0, &again), TCP_BTH_OK);
        EXPECT_EQ(b.opcode, again.opcode);
        EXPECT_EQ(b.start_seq, again.start_seq);
        EXPECT_EQ(b.va, again.va);
    }
    EXPECT_GT(accepted, 500);
}

}  // namespace
