// SPDX-License-Identifier: BSD-3-Clause
// Sends that the switch completes, with what acknowledges them.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "completions_host.hpp"

namespace {

using namespace test;

constexpr std::uint32_t kSendCq = 8, kSentFrom = 5000, kSendBytes = 100;
constexpr std::uint32_t kWcSend = 0, kWcWrite = 1;

// Its own queue for sends, or that of receives.
struct Sends : Quiet {
    explicit Sends(bool shared = false)
        : send_ring(host.guest, kEntries), in(shared ? cq : send_ring) {
        EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
        send_ring.cmd.flags = NUPA_CQ_F_WAITING;
        EXPECT_EQ(host.engine.cq_create(kSendCq, send_ring.cmd), NUPA_OK);
        EXPECT_EQ(host.engine.qp_create(kQpn, cmd(shared)), NUPA_OK);
        put(offsetof(nupa_qp_shadow, completed), 0);
        host.ring.complete(0);
        host.ack(kRcvNxt);
        msn = 0;
        seq = kRcvNxt;
        post(16);
        give();
        // The first messages of a queue pair are told at once.
        while (!next().quiet)
            continue;
        host.ack(seq);
    }
    nupa_cmd_qp cmd(bool shared = false) {
        nupa_cmd_qp c = Completions::cmd();
        c.flags |= NUPA_QP_F_SENDS;
        c.send_cq = shared ? kCq : kSendCq;
        return c;
    }
    static constexpr std::size_t field(std::size_t of) {
        return offsetof(nupa_qp_shadow, sends) + of;
    }
    // One more, of kSendBytes, which the host has sent.
    void sent(std::uint32_t opcode = kWcSend) {
        const std::size_t at =
            field(offsetof(nupa_qp_sends, send)) + number % NUPA_SENDS_MAX * sizeof(nupa_qp_send);
        end += kSendBytes;
        host.guest.put<std::uint64_t>(host.ring.cmd.shadow_addr + at, name(number));
        put(at + offsetof(nupa_qp_send, end), end);
        put(at + offsetof(nupa_qp_send, bytes), kSendBytes);
        put(at + offsetof(nupa_qp_send, opcode), opcode);
        put(field(offsetof(nupa_qp_sends, posted)), ++number);
        TcpFrame f = host.from_host(seq);
        f.seq = end - kSendBytes;
        f.payload = pattern(kSendBytes);
        host.tx(f);
    }
    static std::uint64_t name(std::uint32_t number) { return (std::uint64_t{7} << 32) + number; }
    nupa::Decision answer(std::uint32_t ack) {
        TcpFrame f = send(msn++, seq, TCP_BTH_OP_SEND_ONLY);
        f.flags |= nupa::kTcpPsh;
        f.ack = ack;
        seq += kLength;
        post(1);
        return host.rx(f);
    }
    std::uint32_t sends_completed() { return get(field(offsetof(nupa_qp_sends, completed))); }
    void expect_send(std::uint32_t at, std::uint32_t n, std::uint32_t opcode = kWcSend) {
        const ib_uverbs_wc wc = in.at(at);
        EXPECT_EQ(wc.wr_id, name(n));
        EXPECT_EQ(wc.status, 0u);
        EXPECT_EQ(wc.opcode, opcode);
        EXPECT_EQ(wc.byte_len, kSendBytes);
        EXPECT_EQ(wc.qp_num, kQpn);
    }

