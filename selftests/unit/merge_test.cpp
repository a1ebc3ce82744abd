// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include "engine/endian.hpp"
#include "engine/icrc.hpp"
#include "engine/merge.hpp"
#include "engine/segment.hpp"
#include "host.hpp"

namespace {

using namespace test;

// What a receive queue does: one run after the other.
struct Queue {
    nupa::Merger merger;
    std::vector<nupa::Merged> out;

    explicit Queue(std::uint32_t buf_bytes = 4096, bool enabled = true) {
        merger.configure(buf_bytes, enabled);
    }

    void push(const nupa::Packet& p, const nupa::Decision& d) {
        if (merger.active() && !merger.fits(p, d))
            flush();
        if (merger.active())
            merger.append(p, d);
        else
            merger.start(p, d);
        if (merger.closed())
            flush();
    }
    void push(const TcpFrame& f, bool placed = false, bool qp = false) {
        Wire w(f);
        w.packet.verify();
        push(w.packet, decision(w.packet, placed, qp));
    }
    void flush() {
        if (merger.active())
            out.push_back(merger.finish());
    }
    static nupa::Decision decision(const nupa::Packet& p, bool placed, bool qp) {
        nupa::Decision d;
        if (!qp)
            return d;
        d.has_qp = true, d.qpn = 4;
        d.reason = placed ? nupa::Reason::kPlaced : nupa::Reason::kNoReceive;
        unsigned at = 0;
        d.has_bth = tcp_bth_find(p.header.data() + p.at.options_at, p.at.option_bytes(), p.at.seq,
                                 p.payload.bytes(), &d.bth, &at) == TCP_BTH_OK;
        d.bth_at = static_cast<std::uint16_t>(p.at.options_at + at);
        return d;
    }
};

// Header of a merged packet, parsed as the driver would.
nupa::Packet parsed(const nupa::Merged& m, ByteVector& frame) {
    frame.assign(m.header_bytes + m.payload_bytes, std::byte{0});
    std::memcpy(frame.data(), m.header.data(), m.header_bytes);
    const nupa::Bytes all{frame.data(), frame.size()};
    nupa::Packet p;
    EXPECT_EQ(
        p.assign({&all, 1}, m.header_bytes + m.payload_bytes > 65535 ? nupa::ParseMode::kTso
                                                                     : nupa::ParseMode::kWire),
        nupa::ParseError::kOk);
    return p;
}

tcp_bth bth_of(const nupa::Merged& m) {
    ByteVector frame;
    const nupa::Packet p = parsed(m, frame);
    tcp_bth b{};
    EXPECT_EQ(tcp_bth_find(p.header.data() + p.at.options_at, p.at.option_bytes(), p.at.seq,
                           m.payload_bytes, &b, nullptr),
              TCP_BTH_OK);
    return b;
}

TcpFrame plain(std::uint32_t seq, std::size_t n, int family = 4) {
    TcpFrame f;
    f.family = family, f.seq = seq, f.payload = pattern(n),
    f.options = {1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2};
    return f;
}

class MergeFamilies : public testing::TestWithParam<int> {};

TEST_P(MergeFamilies, PlainSegments) {
    Queue q;
    for (std::uint32_t i = 0; i < 10; i++) {
        TcpFrame f = plain(0xfffffc00 + 1000 * i, i == 9 ? 300 : 1000, GetParam());
        f.id = static_cast<std::uint16_t>(i);
        if (i == 9)
            f.flags |= nupa::kTcpPsh;
        q.push(f);
    }
    ASSERT_EQ(q.out.size(), 1u);
    const nupa::Merged& m = q.out[0];
    EXPECT_EQ(m.gso_segs, 10);
    EXPECT_EQ(m.gso_size, 1000);
    EXPECT_EQ(m.payload_bytes, 9300u);
    EXPECT_EQ(m.flags, NUPA_RX_F_CSUM_OK | (GetParam() == 4 ? NUPA_RX_F_TCP4 : NUPA_RX_F_TCP6));
    ByteVector frame;
    const nupa::Packet p = parsed(m, frame);
    EXPECT_FALSE(p.at.ip_csum_bad);
    EXPECT_EQ(p.at.seq, 0xfffffc00);
    EXPECT_EQ(p.at.tcp_flags, nupa::kTcpAck | nupa::kTcpPsh);
    EXPECT_EQ(p.payload.bytes(), 9300u);
}

TEST_P(MergeFamilies, DeliveredRunsAreBoundedByIp) {
    Queue q(65536);
    for (std::uint32_t i = 0; i < 70; i++)
        q.push(plain(1000 * i, 1000, GetParam()));
    ASSERT_EQ(q.out.size(), 1u);
    EXPECT_EQ(q.out[0].payload_bytes, 65000u);
    q.flush();
    EXPECT_EQ(q.out[1].payload_bytes, 5000u);
}

INSTANTIATE_TEST_SUITE_P(Ip, MergeFamilies, testing::Values(4, 6));

TEST(Merge, DeliveredRunsAreBoundedByBuffers) {
    Queue q(2048);
    for (std::uint32_t i = 0; i < 40; i++)
        q.push(plain(1000 * i, 1000));
    ASSERT_EQ(q.out.size(), 1u);
    EXPECT_EQ(q.out[0].payload_bytes, 34000u);  // of 17 * 2048
}

TEST(Merge, SingleSegmentIsUntouched) {
    Queue q;
    const TcpFrame f = plain(5, 100);
    q.push(f);
    q.flush();
    ASSERT_EQ(q.out.size(), 1u);
    EXPECT_EQ(q.out[0].gso_size, 0);
    EXPECT_EQ(q.out[0].gso_segs, 1);
    const ByteVector bytes = f.build();
    EXPECT_EQ(std::memcmp(q.out[0].header.data(), bytes.data(), q.out[0].header_bytes), 0);
}

// A second segment that differs in one thing must not join.
TEST(Merge, WhatKeepsSegmentsApart) {
    using Change = void (*)(TcpFrame&);
    const Change changes[] = {
        [](TcpFrame& f) { f.seq++; },
        [](TcpFrame& f) { f.seq--; },
        [](TcpFrame& f) { f.ack++; },
        [](TcpFrame& f) { f.window++; },
        [](TcpFrame& f) { f.tos = 3; },
        [](TcpFrame& f) { f.ttl--; },
        [](TcpFrame& f) { f.fragment = 0; },
        [](TcpFrame& f) { f.sport++; },
        [](TcpFrame& f) { f.src++; },
        [](TcpFrame& f) { f.vlan = true; },
        [](TcpFrame& f) { f.flags |= nupa::kTcpEce; },
        [](TcpFrame& f) { f.flags |= nupa::kTcpCwr; },
        [](TcpFrame& f) { f.flags |= nupa::kTcpUrg; },
        [](TcpFrame& f) { f.flags |= nupa::kTcpRst; },
        [](TcpFrame& f) { f.options[7]++; },
        [](TcpFrame& f) { f.options.clear(); },
        [](TcpFrame& f) { f.payload = pattern(1001); },
        [](TcpFrame& f) { f.payload.clear(); },
    };
    for (std::size_t i = 0; i < std::size(changes); i++) {
        Queue q;
        q.push(plain(0, 1000));
        TcpFrame f = plain(1000, 1000);
        changes[i](f);
        q.push(f);
        q.flush();
        EXPECT_EQ(q.out.size(), 2u) << i;
    }
    Queue same;
    same.push(plain(0, 1000));
    same.push(plain(1000, 1000));
    same.flush();
    EXPECT_EQ(same.out.size(), 1u);
}

TEST(Merge, BadChecksumStandsAlone) {
    Queue q;
    q.push(plain(0, 1000));
    ByteVector bytes = plain(1000, 1000).build();
    bytes.back() ^= std::byte{1};
    Wire w(bytes);
    w.packet.verify();
    q.push(w.packet, {});
    EXPECT_EQ(q.out.size(), 2u);
    EXPECT_EQ(q.out[1].flags & (NUPA_RX_F_CSUM_OK | NUPA_RX_F_CSUM_BAD), NUPA_RX_F_CSUM_BAD);
}

TEST(Merge, EndOfRun) {
    using Change = void (*)(TcpFrame&);
    for (const Change change : {+[](TcpFrame& f) { f.flags |= nupa::kTcpPsh; },
                                +[](TcpFrame& f) { f.flags |= nupa::kTcpFin; },
                                +[](TcpFrame& f) { f.payload = pattern(999); }}) {
        Queue q;
        q.push(plain(0, 1000));
        TcpFrame f = plain(1000, 1000);
        change(f);
        q.push(f);
        EXPECT_EQ(q.out.size(), 1u);
        EXPECT_EQ(q.out[0].gso_segs, 2);
    }
}

TEST(Merge, Disabled) {
    Queue q(4096, false);
    q.push(plain(0, 1000));
    q.push(plain(1000, 1000));
    EXPECT_EQ(q.out.size(), 2u);
}

TEST(Merge, PlacedAndDeliveredStayApart) {
    Queue q;
    q.push(send_segment(0, 0, pattern(1000)), true, true);
    q.push(send_segment(0, 1000, pattern(1000)), false, true);
    q.push(send_segment(0, 2000, pattern(1000)), true, true);
    q.flush();
    ASSERT_EQ(q.out.size(), 3u);
    EXPECT_TRUE(q.out[0].flags & NUPA_RX_F_PLACED);
    EXPECT_FALSE(q.out[1].flags & NUPA_RX_F_PLACED);
    EXPECT_TRUE(q.out[1].flags & NUPA_RX_F_QP);
    EXPECT_EQ(q.out[0].qpn, 4u);
}

struct Positions {
    std::vector<std::uint8_t> in;
    std::uint8_t out;
};

class MergePositions : public testing::TestWithParam<Positions> {};

TEST_P(MergePositions, PositionOfTheWhole) {
    Queue q;
    const bool from_start = tcp_bth_position(GetParam().in[0]) & TCP_BTH_POS_FIRST;
    std::uint32_t mbo = from_start ? 0 : 5000;
    const std::uint32_t first = mbo;
    for (const std::uint8_t opcode : GetParam().in) {
        TcpFrame f = opcode >= TCP_BTH_OP_WRITE_FIRST && opcode < TCP_BTH_OP_SEND_LAST_INV
                         ? write_segment(0, mbo, pattern(1000), 7, 8, 9, opcode)
                         : send_segment(0, mbo, pattern(1000), 3, opcode);
        q.push(f, true, true);
        mbo += 1000;
    }
    q.flush();
    ASSERT_EQ(q.out.size(), 1u);
    const tcp_bth b = bth_of(q.out[0]);
    EXPECT_EQ(b.opcode, GetParam().out);
    EXPECT_EQ(b.mbo, first);
    EXPECT_EQ(q.out[0].gso_segs, GetParam().in.size());
}

INSTANTIATE_TEST_SUITE_P(
    All, MergePositions,
    testing::Values(
        Positions{{TCP_BTH_OP_SEND_FIRST, TCP_BTH_OP_SEND_LAST}, TCP_BTH_OP_SEND_ONLY},
        Positions{{TCP_BTH_OP_SEND_FIRST, TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST_IMM},
                  TCP_BTH_OP_SEND_ONLY_IMM},
        Positions{{TCP_BTH_OP_SEND_FIRST, TCP_BTH_OP_SEND_LAST_INV}, TCP_BTH_OP_SEND_ONLY_INV},
        Positions{{TCP_BTH_OP_SEND_FIRST, TCP_BTH_OP_SEND_MIDDLE}, TCP_BTH_OP_SEND_FIRST},
        Positions{{TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_MIDDLE}, TCP_BTH_OP_SEND_MIDDLE},
        Positions{{TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST}, TCP_BTH_OP_SEND_LAST},
        Positions{{TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST_IMM}, TCP_BTH_OP_SEND_LAST_IMM},
        Positions{{TCP_BTH_OP_WRITE_FIRST, TCP_BTH_OP_WRITE_MIDDLE, TCP_BTH_OP_WRITE_LAST},
                  TCP_BTH_OP_WRITE_ONLY},
        Positions{{TCP_BTH_OP_WRITE_FIRST, TCP_BTH_OP_WRITE_LAST_IMM}, TCP_BTH_OP_WRITE_ONLY_IMM},
        Positions{{TCP_BTH_OP_READ_RESPONSE_FIRST, TCP_BTH_OP_READ_RESPONSE_LAST},
                  TCP_BTH_OP_READ_RESPONSE_ONLY}));

TEST(Merge, MessagesStayApart) {
    const auto pairs = [](TcpFrame a, TcpFrame b) {
        Queue q;
        q.push(a, true, true);
        q.push(b, true, true);
        q.flush();
        return q.out.size();
    };
    const TcpFrame first = send_segment(0, 0, pattern(1000));
    EXPECT_EQ(pairs(first, send_segment(0, 1000, pattern(1000))), 1u);
    EXPECT_EQ(pairs(send_segment(0, 0, pattern(1000), 0, TCP_BTH_OP_SEND_ONLY),
                    send_segment(1000, 0, pattern(1000), 1)),
              2u);
    EXPECT_EQ(pairs(send_segment(0, 0, pattern(1000), 0, TCP_BTH_OP_SEND_LAST),
                    send_segment(1000, 0, pattern(1000), 1)),
              2u);
    EXPECT_EQ(pairs(first, send_segment(0, 1000, pattern(1000), 1)), 2u);  // msn
    EXPECT_EQ(pairs(first, send_segment(1000, 0, pattern(1000))), 2u);     // start
    EXPECT_EQ(pairs(first, write_segment(0, 1000, pattern(1000), 7, 8, 9, TCP_BTH_OP_WRITE_MIDDLE)),
              2u);
    const TcpFrame write = write_segment(0, 0, pattern(1000), 7, 8, 9, TCP_BTH_OP_WRITE_FIRST);
    EXPECT_EQ(pairs(write, write_segment(0, 1000, pattern(1000), 7, 8, 9, TCP_BTH_OP_WRITE_MIDDLE)),
              1u);
    EXPECT_EQ(pairs(write, write_segment(0, 1000, pattern(1000), 6, 8, 9, TCP_BTH_OP_WRITE_MIDDLE)),
              2u);
    EXPECT_EQ(pairs(write, write_segment(0, 1000, pattern(1000), 7, 8, 9,
                                         TCP_BTH_OP_READ_RESPONSE_MIDDLE)),
              2u);
    TcpFrame later = send_segment(0, 1000, pattern(1000));
    later.options[4] |= TCP_BTH_F_RTR;
    EXPECT_EQ(pairs(first, later), 2u);
}

// An acknowledgement for all of a placed run would echo the first value.
TEST(Merge, TimestampsMayGrowInPlacedRuns) {
    const auto pairs = [](int value, int echo, bool placed, int version) {
        tcp_bth b{};
        b.ver = static_cast<std::uint8_t>(version), b.flags = TCP_BTH_F_TIMESTAMP;
        b.opcode = version ? TCP_BTH_OP_SEND_ONLY : TCP_BTH_OP_SEND_FIRST;
        b.length = version ? 10000 : 0;
        b.tsval = 5, b.tsecr = 9;
        TcpFrame f;
        f.payload = pattern(1000), f.options = bth_option(b);
        Queue q;
        q.push(f, placed, true);
        b.opcode = version ? TCP_BTH_OP_SEND_ONLY : TCP_BTH_OP_SEND_MIDDLE;
        b.mbo = version ? 0 : 1000;
        b.tsval += static_cast<std::uint32_t>(value), b.tsecr += static_cast<std::uint32_t>(echo);
        f.seq = 1000, f.options = bth_option(b);
        q.push(f, placed, true);
        q.flush();
        if (q.out.size() == 1)
            EXPECT_EQ(bth_of(q.out[0]).tsval + bth_of(q.out[0]).tsecr, 5u + 9u);
        return q.out.size();
    };
    for (const int version : {0, 1}) {
        EXPECT_EQ(pairs(0, 0, true, version), 1u);
        EXPECT_EQ(pairs(3, 0, true, version), 1u);
        EXPECT_EQ(pairs(-1, 0, true, version), 2u);
        EXPECT_EQ(pairs(0, 4, true, version), 1u);
        EXPECT_EQ(pairs(0, -1, true, version), 2u);
        EXPECT_EQ(pairs(0, 0, false, version), 1u);
        EXPECT_EQ(pairs(3, 0, false, version), 2u);
        EXPECT_EQ(pairs(0, 4, false, version), 2u);
    }
}

// A run is completed where its end is: what comes first of it may be whole messages of a train, of
// which the host completes the rest.
TEST(Merge, CompletedAsFarAsItsEnd) {
    const auto completed = [](std::initializer_list<std::uint32_t> of_segments) {
        Queue q;
        std::uint32_t seq = 0;
        for (const std::uint32_t messages : of_segments) {
            tcp_bth b{};
            b.ver = 1, b.opcode = TCP_BTH_OP_SEND_TRAIN, b.length = 500;
            b.ext_bytes = 4, b.ext4 = 20000;
            TcpFrame f;
            f.seq = seq, f.payload = pattern(1000), f.options = bth_option(b);
            Wire w(f);
            w.packet.verify();
            nupa::Decision d = Queue::decision(w.packet, true, true);
            d.completed = messages;
            q.push(w.packet, d);
            seq += 1000;
        }
        q.flush();
        EXPECT_EQ(q.out.size(), 1u);
        return (q.out[0].flags & NUPA_RX_F_COMPLETED) != 0;
    };
    EXPECT_TRUE(completed({2}));
    EXPECT_TRUE(completed({0, 2}));
    EXPECT_FALSE(completed({2, 0}));
    EXPECT_TRUE(completed({2, 0, 4}));
    EXPECT_FALSE(completed({0, 2, 0}));
}

TEST(Merge, Ver1EndsWithItsMessage) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.length = 2000;
    Queue q;
    for (std::uint32_t i = 0; i < 4; i++) {
        TcpFrame f;
        f.seq = 1000 * i, f.payload = pattern(1000);
        b.start_seq = i / 2 * 2000;
        f.options = bth_option(b);
        q.push(f, true, true);
    }
    EXPECT_EQ(q.out.size(), 2u);
}

