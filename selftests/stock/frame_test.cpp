// SPDX-License-Identifier: BSD-3-Clause
// The frame header and the receiving half, without a socket.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "pair.hpp"
#include "userspace/queue/receiver.hpp"

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

// Large messages, most of them as long as the one before: one read may take several, and what
// it took for another message than it was is put right.
TEST(Receiver, ReachesBeyondAFrame) {
    constexpr size_t kBuffers = 6, kMost = 9000;
    std::mt19937 random(std::random_device{}());
    const auto seed = random();
    SCOPED_TRACE(seed);
    random.seed(seed);
    std::vector<std::vector<std::byte>> messages;
    std::vector<std::byte> stream(kFrameBytes);
    encode({FrameType::kHello, 0, 0, 0, false}, stream.data());
    for (uint32_t msn = 0, length = 5000; msn < 3000; msn++) {
        const uint32_t odd[] = {0,    1,    24,    100,
                                4999, 5001, kMost, static_cast<uint32_t>(random() % kMost)};
        const bool is_odd = random() % 25 == 0;
        messages.push_back(stock_test::pattern(is_odd ? odd[random() % 8] : length, msn));
        if (is_odd && random() % 4 == 0)
            length = 4500 + random() % 1000;
        FrameBytes head;
        const bool imm = random() % 50 == 0;
        encode({FrameType::kMessage, static_cast<uint32_t>(messages.back().size()), msn,
                imm ? 7u : 0, imm},
               head.data());
        stream.insert(stream.end(), head.begin(), head.end());
        stream.insert(stream.end(), messages.back().begin(), messages.back().end());
    }
    for (const size_t most : {100u, 6000u, 40000u, 1000000u}) {
        Receiver rx(false);
        std::vector<std::vector<std::byte>> buffers(kBuffers, std::vector<std::byte>(kMost));
        size_t at = 0, got = 0, reached = 0;
        const auto check = [&] {
            std::vector<std::byte>& buffer = buffers[got % kBuffers];
            ASSERT_EQ(rx.frame().length, messages[got].size());
            ASSERT_TRUE(std::equal(messages[got].begin(), messages[got].end(), buffer.begin()))
                << got;
            std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
            got++;
        };
        while (got < messages.size()) {
            std::vector<std::byte>& oldest = buffers[got % kBuffers];
            if (random() % 2 == 0 && rx.take_whole(oldest.data(), kMost)) {
                check();
                continue;
            }
            const Receiver::Step step = rx.step();
            if (step == Receiver::Step::kNeedBuffer) {
                rx.give(oldest.data(), kMost);
            } else if (step == Receiver::Step::kMessage) {
                if (rx.frame().type == FrameType::kMessage)
                    check();
                rx.next();
            } else {
                ASSERT_EQ(step, Receiver::Step::kNeedBytes) << "broken at " << at;
                std::span<iovec> places = rx.where();
                for (size_t i = 1; i < kBuffers; i++)
                    if (rx.reach(buffers[(got + i) % kBuffers].data(), kMost))
                        places = rx.places(), reached++;
                size_t left = std::min(stream.size() - at, 1 + random() % most), taken = 0;
                ASSERT_NE(left, 0u);
                for (const iovec& place : places) {
                    const size_t n = std::min(left, place.iov_len);
                    std::memcpy(place.iov_base, stream.data() + at, n);
                    at += n, left -= n, taken += n;
                }
                rx.took(taken);
            }
            if (HasFatalFailure())
                return;
        }
        EXPECT_TRUE(rx.at_boundary());
        EXPECT_GT(reached, 100u);
    }
}

// One message and nothing else goes straight to its buffer; whatever it refuses, step() sees.
TEST(Receiver, TakesOneMessageThatCameAlone) {
    Receiver rx(true);
    std::array<std::byte, kFrameBytes + 8> bytes{};
    std::array<std::byte, 7> to{};
    uint32_t length = 0, msn = 0;
    const auto come = [&](size_t count, size_t capacity) {
        encode({FrameType::kMessage, 7, msn, 0, false}, bytes.data());
        bytes[kFrameBytes + 6] = static_cast<std::byte>('a' + msn);
        std::memcpy(rx.where()[0].iov_base, bytes.data(), count);
        return rx.take_only(count, to.data(), capacity, length);
    };
    EXPECT_FALSE(come(kFrameBytes - 1, 7));
    EXPECT_FALSE(come(kFrameBytes + 6, 7));
    EXPECT_FALSE(come(kFrameBytes + 8, 7));
    EXPECT_FALSE(come(kFrameBytes + 7, 6));
    EXPECT_TRUE(come(kFrameBytes + 7, 7));
    EXPECT_EQ(to[6], std::byte{'a'});
    EXPECT_FALSE(come(kFrameBytes + 7, 7));  // it comes again
    msn++;
    EXPECT_TRUE(come(kFrameBytes + 7, 7));
    EXPECT_EQ(to[6], std::byte{'b'});
    msn++;
    EXPECT_FALSE(come(kFrameBytes + 8, 7));
    rx.took(kFrameBytes + 8);
    ASSERT_EQ(rx.step(), Receiver::Step::kNeedBuffer);
    rx.give(to.data(), to.size());
    ASSERT_EQ(rx.step(), Receiver::Step::kMessage);
    EXPECT_EQ(to[6], std::byte{'c'});
    EXPECT_EQ(rx.staged_bytes(), 21u);
}

