// SPDX-License-Identifier: BSD-3-Clause
// WRITE_MIXED_TRAIN: WRITEs of any lengths, to any targets, in a segment, as the TARGETS before
// them said; in their order, all of them or none.
#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_mixed.h>
#include <tcp_qp/tcp_bth_option.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

struct Write {
    std::uint32_t length;
    std::uint64_t at;  // behind kIova
};
const std::vector<Write> kWrites{{5, 700}, {64, 100}, {1, 164}, {300, 1000}, {7, 0}};

struct WriteMixedRig {
    explicit WriteMixedRig(HostOptions o = {}, std::vector<Write> w = kWrites,
                           std::uint32_t key = kKey)
        : writes(std::move(w)), host(o) {
        table.resize(tcp_bth_targets_bytes(static_cast<std::uint32_t>(writes.size())));
        auto* to = reinterpret_cast<std::uint8_t*>(table.data());
        tcp_bth_put32(to, key);
        tcp_bth_targets_begin(&all, key);
        for (std::uint32_t i = 0; i < writes.size(); i++) {
            tcp_bth_targets_put(to, i, writes[i].length, kIova + writes[i].at);
            tcp_bth_targets_add(&all, writes[i].length, kIova + writes[i].at);
        }
        bytes = pattern(all.bytes, 3);
        host.ack(o.rcv_nxt);
        start = o.rcv_nxt + static_cast<std::uint32_t>(table.size());
    }
    TcpFrame frame(const tcp_bth& b, std::uint32_t seq, ByteVector payload) {
        TcpFrame f;
        f.seq = seq, f.payload = std::move(payload), f.options = bth_option(b);
        return f;
    }
    TcpFrame announcement() {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_TARGETS, b.msn = msn;
        b.start_seq = start - static_cast<std::uint32_t>(table.size());
        b.length = static_cast<std::uint32_t>(table.size()), b.flags = TCP_BTH_F_TIMESTAMP;
        return frame(b, b.start_seq, table);
    }
    tcp_bth option() const {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_WRITE_MIXED_TRAIN, b.msn = msn, b.start_seq = start;
        b.length = all.check, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = all.bytes;
        b.flags = TCP_BTH_F_TIMESTAMP;
        return b;
    }
    TcpFrame segment(std::uint32_t from, std::uint32_t to) {
        return frame(option(), start + from, {bytes.begin() + from, bytes.begin() + to});
    }
    Reason rx(std::uint32_t from, std::uint32_t to) { return host.rx(segment(from, to)).reason; }
    Reason announce() { return host.rx(announcement()).reason; }
    // All that the train writes is there, and nothing else.
    void expect_all(const char* what = "") {
        ByteVector right(2048);
        std::uint32_t at = 0;
        for (const Write& w : writes) {
            std::copy_n(bytes.begin() + at, w.length,
                        right.begin() + static_cast<std::ptrdiff_t>(w.at));
            at += w.length;
        }
        ASSERT_EQ(host.mr.read(host.guest, kIova, 2048), right) << what;
    }
    void expect_untouched(const TcpFrame& f, Reason reason) {
        const ByteVector before = host.mr.read(host.guest, kIova, 8192);
        EXPECT_EQ(host.rx(f).reason, reason);
        EXPECT_EQ(host.mr.read(host.guest, kIova, 8192), before);
    }

    std::vector<Write> writes;
    tcp_bth_mixed all{};
    ByteVector table, bytes;
    std::uint32_t start = 0;
    std::uint16_t msn = 0;
    Host host;
};

struct WriteMixed : testing::Test, WriteMixedRig {};

TEST_F(WriteMixed, EachGoesToItsPlace) {
    EXPECT_EQ(announce(), Reason::kOpcode) << "the host reads the table, too";
    ASSERT_EQ(rx(0, all.bytes), Reason::kPlaced);
    expect_all();
    EXPECT_EQ(host.stat(NUPA_STAT_placed_bytes), all.bytes);
}

TEST_F(WriteMixed, AnyCutInOrder) {
    for (std::uint32_t cut = 1; cut < all.bytes; cut++) {
        WriteMixedRig t;
        t.announce();
        ASSERT_EQ(t.rx(0, cut), Reason::kPlaced);
        ASSERT_EQ(t.rx(cut, t.all.bytes), Reason::kPlaced);
        t.expect_all("cut");
    }
}

// What is in the hole may be a WRITE to the same place, but for one in the same message.
TEST_F(WriteMixed, BehindAHole) {
    announce();
    host.ring.consume(start);
    expect_untouched(segment(6, 100), Reason::kOrder);
    WriteMixedRig t;
    t.announce();
    t.host.ring.consume(t.start);
    ASSERT_EQ(t.rx(0, 10), Reason::kPlaced);
    EXPECT_EQ(t.rx(20, 60), Reason::kPlaced) << "all of the second one";
    EXPECT_EQ(t.rx(10, 20), Reason::kPlaced);
    EXPECT_EQ(t.rx(60, t.all.bytes), Reason::kPlaced);
    t.expect_all();
    WriteMixedRig several;
    several.announce();
    several.host.ring.consume(several.start);
    ASSERT_EQ(several.rx(0, 10), Reason::kPlaced);
    several.expect_untouched(several.segment(20, 100), Reason::kOrder);
}