TEST(Merge, PlacedRunsGoBeyond64KiBOnIpv4) {
    for (const int family : {4, 6}) {
        Queue q(2048);
        for (std::uint32_t i = 0; i < 1200; i++) {
            TcpFrame f = send_segment(0, 1024 * i, pattern(1024));
            f.family = family;
            q.push(f, true, true);
        }
        q.flush();
        const nupa::Merged& m = q.out[0];
        EXPECT_EQ(m.payload_bytes, family == 4 ? 1087u * 1024 : 63u * 1024);
        EXPECT_EQ(nupa::get_be16(m.header.data() + (family == 4 ? 16 : 18)),
                  family == 4 ? 0 : m.payload_bytes + 44);
        EXPECT_LE(m.payload_bytes + m.header_bytes, std::uint32_t{NUPA_PLACED_RUN_MAX_BYTES});
        ByteVector frame;
        EXPECT_FALSE(parsed(m, frame).at.ip_csum_bad);
    }
}

TEST(Merge, IcrcOfTheWhole) {
    for (const bool placed : {true, false}) {
        Queue q;
        for (std::uint32_t i = 0; i < 3; i++) {
            TcpFrame f = send_segment(0, 1000 * i, pattern(1000));
            f.options[4] |= TCP_BTH_F_ICRC;
            f.options[12] = static_cast<std::uint8_t>(i + 1);
            q.push(f, placed, true);
        }
        q.flush();
        ASSERT_EQ(q.out.size(), placed ? 1u : 3u);  // the host checks delivered ones itself
        const tcp_bth b = bth_of(q.out[0]);
        EXPECT_EQ(b.flags & TCP_BTH_F_ICRC, placed ? 0 : TCP_BTH_F_ICRC);
        EXPECT_EQ(b.icrc, placed ? 0u : 0x01000000u);
    }
}

