// SPDX-License-Identifier: BSD-3-Clause
// WRITE and READ_RESPONSE: the segment names its own target.
#include <gtest/gtest.h>

#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

struct Tagged : testing::Test {
    Host host;
    std::uint32_t seq = kRcvNxt;
    std::uint16_t msn = 0;
    Tagged() { host.ack(kRcvNxt); }

    Reason one(std::uint64_t va, std::uint32_t rkey, std::uint32_t n, std::uint32_t dma_length,
               std::uint8_t opcode) {
        if (opcode >= TCP_BTH_OP_READ_RESPONSE_FIRST && opcode <= TCP_BTH_OP_READ_RESPONSE_ONLY)
            host.ring.want_read(msn, va, rkey, dma_length);
        const TcpFrame f =
            write_segment(seq, 0, pattern(n, seq), va, rkey, dma_length, opcode, msn++);
        const Reason reason = host.rx(f).reason;
        if (reason == Reason::kPlaced && rkey == kKey)
            EXPECT_EQ(host.mr.read(host.guest, va, n), f.payload);
        seq += n;
        host.ring.consume(seq);
        return reason;
    }
    // A whole WRITE of 100 bytes, @at bytes behind rcv_nxt.
    Reason write_next(std::uint32_t at) {
        return host
            .rx(write_segment(kRcvNxt + at, 0, pattern(100), kIova, kKey, 100,
                              TCP_BTH_OP_WRITE_ONLY, 1))
            .reason;
    }
};

TEST_F(Tagged, WriteAndReadResponse) {
    EXPECT_EQ(one(kIova + 5, kKey, 100, 100, TCP_BTH_OP_WRITE_ONLY), Reason::kPlaced);
    EXPECT_EQ(one(kIova + 777, kKey, 100, 100, TCP_BTH_OP_READ_RESPONSE_ONLY), Reason::kPlaced);
    EXPECT_EQ(host.stat(NUPA_STAT_placed_bytes), 200u);
}

TEST_F(Tagged, OffsetsCountFromTheMessage) {
    const ByteVector message = pattern(3000);
    const auto part = [&](std::uint32_t at, std::uint8_t opcode) {
        return write_segment(kRcvNxt, at, {message.begin() + at, message.begin() + at + 1000},
                             kIova + 50, kKey, 3000, opcode);
    };
    EXPECT_TRUE(host.rx(part(2000, TCP_BTH_OP_WRITE_LAST)).placed());
    EXPECT_TRUE(host.rx(part(0, TCP_BTH_OP_WRITE_FIRST)).placed());
    EXPECT_TRUE(host.rx(part(1000, TCP_BTH_OP_WRITE_MIDDLE)).placed());
    EXPECT_EQ(host.mr.read(host.guest, kIova + 50, 3000), message);
}

