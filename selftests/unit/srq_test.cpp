// SPDX-License-Identifier: BSD-3-Clause
// Receives of a shared queue: the switch takes one only for what it completes in the same moment.
#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "cq_ring.hpp"
#include "engine/limits.hpp"
#include "host.hpp"

namespace {

using namespace test;
using nupa::Reason;

constexpr std::uint32_t kCq = 7, kSrq = 9, kLength = 64, kStride = 256, kPlaces = 1024;
constexpr std::uint32_t kConsumerAt = 256, kEntries = 32, kCqes = 64;
constexpr std::uint32_t kWcRecv = 128, kWcRecvWriteImm = 129, kWcWithImm = 2;
constexpr std::uint64_t kFirstName = std::uint64_t{5} << 32;

// One queue pair of those that share.
struct Qp {
    std::uint32_t qpn;
    std::uint16_t sport;
    std::uint64_t shadow;
    std::uint32_t seq = kRcvNxt;
    std::uint16_t msn = 0;
};

struct Srq : testing::Test {
    Srq() : srq(host.guest, kEntries, 4), cq(host.guest, kCqes) {
        EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
        EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_OK);
        ctl = host.guest.alloc(sizeof(nupa_srq_ctl), 64);
        EXPECT_EQ(host.engine.srq_create(kSrq, srq_cmd()), NUPA_OK);
        for (std::uint32_t i = 0; i < qps.size(); i++) {
            qps[i] = {kQpn + i, static_cast<std::uint16_t>(1000 + i),
                      host.guest.alloc(sizeof(nupa_qp_shadow), 64)};
            EXPECT_EQ(host.engine.qp_create(qps[i].qpn, cmd(qps[i])), NUPA_OK);
            acknowledge(qps[i]);
            give(qps[i]);
        }
    }
    nupa_cmd_srq srq_cmd() {
        nupa_cmd_srq c{};
        c.table_addr = srq.cmd.rq_table_addr, c.ctl_addr = ctl;
        c.pages = srq.cmd.rq_pages, c.mask = srq.cmd.rq_mask;
        c.sge_max = srq.cmd.rq_sge_max, c.log2_bytes = srq.cmd.rq_log2_bytes;
        return c;
    }
    nupa_cmd_qp cmd(const Qp& qp) {
        TcpFrame peer;
        peer.sport = qp.sport;
        nupa_cmd_qp c{};
        c.flow = Wire(peer).packet.flow().raw;
        c.pd = kPd, c.rcv_nxt = kRcvNxt, c.rcv_wscale = 7;
        c.flags = NUPA_QP_F_SHADOW | NUPA_QP_F_REMOTE_WRITE | NUPA_QP_F_COMPLETE | NUPA_QP_F_SRQ;
        c.shadow_addr = qp.shadow, c.cq = kCq, c.srq = kSrq;
        return c;
    }
    void acknowledge(const Qp& qp) {
        TcpFrame f;
        f.src = 2, f.dst = 1, f.sport = 2000, f.dport = qp.sport;
        f.ack = qp.seq, f.window = (1 << 20) >> 7;
        Wire w(f);
        host.engine.transmit(w.packet);
    }
    std::uint32_t get(std::uint64_t addr) {
        std::uint32_t value;
        std::memcpy(&value, host.guest.ptr(addr, 4), 4);
        return value;
    }
    std::uint32_t get(const Qp& qp, std::size_t field) { return get(qp.shadow + field); }
    void put(const Qp& qp, std::size_t field, std::uint32_t value) {
        host.guest.put<std::uint32_t>(qp.shadow + field, value);
    }
    void give(const Qp& qp) {
        put(qp, offsetof(nupa_qp_shadow, done), qp.seq);
        put(qp, offsetof(nupa_qp_shadow, turn), NUPA_TURN_SWITCH);
    }
    std::uint32_t index() { return get(ctl + offsetof(nupa_srq_ctl, index)); }
    std::uint32_t owner() { return get(ctl + offsetof(nupa_srq_ctl, owner)); }
    void own(std::uint32_t by) { host.guest.put<std::uint32_t>(ctl, by); }
    std::uint32_t consumer() { return *reinterpret_cast<std::uint32_t*>(srq.at(kConsumerAt)); }

