// SPDX-License-Identifier: BSD-3-Clause
// Level 2 as a stream: bytes, their end, and what each call refuses.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "conn_pair.hpp"

namespace stock_test {
namespace {

using Random = std::mt19937;

std::byte byte_at(size_t position, uint32_t stream) {
    const uint64_t x = (position + 1) * 0x9e3779b97f4a7c15ull + stream;
    return static_cast<std::byte>(x >> 56 ^ x >> 13);
}

// One end, by its descriptor: writes @total bytes of stream @ours in random pieces, and reads
// the other's by read() and peek() in turns, until both have ended.
class Loop {
public:
    Loop(Connection& c, uint32_t seed, uint32_t ours, size_t total, size_t piece)
        : c_(c), random_(seed), ours_(ours), total_(total), piece_(piece) {}

    void run() {
        while (!ended_ || !finished_) {
            const int can = c_.ready();
            if ((can & TCPQP_READABLE) != 0 && !ended_ && random_() % 3 != 0)
                take();
            else if ((can & TCPQP_WRITABLE) != 0 && !finished_)
                give();
            else if ((can & TCPQP_READABLE) != 0 && !ended_)
                take();
            else
                sleep();
            if (testing::Test::HasFailure())
                return;
        }
        EXPECT_EQ(c_.flush(kLimit_ms), 0);
    }
    [[nodiscard]] size_t received() const { return received_; }

private:
    void sleep() const {
        pollfd p{c_.fd(), POLLIN, 0};
        EXPECT_EQ(::poll(&p, 1, kLimit_ms), 1) << "silence";
    }
    void give() {
        std::vector<std::byte> piece(std::min<size_t>(1 + random_() % piece_, total_ - sent_));
        for (size_t i = 0; i < piece.size(); i++)
            piece[i] = byte_at(sent_ + i, ours_);
        if (piece.empty()) {
            EXPECT_EQ(c_.finish(), 0);
            finished_ = true;
            return;
        }
        const ssize_t n = c_.write(piece, 0);
        EXPECT_TRUE(n > 0 || n == -EAGAIN) << n;
        sent_ += n > 0 ? static_cast<size_t>(n) : 0;
    }
    // What there is, perhaps nothing; at the end, empty.  By read() or peek() in turns.
    int some(std::vector<std::byte>& room) {
        room.resize(1 + random_() % (2 * piece_));
        if (random_() % 2 != 0) {
            const ssize_t n = c_.read(room, 0);
            room.resize(n > 0 ? static_cast<size_t>(n) : 0);
            return n < 0 ? static_cast<int>(n) : 0;
        }
        std::span<const std::byte> placed;
        const int error = c_.peek(placed, 0);
        placed = placed.first(std::min(placed.size(), room.size()));
        room.assign(placed.begin(), placed.end());
        EXPECT_EQ(c_.consume(room.size()), 0);
        return error;
    }
    void take() {
        std::vector<std::byte> got;
        const int error = some(got);
        EXPECT_TRUE(error == 0 || error == -EAGAIN) << error;
        ended_ = error == 0 && got.empty();
        for (const std::byte b : got)
            ASSERT_EQ(b, byte_at(received_++, 1 - ours_)) << "at " << received_ - 1;
    }