// A burst received in runs of any length is what its segments merge into.
TEST(Merge, RunsAreWhatSegmentsMergeInto) {
    constexpr std::uint16_t kMss = 1000;
    for (const int family : {4, 6})
        for (const bool qp : {false, true})
            for (const std::uint32_t bytes : {2000u, 45000u, 45300u, 999u})
                for (const std::uint32_t span : {1u, 2u, 7u, 45u, 100u}) {
                    tcp_bth b{};
                    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.length = bytes;
                    TcpFrame f = plain(0, bytes, family);
                    f.flags |= nupa::kTcpPsh | nupa::kTcpCwr;
                    if (qp)
                        f.options = bth_option(b);
                    f.length_error = -static_cast<int>(f.payload.size());
                    Wire w(f.build(), nupa::ParseMode::kTso);
                    w.packet.tso = true, w.packet.mss = kMss, w.packet.csum = nupa::Csum::kPartial;
                    Queue runs, segments;
                    EXPECT_GE(runs.merger.span(w.packet, qp), 45u * kMss);
                    nupa::Packet s;
                    nupa::Cutter whole(w.packet, span * kMss), cut(w.packet, nupa::TxRewrite{});
                    while (whole.next(s))
                        runs.push(s, Queue::decision(s, true, qp));
                    while (cut.next(s))
                        segments.push(s, Queue::decision(s, true, qp));
                    runs.flush();
                    segments.flush();
                    ASSERT_EQ(runs.out.size(), 1u);
                    ASSERT_EQ(segments.out.size(), 1u);
                    const nupa::Merged &a = runs.out[0], &c = segments.out[0];
                    EXPECT_EQ(a.gso_size, c.gso_size);
                    EXPECT_EQ(a.gso_segs, c.gso_segs);
                    EXPECT_EQ(a.payload_bytes, c.payload_bytes);
                    EXPECT_EQ(a.flags, c.flags);
                    ASSERT_EQ(a.header_bytes, c.header_bytes);
                    EXPECT_EQ(std::memcmp(a.header.data(), c.header.data(), a.header_bytes), 0);
                }
}