    std::uint64_t place(std::uint32_t receive) const {
        return kIova + std::uint64_t{receive % kPlaces} * kStride;
    }
    void post(std::vector<nupa::RecvSge> sges) {
        const std::uint32_t at = posted_ & srq.mask();
        const std::uint16_t element = srq.post(sges);
        EXPECT_EQ(element & srq.mask(), at);
        std::uint32_t log2 = srq.cmd.rq_log2_bytes;
        srq.put32(RecvRing::kElementsAt + (at << log2), posted_);
        srq.put32(RecvRing::kElementsAt + (at << log2) + 4, kFirstName >> 32);
        posted_++;
    }
    void post(std::uint32_t count) {
        for (; count; count--)
            post(std::vector<nupa::RecvSge>{{place(posted_), kStride, kKey}});
    }
    // The next SEND on @qp; it counts as sent whatever comes of it.
    TcpFrame send(Qp& qp, std::uint8_t opcode = TCP_BTH_OP_SEND_ONLY,
                  std::uint32_t bytes = kLength) {
        TcpFrame f = send_segment(qp.seq, 0, pattern(bytes, qp.qpn + qp.msn), qp.msn, opcode);
        f.sport = qp.sport;
        qp.msn++;
        qp.seq += bytes;
        return f;
    }
    std::vector<std::byte> all() { return host.mr.read(host.guest, kIova, 32 * kStride); }

