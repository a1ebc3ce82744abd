// SPDX-License-Identifier: BSD-3-Clause
// The shared parser and builder: every opcode, layout and extension there and back.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include "abi_layout.h"

namespace {

constexpr __u32 kSeq = 0xfffffc00;  // messages in these tests wrap the sequence space
constexpr __u32 kPayload = 1000;

tcp_bth filled(int ver, __u8 opcode, unsigned ext, bool timestamp) {
    tcp_bth b{};
    b.ver = static_cast<__u8>(ver);
    b.opcode = opcode;
    b.ext_bytes = static_cast<__u8>(ext);
    b.msn = 0xbeef;
    b.flags = timestamp ? TCP_BTH_F_TIMESTAMP : 0;
    if (timestamp)
        b.tsval = 0x01020304, b.tsecr = 0xa0b0c0d0;
    if (ver == 0) {
        b.mbo = tcp_bth_position(opcode) & TCP_BTH_POS_FIRST ? 0 : 0x123456;
        b.segno = 200;
        b.start_seq = kSeq - b.mbo;
    } else {
        b.mbo = 300;
        b.start_seq = kSeq - b.mbo;
        b.length = 5000;
    }
    if (ext == TCP_BTH_EXT4_BYTES)
        b.ext4 = 0xdeadbeef;
    if (ext == TCP_BTH_RETH_BYTES)
        b.va = 0x7fedcba987654321, b.rkey = 0x11223344, b.dma_length = 0x55667788;
    return b;
}

void expect_equal(const tcp_bth& a, const tcp_bth& b) {
    EXPECT_EQ(a.ver, b.ver);
    EXPECT_EQ(a.flags, b.flags);
    EXPECT_EQ(a.opcode, b.opcode);
    EXPECT_EQ(a.ext_bytes, b.ext_bytes);
    EXPECT_EQ(a.msn, b.msn);
    EXPECT_EQ(a.segno, b.segno);
    EXPECT_EQ(a.start_seq, b.start_seq);
    EXPECT_EQ(a.length, b.length);
    EXPECT_EQ(a.mbo, b.mbo);
    EXPECT_EQ(a.icrc, b.icrc);
    EXPECT_EQ(a.tsval, b.tsval);
    EXPECT_EQ(a.tsecr, b.tsecr);
    EXPECT_EQ(a.ext4, b.ext4);
    EXPECT_EQ(a.rkey, b.rkey);
    EXPECT_EQ(a.dma_length, b.dma_length);
    EXPECT_EQ(a.va, b.va);
}

TEST(Bth, RoundTripOfEverything) {
    int tried = 0;
    for (int ver = 0; ver <= 1; ver++)
        for (int opcode = 0; opcode < TCP_BTH_OP_COUNT; opcode++)
            for (const unsigned ext : {0u, 4u, 16u})
                for (const bool timestamp : {false, true}) {
                    if (ver == 1 && tcp_bth_position(static_cast<__u8>(opcode)) != TCP_BTH_POS_ONLY)
                        continue;
                    if (tcp_bth_is_train(static_cast<__u8>(opcode)))  // one layout alone: below
                        continue;
                    const tcp_bth in = filled(ver, static_cast<__u8>(opcode), ext, timestamp);
                    __u8 option[TCP_BTH_OPT_MAX_BYTES];
                    const unsigned bytes = tcp_bth_build(option, &in);
                    ASSERT_EQ(bytes, tcp_bth_opt_bytes(&in));
                    ASSERT_LE(bytes, unsigned{TCP_BTH_OPT_MAX_BYTES});
                    ASSERT_EQ(bytes % 4, 0u);
                    tcp_bth out{};
                    ASSERT_EQ(tcp_bth_parse(option, bytes, kSeq, kPayload, &out), TCP_BTH_OK)
                        << ver << ' ' << opcode << ' ' << ext;
                    expect_equal(in, out);
                    tcp_bth by_c{};
                    ASSERT_EQ(abi_c_round_trip(&in, kSeq, kPayload, &by_c), TCP_BTH_OK);
                    expect_equal(in, by_c);
                    tried++;
                }
    EXPECT_EQ(tried, (26 + 14) * 6);
}

TEST(Bth, BytesOfVer0) {
    tcp_bth b = filled(0, TCP_BTH_OP_SEND_LAST_IMM, 4, true);
    b.flags |= TCP_BTH_F_ICRC | TCP_BTH_F_RTR;
    b.icrc = 0xcafef00d;
    __u8 o[TCP_BTH_OPT_MAX_BYTES];
    const __u8 expected[] = {253,  28,   0x51, 0x50, 0x54, 0x03, 0xbe, 0xef, 0x12, 0x34,
                             0x56, 200,  0xca, 0xfe, 0xf0, 0x0d, 1,    2,    3,    4,
                             0xa0, 0xb0, 0xc0, 0xd0, 0xde, 0xad, 0xbe, 0xef};
    ASSERT_EQ(tcp_bth_build(o, &b), sizeof expected);
    EXPECT_EQ(memcmp(o, expected, sizeof expected), 0);
}

TEST(Bth, BytesOfVer1WithReth) {
    const tcp_bth b = filled(1, TCP_BTH_OP_WRITE_ONLY, 16, false);
    __u8 o[TCP_BTH_OPT_MAX_BYTES];
    const __u8 expected[] = {253,  32,   0x51, 0x50, 0x01, 0x0a, 0xbe, 0xef, 0xff, 0xff, 0xfa,
                             0xd4, 0,    0,    0x13, 0x88, 0x7f, 0xed, 0xcb, 0xa9, 0x87, 0x65,
                             0x43, 0x21, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88};
    ASSERT_EQ(tcp_bth_build(o, &b), sizeof expected);
    EXPECT_EQ(memcmp(o, expected, sizeof expected), 0);
}

TEST(Bth, BytesOfATrain) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_TRAIN, b.msn = 0xbeef, b.start_seq = 0x01020304;
    b.length = 64, b.mbo = 100, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 640;
    __u8 o[TCP_BTH_OPT_MAX_BYTES];
    const __u8 expected[] = {253, 20, 0x51, 0x50, 0x01, 0x18, 0xbe, 0xef, 1, 2,
                             3,   4,  0,    0,    0,    64,   0,    0,    2, 0x80};
    ASSERT_EQ(tcp_bth_build(o, &b), sizeof expected);
    EXPECT_EQ(memcmp(o, expected, sizeof expected), 0);
    tcp_bth out{};
    ASSERT_EQ(tcp_bth_parse(o, sizeof expected, b.start_seq + b.mbo, 540, &out), TCP_BTH_OK);
    expect_equal(b, out);
}

