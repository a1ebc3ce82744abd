// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that share their receives: the switch takes those of what it completes at once, and
// leaves no trace where it does not.
#include <tcp_qp/tcp_bth_mixed.h>

#include <atomic>
#include <random>
#include <thread>

#include "srq_host.hpp"

namespace {

using namespace test;

TEST_F(SharedReceives, InTheOrderOfArrival) {
    srq.post(7);
    std::uint32_t used = 0;
    for (const std::uint32_t n : {0, 1, 1, 0, 1, 0, 0})
        expect_completed(n, send(n), used++);
    EXPECT_EQ(get(0, kCompleted), 4u);
    EXPECT_EQ(get(1, kCompleted), 3u);
    EXPECT_EQ(host.stat(NUPA_STAT_completed_messages), 7u);
    EXPECT_EQ(host.engine.qp_stats(kQpn + 1)->values[NUPA_QP_STAT_completed_messages], 3u);
}

TEST_F(SharedReceives, NothingElseChanges) {
    srq.post(2);
    expect_completed(0, send(0), 0);
    const ByteVector before = ram();
    const TcpFrame f = send(1);
    expect_completed(1, f, 1);
    ByteVector after = ram();
    const auto restore = [&](const std::byte* p, std::size_t bytes) {
        const std::byte* const low = host.guest.ptr(0);
        const bool in_low = p >= low && p < low + kHalfBytes;
        const std::size_t at =
            in_low ? static_cast<std::size_t>(p - low)
                   : static_cast<std::size_t>(p - host.guest.ptr(kHighRam)) + kHalfBytes;
        std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                    after.begin() + static_cast<std::ptrdiff_t>(at));
    };
    const auto restore_at = [&](std::uint64_t addr, std::size_t bytes) {
        restore(host.guest.ptr(addr), bytes);
    };
    restore(host.mr.at(host.guest, SharedRing::buffer(1)), kLength);
    restore(srq.ring.at(kConsumerAt), 4);
    restore_at(srq.ctl + offsetof(nupa_srq_ctl, index), 4);
    restore_at(cq.ctl + offsetof(nupa_cq_ctl, prod), 4);
    restore_at(cq.pages[0] + kProducerAt, 4);
    restore_at(cq.pages[0] + kElementsAt + NUPA_CQE_BYTES, NUPA_CQE_BYTES);
    for (const std::size_t field : {kCompleted, kDone, offsetof(nupa_qp_shadow, last)})
        restore_at(qps[1].shadow + field, 4);
    EXPECT_EQ(std::memcmp(after.data(), before.data(), before.size()), 0);
}

TEST_F(SharedReceives, TheRingGoesRound) {
    for (std::uint32_t i = 0; i < 5 * kEntries; i++) {
        srq.post(1);
        expect_completed(i % kQps, send(i % kQps), i);
        cq.poll((i + 1) & cq.cmd.mask);
    }
}

TEST_F(SharedReceives, AFullRing) {
    srq.post(kEntries - 1);
    for (std::uint32_t i = 0; i < kEntries - 1; i++)
        expect_completed(0, send(0), i);
    expect_delivered(send(0));
}

TEST_F(SharedReceives, Immediates) {
    srq.post(2);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_ONLY_IMM, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 0x01020304;
    b.flags = TCP_BTH_F_SOLICITED;
    expect_completed(1, next(1, b, pattern(kLength)), 0);
    EXPECT_EQ(cq.at(0).wc_flags, 2u);
    EXPECT_EQ(cq.at(0).ex.imm_data, __builtin_bswap32(0x01020304));
    EXPECT_EQ(get(1, offsetof(nupa_qp_shadow, solicited)), 1u);
    EXPECT_EQ(get(1, offsetof(nupa_qp_shadow, last)), kLength);
    EXPECT_EQ(get(0, offsetof(nupa_qp_shadow, solicited)), 0u);
    expect_completed(0, send(0), 1);
    EXPECT_EQ(cq.at(1).wc_flags, 0u);
}

TEST_F(SharedReceives, SeveralPieces) {
    srq.post({{SharedRing::buffer(0), 10, kKey},
              {0, 0, kOtherKey},
              {SharedRing::buffer(1), kLength, kKey}});
    const TcpFrame f = send(0);
    EXPECT_EQ(host.rx(f).completed, 1u);
    EXPECT_EQ(buffer(0, 10), ByteVector(f.payload.begin(), f.payload.begin() + 10));
    EXPECT_EQ(buffer(1, kLength - 10), ByteVector(f.payload.begin() + 10, f.payload.end()));
    srq.expect_used(1);
}

