// SPDX-License-Identifier: BSD-3-Clause
// Receives that the switch completes: which ones, in which order, and whose turn it is.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "completions_host.hpp"
#include "engine/limits.hpp"

namespace {

using namespace test;
using nupa::Reason;

TEST_F(Completions, SendsInOrder) {
    post(4);
    give();
    for (std::uint16_t i = 0; i < 4; i++) {
        const auto d = host.rx(send(i, kRcvNxt + i * kLength, TCP_BTH_OP_SEND_ONLY));
        ASSERT_EQ(d.reason, Reason::kPlaced);
        EXPECT_EQ(d.completed, 1u);
        EXPECT_EQ(completed(), i + 1u);
        EXPECT_EQ(done(), kRcvNxt + (i + 1) * kLength);
        EXPECT_EQ(cq.prod(), i + 1u);
        EXPECT_EQ(cq.word(offsetof(nupa_cq_ctl, prod)), i + 1u);
        const ib_uverbs_wc wc = cq.at(i);
        EXPECT_EQ(wc.wr_id, (std::uint64_t{1} << 32) + 1000 + i);
        EXPECT_EQ(wc.status, 0u);
        EXPECT_EQ(wc.opcode, kWcRecv);
        EXPECT_EQ(wc.byte_len, kLength);
        EXPECT_EQ(wc.qp_num, kQpn);
        EXPECT_EQ(wc.wc_flags, 0u);
        EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(host.ring.at(kConsumerAt)), i + 1u);
    }
    EXPECT_EQ(turn(), std::uint32_t{NUPA_TURN_SWITCH});
    EXPECT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
    EXPECT_EQ(messages(), 4u);
    EXPECT_EQ(host.qp()[NUPA_QP_STAT_completed_messages], 4u);
}

