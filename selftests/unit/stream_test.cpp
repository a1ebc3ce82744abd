// SPDX-License-Identifier: BSD-3-Clause
// Streams: what is placed where a reader waits, what is not, and that the host gets its memory
// back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>

#include "engine/merge.hpp"
#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

constexpr std::uint32_t kPages = 64;
constexpr std::uint32_t kOffset = 100;  // of the reader's first byte in its page
constexpr std::uint64_t kGuard = 64;    // bytes before and behind the reader's buffer

struct StreamRig {
    StreamRig() : engine(guest.memory, stats, 42), at(guest.alloc(bytes_of_post(), 64)) {
        cmd.flow = Wire(TcpFrame{}).packet.flow().raw;
        cmd.flags = NUPA_QP_F_STREAM;
        cmd.rcv_nxt = kRcvNxt;
        cmd.rcv_wscale = 7;
        cmd.post_addr = at;
        cmd.post_pages = kPages;
        for (std::uint32_t i = 0; i < kPages; i++)
            pages.push_back(guest.alloc(kPage, kPage, (i / 3 & 1) != 0));
        for (std::uint32_t i = 0; i < kPages; i++)
            guest.put<std::uint64_t>(at + sizeof(nupa_post) + 8 * i, pages[i]);
    }
    static std::uint64_t bytes_of_post() { return sizeof(nupa_post) + kPages * 8; }

    void create() {
        ASSERT_EQ(engine.qp_create(kQpn, cmd), NUPA_OK);
        ack(kRcvNxt);
    }
    void put(std::size_t field, std::uint32_t value) {
        guest.put<std::uint32_t>(at + field, value);
    }
    std::uint32_t get(std::size_t field) {
        std::uint32_t value;
        std::memcpy(&value, guest.ptr(at + field, 4), 4);
        return value;
    }
    void open(std::uint32_t seq, std::uint32_t bytes) {
        put(offsetof(nupa_post, placed), seq);
        put(offsetof(nupa_post, seq), seq);
        put(offsetof(nupa_post, bytes), bytes);
        put(offsetof(nupa_post, offset), kOffset);
        put(offsetof(nupa_post, state), NUPA_POST_OPEN);
    }
    std::uint32_t state() { return get(offsetof(nupa_post, state)); }
    std::uint32_t placed() { return get(offsetof(nupa_post, placed)); }

    void ack(std::uint32_t seq, std::uint32_t window = 1 << 20) {
        TcpFrame f;
        f.src = 2, f.dst = 1, f.sport = 2000, f.dport = 1000;
        f.ack = seq;
        f.window = static_cast<std::uint16_t>(window >> 7);
        Wire w(f);
        engine.transmit(w.packet);
    }
    static TcpFrame segment(std::uint32_t seq, std::size_t bytes, std::uint32_t seed = 1) {
        TcpFrame f;
        f.seq = seq;
        f.payload = pattern(bytes, seed);
        return f;
    }
    nupa::Decision rx(const TcpFrame& f) {
        Wire w(f);
        return engine.receive(w.packet);
    }
    std::vector<std::byte> memory(std::uint64_t from,
                                  std::uint64_t n) {  // from the first page's begin
        std::vector<std::byte> out(n);
        for (std::uint64_t done = 0, run; done < n; done += run, from += run) {
            run = std::min(n - done, kPage - from % kPage);
            std::memcpy(out.data() + done, guest.ptr(pages[from / kPage], kPage) + from % kPage,
                        run);
        }
        return out;
    }
    std::vector<std::byte> all() { return memory(0, kPages * kPage); }

    Guest guest;
    nupa::PortStats stats;
    nupa::PortEngine engine;
    std::uint64_t at;
    std::vector<std::uint64_t> pages;
    nupa_cmd_qp cmd{};
};

struct Stream : testing::Test, StreamRig {
    void SetUp() override { create(); }
    void expect_delivered(const TcpFrame& f, Reason reason) {
        const auto before = all();
        const std::uint32_t was = placed();
        const nupa::Decision d = rx(f);
        EXPECT_EQ(d.reason, reason);
        EXPECT_TRUE(d.has_qp);
        Wire w(f);
        EXPECT_EQ(
            nupa::rx_flags(w.packet, d) & (NUPA_RX_F_PLACED | NUPA_RX_F_QP | NUPA_RX_F_STREAM),
            NUPA_RX_F_QP | NUPA_RX_F_STREAM);
        EXPECT_EQ(all(), before);
        EXPECT_EQ(placed(), was);
    }
};