// Where the host took some meanwhile, the switch goes on behind them.
TEST_F(SharedReceives, TheHostTakesSome) {
    srq.post(4);
    expect_completed(0, send(0), 0);
    srq.host_takes(2);
    expect_completed(1, send(1), 3);
}

TEST_F(SharedReceives, NotWhileItIsTheHostsTurn) {
    srq.post(2);
    put(0, kTurn, NUPA_TURN_HOST);
    expect_delivered(send(0));
    put(1, kDone, kRcvNxt - 1);
    expect_delivered(send(1));
    host_received(0, 1);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, TheHostOwnsTheReceives) {
    srq.post(2);
    srq.put(offsetof(nupa_srq_ctl, owner), NUPA_CQ_OWNER_HOST);
    expect_delivered(send(0));
    host_received(0, 1);
    srq.put(offsetof(nupa_srq_ctl, owner), NUPA_CQ_OWNER_NONE);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, TheHostOwnsTheCompletionQueue) {
    srq.post(2);
    host.guest.put<std::uint32_t>(cq.ctl, NUPA_CQ_OWNER_HOST);
    expect_delivered(send(0));
    host_received(0, 1);
    host.guest.put<std::uint32_t>(cq.ctl, NUPA_CQ_OWNER_NONE);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, NonePosted) {
    expect_delivered(send(0));
    expect_at_rest();
    srq.post(1);
    expect_completed(1, send(1), 0);
    expect_delivered(train(1, 1, 0, kLength));
    srq.expect_used(1);
}

TEST_F(SharedReceives, NoRoomForTheCompletion) {
    srq.post(2);
    cq.poll(1);  // of an empty ring: no room is left
    expect_delivered(send(0));
    expect_at_rest();
    host_received(0, 1);
    cq.poll(2);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, PartsOfAMessage) {
    srq.post(2);
    expect_delivered(send(0, kLength, TCP_BTH_OP_SEND_FIRST));
    qps[0].msn--;
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_LAST, b.mbo = kLength;
    qps[0].seq -= kLength;
    expect_delivered(next(0, b, pattern(kLength)));
    host_received(0, 1);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, OutOfOrder) {
    srq.post(3);
    expect_completed(0, send(0), 0);
    const TcpFrame hole = send(0);
    expect_delivered(send(0));
    expect_completed(0, hole, 1);
    expect_delivered(send(0));  // behind what the host has yet to complete
    expect_completed(1, send(1), 2);
}

// A repetition of what is completed, as when TCP has refused it, changes nothing.
TEST_F(SharedReceives, OnceAndForAll) {
    srq.post(2);
    TcpFrame again = send(0);
    expect_completed(0, again, 0);
    again.payload = pattern(kLength, 99);
    expect_delivered(again, Reason::kDuplicate);
    expect_completed(0, send(0), 1);
}

TEST_F(SharedReceives, AsLongAsABurstMayBe) {
    constexpr std::uint32_t kMax = NUPA_SRQ_BURST_MAX_BYTES;
    const auto whole = [&](std::uint32_t bytes) {
        tcp_bth b{};
        b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.length = bytes;
        b.flags = TCP_BTH_F_TIMESTAMP;
        TcpFrame f = next(0, b, pattern(bytes));
        f.checksum = false;
        return f;
    };
    const auto rx = [&](const TcpFrame& f) {
        Wire w(f.build(), nupa::ParseMode::kTso);
        w.packet.csum = nupa::Csum::kPartial;
        return host.engine.receive(w.packet);
    };
    srq.post({{kIova, kMax + 1, kKey}});
    srq.post({{kIova, kMax + 1, kKey}});
    auto d = rx(whole(kMax));
    EXPECT_EQ(d.reason, Reason::kPlaced);
    EXPECT_EQ(d.completed, 1u);
    EXPECT_EQ(cq.at(0).byte_len, kMax);
    EXPECT_EQ(host.mr.read(host.guest, kIova, kMax), pattern(kMax));
    const ByteVector before = ram();
    d = rx(whole(kMax + 1));
    EXPECT_EQ(d.reason, Reason::kNoReceive);
    EXPECT_TRUE(ram_is(before));
}

// To invalidate a key is the host's.
TEST_F(SharedReceives, ASendThatInvalidates) {
    srq.post(1);
    expect_delivered(send(0, kLength, TCP_BTH_OP_SEND_ONLY_INV));
}