    CqRing send_ring;
    CqRing& in;
    std::uint32_t number = 0, end = kSentFrom;
};

struct SendsInOneQueue : Sends {
    SendsInOneQueue() : Sends(true) {}
};

TEST_F(Sends, ByTheAnswerThatAcknowledges) {
    sent(kWcWrite);
    const auto d = answer(end);
    EXPECT_EQ(d.completed, 1u);
    EXPECT_TRUE(d.quiet);
    EXPECT_FALSE(d.wakes);
    EXPECT_EQ(sends_completed(), 1u);
    EXPECT_EQ(send_ring.prod(), 1u);
    EXPECT_EQ(send_ring.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
    expect_send(0, 0, kWcWrite);
}

TEST_F(SendsInOneQueue, BesideTheReceive) {
    const std::uint32_t before = cq.prod();
    sent();
    EXPECT_EQ(answer(end).completed, 1u);
    ASSERT_EQ(cq.prod(), before + 2);
    EXPECT_EQ(cq.at(before).opcode, kWcRecv);
    expect_send(before + 1, 0);
    EXPECT_EQ(send_ring.prod(), 0u);
}

TEST_F(Sends, OnlyWhatIsAcknowledged) {
    sent();
    sent();
    answer(end - kSendBytes - 1);
    EXPECT_EQ(sends_completed(), 0u);
    answer(end - 1);
    EXPECT_EQ(sends_completed(), 1u);
    answer(end);
    EXPECT_EQ(sends_completed(), 2u);
    answer(end);
    EXPECT_EQ(sends_completed(), 2u);
    ASSERT_EQ(send_ring.prod(), 2u);
    expect_send(0, 0);
    expect_send(1, 1);
}

TEST_F(Sends, TwoAtOnceAndRoundTheTable) {
    for (std::uint32_t i = 0; i < 3; i++) {
        sent();
        sent();
        answer(end);
        ASSERT_EQ(send_ring.prod(), 2 * i + 2);
        expect_send(2 * i, 2 * i);
        expect_send(2 * i + 1, 2 * i + 1);
        send_ring.poll(send_ring.prod());
    }
}

TEST_F(Sends, NotByAPacketThatTheHostCompletes) {
    sent();
    put(offsetof(nupa_qp_shadow, turn), NUPA_TURN_HOST);
    EXPECT_EQ(answer(end).completed, 0u);
    EXPECT_EQ(sends_completed(), 0u);
}

TEST_F(Sends, NotByWhoAcknowledgesWhatWasNotSent) {
    sent();
    EXPECT_FALSE(answer(end + 1).placed());
    EXPECT_EQ(sends_completed(), 0u);
}

TEST_F(Sends, NotInAQueueThatIsTheHosts) {
    sent();
    host.guest.put<std::uint32_t>(send_ring.ctl, NUPA_CQ_OWNER_HOST);
    EXPECT_EQ(answer(end).completed, 1u);
    EXPECT_EQ(sends_completed(), 0u);
    EXPECT_EQ(send_ring.owner(), std::uint32_t{NUPA_CQ_OWNER_HOST});
}

TEST_F(Sends, NotWithoutRoom) {
    host.guest.put<std::uint32_t>(send_ring.ctl + offsetof(nupa_cq_ctl, prod), kEntries - 2);
    sent();
    sent();
    answer(end);
    EXPECT_EQ(sends_completed(), 0u);  // there is room for one
    EXPECT_EQ(send_ring.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
    send_ring.poll(1);
    answer(end);
    EXPECT_EQ(sends_completed(), 2u);
}

TEST_F(Sends, ByAnAcknowledgementAlone) {
    sent();
    sent();
    const auto acknowledge = [&](std::uint32_t ack, std::uint32_t at, std::uint8_t flags) {
        TcpFrame f;
        f.seq = at;
        f.ack = ack;
        f.flags = flags;
        return host.rx(f);
    };
    // Something before it is missing.
    EXPECT_EQ(acknowledge(end, seq + 1, nupa::kTcpAck).sends, 0u);
    EXPECT_EQ(acknowledge(end, seq, nupa::kTcpAck | nupa::kTcpRst).sends, 0u);
    EXPECT_EQ(acknowledge(end, seq, nupa::kTcpAck | nupa::kTcpFin).sends, 0u);
    EXPECT_EQ(acknowledge(end + 1, seq, nupa::kTcpAck).sends, 0u);  // was not sent
    EXPECT_EQ(sends_completed(), 0u);
    EXPECT_EQ(acknowledge(end - kSendBytes, seq, nupa::kTcpAck).sends, 1u);
    EXPECT_EQ(acknowledge(end, seq, nupa::kTcpAck).sends, 1u);
    EXPECT_EQ(acknowledge(end, seq, nupa::kTcpAck).sends, 0u);
    ASSERT_EQ(send_ring.prod(), 2u);
    expect_send(0, 0);
    expect_send(1, 1);
    EXPECT_EQ(host.stat(NUPA_STAT_completed_sends), 2u);
}

// ---- who is told, and when ----

TEST_F(SendsInOneQueue, WhoSleepsIsWokenForBoth) {
    sent();
    cq.wait();
    const auto d = answer(end);
    EXPECT_TRUE(d.quiet);
    EXPECT_TRUE(d.wakes);
    EXPECT_EQ(sends_completed(), 1u);
}

TEST_F(SendsInOneQueue, NotQuietWhileASleeperAwaitsASend) {
    sent();
    cq.wait();
    EXPECT_FALSE(answer(end - 1).quiet);
    EXPECT_EQ(cq.waiting(), 1u);
}

// Nobody but the host tells who sleeps at the other queue.
TEST_F(Sends, TheHostTellsWhoSleepsForASend) {
    sent();
    send_ring.wait();
    EXPECT_FALSE(answer(end).quiet);
    EXPECT_EQ(sends_completed(), 1u);
    EXPECT_EQ(send_ring.waiting(), 1u);
    EXPECT_TRUE(answer(end).quiet);  // none is under way
}

TEST_F(Sends, NotQuietWhileASendIsSleptFor) {
    sent();
    send_ring.wait();
    EXPECT_FALSE(answer(end - 1).quiet);
}

TEST_F(SendsInOneQueue, AWriteWakesNobody) {
    sent();
    cq.wait();
    TcpFrame f = write_segment(seq, 0, pattern(kLength, 1), kIova, kKey, kLength);
    f.ack = end;
    const auto d = host.rx(f);
    EXPECT_EQ(d.completed, 1u);
    EXPECT_EQ(sends_completed(), 1u);
    EXPECT_FALSE(d.quiet);
    EXPECT_EQ(cq.waiting(), 1u);
}

// ---- commands, and hosts that write anything ----

TEST_F(Sends, BadCommands) {
    EXPECT_EQ(host.engine.cq_destroy(kSendCq), NUPA_E_INVALID);  // it is in use
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    const auto create = [&](auto&& change) {
        nupa_cmd_qp c = cmd();
        change(c);
        return host.engine.qp_create(kQpn, c);
    };
    EXPECT_EQ(create([](auto& c) { c.send_cq = 99; }), NUPA_E_NOENT);
    EXPECT_EQ(create([](auto& c) { c.flags &= ~NUPA_QP_F_SENDS; }), NUPA_E_INVALID);
    EXPECT_EQ(create([](auto& c) { c.flags &= ~NUPA_QP_F_COMPLETE, c.cq = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(create([](auto& c) { c.shadow_addr += 4; }), NUPA_E_INVALID);
    EXPECT_EQ(host.engine.cq_destroy(kSendCq), NUPA_OK);
    EXPECT_EQ(create([](auto&) {}), NUPA_E_NOENT);
    EXPECT_EQ(host.engine.cq_create(kSendCq, send_ring.cmd), NUPA_OK);
    EXPECT_EQ(create([](auto&) {}), NUPA_OK);
}

TEST_F(Sends, NonsenseInHostMemory) {
    std::mt19937 dice(5);
    const auto odd = [&]() -> std::uint32_t {
        const std::uint32_t values[] = {0, 1, 2, 3, end, end - 1, UINT32_MAX, 1u << 31};
        return dice() % 4 ? values[dice() % std::size(values)] : dice();
    };
    std::uint32_t completions = 0;
    sent();
    for (std::uint32_t i = 0; i < 20000; i++) {
        for (std::size_t at = 0; at < sizeof(nupa_qp_sends); at += 4)
            if (dice() % 3 == 0)
                put(field(at), odd());
        host.guest.put<std::uint32_t>(send_ring.ctl, dice() % 4 ? 0 : odd());
        host.guest.put<std::uint32_t>(send_ring.ctl + 4, odd());
        send_ring.poll(odd());
        const std::uint32_t before = sends_completed();
        answer(end);
        const std::uint32_t n = sends_completed() - before;
        EXPECT_LE(n, std::uint32_t{NUPA_SENDS_MAX});
        completions += n;
        host.ack(seq);
        cq.poll(cq.prod());
    }
    EXPECT_GT(completions, 100u);
}

// The host, which hears of acknowledgements from TCP, completes them, too: each is completed once.
TEST_F(Sends, TwoThreads) {
    constexpr std::uint32_t kMessages = 20000;
    auto* shadow = reinterpret_cast<nupa_qp_shadow*>(host.guest.ptr(host.ring.cmd.shadow_addr));
    auto* ctl = reinterpret_cast<nupa_cq_ctl*>(host.guest.ptr(send_ring.ctl));
    std::uint32_t by_host = 0, by_switch = 0;
    for (std::uint32_t i = 0; i < kMessages; i++) {
        sent();
        std::thread kernel;
        bool mine = false;
        const auto claim = [&] {
            std::uint32_t none;
            do
                none = NUPA_CQ_OWNER_NONE;
            while (!__atomic_compare_exchange_n(&ctl->owner, &none, NUPA_CQ_OWNER_HOST, false,
                                                __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
            mine = __atomic_load_n(&shadow->sends.completed, __ATOMIC_RELAXED) == i;
            if (mine) {
                __atomic_store_n(&shadow->sends.completed, i + 1, __ATOMIC_RELAXED);
                __atomic_store_n(&ctl->prod, i + 1, __ATOMIC_RELAXED);
            }
            __atomic_store_n(&ctl->owner, NUPA_CQ_OWNER_NONE, __ATOMIC_RELEASE);
        };
        if (i % 8 == 0)
            kernel = std::thread(claim);
        answer(end);
        if (kernel.joinable())
            kernel.join();
        ASSERT_EQ(sends_completed(), i + 1);
        ASSERT_EQ(ctl->prod, i + 1);
        (mine ? by_host : by_switch)++;
        host.ack(seq);
        send_ring.poll((i + 1) & send_ring.cmd.mask);
        cq.poll(cq.prod());
    }
    EXPECT_EQ(by_host + by_switch, kMessages);
    EXPECT_GT(by_switch, 0u);
}

}  // namespace
