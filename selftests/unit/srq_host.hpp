// SPDX-License-Identifier: BSD-3-Clause
// A receiving host with two QPs that share their receives, and a completion queue.
#pragma once

#include <gtest/gtest.h>
#include <tcp_qp/tcp_bth_option.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cq_ring.hpp"
#include "host.hpp"

namespace test {

using nupa::Reason;

inline constexpr std::uint32_t kSrq = 9, kCqEntries = 64;
inline constexpr std::uint32_t kQps = 2;
inline constexpr std::uint32_t kFirst = 3;  // index of the first receive: nothing may count from 0
inline constexpr std::uint64_t kName = (std::uint64_t{1} << 32) + 1000;
inline constexpr std::uint64_t kHalfBytes = 1 << 20;  // RAM in each of its two regions
inline constexpr std::size_t kCompleted = offsetof(nupa_qp_shadow, completed);
inline constexpr std::size_t kDone = offsetof(nupa_qp_shadow, done);
inline constexpr std::size_t kTurn = offsetof(nupa_qp_shadow, turn);
inline constexpr std::uint32_t kCompletes = NUPA_QP_F_COMPLETE | NUPA_QP_F_SRQ;

// A shared receive queue as its application and its kernel see it.
struct SharedRing {
    SharedRing(Guest& g, std::uint32_t entries)
        : guest(g), ring(g, entries, 4, kFirst), ctl(g.alloc(sizeof(nupa_srq_ctl), 64)) {
        cmd.table_addr = ring.cmd.rq_table_addr;
        cmd.ctl_addr = ctl;
        cmd.pages = ring.cmd.rq_pages;
        cmd.mask = ring.cmd.rq_mask;
        cmd.sge_max = ring.cmd.rq_sge_max;
        cmd.log2_bytes = ring.cmd.rq_log2_bytes;
        put(offsetof(nupa_srq_ctl, index), kFirst);
        ring.put32(kConsumerAt, kFirst);
    }
    // One with the next name and these buffers.
    void post(const std::vector<nupa::RecvSge>& sges) {
        const std::uint64_t element = (kFirst + posted) & cmd.mask;
        const std::uint64_t at = kElementsAt + (element << cmd.log2_bytes);
        ring.put32(at, static_cast<std::uint32_t>(kName) + posted);
        ring.put32(at + 4, kName >> 32);
        ring.write(static_cast<std::uint16_t>(posted), sges);
        posted++;
        __atomic_store_n(reinterpret_cast<std::uint32_t*>(ring.at(kProducerAt)),
                         (kFirst + posted) & cmd.mask, __ATOMIC_RELEASE);
    }
    // So many, with a buffer of their own each.
    void post(std::uint32_t count) {
        for (; count; count--)
            post({{buffer(posted), kStride, kKey}});
    }
    static std::uint64_t buffer(std::uint32_t receive) {
        return kIova + std::uint64_t{receive % kPlaces} * kStride;
    }
    void put(std::size_t field, std::uint32_t value) {
        guest.put<std::uint32_t>(ctl + field, value);
    }
    std::uint32_t get(std::size_t field) {
        std::uint32_t value;
        std::memcpy(&value, guest.ptr(ctl + field, 4), 4);
        return value;
    }
    std::uint32_t owner() { return get(offsetof(nupa_srq_ctl, owner)); }
    std::uint32_t index() { return get(offsetof(nupa_srq_ctl, index)); }
    std::uint32_t consumer() {
        std::uint32_t value;
        std::memcpy(&value, ring.at(kConsumerAt), 4);
        return value;
    }
    void host_takes(std::uint32_t count) {
        const std::uint32_t next = (index() + count) & cmd.mask;
        put(offsetof(nupa_srq_ctl, index), next);
        ring.put32(kConsumerAt, next);
    }
    // What the ring and its kernel say when @count receives were used.
    void expect_used(std::uint32_t count) {
        EXPECT_EQ(index(), (kFirst + count) & cmd.mask);
        EXPECT_EQ(consumer(), (kFirst + count) & cmd.mask);
    }