    Connection& c_;
    Random random_;
    const uint32_t ours_;
    const size_t total_, piece_;
    size_t sent_ = 0, received_ = 0;
    bool ended_ = false, finished_ = false;
};

TEST(Stream, RandomCutsBothWays) {
    const char* given = std::getenv("TCPQP_SEED");
    const uint32_t first = given != nullptr ? static_cast<uint32_t>(std::atoi(given)) : 1;
    const uint32_t count = given != nullptr ? 1 : 30;
    for (uint32_t seed = first; seed < first + count && !HasFailure(); seed++) {
        SCOPED_TRACE("TCPQP_SEED=" + std::to_string(seed));
        Random random(seed);
        ConnPair p(small(1 + random() % 8, 1 + random() % (seed % 4 == 0 ? 20 : 20000)));
        const size_t piece = 1 + random() % (seed % 3 == 0 ? 30000 : 300);
        const size_t total[2] = {random() % (piece * 100), random() % (piece * 100)};
        Loop a(*p.a, random(), 0, total[0], piece), b(*p.b, random(), 1, total[1], piece);
        std::thread other([&] { b.run(); });
        a.run();
        other.join();
        EXPECT_EQ(a.received(), total[1]);
        EXPECT_EQ(b.received(), total[0]);
    }
}

TEST(Stream, BlockingThreadsBothWays) {
    constexpr size_t kTotal = 3'000'001;
    ConnPair p(small(4, 10000));
    const auto write = [](Connection& c, uint32_t seed) {
        const auto bytes = pattern(kTotal, seed);
        size_t n = 0;
        while (n < kTotal) {
            const ssize_t taken = c.write(std::span(bytes).subspan(n));
            ASSERT_TRUE(taken > 0 || taken == -EINTR) << taken;  // io_uring's, without a signal
            n += taken > 0 ? static_cast<size_t>(taken) : 0;
        }
        ASSERT_EQ(c.finish(), 0);
    };
    const auto read = [](Connection& c, uint32_t seed) {
        std::vector<std::byte> all(kTotal + 1);
        size_t n = 0;
        for (ssize_t got = 1; got != 0; n += got > 0 ? static_cast<size_t>(got) : 0) {
            got = c.read(std::span(all).subspan(n), kLimit_ms);
            ASSERT_TRUE(got >= 0 || got == -EINTR) << got;
        }
        all.resize(n);
        ASSERT_EQ(all, pattern(kTotal, seed));
    };
    std::thread threads[] = {
        std::thread([&] { write(*p.a, 1); }), std::thread([&] { write(*p.b, 2); }),
        std::thread([&] { read(*p.a, 2); }), std::thread([&] { read(*p.b, 1); })};
    for (std::thread& t : threads)
        t.join();
}

TEST(Stream, OneDirectionEnds) {
    ConnPair p(small(4, 100));
    std::array<std::byte, 64> room;
    ASSERT_EQ(p.a->write(pattern(10, 1)), 10);
    ASSERT_EQ(p.a->finish(), 0);
    EXPECT_EQ(p.a->write(pattern(1, 1)), -EPIPE);
    EXPECT_EQ(p.a->finish(), -EPIPE);
    EXPECT_EQ(p.b->read(room, kLimit_ms), 10);
    EXPECT_EQ(p.b->read(room, kLimit_ms), 0);
    EXPECT_EQ(p.b->read(room, kLimit_ms), 0);
    std::span<const std::byte> none = room;
    EXPECT_EQ(p.b->peek(none, kLimit_ms), 0);
    EXPECT_TRUE(none.empty());
    // the other goes on
    for (uint32_t i = 0; i < 50; i++) {
        ASSERT_EQ(p.b->write(pattern(64, i), kLimit_ms), 64);
        for (ssize_t n = 0, got = 0; n < 64; n += got)
            ASSERT_GT(got = p.a->read(room, kLimit_ms), 0);
    }
    EXPECT_EQ(p.b->finish(), 0);
    EXPECT_EQ(p.a->read(room, kLimit_ms), 0);
    // and what comes of a connection that is closed then is still the end
    EXPECT_EQ(p.b->close(kLimit_ms), 0);
    p.sockets[1].reset();
    EXPECT_EQ(p.a->read(room, kLimit_ms), 0);
}

TEST(Stream, ABreakIsNoEnd) {
    std::array<std::byte, 64> room;
    for (const bool reset : {false, true}) {
        SCOPED_TRACE(reset);
        ConnPair p(small(4, 100));
        ASSERT_EQ(p.a->write(pattern(10, 1)), 10);
        ASSERT_EQ(p.b->read({room.data(), 3}, kLimit_ms), 3);
        if (reset)
            p.a->cancel();
        EXPECT_EQ(p.a->close(kLimit_ms), 0);
        p.sockets[0].reset();
        // what was before it comes first
        EXPECT_EQ(p.b->read(room, kLimit_ms), 7);
        EXPECT_EQ(p.b->read(room, kLimit_ms), -ECONNRESET);
        EXPECT_EQ(p.b->read(room, kLimit_ms), -ECONNRESET);
        // a FIN alone does not stop us from sending, until the peer answers by a reset
        ssize_t n = 0;
        while ((n = p.b->write(pattern(100, 1), kLimit_ms)) > 0) {
        }
        EXPECT_EQ(n, -ECONNRESET);
        EXPECT_EQ(p.b->flush(kLimit_ms), -ECONNRESET);
        EXPECT_EQ(p.b->finish(), -ECONNRESET);
        EXPECT_EQ(p.b->ready() | TCPQP_FLUSHED,
                  TCPQP_READABLE | TCPQP_WRITABLE | TCPQP_FLUSHED | TCPQP_BROKEN);
    }
}

TEST(Stream, Cancel) {
    ConnPair p;
    std::array<std::byte, 4> room;
    auto reader = std::async(std::launch::async, [&] { return p.a->read(room, kLimit_ms); });
    EXPECT_EQ(p.a->cancel(), 0);
    EXPECT_EQ(reader.get(), -ENOTCONN);
    EXPECT_EQ(p.a->write(room, kLimit_ms), -ENOTCONN);
    EXPECT_EQ(p.a->flush(kLimit_ms), -ENOTCONN);
    EXPECT_EQ(p.a->finish(), -ENOTCONN);
}

// The length of the next message, whose cut only tcpqp_recv() sees.
uint32_t next_length(Connection& c) {
    View v;
    EXPECT_EQ(c.recv(v, kLimit_ms), 0);
    return static_cast<uint32_t>(v.bytes().size());
}

// A byte leaves at once where nothing is under way; the writer makes no further call.
TEST(Stream, AloneAByteDoesNotWait) {
    ConnPair p(small(4, 1000));
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ(p.a->write(pattern(1, 1)), 1);
        ASSERT_EQ(next_length(*p.b), 1u);
    }
}

TEST(Stream, SmallWritesFillBuffersBehindAStop) {
    ConnPair p(small(4, 50000));
    ssize_t n = 0;
    size_t sent = 0;
    const auto piece = pattern(100, 3);
    while ((n = p.a->write(piece, 0)) > 0)
        sent += static_cast<size_t>(n);
    ASSERT_EQ(n, -EAGAIN);
    EXPECT_EQ(p.a->ready() & (TCPQP_WRITABLE | TCPQP_FLUSHED), 0);
    EXPECT_EQ(p.a->flush(0), -EAGAIN);
    EXPECT_EQ(p.a->flush(1), -ETIMEDOUT);
    EXPECT_EQ(p.a->write(piece, 1), -ETIMEDOUT);
    size_t got = 0;
    uint32_t longest = 0, first = 0;
    while (got < sent) {
        const uint32_t length = next_length(*p.b);
        first = got == 0 ? length : first;
        longest = std::max(longest, length);
        got += length;
        p.a->ready();
    }
    EXPECT_EQ(got, sent);
    EXPECT_EQ(first, 100u);
    EXPECT_EQ(longest, 50000u);
    EXPECT_EQ(p.a->flush(kLimit_ms), 0);
    EXPECT_EQ(p.a->ready(), TCPQP_WRITABLE | TCPQP_FLUSHED);
}

// Held bytes go before a message that is sent after them.
TEST(Stream, BytesAndMessagesStayInOrder) {
    ConnPair p(small(2, 100000));
    const auto piece = pattern(99999, 3);
    size_t sent = 0;
    for (ssize_t n = 1; n > 0; sent += n > 0 ? static_cast<size_t>(n) : 0)
        n = p.a->write(piece, 0);
    auto last = std::async(std::launch::async, [&] { return p.a->send(pattern(7, 1), kLimit_ms); });
    size_t got = 0;
    while (got < sent)
        got += next_length(*p.b);
    EXPECT_EQ(got, sent);
    EXPECT_EQ(next_length(*p.b), 7u);
    EXPECT_EQ(last.get(), 0);
}

// What a hostile peer sends behind its end is not read; empty messages are nothing.
TEST(Stream, BehindTheEnd) {
    OddPair p(small(4, 1000));
    auto& [sockets, peer, c] = p;
    const auto bytes = pattern(9, 1);
    std::array<std::byte, 64> room;
    ASSERT_EQ(peer.send(1, nullptr, 0), 1);
    ASSERT_EQ(peer.send(2, bytes.data(), 9), 1);
    ASSERT_EQ(c.read(room, kLimit_ms), 9);
    const tcpqp_work other_imm{3, nullptr, 0, 5, TCPQP_F_IMM, 0, nullptr};
    const tcpqp_work end{4, nullptr, 0, TCPQP_STREAM_END, TCPQP_F_IMM, 0, nullptr};
    ASSERT_EQ(peer.qp.post_send({&other_imm, 1}), 1);
    ASSERT_EQ(peer.qp.post_send({&end, 1}), 1);
    ASSERT_EQ(peer.send(5, bytes.data(), 9), 1);
    for (int i = 0; i < 5; i++)
        ASSERT_EQ(peer.next().status, 0);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(c.read(room, kLimit_ms), 0);
}

TEST(Stream, LongerBuffersThanOurs) {
    OddPair p(small(4, 1000));
    auto& [sockets, peer, c] = p;
    const auto bytes = pattern(1001, 1);
    std::array<std::byte, 64> room;
    ASSERT_EQ(peer.send(1, bytes.data(), bytes.size()), 1);
    EXPECT_EQ(c.read(room, kLimit_ms), -EMSGSIZE);
}

TEST(Stream, Errors) {
    ConnPair p(small(2, 1000));
    tcpqp_conn* a = p.a->get();
    std::array<std::byte, 64> room;
    tcpqp_view v{};
    EXPECT_EQ(tcpqp_write(nullptr, "x", 1, 0), -EINVAL);
    EXPECT_EQ(tcpqp_write(a, nullptr, 1, 0), -EINVAL);
    EXPECT_EQ(tcpqp_write(a, nullptr, 0, 0), 0);
    EXPECT_EQ(tcpqp_read(nullptr, room.data(), 1, 0), -EINVAL);
    EXPECT_EQ(tcpqp_read(a, nullptr, 1, 0), -EINVAL);
    EXPECT_EQ(tcpqp_read(a, nullptr, 0, 0), 0);
    EXPECT_EQ(tcpqp_read(a, room.data(), 1, 0), -EAGAIN);
    EXPECT_EQ(tcpqp_read(a, room.data(), 1, 20), -ETIMEDOUT);
    EXPECT_EQ(tcpqp_peek(nullptr, &v, 0), -EINVAL);
    EXPECT_EQ(tcpqp_peek(a, nullptr, 0), -EINVAL);
    EXPECT_EQ(tcpqp_peek(a, &v, 0), -EAGAIN);
    EXPECT_EQ(tcpqp_consume(nullptr, 0), -EINVAL);
    EXPECT_EQ(tcpqp_consume(a, 1), -EINVAL);
    EXPECT_EQ(tcpqp_consume(a, 0), 0);
    EXPECT_EQ(tcpqp_flush(nullptr, 0), -EINVAL);
    EXPECT_EQ(tcpqp_flush(a, 0), 0);
    EXPECT_EQ(tcpqp_finish(nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_ready(nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_ready(a), TCPQP_WRITABLE | TCPQP_FLUSHED);
    ASSERT_EQ(p.b->write(pattern(10, 1)), 10);
    ASSERT_EQ(tcpqp_peek(a, &v, kLimit_ms), 10);
    EXPECT_EQ(tcpqp_release(a, &v), -EINVAL);
    EXPECT_EQ(tcpqp_send_view(a, &v), -EINVAL);
    EXPECT_EQ(tcpqp_consume(a, 11), -EINVAL);
    EXPECT_EQ(tcpqp_consume(a, 4), 0);
    ASSERT_EQ(tcpqp_peek(a, &v, 0), 6);
    EXPECT_EQ(tcpqp_consume(a, 7), -EINVAL);
}

}  // namespace
}  // namespace stock_test