TEST_F(Stream, PlacedWhereItBelongs) {
    open(kRcvNxt, 100000);
    TcpFrame f = segment(kRcvNxt, 9000), g = segment(kRcvNxt + 9000, 5000, 2);
    const nupa::Decision d = rx(f);
    EXPECT_TRUE(d.placed());
    EXPECT_FALSE(d.may_wait);
    Wire w(f);
    EXPECT_EQ(nupa::rx_flags(w.packet, d) & (NUPA_RX_F_PLACED | NUPA_RX_F_QP | NUPA_RX_F_STREAM),
              NUPA_RX_F_PLACED | NUPA_RX_F_QP | NUPA_RX_F_STREAM);
    EXPECT_EQ(placed(), kRcvNxt + 9000);
    EXPECT_TRUE(rx(g).placed());
    EXPECT_EQ(placed(), kRcvNxt + 14000);
    EXPECT_EQ(state(), NUPA_POST_OPEN);
    EXPECT_EQ(memory(kOffset, 9000), f.payload);
    EXPECT_EQ(memory(kOffset + 9000, 5000), g.payload);
    EXPECT_EQ(memory(kOffset - kGuard, kGuard), std::vector<std::byte>(kGuard));
    EXPECT_EQ(memory(kOffset + 14000, kGuard), std::vector<std::byte>(kGuard));
    EXPECT_EQ(stats[NUPA_STAT_placed_bytes], 14000u);
}

TEST_F(Stream, NothingIsPosted) {
    expect_delivered(segment(kRcvNxt, 1000), Reason::kNoReceive);
    open(kRcvNxt + 1000, 1000);
    EXPECT_TRUE(rx(segment(kRcvNxt + 1000, 400)).placed());
    put(offsetof(nupa_post, state), NUPA_POST_NONE);
    expect_delivered(segment(kRcvNxt + 1400, 400), Reason::kNoReceive);
    put(offsetof(nupa_post, state), NUPA_POST_BUSY);  // of nobody else
    expect_delivered(segment(kRcvNxt + 1800, 100), Reason::kNoReceive);
    EXPECT_EQ(state(), NUPA_POST_BUSY);
}

// Some of it was delivered while the post was being made: the rest has its place all the same.
TEST_F(Stream, LatePost) {
    open(kRcvNxt, 10000);
    put(offsetof(nupa_post, state), NUPA_POST_NONE);
    expect_delivered(segment(kRcvNxt, 3000), Reason::kNoReceive);
    put(offsetof(nupa_post, state), NUPA_POST_OPEN);
    const TcpFrame f = segment(kRcvNxt + 3000, 2000, 3);
    EXPECT_TRUE(rx(f).placed());
    EXPECT_EQ(memory(kOffset + 3000, 2000), f.payload);
}

TEST_F(Stream, Edges) {
    open(kRcvNxt + 1000, 5000);
    expect_delivered(segment(kRcvNxt, 1000), Reason::kNoReceive);  // before it
    EXPECT_TRUE(rx(segment(kRcvNxt + 1000, 4000)).placed());
    expect_delivered(segment(kRcvNxt + 5000, 1001), Reason::kNoReceive);  // one byte beyond its end
    open(kRcvNxt + 6001, 500);
    EXPECT_TRUE(rx(segment(kRcvNxt + 6001, 500)).placed());  // just all of it
    expect_delivered(segment(kRcvNxt + 6501, 1), Reason::kNoReceive);
}

TEST_F(Stream, SequenceNumbersWrap) {
    engine.qp_destroy(kQpn);
    cmd.rcv_nxt = 0xfffff000;
    ASSERT_EQ(engine.qp_create(kQpn, cmd), NUPA_OK);
    ack(0xfffff000);
    open(0xfffff000, 20000);
    const TcpFrame f = segment(0xfffff000, 8000), g = segment(0xfffff000 + 8000, 8000, 2);
    EXPECT_TRUE(rx(f).placed());
    EXPECT_TRUE(rx(g).placed());
    EXPECT_EQ(memory(kOffset + 8000, 8000), g.payload);
}

