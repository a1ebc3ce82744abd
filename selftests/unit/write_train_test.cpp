// SPDX-License-Identifier: BSD-3-Clause
// WRITE_TRAIN: several WRITEs in a segment, in their order, all of them or none.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <utility>

#include "engine/limits.hpp"
#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

constexpr std::uint32_t kWriteBytes = 100;  // of each message
constexpr std::uint32_t kMany = 4;

struct TrainOf {
    std::uint32_t messages = kMany;
    std::uint16_t step = 1;
    std::uint32_t start = kRcvNxt;
    std::uint16_t msn = 0;
    std::uint64_t va = kIova;
    std::uint32_t key = kKey;
};

// @payload from offset @at on.
TcpFrame segment(const TrainOf& t, std::uint32_t at, ByteVector payload) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_WRITE_TRAIN, b.msn = t.msn, b.start_seq = t.start;
    b.length = kWriteBytes, b.ext_bytes = TCP_BTH_RETH_BYTES, b.flags = TCP_BTH_F_TIMESTAMP;
    b.va = t.va, b.rkey = t.key;
    b.dma_length = tcp_bth_train_word(static_cast<std::uint16_t>(t.messages), t.step);
    TcpFrame f;
    f.seq = t.start + at, f.payload = std::move(payload), f.options = bth_option(b);
    return f;
}

ByteVector part(const ByteVector& whole, std::size_t from, std::size_t to) {
    return {whole.begin() + static_cast<std::ptrdiff_t>(from),
            whole.begin() + static_cast<std::ptrdiff_t>(to)};
}

struct WriteTrain : testing::Test {
    WriteTrain() { host.ack(kRcvNxt); }
    Reason rx(const TrainOf& t, std::uint32_t at, ByteVector payload) {
        return host.rx(segment(t, at, std::move(payload))).reason;
    }
    ByteVector at(std::uint64_t offset, std::uint32_t bytes = kWriteBytes) {
        return host.mr.read(host.guest, kIova + offset, bytes);
    }

    Host host;
    const ByteVector bytes = pattern(kMany * kWriteBytes);
};

TEST_F(WriteTrain, EachGoesToItsPlace) {
    for (const std::uint16_t step : {1, 2, 7}) {
        Host fresh;
        fresh.ack(kRcvNxt);
        ASSERT_EQ(fresh.rx(segment({.step = step}, 0, bytes)).reason, Reason::kPlaced);
        for (std::uint32_t i = 0; i < kMany; i++)
            EXPECT_EQ(fresh.mr.read(fresh.guest, kIova + std::uint64_t{i} * step * kWriteBytes,
                                    kWriteBytes),
                      part(bytes, i * kWriteBytes, (i + 1) * kWriteBytes))
                << "step " << step << ", message " << i;
        EXPECT_EQ(
            fresh.mr.read(fresh.guest, kIova + (kMany - 1) * step * kWriteBytes + kWriteBytes, 50),
            ByteVector(50))
            << "behind the last one";
    }
}

// Repeated in one segment, those before the last one would be copied over what was placed of that.
TEST_F(WriteTrain, NoneLiesOverAnother) {
    EXPECT_EQ(rx({.step = 0}, 0, bytes), Reason::kBthInvalid);
    EXPECT_EQ(at(0, kMany * kWriteBytes), ByteVector(kMany * kWriteBytes));
}

// TCP dropped what was placed, but for the end of the last one.
TEST_F(WriteTrain, RepeatedWithAPartOfTheLast) {
    ASSERT_EQ(rx({}, 0, part(bytes, 0, 300)), Reason::kPlaced);
    ASSERT_EQ(rx({}, 350, part(bytes, 350, 400)), Reason::kPlaced) << "the end of the last one";
    ASSERT_EQ(rx({}, 300, part(bytes, 300, 350)), Reason::kPlaced);
    EXPECT_EQ(rx({}, 0, part(bytes, 0, 350)), Reason::kDuplicate) << "copied, beside that end";
}

TEST_F(WriteTrain, AnyCutInOrder) {
    for (std::uint32_t cut = 1; cut < kMany * kWriteBytes; cut++) {
        Host fresh;
        fresh.ack(kRcvNxt);
        ASSERT_EQ(fresh.rx(segment({}, 0, part(bytes, 0, cut))).reason, Reason::kPlaced);
        ASSERT_EQ(fresh.rx(segment({}, cut, part(bytes, cut, bytes.size()))).reason,
                  Reason::kPlaced);
        EXPECT_EQ(fresh.mr.read(fresh.guest, kIova, kMany * kWriteBytes), bytes)
            << "cut at " << cut;
    }
}