// What the host is to copy comes first.
TEST_F(WriteMixed, NotBeforeTheHostHasCopied) {
    announce();
    host.ring.consume(start);
    ASSERT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    EXPECT_EQ(rx(0, 30), Reason::kKey);
    ASSERT_EQ(host.engine.mr_reg(kKey, host.mr.cmd), NUPA_OK);
    EXPECT_EQ(rx(30, 69), Reason::kOrder) << "the rest of the second: the first is not copied yet";
    host.ring.consume(start + 68);
    EXPECT_EQ(rx(69, 70), Reason::kOrder);
    host.ring.consume(start + 70);
    EXPECT_EQ(rx(70, all.bytes), Reason::kPlaced);
}

// The same where only the host knows whose bytes they are: its table came behind it.
TEST_F(WriteMixed, BehindWhatNobodyAnnounced) {
    host.ring.consume(host.options.rcv_nxt);
    ASSERT_EQ(host.rx(send_segment(kRcvNxt, 0, ByteVector(table.size()), 9)).reason,
              Reason::kNoReceive);
    EXPECT_EQ(rx(0, 69), Reason::kLengths);
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_WRITE_ONLY, b.msn = 2, b.start_seq = start + 69, b.length = 1;
    b.ext_bytes = TCP_BTH_RETH_BYTES, b.va = kIova, b.rkey = kKey, b.dma_length = 1;
    b.flags = TCP_BTH_F_TIMESTAMP;
    expect_untouched(frame(b, b.start_seq, ByteVector(1)), Reason::kOrder);
}

// TCP dropped what was placed and sends it again, cut anew.
TEST_F(WriteMixed, OvertakenByALaterOne) {
    announce();
    ASSERT_EQ(rx(0, all.bytes), Reason::kPlaced);
    EXPECT_EQ(rx(0, 370), Reason::kPlacedBefore);
    EXPECT_EQ(rx(370, all.bytes), Reason::kDuplicate) << "the latest";
    expect_all();
}

TEST_F(WriteMixed, NothingWithoutItsTable) {
    host.rx(send_segment(kRcvNxt, 0, ByteVector(table.size()), 9));  // whatever: at E
    expect_untouched(segment(0, all.bytes), Reason::kLengths);
}

// A table of SENDs is none of WRITEs, whatever its check.
TEST_F(WriteMixed, AnotherTable) {
    const std::pair<const char*, void (*)(tcp_bth&)> lies[] = {
        {"check", [](tcp_bth& b) { b.length++; }},
        {"bytes", [](tcp_bth& b) { b.ext4++; }},
        {"number", [](tcp_bth& b) { b.msn++; }},
        {"start", [](tcp_bth& b) { b.start_seq--, b.mbo++; }},
        {"kind", [](tcp_bth& b) { b.opcode = TCP_BTH_OP_MIXED_TRAIN; }},
    };
    for (const auto& [what, lie] : lies) {
        SCOPED_TRACE(what);
        WriteMixedRig t;
        for (int i = 0; i < 8; i++)
            t.host.ring.post({{kIova, 4096, kKey}});
        t.announce();
        tcp_bth b = t.option();
        lie(b);
        t.expect_untouched(t.frame(b, t.start, ByteVector(t.all.bytes - 1)), Reason::kLengths);
    }
}

// No right, another key, or one of them reaches outside: nothing is written.
TEST_F(WriteMixed, AllOrNothing) {
    const std::uint64_t end = host.mr.cmd.iova + host.mr.cmd.bytes - kIova;
    for (const std::uint64_t at : {end - 9, UINT64_MAX - kIova - 5, std::uint64_t{0} - kIova}) {
        WriteMixedRig t({}, {{5, 0}, {10, at}, {7, 100}});
        t.announce();
        t.expect_untouched(t.segment(0, t.all.bytes), Reason::kBounds);
        // A part of it is checked as all of it would be.
        WriteMixedRig part({}, {{5, 0}, {10, at}, {7, 100}});
        part.announce();
        part.expect_untouched(part.segment(0, 6), Reason::kBounds);
    }
    WriteMixedRig foreign({}, kWrites, kOtherKey);
    foreign.announce();
    foreign.expect_untouched(foreign.segment(0, all.bytes), Reason::kKey);
    WriteMixedRig closed({.qp_flags = NUPA_QP_F_SHADOW});
    closed.announce();
    closed.expect_untouched(closed.segment(0, all.bytes), Reason::kAccess);
}

// One of its messages was said to begin elsewhere.
TEST_F(WriteMixed, Inconsistent) {
    announce();
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_WRITE_ONLY, b.msn = 1, b.start_seq = start + 6, b.length = 64;
    b.ext_bytes = TCP_BTH_RETH_BYTES, b.va = kIova + 100, b.rkey = kKey, b.dma_length = 64;
    b.flags = TCP_BTH_F_TIMESTAMP;
    ASSERT_EQ(host.rx(frame(b, b.start_seq, ByteVector(1))).reason, Reason::kOrder)
        << "remembered even if it is not placed";
    EXPECT_EQ(rx(0, 5), Reason::kPlaced);
    expect_untouched(segment(5, 6), Reason::kInconsistent);
}

// A burst goes as one run where its table is known, and is cut where it is not.
TEST_F(WriteMixed, Runs) {
    Wire w(segment(0, all.bytes));
    EXPECT_EQ(host.engine.runs(w.packet), nupa::PortEngine::Runs::kNone);
    announce();
    EXPECT_EQ(host.engine.runs(w.packet), nupa::PortEngine::Runs::kPlaced);
}

}  // namespace