TEST_F(Stream, OnlyWhatComesNext) {
    const std::uint32_t a = kRcvNxt + 500;
    open(kRcvNxt, 100000);
    EXPECT_TRUE(rx(segment(kRcvNxt, 500)).placed());
    expect_delivered(segment(a + 1000, 1000), Reason::kDisorder);  // a hole before it
    expect_delivered(segment(a, 1000), Reason::kDisorder);         // it fills the hole
    EXPECT_TRUE(rx(segment(a + 2000, 1000)).placed());
    expect_delivered(segment(a + 2000, 1000, 9), Reason::kDuplicate);  // placed before
    expect_delivered(segment(a + 500, 1000, 9), Reason::kDuplicate);   // delivered before
    expect_delivered(segment(a + 2500, 1000, 9), Reason::kDuplicate);  // part of it new
    EXPECT_TRUE(rx(segment(a + 3500, 100)).placed());
}

TEST_F(Stream, WhatTcpWouldNotTake) {
    open(kRcvNxt, 100000);
    TcpFrame bad = segment(kRcvNxt, 1000);
    ByteVector bytes = bad.build();
    bytes.back() ^= std::byte{1};
    Wire w(bytes);
    EXPECT_EQ(engine.receive(w.packet).reason, Reason::kCsum);
    ack(kRcvNxt, 1 << 10);
    for (const std::uint8_t flag : {nupa::kTcpSyn, nupa::kTcpRst}) {
        TcpFrame f = segment(kRcvNxt, 1000);
        f.flags |= flag;
        expect_delivered(f, Reason::kFlags);
    }
    TcpFrame stranger = segment(kRcvNxt + 10, 10);
    stranger.ack = 0x40000000;  // of nothing that the host sent
    expect_delivered(stranger, Reason::kPeer);
    EXPECT_EQ(placed(), kRcvNxt);
}

TEST_F(Stream, WindowAndUrgent) {
    open(kRcvNxt, 100000);
    expect_delivered(segment(kRcvNxt + (1 << 20) - 500, 1000), Reason::kWindow);
    engine.qp_destroy(kQpn);
    create();
    TcpFrame urgent = segment(kRcvNxt, 1000);
    urgent.flags |= nupa::kTcpUrg;
    expect_delivered(urgent, Reason::kFlags);
    TcpFrame last = segment(kRcvNxt + 1000, 1000);
    last.flags |= nupa::kTcpFin;
    expect_delivered(last, Reason::kFlags);
}

// Between the host's look at rcv_nxt and the context's birth segments may have come.
TEST_F(Stream, BeginsUnsynced) {
    open(kRcvNxt, 100000);
    expect_delivered(segment(kRcvNxt + 3000, 1000), Reason::kUnsynced);
    ack(kRcvNxt + 4000);
    EXPECT_TRUE(rx(segment(kRcvNxt + 4000, 1000)).placed());
}

TEST_F(Stream, LiesOfTheHost) {
    const auto open_with = [&](std::size_t field, std::uint32_t value) {
        open(kRcvNxt, 10000);
        put(field, value);
    };
    std::uint32_t seq = kRcvNxt;
    open_with(offsetof(nupa_post, bytes),
              kPages * kPage);  // with the offset more than there is room
    expect_delivered(segment(seq, 100), Reason::kBounds), seq += 100;
    open_with(offsetof(nupa_post, offset), kPage);
    expect_delivered(segment(seq, 100), Reason::kBounds), seq += 100;
    open_with(offsetof(nupa_post, bytes), UINT32_MAX);
    expect_delivered(segment(seq, 100), Reason::kBounds), seq += 100;
    for (const std::uint64_t page : {std::uint64_t{1} << 60, pages[1] + 8, ~std::uint64_t{0}}) {
        open(seq, 10000);
        guest.put<std::uint64_t>(at + sizeof(nupa_post) + 8, page);
        expect_delivered(segment(seq, 8000), Reason::kBounds), seq += 8000;  // nor its good part
        EXPECT_EQ(state(), NUPA_POST_OPEN);
    }
}

TEST_F(Stream, CommandsThatAreNone) {
    engine.qp_destroy(kQpn);
    const auto with = [&](auto change) {
        nupa_cmd_qp c = cmd;
        change(c);
        return engine.qp_create(kQpn + 1, c);
    };
    EXPECT_EQ(with([](auto& c) { c.flags |= NUPA_QP_F_SHADOW; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.flags |= NUPA_QP_F_TX_V0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_pages = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.shadow_addr = 64; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.cq = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.post_pages = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.post_pages = NUPA_POST_PAGES_MAX + 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.post_addr += 4; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.post_addr = std::uint64_t{1} << 60; }), NUPA_E_ADDRESS);
    EXPECT_EQ(with([](auto& c) { c.flags = NUPA_QP_F_NO_RQ; }),
              NUPA_E_INVALID);  // a post without a stream
    EXPECT_EQ(engine.qps(), 0u);
    EXPECT_EQ(with([](auto&) {}), NUPA_OK);
}