TEST_F(SharedReceives, AWrongNumber) {
    srq.post(1);
    qps[0].msn = 0;
    put(0, kCompleted, 1);
    expect_delivered(send(0));
}

// PAWS: TCP refuses it.
TEST_F(SharedReceives, AnOldTimestamp) {
    srq.post(2);
    tcp_bth b{};
    b.opcode = TCP_BTH_OP_SEND_ONLY, b.flags = TCP_BTH_F_TIMESTAMP, b.tsval = 2;
    expect_completed(0, next(0, b, pattern(kLength)), 0);
    b.tsval = UINT32_MAX;
    expect_delivered(next(0, b, pattern(kLength)));
    expect_at_rest();
}

TEST_F(SharedReceives, MixedTrains) {
    const std::vector<std::uint32_t> lengths{5, 64, 1};
    ByteVector table(lengths.size() * TCP_BTH_LENGTHS_ENTRY_BYTES);
    tcp_bth_mixed all{};
    tcp_bth_mixed_begin(&all);
    for (std::size_t i = 0; i < lengths.size(); i++) {
        tcp_bth_mixed_add(&all, lengths[i]);
        tcp_bth_put32(reinterpret_cast<std::uint8_t*>(&table[4 * i]), lengths[i]);
    }
    srq.post(3);
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_LENGTHS, b.flags = TCP_BTH_F_TIMESTAMP;
    b.length = static_cast<std::uint32_t>(table.size());
    expect_delivered(next(0, b, table, 0), Reason::kOpcode);
    give(0, qps[0].seq);
    b.opcode = TCP_BTH_OP_MIXED_TRAIN, b.length = all.check;
    b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = all.bytes;
    expect_delivered(next(0, b, pattern(all.bytes), 3));
    expect_at_rest();
}

struct BadReceive {
    const char* what;
    std::vector<nupa::RecvSge> sges;
    Reason reason;
};
constexpr std::uint32_t kOtherPdKey = 0x3300, kReadOnlyKey = 0x4400, kGoneKey = 0x5500;
const BadReceive kBad[] = {
    {"no such key", {{kIova, kStride, kGoneKey}}, Reason::kKey},
    {"no such key at its end", {{kIova, 10, kKey}, {kIova, kStride, kGoneKey}}, Reason::kKey},
    {"another's PD", {{kIova, kStride, kOtherPdKey}}, Reason::kAccess},
    {"not writable", {{kIova, kStride, kReadOnlyKey}}, Reason::kAccess},
    {"too short", {{kIova, kLength - 1, kKey}}, Reason::kBounds},
    {"empty", {}, Reason::kBounds},
    {"before the region", {{kIova - 1, kStride, kKey}}, Reason::kBounds},
    {"beyond the region", {{kIova + (1 << 20) - 1, kStride, kKey}}, Reason::kBounds},
    {"beyond all addresses", {{UINT64_MAX - 7, kStride, kKey}}, Reason::kBounds},
};

struct BadReceives : SharedReceives {
    BadReceives() {
        for (auto [key, pd, access] :
             {std::array<std::uint32_t, 3>{kOtherPdKey, kPd + 1, NUPA_ACCESS_LOCAL_WRITE},
              std::array<std::uint32_t, 3>{kReadOnlyKey, kPd, NUPA_ACCESS_REMOTE_READ}}) {
            nupa_cmd_mr c = host.mr.cmd;
            c.pd = pd, c.access = access;
            EXPECT_EQ(host.engine.mr_reg(key, c), NUPA_OK);
        }
    }
};

TEST_F(BadReceives, OfASend) {
    for (const BadReceive& bad : kBad) {
        SCOPED_TRACE(bad.what);
        const std::uint32_t place = srq.posted;
        srq.post(bad.sges);
        expect_delivered(send(0), bad.reason);
        srq.expect_used(place);
        expect_at_rest();
        srq.host_takes(1);
        host_received(0, 1);
    }
}

// Wherever in the train: its other messages are not stored either.
TEST_F(BadReceives, OfATrain) {
    constexpr std::uint32_t kMessages = 3;
    for (std::uint32_t at = 0; at < kMessages; at++)
        for (const BadReceive& bad : kBad) {
            SCOPED_TRACE(bad.what);
            const std::uint32_t place = srq.posted;
            for (std::uint32_t i = 0; i < kMessages; i++)
                i == at ? srq.post(bad.sges) : srq.post(1);
            expect_delivered(train(0, kMessages, 0, kMessages * kLength), bad.reason);
            srq.expect_used(place);
            expect_at_rest();
            srq.host_takes(kMessages);
            host_received(0, kMessages);
        }
}