TEST_F(Tagged, KeyAccessAndBounds) {
    const std::uint64_t end = kIova + host.options.mr_bytes;
    EXPECT_EQ(one(kIova, kOtherKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kKey);
    EXPECT_EQ(one(kIova - 1, kKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kBounds);
    EXPECT_EQ(one(end - 9, kKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kBounds);
    EXPECT_EQ(one(end - 10, kKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kPlaced);
    EXPECT_EQ(one(UINT64_MAX - 4, kKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kBounds);
    Region local(host.guest, 0x1000, 4096, kPd, NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_READ);
    ASSERT_EQ(host.engine.mr_reg(kOtherKey, local.cmd), NUPA_OK);
    EXPECT_EQ(one(0x1000, kOtherKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kAccess);
    // A sink needs no right of remote access: we asked.
    EXPECT_EQ(one(0x1000, kOtherKey, 10, 10, TCP_BTH_OP_READ_RESPONSE_ONLY), Reason::kPlaced);
    Region fixed(host.guest, 0x1000, 4096, kPd, NUPA_ACCESS_REMOTE_READ);
    ASSERT_EQ(host.engine.mr_reg(0x4400, fixed.cmd), NUPA_OK);
    EXPECT_EQ(one(0x1000, 0x4400, 10, 10, TCP_BTH_OP_READ_RESPONSE_ONLY), Reason::kAccess);
    Region foreign(host.guest, 0x9000, 4096, kPd + 1);
    ASSERT_EQ(host.engine.mr_reg(0x3300, foreign.cmd), NUPA_OK);
    EXPECT_EQ(one(0x9000, 0x3300, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kAccess);
    EXPECT_EQ(host.stat(NUPA_STAT_deliver_bounds), 3u);
    EXPECT_EQ(host.stat(NUPA_STAT_deliver_access), 3u);
    EXPECT_EQ(host.stat(NUPA_STAT_deliver_key), 1u);
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_refused], 7u);
}

TEST_F(Tagged, WrappingTarget) {
    const TcpFrame f =
        write_segment(kRcvNxt, 100, pattern(10), UINT64_MAX - 50, kKey, 200, TCP_BTH_OP_WRITE_LAST);
    EXPECT_EQ(host.rx(f).reason, Reason::kBounds);
}

TEST_F(Tagged, TargetThatWrapsIntoARegion) {
    Region low(host.guest, 0x1000, 4096, kPd);
    ASSERT_EQ(host.engine.mr_reg(kOtherKey, low.cmd), NUPA_OK);
    const TcpFrame f = write_segment(kRcvNxt, 0x1000 + 200, pattern(10), UINT64_MAX - 99, kOtherKey,
                                     1 << 20, TCP_BTH_OP_WRITE_LAST);
    EXPECT_EQ(host.rx(f).reason, Reason::kBounds);
    EXPECT_EQ(low.read(host.guest, 0x1000, 4096), ByteVector(4096));
}

TEST_F(Tagged, DmaLengthBounds) {
    for (const std::uint8_t opcode : {TCP_BTH_OP_WRITE_ONLY, TCP_BTH_OP_READ_RESPONSE_ONLY}) {
        EXPECT_EQ(one(kIova, kKey, 101, 100, opcode), Reason::kBounds) << int{opcode};
        EXPECT_EQ(one(kIova, kKey, 100, 100, opcode), Reason::kPlaced);
    }
    for (const std::uint8_t opcode : {TCP_BTH_OP_READ_RESPONSE_FIRST})
        EXPECT_EQ(one(kIova, kKey, 101, 100, opcode), Reason::kBounds);
    EXPECT_EQ(one(kIova, kKey, 101, 0, TCP_BTH_OP_WRITE_FIRST), Reason::kBounds);
    // The immediate is where the length would be.
    EXPECT_EQ(one(kIova, kKey, 101, 0, TCP_BTH_OP_WRITE_ONLY_IMM), Reason::kPlaced);
}

// Not one byte of a WRITE whose end lies outside.
TEST_F(Tagged, AllOfTheMessageOrNothing) {
    const std::uint64_t end = kIova + host.options.mr_bytes;
    EXPECT_EQ(one(end - 1000, kKey, 100, 1001, TCP_BTH_OP_WRITE_FIRST), Reason::kBounds);
    EXPECT_EQ(host.mr.read(host.guest, end - 1000, 1000), ByteVector(1000));
    EXPECT_EQ(one(end - 1000, kKey, 100, 1000, TCP_BTH_OP_WRITE_FIRST), Reason::kPlaced);
}

// In layout 1 a WRITE with immediate has its length beside the RETH, not in it.
TEST_F(Tagged, AllOfALayout1WriteWithImmediateOrNothing) {
    const std::uint64_t end = kIova + host.options.mr_bytes;
    for (const auto& [length, reason] :
         {std::pair{1001u, Reason::kBounds}, std::pair{1000u, Reason::kPlaced}}) {
        tcp_bth b{};
        b.ver = 1;
        b.opcode = TCP_BTH_OP_WRITE_ONLY_IMM;
        b.start_seq = kRcvNxt;
        b.length = length;
        b.ext_bytes = TCP_BTH_RETH_BYTES;
        b.va = end - 1000, b.rkey = kKey, b.dma_length = 0xabcd;
        TcpFrame f;
        f.seq = kRcvNxt;
        f.options = bth_option(b);
        f.payload = pattern(100);
        Host fresh;
        fresh.ack(kRcvNxt);
        EXPECT_EQ(fresh.rx(f).reason, reason) << length;
        EXPECT_EQ(fresh.mr.read(fresh.guest, end - 1000, 100),
                  reason == Reason::kPlaced ? f.payload : ByteVector(100));
    }
}

TEST_F(Tagged, WritesNeedTheQpsPermission) {
    Host closed({.qp_flags = NUPA_QP_F_SHADOW});
    closed.ack(kRcvNxt);
    EXPECT_EQ(
        closed.rx(write_segment(kRcvNxt, 0, pattern(10), kIova, kKey, 10, TCP_BTH_OP_WRITE_ONLY))
            .reason,
        Reason::kAccess);
}

// A response is placed only where a READ of ours asked for it.
TEST_F(Tagged, ResponseNeedsItsRead) {
    const auto response = [&](std::uint16_t n, std::uint64_t va, std::uint32_t length) {
        const TcpFrame f = write_segment(seq, 0, pattern(100), va, kKey, length,
                                         TCP_BTH_OP_READ_RESPONSE_FIRST, n);
        seq += 100;
        return host.rx(f).reason;
    };
    EXPECT_EQ(response(0, kIova, 200), Reason::kAccess);
    for (std::uint16_t n = 1; n < 6; n++)
        host.ring.want_read(n, kIova, kKey, 200);
    EXPECT_EQ(response(6, kIova, 200), Reason::kAccess);
    EXPECT_EQ(response(1 + NUPA_READS_MAX, kIova, 200), Reason::kAccess);
    EXPECT_EQ(response(2, kIova + 1, 200), Reason::kAccess);
    EXPECT_EQ(response(3, kIova, 199), Reason::kAccess);
    EXPECT_EQ(response(4, kIova, 200), Reason::kPlaced);
    host.ring.end_read(5);
    EXPECT_EQ(response(5, kIova, 200), Reason::kAccess);
    std::uint16_t msn = 7;
    for (const std::uint64_t nowhere : {0ull, 1ull << 40, ~0ull - 1023, 4097ull}) {
        host.ring.want_read(msn, kIova, kKey, 200);
        host.ring.set_reads_addr(nowhere);
        EXPECT_EQ(response(msn++, kIova, 200), Reason::kAccess) << nowhere;
    }
    Host none({.qp_flags = NUPA_QP_F_REMOTE_WRITE});
    none.ack(kRcvNxt);
    none.ring.want_read(0, kIova, kKey, 100);
    EXPECT_EQ(none.rx(write_segment(kRcvNxt, 0, pattern(100), kIova, kKey, 100,
                                    TCP_BTH_OP_READ_RESPONSE_ONLY))
                  .reason,
              Reason::kAccess);
}

TEST_F(Tagged, NeedsNoReceivePosted) {
    EXPECT_EQ(one(kIova, kKey, 50, 0xabcd, TCP_BTH_OP_WRITE_ONLY_IMM), Reason::kPlaced);
}

TEST_F(Tagged, WithoutRethThereIsNoTarget) {
    TcpFrame f = write_segment(kRcvNxt, 0, pattern(10), kIova, kKey, 10);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_WRITE_ONLY;
    f.options = bth_option(b);
    EXPECT_EQ(host.rx(f).reason, Reason::kOpcode);
}

TEST_F(Tagged, Inconsistent) {
    ASSERT_TRUE(
        host.rx(write_segment(kRcvNxt, 0, pattern(10), kIova, kKey, 100, TCP_BTH_OP_WRITE_FIRST))
            .placed());
    TcpFrame f = write_segment(kRcvNxt, 50, pattern(10), kIova, kKey, 100, TCP_BTH_OP_WRITE_MIDDLE);
    f.seq = kRcvNxt + 10;
    EXPECT_EQ(host.rx(f).reason, Reason::kInconsistent);
}

// Two kinds of WRITE count in different spaces and so meet with equal numbers.
TEST_F(Tagged, WriteAndWriteImmInterleaved) {
    for (std::uint16_t i = 0; i < 300; i++) {
        const std::uint64_t va = kIova + std::uint64_t{i} % 100 * 2000;
        for (const std::uint8_t last : {TCP_BTH_OP_WRITE_LAST, TCP_BTH_OP_WRITE_LAST_IMM}) {
            const std::uint64_t to = va + (last == TCP_BTH_OP_WRITE_LAST_IMM ? 1000 : 0);
            ASSERT_TRUE(host.rx(write_segment(seq, 0, pattern(500), to, kKey, 1000,
                                              TCP_BTH_OP_WRITE_FIRST, i))
                            .placed());
            ASSERT_TRUE(
                host.rx(write_segment(seq, 500, pattern(500), to, kKey, 1000, last, i)).placed());
            seq += 1000;
            host.ack(seq);
        }
    }
}

struct WriteOrdering : Tagged {
    std::uint32_t begin = 0;
    WriteOrdering() {
        EXPECT_EQ(one(kIova + 5000, kKey, 10, 10, TCP_BTH_OP_WRITE_ONLY), Reason::kPlaced);
        begin = seq;
    }
    Reason write(std::uint32_t start, std::uint32_t at, std::uint32_t n, std::uint32_t length,
                 std::uint16_t number) {
        const bool last = at + n == length;
        const std::uint8_t opcode = at == 0 ? last ? TCP_BTH_OP_WRITE_ONLY : TCP_BTH_OP_WRITE_FIRST
                                    : last  ? TCP_BTH_OP_WRITE_LAST
                                            : TCP_BTH_OP_WRITE_MIDDLE;
        return host
            .rx(write_segment(start, at, pattern(n, start), kIova, kKey, length, opcode, number))
            .reason;
    }
};

// The bytes that are missing may be a WRITE to the same place.
TEST_F(WriteOrdering, NotBeyondAHoleBeforeTheMessage) {
    EXPECT_EQ(write(begin + 100, 0, 100, 100, 2), Reason::kOrder);
    EXPECT_EQ(write(begin, 0, 100, 100, 1), Reason::kPlaced);
    EXPECT_EQ(host.stat(NUPA_STAT_deliver_order), 1u);
}

// A middlebox took the option of a WRITE's repeated segment: the host must not copy it over a
// later WRITE.
TEST_F(WriteOrdering, WithoutItsOptionItIsNotCopiedOverALaterOne) {
    const auto plain = [&](std::uint32_t seq) {
        TcpFrame f;
        f.seq = seq, f.payload = pattern(50);
        return host.rx(f).reason;
    };
    host.ring.consume(begin - 50);
    EXPECT_EQ(write(begin, 0, 100, 100, 1), Reason::kPlaced);
    EXPECT_EQ(plain(begin + 50), Reason::kPlain) << "no later one is there yet";
    host.ring.consume(begin + 100);
    EXPECT_EQ(write(begin + 100, 0, 100, 100, 2), Reason::kPlaced);
    EXPECT_EQ(write(begin + 200, 0, 100, 100, 3), Reason::kPlaced);
    EXPECT_EQ(plain(begin + 150), Reason::kOvertaken);
    EXPECT_EQ(host.stat(NUPA_STAT_drop_overtaken), 1u);
    EXPECT_EQ(plain(begin + 250), Reason::kPlain) << "it is of the latest itself";
}

TEST_F(Tagged, BytesBeforeTheFirstMessageHaveNoOption) {
    TcpFrame f;
    f.seq = kRcvNxt, f.payload = pattern(50);
    host.ring.consume(kRcvNxt);
    EXPECT_EQ(host.rx(f).reason, Reason::kPlain);
    const auto write = [&](std::uint32_t start, std::uint16_t number) {
        return host
            .rx(write_segment(start, 0, pattern(100), kIova, kKey, 100, TCP_BTH_OP_WRITE_ONLY,
                              number))
            .reason;
    };
    EXPECT_EQ(host.rx(f).reason, Reason::kPlain) << "TCP may have dropped them";
    host.ring.consume(kRcvNxt + 50);
    EXPECT_EQ(write(kRcvNxt + 50, 0), Reason::kPlaced);
    EXPECT_EQ(write(kRcvNxt + 150, 1), Reason::kPlaced);
    f.seq = kRcvNxt + 50;
    EXPECT_EQ(host.rx(f).reason, Reason::kOvertaken) << "these are of a message";
}

TEST_F(WriteOrdering, BeyondAHoleInTheMessage) {
    EXPECT_EQ(write(begin, 200, 100, 300, 1), Reason::kPlaced);
    EXPECT_EQ(write(begin, 0, 100, 300, 1), Reason::kPlaced);
    EXPECT_EQ(write(begin, 100, 100, 300, 1), Reason::kPlaced);
}

// What the host copies it copies after the switch would have placed.
TEST_F(WriteOrdering, NotBeforeTheHostHasCopied) {
    host.ring.consume(begin);
    EXPECT_EQ(write(begin + 100, 0, 100, 100, 2), Reason::kOrder);
    EXPECT_EQ(write(begin, 0, 100, 100, 1), Reason::kPlaced);
    EXPECT_EQ(write(begin + 200, 0, 100, 200, 3), Reason::kOrder);
    host.ring.consume(begin + 199);
    EXPECT_EQ(write(begin + 200, 100, 100, 200, 3), Reason::kOrder);
    host.ring.consume(begin + 400);
    EXPECT_EQ(write(begin + 400, 0, 100, 100, 4), Reason::kPlaced);
}

// The rest of a message that was partly delivered touches other bytes.
TEST_F(WriteOrdering, TheRestOfAMessage) {
    host.ring.consume(begin);
    ASSERT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    EXPECT_EQ(write(begin, 0, 100, 300, 1), Reason::kKey);
    ASSERT_EQ(host.engine.mr_reg(kKey, host.mr.cmd), NUPA_OK);
    EXPECT_EQ(write(begin, 100, 100, 300, 1), Reason::kPlaced);
    EXPECT_EQ(write(begin, 200, 100, 300, 1), Reason::kPlaced);
}

// TCP dropped what was placed and sends it again, after a later WRITE to the
// same place: nothing is stored, and the host must not copy it either.
TEST_F(WriteOrdering, OvertakenByALaterOne) {
    EXPECT_EQ(write(begin, 0, 100, 100, 1), Reason::kPlaced);
    EXPECT_EQ(write(begin + 100, 0, 100, 100, 2), Reason::kPlaced);
    EXPECT_EQ(write(begin, 0, 100, 100, 1), Reason::kPlacedBefore);
    EXPECT_EQ(write(begin + 20, 0, 60, 60, 1), Reason::kPlacedBefore);
    EXPECT_EQ(host.mr.read(host.guest, kIova, 100), pattern(100, begin + 100));
    // Over the latest there is nothing to destroy.
    EXPECT_EQ(write(begin + 100, 0, 100, 100, 2), Reason::kDuplicate);
    // Once the host is done with it TCP ignores all of this.
    host.ring.consume(begin + 200);
    EXPECT_EQ(write(begin, 0, 100, 100, 1), Reason::kDuplicate);
}

// Bytes without an option may be part of a WRITE whose other segments have theirs.
TEST_F(WriteOrdering, NotBeforeTheHostHasSeenUnnamedBytes) {
    host.ring.consume(begin);
    TcpFrame f = write_segment(begin, 0, pattern(100), kIova, kKey, 100);
    f.options.clear();
    EXPECT_EQ(host.rx(f).reason, Reason::kPlain);
    EXPECT_EQ(write(begin + 100, 0, 100, 100, 2), Reason::kOrder);
    host.ring.consume(begin + 200);
    EXPECT_EQ(write(begin + 200, 0, 100, 100, 3), Reason::kPlaced);
}

// So may bytes that a replayed option names as something else.
TEST_F(WriteOrdering, NotBeforeTheHostHasSeenBytesUnderAnOldName) {
    host.ring.consume(begin);
    host.ring.post({{kIova, 4096, kKey}});
    EXPECT_EQ(host.rx(send_segment(begin, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY)).reason,
              Reason::kPlaced);
    EXPECT_EQ(host.rx(send_segment(begin + 100, 0, pattern(100), 0, TCP_BTH_OP_SEND_ONLY)).reason,
              Reason::kInconsistent);
    EXPECT_EQ(write(begin + 200, 0, 100, 100, 2), Reason::kOrder);
    host.ring.consume(begin + 300);
    EXPECT_EQ(write(begin + 300, 0, 100, 100, 3), Reason::kPlaced);
}

// The first WRITE that arrives may not be the first that was sent: those with
// immediate count elsewhere.
TEST_F(Tagged, FirstOfItsKindBehindAHole) {
    host.ring.consume(kRcvNxt);
    const auto first = [&](std::uint32_t at, std::uint8_t opcode) {
        return host.rx(write_segment(kRcvNxt + at, 0, pattern(100), kIova, kKey, 100, opcode, 0))
            .reason;
    };
    EXPECT_EQ(first(100, TCP_BTH_OP_WRITE_ONLY), Reason::kOrder);
    EXPECT_EQ(first(0, TCP_BTH_OP_WRITE_ONLY_IMM), Reason::kDuplicate);
    host.ring.consume(kRcvNxt + 200);
    EXPECT_EQ(write_next(200), Reason::kPlaced);
}

// Part of what lies in the hole is not all of it.
TEST_F(Tagged, HalfOfTheHoleIsCopied) {
    host.ring.consume(kRcvNxt);
    const auto write = [&](std::uint32_t start, std::uint32_t n, std::uint16_t number) {
        return host
            .rx(write_segment(kRcvNxt + start, 0, pattern(n), kIova, kKey, 100,
                              TCP_BTH_OP_WRITE_FIRST, number))
            .reason;
    };
    host.rx(send_segment(kRcvNxt + 200, 0, pattern(10)));
    EXPECT_EQ(write(100, 50, 1), Reason::kDuplicate);
    host.ring.consume(kRcvNxt + 150);
    EXPECT_EQ(write(210, 100, 2), Reason::kOrder);
    host.ring.consume(kRcvNxt + 310);
    EXPECT_EQ(write(310, 100, 3), Reason::kPlaced);
}

// What looks like plain bytes before the first message may be the first message, whose option
// somebody took: once a later WRITE were placed, nobody could say what became of its bytes.
TEST_F(Tagged, NotBeforeTheHostHasReadPlainBytes) {
    host.ring.consume(kRcvNxt);
    TcpFrame f = write_segment(kRcvNxt, 0, pattern(100), kIova, kKey, 100);
    f.options.clear();
    EXPECT_EQ(host.rx(f).reason, Reason::kPlain);
    EXPECT_EQ(write_next(100), Reason::kOrder);
    EXPECT_EQ(host.rx(write_segment(kRcvNxt, 0, pattern(100), kIova, kKey, 100)).reason,
              Reason::kDuplicate)
        << "TCP dropped it: the host copies it now, and then the later one";
    host.ring.consume(kRcvNxt + 200);
    EXPECT_EQ(host.rx(write_segment(kRcvNxt + 200, 0, pattern(100), kIova, kKey, 100,
                                    TCP_BTH_OP_WRITE_ONLY, 2))
                  .reason,
              Reason::kPlaced);
}

}  // namespace