TEST_F(Stream, Runs) {
    using Runs = nupa::PortEngine::Runs;
    Wire w(segment(kRcvNxt, 8000));
    w.packet.mss = 1000;
    EXPECT_EQ(engine.runs(w.packet), Runs::kDelivered);
    open(kRcvNxt, 100000);
    EXPECT_EQ(engine.runs(w.packet), Runs::kPlaced);
    EXPECT_EQ(engine.placed_run_max(w.packet), 100000u);
    Wire later(segment(kRcvNxt + 1, 8000));
    EXPECT_EQ(engine.runs(later.packet), Runs::kDelivered);
    open(kRcvNxt, 7999);  // a small rest is not worth a cut
    EXPECT_EQ(engine.runs(w.packet), Runs::kDelivered);
}

// The host takes the post back between two segments, and then nothing is written.
TEST_F(Stream, TakenBack) {
    open(kRcvNxt, 100000);
    EXPECT_TRUE(rx(segment(kRcvNxt, 1000)).placed());
    std::uint32_t state = NUPA_POST_OPEN;
    auto* word = reinterpret_cast<std::uint32_t*>(guest.ptr(at));
    EXPECT_TRUE(__atomic_compare_exchange_n(word, &state, NUPA_POST_NONE, false, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED));
    expect_delivered(segment(kRcvNxt + 1000, 1000), Reason::kNoReceive);
    open(kRcvNxt + 2000, 1000);
    EXPECT_TRUE(rx(segment(kRcvNxt + 2000, 1000)).placed());
}

// The same at any moment, also while a segment is being written: the host waits for that, and then
// nothing changes any more, of which the first byte that was not placed lies where `placed` says.
TEST_F(Stream, TakenBackAtAnyMoment) {
    constexpr std::uint32_t kBytes = 20000, kPosted = 200000, kRounds = 100;
    std::atomic<std::uint32_t> next{kRcvNxt};
    std::atomic<bool> over{false};
    std::thread peer([&] {
        for (std::uint32_t seq = kRcvNxt; !over; seq += kBytes) {
            ack(seq);
            rx(segment(seq, kBytes, seq));
            next = seq + kBytes;
        }
    });
    std::uint32_t rounds = 0;
    for (std::uint32_t i = 0; i < 100 * kRounds && rounds < kRounds; i++) {
        const std::uint32_t begin = next;
        for (const std::uint64_t page : pages)
            std::memset(guest.ptr(page, kPage), 0xee, kPage);
        put(offsetof(nupa_post, placed), begin);
        put(offsetof(nupa_post, seq), begin);
        put(offsetof(nupa_post, bytes), kPosted);
        put(offsetof(nupa_post, offset), kOffset);
        auto* word = reinterpret_cast<std::uint32_t*>(guest.ptr(at));
        __atomic_store_n(word, NUPA_POST_OPEN, __ATOMIC_RELEASE);
        for (std::uint32_t n = i % 64; n; n--)
            std::this_thread::yield();
        std::uint32_t was = NUPA_POST_OPEN;
        while (!__atomic_compare_exchange_n(word, &was, NUPA_POST_NONE, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
            was = NUPA_POST_OPEN;
        const std::uint32_t end = placed() - begin;
        ASSERT_LE(end, kPosted);
        const auto memory_then = memory(kOffset, kPosted);
        if (!end)
            continue;
        rounds++;
        const ByteVector last = pattern(kBytes, begin + end - kBytes);
        EXPECT_TRUE(std::equal(last.begin(), last.end(), memory_then.begin() + (end - kBytes)));
        EXPECT_TRUE(std::all_of(memory_then.begin() + end, memory_then.end(),
                                [](std::byte b) { return b == std::byte{0xee}; }));
        const std::uint32_t then = next;
        while (next == then)
            std::this_thread::yield();
        EXPECT_EQ(memory(kOffset, kPosted), memory_then);
    }
    over = true;
    peer.join();
    EXPECT_GT(rounds, 0u);
}

}  // namespace
