// SPDX-License-Identifier: BSD-3-Clause
// The head of a UD datagram: kernel/tcp_qp/wire/ud_wire.c, the kernel's own source.
#include <gtest/gtest.h>

#include <random>
#include <vector>

extern "C" {
#include "wire/ud_wire.h"
}

namespace {

using Datagram = std::vector<uint8_t>;

tqp_ud_head head_of(uint32_t bytes, uint8_t opcode = TQP_UD_SEND, uint32_t imm = 0) {
    return {.opcode = opcode,
            .flags = TQP_UD_F_SOLICITED,
            .bytes = static_cast<uint16_t>(bytes),
            .dest_qpn = 0xabcdef,
            .src_qpn = 0x123456,
            .qkey = 0x87654321,
            .imm = imm};
}

Datagram build(const tqp_ud_head& head) {
    Datagram datagram(TQP_UD_HEAD_BYTES + head.bytes);
    tqp_ud_build(datagram.data(), &head);
    return datagram;
}

// Only the head is there, as in an skb whose payload lies in fragments.
int parse(const Datagram& datagram, tqp_ud_head* head) {
    Datagram first(
        datagram.begin(),
        datagram.begin() + std::min<long>(static_cast<long>(datagram.size()), TQP_UD_HEAD_BYTES));
    first.shrink_to_fit();  // so that a sanitizer sees reads beyond
    return tqp_ud_parse(first.data(), static_cast<uint32_t>(datagram.size()), head);
}

int parse(const Datagram& datagram) {
    tqp_ud_head head{};
    return parse(datagram, &head);
}

TEST(UdHead, ReadsWhatWasBuilt) {
    for (uint32_t bytes : {0u, 1u, 1024u, 4096u})
        for (uint8_t opcode : {TQP_UD_SEND, TQP_UD_SEND_IMM}) {
            const uint32_t imm = opcode == TQP_UD_SEND_IMM ? 0xdeadbeef : 0;
            tqp_ud_head got{};
            ASSERT_EQ(parse(build(head_of(bytes, opcode, imm)), &got), 0);
            EXPECT_EQ(got.opcode, opcode);
            EXPECT_EQ(got.flags, TQP_UD_F_SOLICITED);
            EXPECT_EQ(got.bytes, bytes);
            EXPECT_EQ(got.dest_qpn, 0xabcdefu);
            EXPECT_EQ(got.src_qpn, 0x123456u);
            EXPECT_EQ(got.qkey, 0x87654321u);
            EXPECT_EQ(got.imm, imm);
            EXPECT_EQ(tqp_ud_has_immediate(&got) != 0, imm != 0);
        }
}

TEST(UdHead, IsLaidOutAsItsHeaderSays) {
    const Datagram expected = {1,    0x65, 0,    0,    1,    0xab, 0xcd, 0xef, 0,    0x12,
                               0x34, 0x56, 0x87, 0x65, 0x43, 0x21, 0xde, 0xad, 0xbe, 0xef};
    EXPECT_EQ(build(head_of(0, TQP_UD_SEND_IMM, 0xdeadbeef)), expected);
}

TEST(UdHead, AShorterDatagramIsRefused) {
    const Datagram whole = build(head_of(0));
    for (size_t bytes = 0; bytes < TQP_UD_HEAD_BYTES; bytes++)
        EXPECT_EQ(parse(Datagram(whole.begin(), whole.begin() + static_cast<long>(bytes))),
                  -TQP_UD_E_SHORT);
}

TEST(UdHead, ALengthThatIsNotTheDatagramsIsRefused) {
    Datagram more = build(head_of(100)), less = more;
    more.push_back(0);
    less.pop_back();
    EXPECT_EQ(parse(more), -TQP_UD_E_LENGTH);
    EXPECT_EQ(parse(less), -TQP_UD_E_LENGTH);
    EXPECT_EQ(parse(build(head_of(TQP_UD_PAYLOAD_MAX_BYTES + 1))), -TQP_UD_E_LENGTH);
}

TEST(UdHead, OtherVersionsAndOpcodesAreRefused) {
    for (int value = 0; value < 256; value++) {
        Datagram version = build(head_of(8)), opcode = version;
        version[0] = static_cast<uint8_t>(value);
        opcode[1] = static_cast<uint8_t>(value);
        EXPECT_EQ(parse(version), value == TQP_UD_VERSION ? 0 : -TQP_UD_E_VERSION) << value;
        EXPECT_EQ(parse(opcode),
                  value == TQP_UD_SEND || value == TQP_UD_SEND_IMM ? 0 : -TQP_UD_E_OPCODE)
            << value;
    }
}

TEST(UdHead, WhatIsReservedIsZero) {
    for (int bit = 0; bit < 8; bit++) {
        Datagram flags = build(head_of(8)), zero = flags;
        flags[4] = static_cast<uint8_t>(1 << bit);
        zero[8] = static_cast<uint8_t>(1 << bit);
        EXPECT_EQ(parse(flags), 1 << bit == TQP_UD_F_SOLICITED ? 0 : -TQP_UD_E_RESERVED) << bit;
        EXPECT_EQ(parse(zero), -TQP_UD_E_RESERVED) << bit;
    }
    EXPECT_EQ(parse(build(head_of(8, TQP_UD_SEND, 1))), -TQP_UD_E_RESERVED) << "an immediate";
}

// Of any bytes, what is accepted is the same when it is built again.
TEST(UdHead, WhatIsAcceptedIsBuiltTheSame) {
    constexpr uint32_t kSeed = 20261123;
    std::mt19937 random(kSeed);
    SCOPED_TRACE(kSeed);
    int accepted = 0;
    for (int round = 0; round < 20000; round++) {
        Datagram datagram =
            build(head_of(random() % 64, random() % 2 ? TQP_UD_SEND : TQP_UD_SEND_IMM));
        for (uint32_t flips = random() % 3; flips; flips--)
            datagram[random() % datagram.size()] ^= static_cast<uint8_t>(random());
        tqp_ud_head got{};
        if (parse(datagram, &got) != 0)
            continue;
        accepted++;
        Datagram again(TQP_UD_HEAD_BYTES);
        tqp_ud_build(again.data(), &got);
        ASSERT_TRUE(std::equal(again.begin(), again.end(), datagram.begin())) << round;
    }
    EXPECT_GT(accepted, 5000);
}

}  // namespace