// The queue pair's PD counts, whosever the receives are.
TEST_F(BadReceives, ForOneOfTwo) {
    EXPECT_EQ(host.engine.qp_destroy(kQpn + 1), NUPA_OK);
    nupa_cmd_qp c = cmd(1);
    c.pd = kPd + 1;
    EXPECT_EQ(host.engine.qp_create(kQpn + 1, c), NUPA_OK);
    acknowledge(1, kRcvNxt);
    srq.post(1);
    expect_delivered(send(1), Reason::kAccess);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, ATrainAtOnce) {
    srq.post(6);
    expect_completed(0, send(0), 0);
    expect_completed(1, train(1, 5, 0, 5 * kLength, TCP_BTH_F_SOLICITED), 1, 5);
    EXPECT_EQ(get(1, offsetof(nupa_qp_shadow, solicited)), 5u);
    EXPECT_EQ(get(1, offsetof(nupa_qp_shadow, last)), kLength);
}

// Whole messages of a train in two segments, with another's SEND between both.
TEST_F(SharedReceives, PartsOfATrain) {
    srq.post(6);
    TcpFrame both[] = {train(0, 5, 0, 2 * kLength), {}};
    qps[0] = {0, qps[0].shadow};
    both[1] = train(0, 5, 2 * kLength, 3 * kLength);
    expect_completed(0, both[0], 0, 2);
    expect_completed(1, send(1), 2);
    expect_completed(0, both[1], 3, 3);
    EXPECT_EQ(get(0, kCompleted), 5u);
}

TEST_F(SharedReceives, ATrainThatIsCutInAMessage) {
    srq.post(5);
    constexpr std::uint32_t kCut = 2 * kLength + 1;
    expect_delivered(train(0, 5, 0, kCut));
    qps[0] = {0, qps[0].shadow};
    expect_delivered(train(0, 5, kCut, 5 * kLength - kCut));
    expect_at_rest();
    host_received(0, 5);
    expect_completed(0, send(0), 0);
}

TEST_F(SharedReceives, ATrainOfMoreThanIsPosted) {
    srq.post(4);
    expect_delivered(train(0, 5, 0, 5 * kLength));
    expect_completed(1, train(1, 4, 0, 4 * kLength), 0, 4);
}

TEST_F(SharedReceives, ATrainOfMoreThanThereIsRoomFor) {
    srq.post(5);
    cq.poll(5);  // four elements are free
    expect_delivered(train(0, 5, 0, 5 * kLength));
    expect_completed(1, train(1, 4, 0, 4 * kLength), 0, 4);
}

// A train of more messages than a ring may have receives.
TEST_F(SharedReceives, ATrainOfBytes) {
    srq.post(kEntries - 1);
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_TRAIN, b.length = 1;
    b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = 1400;
    b.flags = TCP_BTH_F_TIMESTAMP;
    expect_delivered(next(0, b, pattern(1400), 1400));
    expect_at_rest();
}

TEST_F(SharedReceives, AWriteWithImmediate) {
    srq.post(3);
    const std::uint64_t va = kIova + 512 * 1024;
    expect_completed(0, send(0), 0);
    const TcpFrame f = write(1, TCP_BTH_OP_WRITE_ONLY_IMM, va, 0);
    const auto d = host.rx(f);
    EXPECT_EQ(d.reason, Reason::kPlaced);
    EXPECT_EQ(d.completed, 1u);
    EXPECT_EQ(host.mr.read(host.guest, va, kLength), f.payload);
    EXPECT_EQ(buffer(1), ByteVector(kLength));  // its receive tells, and takes no bytes
    EXPECT_EQ(cq.at(1).wr_id, kName + 1);
    EXPECT_EQ(cq.at(1).opcode, kWcRecvWriteImm);
    EXPECT_EQ(cq.at(1).byte_len, kLength);
    EXPECT_EQ(cq.at(1).qp_num, kQpn + 1);
    EXPECT_EQ(cq.at(1).ex.imm_data, __builtin_bswap32(0x0a0b0c0d));
    EXPECT_EQ(get(1, kCompleted), 1u);
    srq.expect_used(2);
    expect_at_rest();
    expect_completed(0, send(0), 2);
}