    Guest& guest;
    RecvRing ring;
    std::uint64_t ctl;
    nupa_cmd_srq cmd{};
    std::uint32_t posted = 0;
};

// The sender and the shadow of one of the queue pairs.
struct Sharer {
    std::uint32_t n = 0;
    std::uint64_t shadow = 0;
    std::uint32_t seq = kRcvNxt;
    std::uint16_t msn = 0;
};

struct SharedReceives : testing::Test {
    SharedReceives() : cq(host.guest, kCqEntries), srq(host.guest, kEntries) {
        EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
        EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_OK);
        EXPECT_EQ(host.engine.srq_create(kSrq, srq.cmd), NUPA_OK);
        for (std::uint32_t n = 0; n < kQps; n++) {
            qps[n].n = n;
            qps[n].shadow = host.guest.alloc(sizeof(nupa_qp_shadow), 64);
            EXPECT_EQ(host.engine.qp_create(kQpn + n, cmd(n)), NUPA_OK);
            acknowledge(n, kRcvNxt);
            give(n, kRcvNxt);
        }
    }
    nupa_cmd_qp cmd(std::uint32_t n) {
        nupa_cmd_qp c{};
        TcpFrame peer;
        peer.sport = port(n);
        c.flow = Wire(peer).packet.flow().raw;
        c.pd = kPd;
        c.flags = host.options.qp_flags | kCompletes;
        c.rcv_nxt = kRcvNxt;
        c.rcv_wscale = host.options.wscale;
        c.shadow_addr = qps[n].shadow;
        c.cq = kCq;
        c.srq = kSrq;
        return c;
    }
    static std::uint16_t port(std::uint32_t n) { return static_cast<std::uint16_t>(1000 + n); }
    void acknowledge(std::uint32_t n, std::uint32_t seq) {
        TcpFrame f;
        f.src = 2, f.dst = 1, f.sport = 2000, f.dport = port(n);
        f.ack = seq;
        f.window = (1 << 20) >> host.options.wscale;
        Wire w(f);
        host.engine.transmit(w.packet);
    }
    void put(std::uint32_t n, std::size_t field, std::uint32_t value) {
        host.guest.put<std::uint32_t>(qps[n].shadow + field, value);
    }
    std::uint32_t get(std::uint32_t n, std::size_t field) {
        std::uint32_t value;
        std::memcpy(&value, host.guest.ptr(qps[n].shadow + field, 4), 4);
        return value;
    }
    void give(std::uint32_t n, std::uint32_t seq) {
        put(n, kDone, seq);
        put(n, kTurn, NUPA_TURN_SWITCH);
    }
    // The next bytes of queue pair @n, with option @b for them.
    TcpFrame next(std::uint32_t n, tcp_bth b, ByteVector payload, std::uint32_t messages = 1) {
        Sharer& qp = qps[n];
        b.msn = qp.msn, b.start_seq = qp.seq;
        TcpFrame f;
        f.sport = port(n);
        f.seq = qp.seq + b.mbo;
        f.options = bth_option(b);
        f.payload = std::move(payload);
        qp.seq = f.seq + static_cast<std::uint32_t>(f.payload.size());
        qp.msn = static_cast<std::uint16_t>(qp.msn + messages);
        return f;
    }
    TcpFrame send(std::uint32_t n, std::uint32_t bytes = kLength,
                  std::uint8_t opcode = TCP_BTH_OP_SEND_ONLY) {
        tcp_bth b{};
        b.opcode = opcode;
        b.ext_bytes = static_cast<std::uint8_t>(tcp_bth_ext_bytes(opcode));
        b.ext4 = 0x01020304;
        return next(n, b, pattern(bytes, seed(n)));
    }
    // Tells the next message from all others.
    std::uint32_t seed(std::uint32_t n) const { return 100 * n + qps[n].msn; }
    // @bytes from offset @at on of the next train of queue pair @n.
    TcpFrame train(std::uint32_t n, std::uint32_t messages, std::uint32_t at, std::uint32_t bytes,
                   std::uint8_t flags = 0) {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_SEND_TRAIN, b.mbo = at;
        b.length = kLength, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = messages * kLength;
        b.flags = TCP_BTH_F_TIMESTAMP | flags;
        return next(n, b, pattern(bytes, seed(n)), messages);
    }
    TcpFrame write(std::uint32_t n, std::uint8_t opcode, std::uint64_t va, std::uint16_t msn) {
        TcpFrame f =
            write_segment(qps[n].seq, 0, pattern(kLength, 77), va, kKey,
                          opcode == TCP_BTH_OP_WRITE_ONLY ? kLength : 0x0a0b0c0d, opcode, msn);
        f.sport = port(n);
        qps[n].seq += kLength;
        return f;
    }
    ByteVector buffer(std::uint32_t receive, std::uint32_t bytes = kLength) {
        return host.mr.read(host.guest, SharedRing::buffer(receive), bytes);
    }
    // All of the host's memory.
    ByteVector ram() {
        ByteVector all(2 * kHalfBytes);
        std::memcpy(all.data(), host.guest.ptr(0, kHalfBytes), kHalfBytes);
        std::memcpy(all.data() + kHalfBytes, host.guest.ptr(kHighRam, kHalfBytes), kHalfBytes);
        return all;
    }
    bool ram_is(const ByteVector& all) {
        return std::memcmp(all.data(), host.guest.ptr(0, kHalfBytes), kHalfBytes) == 0 &&
               std::memcmp(all.data() + kHalfBytes, host.guest.ptr(kHighRam, kHalfBytes),
                           kHalfBytes) == 0;
    }
    // The switch completes @f, of @messages that use receives from number @first on.
    void expect_completed(std::uint32_t n, const TcpFrame& f, std::uint32_t first,
                          std::uint32_t messages = 1) {
        const std::uint32_t before = cq.prod(), completed = get(n, kCompleted);
        const auto d = host.rx(f);
        ASSERT_EQ(d.reason, Reason::kPlaced);
        ASSERT_EQ(d.completed, messages);
        EXPECT_EQ(get(n, kCompleted), completed + messages);
        EXPECT_EQ(get(n, kDone), f.seq + f.payload.size());
        EXPECT_EQ(cq.prod(), (before + messages) & cq.cmd.mask);
        srq.expect_used(first + messages);
        expect_at_rest();
        const std::size_t bytes = f.payload.size() / messages;
        for (std::uint32_t i = 0; i < messages; i++) {
            const auto from = f.payload.begin() + static_cast<std::ptrdiff_t>(i * bytes);
            const ByteVector message(from, from + static_cast<std::ptrdiff_t>(bytes));
            const ib_uverbs_wc wc = cq.at(before + i);
            EXPECT_EQ(wc.wr_id, kName + first + i);
            EXPECT_EQ(wc.status, 0u);
            EXPECT_EQ(wc.opcode, kWcRecv);
            EXPECT_EQ(wc.byte_len, bytes);
            EXPECT_EQ(wc.qp_num, kQpn + n);
            EXPECT_EQ(buffer(first + i, static_cast<std::uint32_t>(bytes)), message);
        }
    }
    // The host gets @f, and nothing of its memory has changed.
    void expect_delivered(const TcpFrame& f, Reason reason = Reason::kNoReceive) {
        const ByteVector before = ram();
        const auto d = host.rx(f);
        EXPECT_EQ(d.reason, reason);
        EXPECT_EQ(d.completed, 0u);
        EXPECT_TRUE(ram_is(before));
    }
    // Nobody holds anything.
    void expect_at_rest() {
        EXPECT_EQ(srq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
        EXPECT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
        for (std::uint32_t n = 0; n < kQps; n++)
            EXPECT_EQ(get(n, kTurn), std::uint32_t{NUPA_TURN_SWITCH});
    }
    // As the host does when it has received all that came to queue pair @n.
    void host_received(std::uint32_t n, std::uint32_t messages) {
        put(n, kCompleted, get(n, kCompleted) + messages);
        give(n, qps[n].seq);
    }

    Host host{{.half_bytes = kHalfBytes}};
    CqRing cq;
    SharedRing srq;
    std::array<Sharer, kQps> qps;
};

}  // namespace test