// Option framing, with the BPF program's part played here: SENDs of these lengths have arrived.
struct Arrived {
    static constexpr uint32_t kSeq = 0xfffff000;  // wraps on the way

    explicit Arrived(std::initializer_list<uint32_t> lengths) {
        uint32_t seq = kSeq;
        uint16_t msn = 0;
        for (const uint32_t length : lengths) {
            tcpqp_bpf_boundary& b = slot->rx[msn];
            b.message = {seq, length, 0, msn, TCP_BTH_OP_SEND_ONLY, 0};
            b.tag = TCPQP_BPF_TAG_VALID | msn++;
            seq += length;
            buffers.emplace_back(length);
        }
        rx.use(boundaries);
    }
    Receiver::Step begin(size_t message) {
        EXPECT_EQ(rx.step(), Receiver::Step::kNeedBuffer);
        rx.give(buffers[message].data(), buffers[message].size());
        return rx.step();
    }
    bool reach(size_t message) {
        return rx.reach(buffers[message].data(), buffers[message].size());
    }
    // @bytes of the stream come to the places of the last where().
    void fill(size_t bytes) {
        size_t left = bytes;
        for (const iovec& place : rx.places()) {
            const size_t n = std::min(left, place.iov_len);
            std::memcpy(place.iov_base, stream.data() + at, n);
            at += n;
            left -= n;
        }
        EXPECT_EQ(left, 0u);
        rx.took(bytes);
    }
    std::unique_ptr<tcpqp_bpf_slot> slot = std::make_unique<tcpqp_bpf_slot>();
    Boundaries boundaries{*slot, kSeq};
    Receiver rx{false};
    std::vector<std::vector<std::byte>> buffers;
    std::vector<std::byte> stream = stock_test::pattern(100000, 7);
    size_t at = 0;
};

TEST(Receiver, OneReadTakesSeveralLargeMessages) {
    Arrived a{9000, 5000, 6000, 100, 7000};
    ASSERT_EQ(a.begin(0), Receiver::Step::kNeedBytes);
    (void)a.rx.where();
    EXPECT_TRUE(a.reach(1));
    EXPECT_TRUE(a.reach(2));
    EXPECT_FALSE(a.reach(3));  // small ones come by the stage
    ASSERT_EQ(a.rx.places().size(), 3u);
    a.fill(9000 + 5000 + 4000);
    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(i == 0 ? a.rx.step() : a.begin(i), Receiver::Step::kMessage);
        EXPECT_EQ(a.rx.frame().length, a.buffers[i].size());
        a.rx.next();
    }
    ASSERT_EQ(a.begin(2), Receiver::Step::kNeedBytes);
    (void)a.rx.where();
    ASSERT_EQ(a.rx.places().size(), 1u);
    a.fill(2000);
    ASSERT_EQ(a.rx.step(), Receiver::Step::kMessage);
    a.rx.next();
    const std::byte* sent = a.stream.data();
    for (size_t i = 0; i < 3; sent += a.buffers[i++].size())
        EXPECT_TRUE(std::equal(a.buffers[i].begin(), a.buffers[i].end(), sent)) << i;
}

TEST(Receiver, DoesNotReachTooFar) {
    Arrived a{9000, 5000, 6000};
    ASSERT_EQ(a.begin(0), Receiver::Step::kNeedBytes);
    (void)a.rx.where();
    EXPECT_FALSE(a.rx.reach(a.buffers[1].data(), 4999));
    EXPECT_TRUE(a.reach(1));
    EXPECT_TRUE(a.reach(2));
    std::vector<std::byte> more(9000);
    EXPECT_FALSE(a.rx.reach(more.data(), more.size()));  // nobody knows what follows
    (void)a.rx.where();
    EXPECT_EQ(a.rx.places().size(), 1u);
}

// The program writes the tag last: what stands there meanwhile is half of two messages.
TEST(Receiver, EntryThatIsBeingWritten) {
    Arrived a{9000, 5000};
    a.slot->rx[0].tag = TCPQP_BPF_TAG_VALID | (0xffff & -TCPQP_BPF_RX_ENTRIES);
    EXPECT_EQ(a.rx.step(), Receiver::Step::kNeedBytes);
    tcpqp_bpf_message m{};
    EXPECT_EQ(a.boundaries.next(m), Begins::kUnknown);
    a.slot->rx[0].tag = TCPQP_BPF_TAG_VALID;
    EXPECT_EQ(a.boundaries.next(m), Begins::kSend);
    EXPECT_TRUE(a.boundaries.knows_send(1, 9000, m));
    a.slot->rx[1].tag -= TCPQP_BPF_RX_ENTRIES;
    EXPECT_FALSE(a.boundaries.knows_send(1, 9000, m));
}

// What was promised when the read began must hold when it ends.
TEST(Receiver, ReachedMessageThatChanges) {
    Arrived a{9000, 5000};
    ASSERT_EQ(a.begin(0), Receiver::Step::kNeedBytes);
    (void)a.rx.where();
    EXPECT_TRUE(a.reach(1));
    a.fill(9000 + 4500);
    a.slot->rx[1].message.length = 4600;
    ASSERT_EQ(a.rx.step(), Receiver::Step::kMessage);
    a.rx.next();
    EXPECT_EQ(a.rx.step(), Receiver::Step::kBroken);
    EXPECT_EQ(a.rx.reason(), uint32_t{TCPQP_REASON_NO_BOUNDARY});
}

}  // namespace
}  // namespace tcpqp::stock