TEST_F(Completions, NotWhileItIsTheHostsTurn) {
    post(2);
    EXPECT_EQ(host.rx(send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    EXPECT_EQ(cq.prod(), 0u);
    EXPECT_EQ(completed(), 0u);
    // It goes on where the host stopped, and nowhere else.
    host.ring.complete(1);
    give(kRcvNxt + kLength - 1);
    EXPECT_EQ(host.rx(send(1, kRcvNxt + kLength, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    EXPECT_EQ(done(), kRcvNxt + kLength - 1);
    EXPECT_EQ(turn(), std::uint32_t{NUPA_TURN_SWITCH});
}

// What was left to the host ends it until the host says that it goes on: nothing is passed over.
TEST_F(Completions, NothingIsPassedOver) {
    post(3);
    give();
    TcpFrame invalidates = send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_ONLY_INV, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 5;
    invalidates.options = bth_option(b);
    const auto d = host.rx(invalidates);
    ASSERT_EQ(d.reason, Reason::kPlaced);
    EXPECT_EQ(d.completed, 0u);
    EXPECT_EQ(host.rx(send(1, kRcvNxt + kLength, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    host.ring.complete(2);
    give(kRcvNxt + 2 * kLength);
    EXPECT_EQ(host.rx(send(2, kRcvNxt + 2 * kLength, TCP_BTH_OP_SEND_ONLY)).completed, 1u);
}

TEST_F(Completions, AHoleIsFilledByTheHost) {
    post(3);
    give();
    EXPECT_EQ(host.rx(send(1, kRcvNxt + kLength, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    EXPECT_EQ(host.rx(send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY)).completed, 1u);
    EXPECT_EQ(done(), kRcvNxt + kLength);  // message 1 was passed up before
    EXPECT_EQ(host.rx(send(2, kRcvNxt + 2 * kLength, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    EXPECT_EQ(completed(), 1u);
}

// A repetition of what is completed, as when TCP has refused it, changes nothing.
TEST_F(Completions, OnceAndForAll) {
    post(2);
    give();
    EXPECT_EQ(host.rx(send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY)).completed, 1u);
    TcpFrame again = send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY);
    again.payload = pattern(kLength, 99);
    EXPECT_EQ(host.rx(again).reason, Reason::kDuplicate);
    EXPECT_EQ(cq.prod(), 1u);
    EXPECT_EQ(host.mr.read(host.guest, kIova, kLength), pattern(kLength, 0));
    EXPECT_EQ(host.rx(send(1, kRcvNxt + kLength, TCP_BTH_OP_SEND_ONLY)).completed, 1u);
}

TEST_F(Completions, Immediates) {
    post(2);
    give();
    TcpFrame f = send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_ONLY_IMM, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 0x01020304;
    b.flags = TCP_BTH_F_SOLICITED;
    f.options = bth_option(b);
    EXPECT_EQ(host.rx(f).completed, 1u);
    EXPECT_EQ(cq.at(0).wc_flags, 2u);
    EXPECT_EQ(cq.at(0).ex.imm_data, __builtin_bswap32(0x01020304));
    EXPECT_EQ(get(offsetof(nupa_qp_shadow, solicited)), 1u);
    const TcpFrame w = write_segment(kRcvNxt + kLength, 0, pattern(kLength), kIova + 4096, kKey,
                                     0x0a0b0c0d, TCP_BTH_OP_WRITE_ONLY_IMM, 1);
    EXPECT_EQ(host.rx(w).completed, 1u);
    EXPECT_EQ(cq.at(1).opcode, kWcRecvWriteImm);
    EXPECT_EQ(cq.at(1).byte_len, kLength);
    EXPECT_EQ(cq.at(1).ex.imm_data, __builtin_bswap32(0x0a0b0c0d));
    EXPECT_EQ(get(offsetof(nupa_qp_shadow, solicited)), 1u);
    EXPECT_EQ(get(offsetof(nupa_qp_shadow, last)), kLength | NUPA_LAST_WRITE);
}

// They have no completion, but a number; what comes behind them is completed.
TEST_F(Completions, Writes) {
    post(1);
    give();
    put(offsetof(nupa_qp_shadow, writes), 5);
    const auto write = [&](std::uint32_t at, std::uint16_t msn) {
        return host.rx(write_segment(kRcvNxt + at, 0, pattern(kLength, msn), kIova + 4096, kKey,
                                     kLength, TCP_BTH_OP_WRITE_ONLY, msn));
    };
    EXPECT_EQ(write(0, 5).completed, 1u);
    EXPECT_EQ(get(offsetof(nupa_qp_shadow, writes)), 6u);
    EXPECT_EQ(cq.prod(), 0u);
    EXPECT_EQ(host.rx(send(0, kRcvNxt + kLength, TCP_BTH_OP_SEND_ONLY)).completed, 1u);
    EXPECT_EQ(write(2 * kLength, 8).completed, 0u);  // the host says that it lies
    EXPECT_EQ(done(), kRcvNxt + 2 * kLength);
}

// TCP repeats what is completed: the host copies none of it, so a WRITE behind it waits for nobody.
TEST_F(Completions, ARepeatedWriteKeepsNoOtherWaiting) {
    const auto write = [&](std::uint16_t msn) {
        return host.rx(write_segment(kRcvNxt + msn * kLength, 0, pattern(kLength, msn),
                                     kIova + 4096, kKey, kLength, TCP_BTH_OP_WRITE_ONLY, msn));
    };
    give();
    host.ring.consume(kRcvNxt);
    ASSERT_EQ(write(0).completed, 1u);
    EXPECT_EQ(write(0).reason, Reason::kPlacedBefore);
    EXPECT_EQ(write(1).completed, 1u);
    EXPECT_EQ(host.mr.read(host.guest, kIova + 4096, kLength), pattern(kLength, 1));
    // What the host may have completed since, or not, only the host knows.
    put(offsetof(nupa_qp_shadow, turn), NUPA_TURN_HOST);
    EXPECT_EQ(write(1).reason, Reason::kDuplicate);
    EXPECT_EQ(write(2).reason, Reason::kOrder);
}

TEST_F(Completions, ATrainAtOnce) {
    post(5);
    give();
    EXPECT_EQ(host.rx(train(0, std::size_t{5} * kLength)).completed, 5u);
    EXPECT_EQ(cq.prod(), 5u);
    for (std::uint32_t i = 0; i < 5; i++)
        EXPECT_EQ(cq.at(i).wr_id, (std::uint64_t{1} << 32) + 1000 + i);
}

// A train that is cut inside a message is the host's from there on.
TEST_F(Completions, WholeMessagesAlone) {
    post(5);
    give();
    constexpr std::uint32_t kCut = 2 * kLength + 1;
    const auto d = host.rx(train(0, kCut));
    EXPECT_EQ(d.reason, Reason::kPlaced);
    EXPECT_EQ(d.completed, 0u);
    EXPECT_EQ(host.rx(train(kCut, 5 * kLength - kCut)).completed, 0u);
    EXPECT_EQ(cq.prod(), 0u);
    EXPECT_EQ(done(), kRcvNxt);
}

TEST_F(Completions, PartsOfAMessage) {
    post(1);
    give();
    EXPECT_EQ(host.rx(send_segment(kRcvNxt, 0, pattern(kLength))).completed, 0u);
    EXPECT_EQ(host.rx(send_segment(kRcvNxt, kLength, pattern(kLength), 0, TCP_BTH_OP_SEND_LAST))
                  .completed,
              0u);
    EXPECT_EQ(cq.prod(), 0u);
}

// The host says that it overflows, once it is its turn.
TEST_F(Completions, AFullQueueIsTheHosts) {
    post(kEntries + 2);
    give();
    for (std::uint32_t i = 0; i < kEntries + 1; i++)
        EXPECT_EQ(host.rx(send(static_cast<std::uint16_t>(i), kRcvNxt + i * kLength,
                               TCP_BTH_OP_SEND_ONLY))
                      .completed,
                  i < kEntries - 1 ? 1u : 0u);
    EXPECT_EQ(cq.prod(), kEntries - 1);
    EXPECT_EQ(completed(), kEntries - 1);
    EXPECT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
}

TEST_F(Completions, TheRingGoesRound) {
    give();
    for (std::uint32_t i = 0; i < 5 * kEntries; i++) {
        post(1);
        ASSERT_EQ(host.rx(send(static_cast<std::uint16_t>(i), kRcvNxt + i * kLength,
                               TCP_BTH_OP_SEND_ONLY))
                      .completed,
                  1u)
            << i;
        cq.poll((i + 1) & cq.cmd.mask);
    }
}

// It never waits for the host.
TEST_F(Completions, AnOwnedQueueIsTheHosts) {
    post(2);
    give();
    host.guest.put<std::uint32_t>(cq.ctl, NUPA_CQ_OWNER_HOST);
    EXPECT_EQ(host.rx(send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    EXPECT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_HOST});
    EXPECT_EQ(turn(), std::uint32_t{NUPA_TURN_SWITCH});
    EXPECT_EQ(completed(), 0u);
}

// PAWS: TCP refuses it.
TEST_F(Completions, AnOldTimestampIsTheHosts) {
    post(2);
    give();
    const auto at = [&](std::uint16_t msn, std::uint32_t tsval) {
        TcpFrame f = send(msn, kRcvNxt + msn * kLength, TCP_BTH_OP_SEND_ONLY);
        tcp_bth b{};
        b.opcode = TCP_BTH_OP_SEND_ONLY, b.msn = msn;
        b.flags = TCP_BTH_F_TIMESTAMP, b.tsval = tsval;
        f.options = bth_option(b);
        return host.rx(f).completed;
    };
    EXPECT_EQ(at(0, 2), 1u);
    EXPECT_EQ(at(1, UINT32_MAX), 0u);
}

// A wrong number is a lie of the peer's: the host says so.
TEST_F(Completions, NumbersInOrder) {
    post(3);
    give();
    EXPECT_EQ(host.rx(send(1, kRcvNxt, TCP_BTH_OP_SEND_ONLY)).completed, 0u);
    EXPECT_EQ(cq.prod(), 0u);
}

TEST_F(Completions, Commands) {
    const auto with = [&](auto change) {
        nupa_cmd_cq c = cq.cmd;
        change(c);
        return host.engine.cq_create(kCq + 1, c);
    };
    EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_E_EXISTS);
    EXPECT_EQ(with([](auto& c) { c.mask = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.mask = 14; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.mask = 127; }), NUPA_E_INVALID);  // more than its pages hold
    EXPECT_EQ(with([](auto& c) { c.mask = UINT32_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages = UINT32_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.ctl_addr++; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.ctl_addr = UINT64_MAX - 3; }), NUPA_E_ADDRESS);
    EXPECT_EQ(with([](auto& c) { c.table_addr = 1ull << 40; }), NUPA_E_ADDRESS);
    host.guest.put<std::uint64_t>(cq.cmd.table_addr, cq.pages[0] + 8);
    EXPECT_EQ(with([](auto&) {}), NUPA_E_INVALID);
    host.guest.put<std::uint64_t>(cq.cmd.table_addr, 1ull << 40);
    EXPECT_EQ(with([](auto&) {}), NUPA_E_ADDRESS);

    EXPECT_EQ(host.engine.cq_destroy(kCq + 1), NUPA_E_NOENT);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_E_INVALID);  // the QP names it
    const auto qp = [&](auto change) {
        nupa_cmd_qp c = cmd();
        c.flow.sport = 1;
        change(c);
        return host.engine.qp_create(kQpn + 1, c);
    };
    EXPECT_EQ(qp([](auto& c) { c.cq++; }), NUPA_E_NOENT);
    EXPECT_EQ(qp([](auto& c) { c.flags &= ~std::uint32_t{NUPA_QP_F_COMPLETE}; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.flags |= NUPA_QP_F_NO_RQ; }), NUPA_E_INVALID);
    EXPECT_EQ(qp([](auto& c) { c.shadow_addr = 1ull << 40; }), NUPA_E_ADDRESS);
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
    EXPECT_EQ(qp([](auto&) {}), NUPA_E_NOENT);
}

// What it takes of the port's memory is given back.
TEST_F(Completions, Memory) {
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
    EXPECT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_OK);
    EXPECT_GT(host.engine.budget().used(), 0u);
    host.engine.reset();
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_E_NOENT);
}

// A host that writes anything anywhere harms itself alone: the sanitizers watch.
TEST_F(Completions, NonsenseInHostMemory) {
    std::mt19937 dice(4);
    const auto odd = [&]() -> std::uint32_t {
        const std::uint32_t values[] = {0, 1, 2, 3, kEntries, UINT32_MAX, 1u << 31, kRcvNxt};
        return dice() % 3 ? values[dice() % std::size(values)] : dice();
    };
    post(kEntries);
    std::uint32_t seq = kRcvNxt, completions = 0;
    for (std::uint16_t i = 0; i < 20000; i++) {
        for (std::size_t field = 0; field < sizeof(nupa_qp_shadow); field += 4)
            if (dice() % 4 == 0 && field != offsetof(nupa_qp_shadow, reads_addr))
                put(field, odd());
        give(dice() % 4 ? seq : odd());
        host.guest.put<std::uint32_t>(cq.ctl, dice() % 4 ? 0 : odd());
        host.guest.put<std::uint32_t>(cq.ctl + 4, odd());
        cq.poll(odd());
        host.ring.set_producer(odd());
        put(offsetof(nupa_qp_shadow, completed), dice() % 4 ? i : odd());
        completions += host.rx(send(i, seq, TCP_BTH_OP_SEND_ONLY)).completed;
        seq += kLength;
        host.ack(seq);
    }
    EXPECT_GT(completions, 100u);
}

TEST_F(Completions, NeverQuietForAHostThatDoesNotSayWhoWaits) {
    post(2);
    give();
    const auto d = host.rx(send(0, kRcvNxt, TCP_BTH_OP_SEND_ONLY));
    EXPECT_EQ(d.completed, 1u);
    EXPECT_FALSE(d.quiet);
    EXPECT_FALSE(d.wakes);
}

TEST_F(Quiet, NobodySleeps) {
    const auto d = next();
    EXPECT_EQ(d.completed, 1u);
    EXPECT_TRUE(d.quiet);
    EXPECT_FALSE(d.wakes);
    EXPECT_FALSE(d.may_wait);  // the run is over: who sees it first need not wait
}

TEST_F(Quiet, WhoSleepsIsWokenOnce) {
    cq.wait();
    const auto first = next();
    EXPECT_TRUE(first.quiet);
    EXPECT_TRUE(first.wakes);
    EXPECT_EQ(first.cq, kCq);
    EXPECT_EQ(cq.waiting(), 0u);
    const auto second = next();
    EXPECT_TRUE(second.quiet);
    EXPECT_FALSE(second.wakes);
}

TEST_F(Quiet, NotWhatTheHostCompletes) {
    put(offsetof(nupa_qp_shadow, turn), NUPA_TURN_HOST);
    cq.wait();
    const auto d = next();
    EXPECT_EQ(d.completed, 0u);
    EXPECT_FALSE(d.quiet);
    EXPECT_EQ(cq.waiting(), 1u);
}

TEST_F(Quiet, NotAMarkOfCongestion) {
    constexpr std::uint8_t kCe = 3;
    cq.wait();
    const auto d = next(kLength, kCe);
    EXPECT_EQ(d.completed, 1u);
    EXPECT_FALSE(d.quiet);
    EXPECT_EQ(cq.waiting(), 1u);
}

TEST_F(Quiet, NotWithAHoleBefore) {
    const TcpFrame lost = send(msn++, seq, TCP_BTH_OP_SEND_ONLY);
    seq += kLength;
    EXPECT_FALSE(next().quiet);
    EXPECT_TRUE(host.rx(lost).placed());
}

// TCP is to hear of it before what the sender may send without an acknowledgement is used up.
TEST_F(Quiet, NotWhileTheSenderMayRunOut) {
    const std::uint32_t from = seq;
    while (next(kStride).quiet && seq - from < 2 * nupa::kAckStretchFirstBytes)
        post(1);
    EXPECT_GE(seq - from, nupa::kAckStretchFirstBytes);
    EXPECT_LE(seq - from, nupa::kAckStretchFirstBytes + kStride);
    host.ack(seq);
    EXPECT_TRUE(next(kStride).quiet);
}

TEST_F(Quiet, AfterLossOnlyWhatTcpWouldDelay) {
    const TcpFrame again = send(msn, seq, TCP_BTH_OP_SEND_ONLY);
    EXPECT_TRUE(next().quiet);
    host.rx(again);
    host.ack(seq);
    const std::uint32_t quiet = bytes_of(30, &nupa::Decision::quiet);
    EXPECT_LE(quiet, nupa::kAckDelayBytes);
    EXPECT_GT(quiet, nupa::kAckDelayBytes / 2);
}

// The host had to acknowledge by itself: the sender may have waited for that, and had the answer.
TEST_F(Quiet, NotForAWhileAfterALateAck) {
    put(offsetof(nupa_qp_shadow, late), 1);
    for (int i = 0; i < 4; i++, post(1))
        EXPECT_FALSE(next().quiet);
    EXPECT_TRUE(next().quiet);
}

// Where TCP was to hear of several together that is the first to end.
TEST_F(Quiet, NotTogetherForAWhileAfterALateAck) {
    const auto next_is_later = [&] {
        const auto d = next();
        post(1);
        host.ack(seq);
        EXPECT_TRUE(d.quiet);
        return d.later;
    };
    for (int i = 0; i < 5; i++)  // the peer may have no room
        EXPECT_FALSE(next_is_later());
    put(offsetof(nupa_qp_shadow, later), 1);
    for (int i = 0; i < 4; i++)
        static_cast<void>(next_is_later());
    EXPECT_TRUE(next_is_later());
    put(offsetof(nupa_qp_shadow, late), 1);
    for (int i = 0; i < 4; i++)
        EXPECT_FALSE(next_is_later());
    EXPECT_TRUE(next_is_later());
    put(offsetof(nupa_qp_shadow, late), 2);
    EXPECT_FALSE(next_is_later());
    put(offsetof(nupa_qp_shadow, late), 3);
    EXPECT_FALSE(next().quiet);
}

// A congestion window may be no longer than an initial one.
TEST_F(Quiet, NotTogetherBeyondHalfAnInitialWindow) {
    put(offsetof(nupa_qp_shadow, later), 1);
    for (int i = 0; i < 6; i++, post(1)) {
        static_cast<void>(next());
        host.ack(seq);
    }
    const std::uint32_t later = bytes_of(40, &nupa::Decision::later);
    EXPECT_LE(later, nupa::kAckLaterBytes);
    EXPECT_GT(later, nupa::kAckLaterBytes / 2);
}

// What this acknowledges completes sends: for who sleeps first those, and then this.
TEST_F(Quiet, NotWhileASleeperAwaitsASend) {
    put(offsetof(nupa_qp_shadow, awaits), 1);
    EXPECT_TRUE(next().quiet);  // who spins looks for both
    cq.wait();
    EXPECT_FALSE(next().quiet);
    EXPECT_EQ(cq.waiting(), 1u);
    put(offsetof(nupa_qp_shadow, awaits), 0);
    EXPECT_TRUE(next().wakes);
}

// A WRITE has no completion that anybody could sleep for.
TEST_F(Quiet, AWriteWakesNobody) {
    cq.wait();
    const auto d = host.rx(write_segment(seq, 0, pattern(kLength, 1), kIova, kKey, kLength));
    EXPECT_EQ(d.completed, 1u);
    EXPECT_TRUE(d.quiet);
    EXPECT_FALSE(d.wakes);
    EXPECT_EQ(cq.waiting(), 1u);
}

// Who does not look is told at once, twice as often each time; who looks sixteen times begins anew.
TEST_F(Quiet, InVain) {
    const auto at_once = [&] {
        std::uint32_t n = 0;
        for (bool quiet = false; !quiet && n < 2000; n += !quiet) {
            quiet = next().quiet;
            post(1);
            host.ack(seq);
        }
        return n;
    };
    EXPECT_GT(first, 0u);
    std::uint32_t before = 0;
    for (int i = 0; i < 12; i++) {
        host.engine.quiet_in_vain(kQpn);
        const std::uint32_t n = at_once();
        EXPECT_TRUE(n > 2 * before || n == 1024) << n;
        before = n;
    }
    EXPECT_EQ(before, 1024u);
    for (int i = 0; i < 16; i++)
        EXPECT_EQ(at_once(), 0u);
    host.engine.quiet_in_vain(kQpn);
    EXPECT_EQ(at_once(), 4u);
    host.engine.quiet_in_vain(kQpn + 1);  // whoever that is
}

TEST_F(Completions, BadFlagsOfAQueue) {
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
    cq.cmd.flags = NUPA_CQ_F_WAITING << 1;
    EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_E_INVALID);
    cq.cmd.flags = NUPA_CQ_F_WAITING;
    cq.cmd.reserved = 1;
    EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_E_INVALID);
    cq.cmd.reserved = 0;
    EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_OK);
    EXPECT_EQ(host.engine.qp_create(kQpn, cmd()), NUPA_OK);
}

// The host takes the turn back, and the queue, at any moment: each message is completed once, by
// one of both, in its order.
TEST_F(Completions, TwoThreads) {
    constexpr std::uint32_t kMessages = 20000;
    auto* shadow = reinterpret_cast<nupa_qp_shadow*>(host.guest.ptr(host.ring.cmd.shadow_addr));
    auto* ctl = reinterpret_cast<nupa_cq_ctl*>(host.guest.ptr(cq.ctl));
    std::atomic<bool> over{false};
    std::atomic<std::uint32_t> turns{0}, owned{0};
    give();
    std::thread kernel([&] {
        while (!over) {
            std::uint32_t was = NUPA_TURN_SWITCH, none = NUPA_CQ_OWNER_NONE;
            if (__atomic_compare_exchange_n(&shadow->turn, &was, NUPA_TURN_HOST, false,
                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                // All of it is as it was when the last message was completed.
                const std::uint32_t n = __atomic_load_n(&shadow->completed, __ATOMIC_RELAXED);
                ASSERT_EQ(__atomic_load_n(&shadow->done, __ATOMIC_RELAXED), kRcvNxt + n * kLength);
                ASSERT_EQ(__atomic_load_n(&ctl->prod, __ATOMIC_RELAXED), n);
                turns++;
                __atomic_store_n(&shadow->turn, NUPA_TURN_SWITCH, __ATOMIC_RELEASE);
            }
            if (__atomic_compare_exchange_n(&ctl->owner, &none, NUPA_CQ_OWNER_HOST, false,
                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                owned++;
                __atomic_store_n(&ctl->owner, NUPA_CQ_OWNER_NONE, __ATOMIC_RELEASE);
            }
        }
    });
    std::uint32_t by_host = 0;
    while (turns == 0 || owned == 0)  // on a busy machine it begins late
        std::this_thread::yield();
    for (std::uint32_t i = 0; i < kMessages; i++) {
        host.ring.post({{kIova, kStride, kKey}});
        const TcpFrame f =
            send(static_cast<std::uint16_t>(i), kRcvNxt + i * kLength, TCP_BTH_OP_SEND_ONLY);
        if (i % 1024 == 0)
            host.ack(kRcvNxt + i * kLength);
        if (host.rx(f).completed == 0) {  // as the kernel does, when it finds it
            by_host++;
            std::uint32_t was;
            do
                was = NUPA_TURN_SWITCH;
            while (!__atomic_compare_exchange_n(&shadow->turn, &was, NUPA_TURN_HOST, false,
                                                __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
            ASSERT_EQ(shadow->completed, i);
            std::uint32_t none;
            do
                none = NUPA_CQ_OWNER_NONE;
            while (!__atomic_compare_exchange_n(&ctl->owner, &none, NUPA_CQ_OWNER_HOST, false,
                                                __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
            __atomic_store_n(&ctl->prod, i + 1, __ATOMIC_RELAXED);
            __atomic_store_n(&shadow->completed, i + 1, __ATOMIC_RELAXED);
            __atomic_store_n(&shadow->done, kRcvNxt + (i + 1) * kLength, __ATOMIC_RELAXED);
            __atomic_store_n(&ctl->owner, NUPA_CQ_OWNER_NONE, __ATOMIC_RELEASE);
            __atomic_store_n(&shadow->turn, NUPA_TURN_SWITCH, __ATOMIC_RELEASE);
        }
        ASSERT_EQ(completed(), i + 1);
        cq.poll((i + 1) & cq.cmd.mask);
    }
    over = true;
    kernel.join();
    EXPECT_EQ(messages() + by_host, kMessages);
    EXPECT_GT(messages(), 0u);
}

}  // namespace