// It is placed, and the host takes the receive.
TEST_F(SharedReceives, AWriteWithImmediateThatIsTheHosts) {
    const auto placed_only = [&](std::uint32_t n) {
        const std::uint32_t index = srq.index(), completed = get(n, kCompleted);
        const auto d = host.rx(
            write(n, TCP_BTH_OP_WRITE_ONLY_IMM, kIova, static_cast<std::uint16_t>(completed)));
        EXPECT_EQ(d.reason, Reason::kPlaced);
        EXPECT_EQ(d.completed, 0u);
        EXPECT_EQ(srq.index(), index);
        EXPECT_EQ(srq.consumer(), kFirst);
        EXPECT_EQ(get(n, kCompleted), completed);
        EXPECT_EQ(get(n, kDone), kRcvNxt);
        EXPECT_EQ(cq.prod(), 0u);
        EXPECT_EQ(get(n, kTurn), std::uint32_t{NUPA_TURN_SWITCH});
        EXPECT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
    };
    placed_only(0);  // none is posted
    srq.post(1);
    srq.put(offsetof(nupa_srq_ctl, owner), NUPA_CQ_OWNER_HOST);
    placed_only(1);
    EXPECT_EQ(srq.owner(), std::uint32_t{NUPA_CQ_OWNER_HOST});
}

TEST_F(SharedReceives, AWriteTakesNone) {
    srq.post(1);
    EXPECT_EQ(host.rx(write(0, TCP_BTH_OP_WRITE_ONLY, kIova + 4096, 0)).completed, 1u);
    EXPECT_EQ(get(0, offsetof(nupa_qp_shadow, writes)), 1u);
    srq.expect_used(0);
    expect_completed(0, send(0), 0);
}

// A ring of its own, and another queue pair's receives are not touched.
TEST_F(SharedReceives, TwoQueues) {
    SharedRing other(host.guest, kEntries);
    EXPECT_EQ(host.engine.srq_create(kSrq + 1, other.cmd), NUPA_OK);
    EXPECT_EQ(host.engine.qp_destroy(kQpn + 1), NUPA_OK);
    nupa_cmd_qp c = cmd(1);
    c.srq = kSrq + 1;
    EXPECT_EQ(host.engine.qp_create(kQpn + 1, c), NUPA_OK);
    acknowledge(1, kRcvNxt);
    srq.post(1);
    expect_delivered(send(1));
    other.post(1);
    expect_completed(0, send(0), 0);
    host_received(1, 1);
    EXPECT_EQ(host.rx(send(1)).completed, 1u);
    other.expect_used(1);
    srq.expect_used(1);
}

// A lie makes the switch read what was never posted, and nothing else.
TEST_F(SharedReceives, AProducerIndexThatLies) {
    srq.ring.set_producer(UINT32_MAX);
    expect_delivered(send(0), Reason::kBounds);
    expect_at_rest();
    host_received(0, 1);
    expect_delivered(train(0, 20, 0, 20 * kLength));  // more than the ring has
    srq.ring.set_producer(kFirst);
    srq.expect_used(0);
    srq.post(1);
    srq.ring.set_producer(kFirst + 1 + 7 * kEntries);
    expect_completed(1, send(1), 0);
}

TEST_F(SharedReceives, ACountOfPiecesThatLies) {
    for (const std::uint32_t n : {5u, 32u, 33u, UINT32_MAX}) {
        srq.ring.set_num_sge(static_cast<std::uint16_t>(srq.posted), n);
        srq.ring.set_producer(kFirst + 1);
        expect_delivered(send(0), Reason::kBounds);
        expect_at_rest();
        host_received(0, 1);
    }
    srq.expect_used(0);
}

// A kernel that writes anything anywhere harms itself alone: the sanitizers watch.
TEST_F(SharedReceives, NonsenseInHostMemory) {
    std::mt19937 dice(4);
    const auto odd = [&]() -> std::uint32_t {
        const std::uint32_t values[] = {0, 1, 2, 3, kEntries, UINT32_MAX, 1u << 31, kRcvNxt};
        return dice() % 3 ? values[dice() % std::size(values)] : dice();
    };
    const auto mostly = [&](std::uint32_t right) { return dice() % 4 ? right : odd(); };
    srq.post(kEntries - 1);
    std::uint32_t completions = 0;
    for (std::uint32_t i = 0; i < 20000; i++) {
        const std::uint32_t n = dice() % kQps, messages = 1 + dice() % 3;
        const std::uint32_t turn = mostly(NUPA_TURN_SWITCH);
        const std::uint32_t owner = mostly(NUPA_CQ_OWNER_NONE);
        put(n, kDone, mostly(qps[n].seq));
        put(n, kTurn, turn);
        put(n, kCompleted, mostly(qps[n].msn));
        srq.put(offsetof(nupa_srq_ctl, owner), owner);
        srq.put(offsetof(nupa_srq_ctl, index), odd());
        srq.ring.set_num_sge(static_cast<std::uint16_t>(dice()), mostly(1));
        srq.ring.set_producer(odd());
        host.guest.put<std::uint32_t>(cq.ctl + offsetof(nupa_cq_ctl, prod), odd());
        cq.poll(odd());
        completions +=
            host.rx(messages == 1 ? send(n) : train(n, messages, 0, messages * kLength)).completed;
        ASSERT_EQ(srq.owner(), owner);
        ASSERT_EQ(get(n, kTurn), turn);
        ASSERT_EQ(cq.owner(), std::uint32_t{NUPA_CQ_OWNER_NONE});
        acknowledge(n, qps[n].seq);
    }
    EXPECT_GT(completions, 1000u);
}