    struct Before {
        std::uint32_t index, consumer, prod, completed, done;
        std::vector<std::byte> bytes;
    };
    Before before(const Qp& qp) {
        return {index(),
                consumer(),
                cq.prod(),
                get(qp, offsetof(nupa_qp_shadow, completed)),
                get(qp, offsetof(nupa_qp_shadow, done)),
                all()};
    }
    // Nothing was taken, completed or stored, and both queues are anybody's.
    void nothing(const Qp& qp, const Before& b, std::uint32_t srq_owner = NUPA_CQ_OWNER_NONE,
                 std::uint32_t cq_owner = NUPA_CQ_OWNER_NONE,
                 std::uint32_t turn = NUPA_TURN_SWITCH) {
        EXPECT_EQ(index(), b.index);
        EXPECT_EQ(consumer(), b.consumer);
        EXPECT_EQ(cq.prod(), b.prod);
        EXPECT_EQ(get(qp, offsetof(nupa_qp_shadow, completed)), b.completed);
        EXPECT_EQ(get(qp, offsetof(nupa_qp_shadow, done)), b.done);
        EXPECT_EQ(all(), b.bytes);
        EXPECT_EQ(owner(), srq_owner);
        EXPECT_EQ(cq.owner(), cq_owner);
        EXPECT_EQ(get(qp, offsetof(nupa_qp_shadow, turn)), turn);
    }
    void left_to_the_host(Qp& qp, const TcpFrame& f, Reason why,
                          std::uint32_t srq_owner = NUPA_CQ_OWNER_NONE,
                          std::uint32_t cq_owner = NUPA_CQ_OWNER_NONE) {
        const Before b = before(qp);
        const std::uint32_t turn = get(qp, offsetof(nupa_qp_shadow, turn));
        const auto d = host.rx(f);
        EXPECT_EQ(d.reason, why);
        EXPECT_EQ(d.completed, 0u);
        nothing(qp, b, srq_owner, cq_owner, turn);
    }
    void completes(Qp& qp, const TcpFrame& f, std::uint32_t receive, std::uint32_t count = 1) {
        const Before b = before(qp);
        const auto d = host.rx(f);
        ASSERT_EQ(d.reason, Reason::kPlaced);
        ASSERT_EQ(d.completed, count);
        EXPECT_EQ(index(), (b.index + count) & srq.mask());
        EXPECT_EQ(consumer(), index());
        EXPECT_EQ(cq.prod(), (b.prod + count) & cq.cmd.mask);
        EXPECT_EQ(get(qp, offsetof(nupa_qp_shadow, completed)), b.completed + count);
        EXPECT_EQ(get(qp, offsetof(nupa_qp_shadow, done)), f.seq + f.payload.size());
        const std::size_t length = f.payload.size() / count;
        for (std::uint32_t i = 0; i < count; i++) {
            const ib_uverbs_wc wc = cq.at(b.prod + i);
            EXPECT_EQ(wc.wr_id, kFirstName + receive + i);
            EXPECT_EQ(wc.qp_num, qp.qpn);
            EXPECT_EQ(wc.byte_len, length);
            EXPECT_EQ(wc.status, 0u);
            EXPECT_EQ(wc.opcode, kWcRecv);
            const std::size_t at = i * length;
            EXPECT_EQ(host.mr.read(host.guest, place(receive + i), length),
                      ByteVector(f.payload.begin() + static_cast<std::ptrdiff_t>(at),
                                 f.payload.begin() + static_cast<std::ptrdiff_t>(at + length)));
        }
        EXPECT_EQ(owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
        EXPECT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
        EXPECT_EQ(get(qp, offsetof(nupa_qp_shadow, turn)), std::uint32_t{NUPA_TURN_SWITCH});
    }

    Host host;
    RecvRing srq;
    CqRing cq;
    std::uint64_t ctl = 0;
    std::array<Qp, 2> qps{};
    std::uint32_t posted_ = 0;
};

TEST_F(Srq, ReceivesGoToWhoComesFirst) {
    post(5);
    completes(qps[0], send(qps[0]), 0);
    completes(qps[1], send(qps[1]), 1);
    completes(qps[1], send(qps[1]), 2);
    completes(qps[0], send(qps[0], TCP_BTH_OP_SEND_ONLY, kStride), 3);
    completes(qps[1], send(qps[1], TCP_BTH_OP_SEND_ONLY, 1), 4);
    EXPECT_EQ(host.stat(NUPA_STAT_completed_messages), 5u);
}

TEST_F(Srq, TheRingGoesRound) {
    for (std::uint32_t i = 0; i < 5 * kEntries; i++) {
        post(1);
        Qp& qp = qps[i % 2];
        completes(qp, send(qp), i);
        if (HasFailure())
            return;
        acknowledge(qp);
        cq.poll((i + 1) & cq.cmd.mask);
    }
}

TEST_F(Srq, Immediates) {
    post(2);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_ONLY_IMM, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 0x01020304;
    TcpFrame f = send(qps[0]);
    f.options = bth_option(b);
    EXPECT_EQ(host.rx(f).completed, 1u);
    EXPECT_EQ(cq.at(0).wc_flags, kWcWithImm);
    EXPECT_EQ(cq.at(0).ex.imm_data, __builtin_bswap32(0x01020304));
    // a WRITE with immediate takes the name of a receive, and none of its bytes
    tcp_bth imm{};
    imm.opcode = TCP_BTH_OP_WRITE_ONLY_IMM, imm.ext_bytes = TCP_BTH_RETH_BYTES;
    imm.va = place(20), imm.rkey = kKey, imm.dma_length = 0x0a0b0c0d;
    TcpFrame w = send(qps[1]);
    w.options = bth_option(imm);
    EXPECT_EQ(host.rx(w).completed, 1u);
    EXPECT_EQ(host.mr.read(host.guest, place(20), kLength), w.payload);
    EXPECT_EQ(cq.at(1).wr_id, kFirstName + 1);
    EXPECT_EQ(cq.at(1).opcode, kWcRecvWriteImm);
    EXPECT_EQ(index(), 2u);
}

TEST_F(Srq, Trains) {
    post(8);
    const auto train = [&](std::uint32_t at, std::uint32_t bytes) {
        TcpFrame f = train_segment(kRcvNxt, 6, at, pattern(bytes, at), 0, kLength);
        f.sport = qps[0].sport;
        return f;
    };
    completes(qps[0], train(0, 2 * kLength), 0, 2);
    completes(qps[1], send(qps[1]), 2);
    completes(qps[0], train(2 * kLength, 3 * kLength), 3, 3);  // from its third message on
    completes(qps[0], train(5 * kLength, kLength), 6, 1);
}

TEST_F(Srq, ATrainIsPlacedWholeOrNotAtAll) {
    post(1);
    post(std::vector<nupa::RecvSge>{{place(1), kLength - 1, kKey}});
    post(1);
    TcpFrame f = train_segment(kRcvNxt, 3, 0, pattern(3 * kLength), 0, kLength);
    f.sport = qps[0].sport;
    left_to_the_host(qps[0], f, Reason::kBounds);
}

TEST_F(Srq, MoreMessagesThanReceives) {
    post(2);
    TcpFrame f = train_segment(kRcvNxt, 3, 0, pattern(3 * kLength), 0, kLength);
    f.sport = qps[0].sport;
    left_to_the_host(qps[0], f, Reason::kNoReceive);
    completes(qps[1], send(qps[1]), 0);
}

TEST_F(Srq, PartsOfAMessage) {
    post(2);
    left_to_the_host(qps[0], send_segment(kRcvNxt, 0, pattern(kLength)), Reason::kNoReceive);
    left_to_the_host(qps[0],
                     send_segment(kRcvNxt, kLength, pattern(kLength), 0, TCP_BTH_OP_SEND_LAST),
                     Reason::kNoReceive);
}

TEST_F(Srq, AHoleBeforeIt) {
    post(3);
    completes(qps[0], send(qps[0]), 0);
    const TcpFrame first = send(qps[0]);
    left_to_the_host(qps[0], send(qps[0]), Reason::kNoReceive);
    completes(qps[0], first, 1);
}

TEST_F(Srq, NumbersInOrder) {
    post(2);
    qps[0].msn = 1;
    left_to_the_host(qps[0], send(qps[0]), Reason::kNoReceive);
}

TEST_F(Srq, InTheHostsTurn) {
    post(2);
    put(qps[0], offsetof(nupa_qp_shadow, turn), NUPA_TURN_HOST);
    left_to_the_host(qps[0], send(qps[0]), Reason::kNoReceive);
    completes(qps[1], send(qps[1]), 0);
}

TEST_F(Srq, AnOwnedQueueIsTheHosts) {
    post(4);
    own(NUPA_CQ_OWNER_HOST);
    left_to_the_host(qps[0], send(qps[0]), Reason::kNoReceive, NUPA_CQ_OWNER_HOST);
    own(NUPA_CQ_OWNER_NONE);
    host.guest.put<std::uint32_t>(cq.ctl, NUPA_CQ_OWNER_HOST);
    left_to_the_host(qps[1], send(qps[1]), Reason::kNoReceive, NUPA_CQ_OWNER_NONE,
                     NUPA_CQ_OWNER_HOST);
}

TEST_F(Srq, AFullCompletionQueueIsTheHosts) {
    for (std::uint32_t i = 0; i < kCqes - 1; i++) {
        post(1);
        completes(qps[0], send(qps[0]), i);
        acknowledge(qps[0]);
        if (HasFailure())
            return;
    }
    post(1);
    left_to_the_host(qps[0], send(qps[0]), Reason::kNoReceive);
}

TEST_F(Srq, NoReceives) { left_to_the_host(qps[0], send(qps[0]), Reason::kNoReceive); }

TEST_F(Srq, LongerThanABurst) {
    post(std::vector<nupa::RecvSge>{{kIova, NUPA_SRQ_BURST_MAX_BYTES, kKey}});
    post(std::vector<nupa::RecvSge>{{kIova, 1 << 20, kKey}});
    const auto burst = [&](std::uint32_t bytes) {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.msn = qps[0].msn++;
        b.start_seq = qps[0].seq, b.length = bytes;
        TcpFrame f;
        f.seq = qps[0].seq, f.sport = qps[0].sport;
        f.payload = pattern(bytes, 3), f.options = bth_option(b);
        qps[0].seq += bytes;
        return f;
    };
    const auto rx = [&](const TcpFrame& f) {
        Wire w(f.build(),
               nupa::ParseMode::kTso);  // longer than a total length of 16 bits says
        w.packet.csum = nupa::Csum::kGood;
        return host.engine.receive(w.packet);
    };
    EXPECT_EQ(rx(burst(NUPA_SRQ_BURST_MAX_BYTES)).completed, 1u);
    EXPECT_EQ(index(), 1u);
    EXPECT_EQ(rx(burst(NUPA_SRQ_BURST_MAX_BYTES + 1)).reason, Reason::kNoReceive);
    EXPECT_EQ(index(), 1u);
}

TEST_F(Srq, ReceivesThatMayNotBeWritten) {
    const std::vector<std::pair<nupa::RecvSge, Reason>> cases = {
        {{place(0), kStride, kKey + 1}, Reason::kKey},
        {{place(0), kStride, kOtherKey}, Reason::kAccess},  // of another protection domain
        {{kIova + (1 << 20) - 8, kStride, kKey}, Reason::kBounds},
        {{UINT64_MAX - 8, kStride, kKey}, Reason::kBounds},
        {{place(0), kLength - 1, kKey}, Reason::kBounds},
    };
    Region other(host.guest, kIova, 4 * kPage, kPd + 1);
    EXPECT_EQ(host.engine.mr_reg(kOtherKey, other.cmd), NUPA_OK);
    for (const auto& [sge, why] : cases) {
        post({sge});
        left_to_the_host(qps[0], send(qps[0]), why);
        // the host takes it, and goes on behind it
        qps[0].seq = get(qps[0], offsetof(nupa_qp_shadow, done)) + kLength;
        host.guest.put<std::uint32_t>(ctl + 4, (index() + 1) & srq.mask());
        put(qps[0], offsetof(nupa_qp_shadow, completed), qps[0].msn);
        acknowledge(qps[0]);
        give(qps[0]);
        const std::uint32_t consumed = index();
        std::memcpy(srq.at(kConsumerAt), &consumed, sizeof consumed);
    }
    post(1);
    completes(qps[0], send(qps[0]), posted_ - 1);
}

TEST_F(Srq, HostileEntries) {
    post(1);
    srq.set_num_sge(0, 5);  // more than the ring has room for
    left_to_the_host(qps[0], send(qps[0]), Reason::kBounds);
    srq.set_num_sge(0, UINT32_MAX);
    left_to_the_host(qps[1], send(qps[1]), Reason::kBounds);
}

TEST_F(Srq, Commands) {
    const auto with = [&](auto change) {
        nupa_cmd_srq c = srq_cmd();
        change(c);
        return host.engine.srq_create(kSrq + 1, c);
    };
    EXPECT_EQ(host.engine.srq_create(kSrq, srq_cmd()), NUPA_E_EXISTS);
    EXPECT_EQ(with([](auto& c) { c.mask = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.mask = 30; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.mask = 65535; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.mask = 127; }), NUPA_E_INVALID);  // more than its pages hold
    EXPECT_EQ(with([](auto& c) { c.log2_bytes = 5; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.log2_bytes = 200; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.sge_max = 33; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages = NUPA_RQ_PAGES_MAX + 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages = UINT32_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.reserved[4] = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.ctl_addr++; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.ctl_addr = UINT64_MAX - 3; }), NUPA_E_ADDRESS);
    EXPECT_EQ(with([](auto& c) { c.table_addr = 1ull << 40; }), NUPA_E_ADDRESS);
    EXPECT_EQ(host.engine.srq_destroy(kSrq + 1), NUPA_E_NOENT);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_INVALID);  // QPs name it
    for (const Qp& qp : qps)
        EXPECT_EQ(host.engine.qp_destroy(qp.qpn), NUPA_OK);
    const auto qp = [&](auto change) {
        nupa_cmd_qp c = cmd(qps[0]);
        change(c);
        const auto status = host.engine.qp_create(qps[0].qpn, c);
        EXPECT_EQ(host.engine.srq_destroy(kSrq + 1), NUPA_E_NOENT);
        return status;
    };
    EXPECT_EQ(qp([](auto& c) { c.srq++; }), NUPA_E_NOENT);
    EXPECT_EQ(qp([](auto& c) { c.cq++; }), NUPA_E_NOENT);
    EXPECT_EQ(qp([](auto& c) { c.flags &= ~std::uint32_t{NUPA_QP_F_SRQ}; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.flags &= ~std::uint32_t{NUPA_QP_F_COMPLETE}; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.flags |= NUPA_QP_F_NO_RQ; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.flags |= NUPA_QP_F_STREAM; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.rq_mask = 31; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.rq_pages = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.reserved = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.shadow_addr += 2; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto&) {}), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_INVALID);
    EXPECT_EQ(host.engine.qp_destroy(qps[0].qpn), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_OK);
    EXPECT_EQ(qp([](auto&) {}), NUPA_E_NOENT);
}