TEST(Bth, BytesOfAMixedTrain) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_MIXED_TRAIN, b.msn = 0xbeef, b.start_seq = 0x01020304;
    b.length = 0xcafef00d, b.mbo = 100, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 641;
    __u8 o[TCP_BTH_OPT_MAX_BYTES];
    const __u8 expected[] = {253, 20, 0x51, 0x50, 0x01, 0x1b, 0xbe, 0xef, 1, 2,
                             3,   4,  0xca, 0xfe, 0xf0, 0x0d, 0,    0,    2, 0x81};
    ASSERT_EQ(tcp_bth_build(o, &b), sizeof expected);
    EXPECT_EQ(memcmp(o, expected, sizeof expected), 0);
    tcp_bth out{};
    ASSERT_EQ(tcp_bth_parse(o, sizeof expected, b.start_seq + b.mbo, 541, &out), TCP_BTH_OK);
    expect_equal(b, out);
    EXPECT_EQ(tcp_bth_stream_bytes(&out), 641u);
}

TEST(Bth, BytesOfATrainOfWrites) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_WRITE_TRAIN, b.msn = 0xbeef, b.start_seq = 0x01020304;
    b.length = 64, b.mbo = 100, b.ext_bytes = TCP_BTH_RETH_BYTES;
    b.va = 0x1122334455667788, b.rkey = 0x99aabbcc, b.dma_length = tcp_bth_train_word(10, 3);
    __u8 o[TCP_BTH_OPT_MAX_BYTES];
    const __u8 expected[] = {253,  32,   0x51, 0x50, 0x01, 0x19, 0xbe, 0xef, 1,    2,    3,
                             4,    0,    0,    0,    64,   0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
                             0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0,    3,    0,    10};
    ASSERT_EQ(tcp_bth_build(o, &b), sizeof expected);
    EXPECT_EQ(memcmp(o, expected, sizeof expected), 0);
    tcp_bth out{};
    ASSERT_EQ(tcp_bth_parse(o, sizeof expected, b.start_seq + b.mbo, 540, &out), TCP_BTH_OK);
    expect_equal(b, out);
    EXPECT_EQ(tcp_bth_stream_bytes(&out), 640u);
    EXPECT_EQ(tcp_bth_train_step(out.dma_length), 3);
}