// What is in the hole may be a WRITE to the same place.
TEST_F(WriteTrain, BehindAHole) {
    host.ring.consume(kRcvNxt);
    Host fresh;
    fresh.ack(kRcvNxt);
    fresh.ring.consume(kRcvNxt);
    EXPECT_EQ(fresh.rx(segment({}, 50, part(bytes, 50, 250))).reason, Reason::kOrder)
        << "half of the first message is missing";
    EXPECT_EQ(fresh.mr.read(fresh.guest, kIova, kMany * kWriteBytes),
              ByteVector(kMany * kWriteBytes));
    EXPECT_EQ(fresh.rx(segment({}, 0, part(bytes, 0, 50))).reason, Reason::kOrder)
        << "the host copies them one after the other";
    EXPECT_EQ(rx({}, 50, part(bytes, 50, 100)), Reason::kPlaced) << "of the first message alone";
    EXPECT_EQ(rx({}, 0, part(bytes, 0, 50)), Reason::kPlaced);
    EXPECT_EQ(rx({}, 100, part(bytes, 100, 300)), Reason::kPlaced);
}

// The host copies two of them when it gets there: what follows them waits for that.
TEST_F(WriteTrain, NotBeforeTheHostHasCopied) {
    host.ring.consume(kRcvNxt);
    ASSERT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    EXPECT_EQ(rx({}, 0, part(bytes, 0, 150)), Reason::kKey);
    ASSERT_EQ(host.engine.mr_reg(kKey, host.mr.cmd), NUPA_OK);
    EXPECT_EQ(rx({}, 150, part(bytes, 150, 200)), Reason::kOrder)
        << "the rest of the second: the first is not copied yet";
    host.ring.consume(kRcvNxt + 199);
    EXPECT_EQ(rx({}, 200, part(bytes, 200, 300)), Reason::kOrder);
    host.ring.consume(kRcvNxt + 300);
    EXPECT_EQ(rx({}, 300, part(bytes, 300, 400)), Reason::kPlaced);
    EXPECT_EQ(at(300), part(bytes, 300, 400));
}

// TCP dropped what was placed and sends it again, cut anew.
TEST_F(WriteTrain, OvertakenByALaterOne) {
    ASSERT_EQ(rx({}, 0, bytes), Reason::kPlaced);
    EXPECT_EQ(rx({}, 0, part(bytes, 0, 300)), Reason::kPlacedBefore);
    EXPECT_EQ(rx({}, 300, part(bytes, 300, 400)), Reason::kDuplicate) << "the latest";
    EXPECT_EQ(at(300), part(bytes, 300, 400));
}

TEST_F(WriteTrain, AllOrNothing) {
    const std::uint64_t end = host.mr.cmd.iova + host.mr.cmd.bytes;
    EXPECT_EQ(rx({.va = end - 3 * kWriteBytes}, 0, bytes), Reason::kBounds);
    EXPECT_EQ(host.mr.read(host.guest, end - 3 * kWriteBytes, 3 * kWriteBytes),
              ByteVector(3 * kWriteBytes));
    Host other;
    other.ack(kRcvNxt);
    EXPECT_EQ(other.rx(segment({.va = UINT64_MAX - 150}, 0, bytes)).reason, Reason::kBounds);
    Host foreign;
    foreign.ack(kRcvNxt);
    EXPECT_EQ(foreign.rx(segment({.key = kOtherKey}, 0, bytes)).reason, Reason::kKey);
    Host closed({.qp_flags = NUPA_QP_F_SHADOW});
    closed.ack(kRcvNxt);
    EXPECT_EQ(closed.rx(segment({}, 0, bytes)).reason, Reason::kAccess);
}

// A part of the last message is checked as all of it would be.
TEST_F(WriteTrain, TheWholeOfEachMustFit) {
    const std::uint64_t end = host.mr.cmd.iova + host.mr.cmd.bytes;
    EXPECT_EQ(rx({.messages = 2, .va = end - 150}, 0, part(bytes, 0, 120)), Reason::kBounds);
}

// Told anew: a shorter train, or one message as the WRITE that it is.
TEST_F(WriteTrain, AnotherWayToSayTheSame) {
    EXPECT_EQ(rx({.messages = 2}, 0, part(bytes, 0, 200)), Reason::kPlaced);
    EXPECT_EQ(host.rx(write_segment(kRcvNxt + 200, 0, part(bytes, 200, 300), kIova + 200, kKey,
                                    kWriteBytes, TCP_BTH_OP_WRITE_ONLY, 2))
                  .reason,
              Reason::kPlaced);
    EXPECT_EQ(rx({.messages = 1, .start = kRcvNxt + 300, .msn = 3, .va = kIova + 300}, 0,
                 part(bytes, 300, 400)),
              Reason::kPlaced);
    EXPECT_EQ(at(0, kMany * kWriteBytes), bytes);
}

TEST_F(WriteTrain, Inconsistent) {
    ASSERT_EQ(rx({}, 0, part(bytes, 0, 200)), Reason::kPlaced);
    // the second again, at another place of the stream
    EXPECT_EQ(rx({.messages = 2, .start = kRcvNxt + 200, .msn = 1, .va = kIova + kWriteBytes}, 0,
                 part(bytes, 200, 400)),
              Reason::kInconsistent);
}

}  // namespace