// What it takes of the port's memory is given back.
TEST_F(Srq, Memory) {
    for (const Qp& qp : qps)
        EXPECT_EQ(host.engine.qp_destroy(qp.qpn), NUPA_OK);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
    EXPECT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    EXPECT_GT(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_OK);
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.srq_create(kSrq, srq_cmd()), NUPA_OK);
    host.engine.reset();
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_NOENT);
}

// A host that writes anything anywhere harms itself alone: the sanitizers watch.
TEST_F(Srq, NonsenseInHostMemory) {
    std::mt19937 dice(5);
    const auto odd = [&]() -> std::uint32_t {
        const std::uint32_t values[] = {0, 1, 2, 3, kEntries, UINT32_MAX, 1u << 31};
        return dice() % 3 ? values[dice() % std::size(values)] : dice();
    };
    post(kEntries - 1);
    std::uint32_t completed = 0;
    for (std::uint32_t i = 0; i < 20000; i++) {
        Qp& qp = qps[i % 2];
        give(qp);
        own(dice() % 4 ? 0 : odd());
        host.guest.put<std::uint32_t>(ctl + 4, odd());
        host.guest.put<std::uint32_t>(cq.ctl, dice() % 4 ? 0 : odd());
        cq.poll(odd());
        srq.set_producer(odd());
        srq.set_num_sge(static_cast<std::uint16_t>(dice() % kEntries), dice() % 4 ? 1 : odd());
        put(qp, offsetof(nupa_qp_shadow, completed), qp.msn);
        completed += host.rx(send(qp)).completed;
        acknowledge(qp);
    }
    EXPECT_GT(completed, 100u);
}