// The host takes receives for other queue pairs at any moment: each is used once, by one of both.
TEST_F(SharedReceives, TwoThreads) {
    constexpr std::uint32_t kReceives = 40000;
    auto* ctl = reinterpret_cast<nupa_srq_ctl*>(host.guest.ptr(srq.ctl));
    auto* producer = reinterpret_cast<std::uint32_t*>(srq.ring.at(kProducerAt));
    auto* consumer = reinterpret_cast<std::uint32_t*>(srq.ring.at(kConsumerAt));
    std::vector<std::atomic<std::uint8_t>> used(kReceives);
    std::atomic<std::uint32_t> by_host{0};
    // As the kernel does: what is posted next, if it could be had.
    const auto take = [&] {
        std::uint32_t none = NUPA_CQ_OWNER_NONE;
        if (!__atomic_compare_exchange_n(&ctl->owner, &none, NUPA_CQ_OWNER_HOST, false,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        const std::uint32_t at = __atomic_load_n(&ctl->index, __ATOMIC_RELAXED);
        ASSERT_EQ(__atomic_load_n(consumer, __ATOMIC_RELAXED), at);
        if (__atomic_load_n(producer, __ATOMIC_ACQUIRE) != at) {
            std::uint64_t name;
            std::memcpy(&name, srq.ring.at(kElementsAt + (std::uint64_t{at} << srq.cmd.log2_bytes)),
                        sizeof name);
            used.at(name - kName)++, by_host++;
            __atomic_store_n(&ctl->index, (at + 1) & srq.cmd.mask, __ATOMIC_RELAXED);
            __atomic_store_n(consumer, (at + 1) & srq.cmd.mask, __ATOMIC_RELEASE);
        }
        __atomic_store_n(&ctl->owner, NUPA_CQ_OWNER_NONE, __ATOMIC_RELEASE);
    };
    std::atomic<bool> over{false};
    std::thread kernel([&] {
        while (!over) {
            take();
            for (int i = 0; i < 64 && !over; i++)
                std::this_thread::yield();
        }
    });
    const auto room = [&] {
        const std::uint32_t cons = __atomic_load_n(consumer, __ATOMIC_ACQUIRE);
        return (cons - 1 - (kFirst + srq.posted)) & srq.cmd.mask;
    };
    srq.post(1);
    while (by_host == 0)
        std::this_thread::yield();
    std::uint32_t by_switch = 0;
    for (std::uint32_t i = 0; srq.posted < kReceives; i++) {
        srq.post(std::min(room(), kReceives - srq.posted));
        const std::uint32_t n = i % kQps, messages = 1 + i % 3, before = cq.prod();
        const auto d = host.rx(messages == 1 ? send(n) : train(n, messages, 0, messages * kLength));
        for (std::uint32_t k = 0; k < d.completed; k++, by_switch++)
            used.at(cq.at(before + k).wr_id - kName)++;
        ASSERT_EQ(cq.prod(), (before + d.completed) & cq.cmd.mask);
        cq.poll(cq.prod());
        if (!d.completed)
            host_received(n, messages);
        acknowledge(n, qps[n].seq);
    }
    over = true;
    kernel.join();
    while (srq.index() != ((kFirst + kReceives) & srq.cmd.mask))
        take();
    EXPECT_EQ(by_switch + by_host, kReceives);
    for (std::uint32_t i = 0; i < kReceives; i++)
        ASSERT_EQ(used[i], 1u) << i;
    EXPECT_GT(by_switch, 0u);
    EXPECT_GT(by_host, 0u);
    expect_at_rest();
}

}  // namespace