TEST(Bth, SizesAreThoseOfTheDesign) {
    const unsigned v0[] = {24, 28, 40}, v1[] = {16, 20, 32}, v1_ts[] = {24, 28, 40};
    const unsigned ext[] = {0, 4, 16};
    for (int i = 0; i < 3; i++) {
        tcp_bth b{};
        b.ext_bytes = static_cast<__u8>(ext[i]);
        EXPECT_EQ(tcp_bth_opt_bytes(&b), v0[i]);
        b.ver = 1;
        EXPECT_EQ(tcp_bth_opt_bytes(&b), v1[i]);
        b.flags = TCP_BTH_F_TIMESTAMP;
        EXPECT_EQ(tcp_bth_opt_bytes(&b), v1_ts[i]);
    }
}

// The table is in order of value, and asks nothing of a byte that is no opcode.
TEST(Bth, EachOpcodeHasItsRow) {
    int row = 0;
#define TCP_BTH_OPCODE_CHECK(name, value, kind_, position_, family, pair, ext_, operands, text) \
    EXPECT_EQ(TCP_BTH_OP_##name, row) << #name;                                                 \
    EXPECT_EQ(tcp_bth_op(value)->kind, TCP_BTH_KIND_##kind_) << #name;                          \
    EXPECT_EQ(tcp_bth_op(value)->ext, TCP_BTH_EXT_##ext_) << #name;                             \
    row++;
    TCP_BTH_OPCODES(TCP_BTH_OPCODE_CHECK)
#undef TCP_BTH_OPCODE_CHECK
    EXPECT_EQ(row, TCP_BTH_OP_COUNT);
    for (int byte = TCP_BTH_OP_COUNT; byte < 256; byte++) {
        const __u8 none = static_cast<__u8>(byte);
        EXPECT_EQ(tcp_bth_op(none)->kind, TCP_BTH_KIND_NONE);
        EXPECT_EQ(tcp_bth_only(none), none);
        EXPECT_EQ(tcp_bth_variant(none, TCP_BTH_POS_FIRST), none);
        EXPECT_FALSE(tcp_bth_is_send(none) || tcp_bth_is_tagged(none));
    }
}

TEST(Bth, VariantAndOnlyAreInverse) {
    for (int opcode = 0; opcode < TCP_BTH_OP_COUNT; opcode++) {
        const __u8 op = static_cast<__u8>(opcode);
        if (tcp_bth_position(op) != TCP_BTH_POS_ONLY)
            continue;
        const __u8 last = tcp_bth_variant(op, TCP_BTH_POS_LAST);
        EXPECT_EQ(tcp_bth_only(last), op);
        EXPECT_EQ(tcp_bth_variant(op, TCP_BTH_POS_ONLY), op);
        const bool cut = last != op;
        const bool parts = !tcp_bth_is_train(op);  // its parts are trains
        EXPECT_EQ(cut, parts && (tcp_bth_is_send(op) || tcp_bth_is_tagged(op)));
        if (!cut)
            continue;
        EXPECT_EQ(tcp_bth_position(last), TCP_BTH_POS_LAST);
        EXPECT_EQ(tcp_bth_position(tcp_bth_variant(op, TCP_BTH_POS_FIRST)), TCP_BTH_POS_FIRST);
        EXPECT_EQ(tcp_bth_position(tcp_bth_variant(op, TCP_BTH_POS_MIDDLE)), TCP_BTH_POS_MIDDLE);
    }
}

TEST(Bth, FindAmongOtherOptions) {
    const tcp_bth in = filled(0, TCP_BTH_OP_SEND_ONLY, 0, true);
    __u8 opts[40] = {1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0};
    tcp_bth_build(opts + 12, &in);
    tcp_bth out{};
    unsigned at = 99;
    EXPECT_EQ(tcp_bth_find(opts, 36, kSeq, kPayload, &out, &at), TCP_BTH_OK);
    EXPECT_EQ(at, 12u);
    expect_equal(in, out);
    EXPECT_EQ(tcp_bth_find(opts, 36, kSeq, kPayload, &out, nullptr), TCP_BTH_OK);
}

}  // namespace