// The host takes receives meanwhile, on another processor: each is taken once.
TEST_F(Srq, BothTake) {
    constexpr std::uint32_t kMessages = 20000;
    post(kEntries - 1);
    auto* words = reinterpret_cast<std::uint32_t*>(host.guest.ptr(ctl, sizeof(nupa_srq_ctl)));
    auto* used = reinterpret_cast<std::uint32_t*>(srq.at(kConsumerAt));
    auto* producer = reinterpret_cast<std::uint32_t*>(srq.at(RecvRing::kProducerAt));
    std::atomic<bool> over = false;
    std::uint64_t by_host = 0, by_switch = 0;
    std::thread other([&] {
        while (!over.load()) {
            std::uint32_t none = NUPA_CQ_OWNER_NONE;
            if (!__atomic_compare_exchange_n(&words[0], &none, NUPA_CQ_OWNER_HOST, false,
                                             __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                continue;
            const std::uint32_t next = words[1];
            if (((__atomic_load_n(producer, __ATOMIC_ACQUIRE) - next) & srq.mask()) != 0) {
                by_host++;
                __atomic_store_n(&words[1], (next + 1) & srq.mask(), __ATOMIC_RELAXED);
                __atomic_store_n(used, (next + 1) & srq.mask(), __ATOMIC_RELEASE);
            }
            __atomic_store_n(&words[0], NUPA_CQ_OWNER_NONE, __ATOMIC_RELEASE);
            std::this_thread::yield();
        }
    });
    std::uint64_t posted = kEntries - 1;
    for (std::uint32_t i = 0; i < kMessages; i++) {
        Qp& qp = qps[i % 2];
        give(qp);
        put(qp, offsetof(nupa_qp_shadow, completed), qp.msn);
        by_switch += host.rx(send(qp)).completed;
        acknowledge(qp);
        cq.poll(cq.prod());
        // the application posts what was used again
        for (; ((__atomic_load_n(used, __ATOMIC_ACQUIRE) - *producer - 1) & srq.mask()) != 0;
             posted++)
            __atomic_store_n(producer, (*producer + 1) & srq.mask(), __ATOMIC_RELEASE);
    }
    over = true;
    other.join();
    EXPECT_EQ(owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
    EXPECT_GT(by_switch, 0u);
    EXPECT_GT(by_host, 0u);
    EXPECT_EQ(posted - ((*producer - index()) & srq.mask()), by_host + by_switch);
}

}  // namespace