TEST(Merge, SpanOfARun) {
    Wire w(plain(0, 3000));
    w.packet.tso = true, w.packet.mss = 1000, w.packet.csum = nupa::Csum::kPartial;
    nupa::Merger merger;
    merger.configure(2048, true);
    EXPECT_EQ(merger.span(w.packet, false), 17u * 2048 / 1000 * 1000);
    EXPECT_EQ(merger.span(w.packet, true), (NUPA_PLACED_RUN_MAX_BYTES - 66u) / 1000 * 1000);
    merger.configure(65536, true);
    EXPECT_EQ(merger.span(w.packet, false), (65535u - 52) / 1000 * 1000) << "of 16 bits";
    for (const std::uint32_t run : {52u, 1051u, 1052u, 65536u, 300000u, 1088u << 10}) {
        merger.configure(65536, true, run);
        EXPECT_EQ(merger.span(w.packet, false), (run - 52) / 1000 * 1000) << run;
    }
    merger.configure(65536, true, 10);
    EXPECT_EQ(merger.span(w.packet, false), 0u) << "less than the headers";
    merger.configure(4096, true, 1 << 20);
    EXPECT_EQ(merger.span(w.packet, false), 17u * 4096 / 1000 * 1000) << "of short buffers";
    merger.configure(2048, false);
    EXPECT_EQ(merger.span(w.packet, true), 0u) << "a host that wants no merging";
    merger.configure(2048, true);
    w.packet.at.l4_at += 4;
    EXPECT_EQ(merger.span(w.packet, true), 0u) << "IP options";
}

TEST(Merge, SameFlow) {
    Queue q;
    Wire a(plain(0, 100)), b(plain(100, 100));
    TcpFrame other = plain(0, 100);
    other.dport++;
    Wire c(other);
    EXPECT_FALSE(q.merger.same_flow(a.packet));
    q.push(plain(0, 100));
    EXPECT_TRUE(q.merger.same_flow(b.packet));
    EXPECT_FALSE(q.merger.same_flow(c.packet));
}

}  // namespace
