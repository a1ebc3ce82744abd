// SPDX-License-Identifier: BSD-3-Clause
// Plain Ethernet: who gets which frame, whole and once.
#include <algorithm>

#include "two_ports.hpp"

namespace nupa::testing {
namespace {

TEST(Forwarding, UnicastReachesItsPortUnchanged) {
    Ports p(3);
    for (size_t bytes : {46u, 200u, 242u, 243u, 1000u, 4096u, 8986u}) {
        Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType,
                                     pattern(bytes, static_cast<uint32_t>(bytes)));
        p[0].send(0, frame);
        EXPECT_EQ(p[1].receive(0).whole(), frame) << bytes;
        p[0].wait_sent(0);
    }
    EXPECT_EQ(p.stat(2, NUPA_STAT_rx_packets), 0u);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_packets), 7u);
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_packets), 7u);
}

TEST(Forwarding, SmallFramesUseNoFillBuffer) {
    Ports p(2);
    Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(60, 1));
    p[0].send(0, frame);
    RxPacket packet = p[1].receive(0);
    EXPECT_EQ(packet.comp.bufs, 0);
    EXPECT_EQ(packet.comp.header_bytes, frame.size());
}

TEST(Forwarding, BroadcastReachesAllOthers) {
    Ports p(4);
    Bytes frame = build_ethernet(kBroadcast, p[0].mac(), kTestType, pattern(500, 1));
    p[0].send(0, frame);
    for (unsigned i = 1; i < 4; i++)
        EXPECT_EQ(p[i].receive(0).whole(), frame);
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(0, NUPA_STAT_rx_packets), 0u);
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_flood), 1u);
}

TEST(Forwarding, MulticastNeedsAllmulti) {
    Ports p(3);
    p[2].set_rx_mode(kModeAll | NUPA_RX_MODE_ALLMULTI, p[2].mac());
    Mac group{0x33, 0x33, 0, 0, 0, 1};
    Bytes frame = build_ethernet(group, p[0].mac(), kTestType, pattern(100, 1));
    p[0].send(0, frame);
    EXPECT_EQ(p[2].receive(0).whole(), frame);
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_drop_filter), 1u);
}

TEST(Forwarding, UnknownUnicastIsFloodedAndThenLearnt) {
    Ports p(3);
    p[1].set_rx_mode(kModeAll | NUPA_RX_MODE_PROMISC, p[1].mac());
    Mac stranger{0x02, 1, 2, 3, 4, 5};
    Bytes to_stranger = build_ethernet(stranger, p[0].mac(), kTestType, pattern(100, 1));
    p[0].send(0, to_stranger);
    EXPECT_EQ(p[1].receive(0).whole(), to_stranger);
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(2, NUPA_STAT_rx_drop_filter), 1u);

    p[1].send(0, build_ethernet(p[0].mac(), stranger, kTestType, pattern(100, 2)));
    p[0].receive(0);
    p[0].send(0, to_stranger);
    EXPECT_EQ(p[1].receive(0).whole(), to_stranger);
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(2, NUPA_STAT_rx_drop_filter), 1u) << "flooded again";
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_flood), 1u);
}

TEST(Forwarding, NothingComesBackToItsSender) {
    Ports p(2);
    p[0].send(0, build_ethernet(p[0].mac(), p[0].mac(), kTestType, pattern(100, 1)));
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(0, NUPA_STAT_rx_packets), 0u);
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_drop_unknown), 1u);
}

TEST(Forwarding, ReceiverWithSmallerMtuDropsGiants) {
    Ports p(2);
    p[1].set_rx_mode(kModeAll, p[1].mac(), 1500);
    p[0].send(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(1600, 1)));
    Bytes fits = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(1500, 2));
    p[0].send(0, fits);
    EXPECT_EQ(p[1].receive(0).whole(), fits);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_drop_filter), 1u);
}

TEST(Forwarding, ManyFramesKeepTheirOrderAcrossRingWraps) {
    QueueShape shape;
    shape.tx_entries = 64;
    shape.fill_entries = 64;
    shape.comp_entries = 64;
    Ports p(2, kModeAll, shape);
    uint32_t sent = 0;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 20; i++, sent++)
            p[0].stage(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(300, sent)));
        p[0].publish(0);
        for (uint32_t i = sent - 20; i < sent; i++) {
            Bytes whole = p[1].receive(0).whole();
            ASSERT_EQ(Bytes(whole.begin() + 14, whole.end()), pattern(300, i));
        }
        p[0].wait_sent(0);
    }
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_packets), sent);
}

TEST(Forwarding, TailDropWhenReceiveBuffersAreUsedUp) {
    QueueShape shape;
    shape.comp_entries = 64;
    Ports p(2, kModeAll, shape);
    for (uint32_t i = 0; i < 100; i++)
        p[0].stage(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(60, i)));
    p[0].publish(0);
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_drop_no_buffer), 36u);
    for (uint32_t i = 0; i < 64; i++) {
        Bytes whole = p[1].receive(0).whole();
        EXPECT_EQ(Bytes(whole.begin() + 14, whole.end()), pattern(60, i));
    }
    Bytes later = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(60, 1000));
    p[0].send(0, later);
    EXPECT_EQ(p[1].receive(0).whole(), later);
}

TEST(Forwarding, TailDropWhenFillBuffersAreUsedUp) {
    QueueShape shape;
    shape.fill_entries = 64;
    Ports p(2, kModeAll, shape);
    uint32_t number = 0;
    // More than once: a drop must not leave the count of free buffers wrong.
    for (uint64_t round = 1; round <= 3; round++) {
        const uint32_t first = number;
        for (int i = 0; i < 100; i++, number++)
            p[0].stage(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(300, number)));
        p[0].publish(0);
        p[0].wait_sent(0);
        EXPECT_EQ(p.stat(1, NUPA_STAT_rx_drop_no_buffer), 36 * round);
        for (uint32_t i = first; i < first + 64; i++) {
            Bytes whole = p[1].receive(0).whole();
            ASSERT_EQ(Bytes(whole.begin() + 14, whole.end()), pattern(300, i));
        }
        EXPECT_FALSE(p[1].try_receive(0));
    }
}

TEST(Forwarding, MergingStopsWhereFillBuffersEnd) {
    QueueShape shape;
    shape.fill_entries = 64;
    shape.buf_bytes = 2048;
    Ports p(2, kModeAll, shape);
    constexpr size_t kRoom = 64 * 2048;
    for (uint32_t round = 0; round < 3; round++) {
        TcpFrame f = p.frame(0, 1);
        f.seq = 1000 * round;
        f.payload = pattern(2 * kRoom, round);
        p[0].send(0, build_tcp(f, false), offload(f, 1448));
        p[0].wait_sent(0);
        size_t got = 0;
        while (auto packet = p[1].try_receive(0)) {
            auto part = parse_tcp(packet->whole());
            ASSERT_TRUE(part);
            const size_t at = part->seq - f.seq;
            ASSERT_LE(at + part->payload.size(), f.payload.size());
            EXPECT_TRUE(std::equal(part->payload.begin(), part->payload.end(),
                                   f.payload.begin() + static_cast<long>(at)));
            got += part->payload.size();
        }
        EXPECT_GT(got, kRoom / 2);
        EXPECT_LE(got, kRoom);
    }
    EXPECT_FALSE(p[1].status() & NUPA_STATUS_FAILED);
}

TEST(Forwarding, TwentyFourPortsAllToAll) {
    constexpr unsigned kPorts = 24;
    Ports p(kPorts, kModeAll, {}, 1, 8 << 20);
    for (unsigned from = 0; from < kPorts; from++)
        for (unsigned to = 0; to < kPorts; to++)
            if (from != to)
                p[from].stage(0, build_ethernet(p[to].mac(), p[from].mac(), kTestType,
                                                pattern(700, from * kPorts + to)));
    for (unsigned from = 0; from < kPorts; from++)
        p[from].publish(0);
    for (unsigned to = 0; to < kPorts; to++) {
        std::vector<bool> seen(kPorts);
        for (unsigned i = 1; i < kPorts; i++) {
            Bytes whole = p[to].receive(0).whole();
            unsigned from = whole[11];  // last byte of our own MAC addresses: the port
            ASSERT_LT(from, kPorts);
            EXPECT_EQ(Bytes(whole.begin() + 14, whole.end()), pattern(700, from * kPorts + to));
            EXPECT_FALSE(seen[from]);
            seen[from] = true;
        }
    }
}

TEST(Forwarding, IdleCostsNoCpu) {
    Ports p(2);
    Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(100, 1));
    p[0].send(0, frame);
    p[1].receive(0);
    p[0].wait_sent(0);
    const double before = p.daemon.cpu_seconds();
    ::timespec second{.tv_sec = 1, .tv_nsec = 0};
    ::nanosleep(&second, nullptr);  // the measured span, not synchronisation
    // What is allowed is the end of the turn that was still running; a timer would show as more.
    constexpr double kOneTurnSeconds = 0.0005;
    EXPECT_LT(p.daemon.cpu_seconds() - before, kOneTurnSeconds);
}

TEST(Forwarding, BusyQueuesNeedNoDoorbell) {
    Ports p(2);
    // Staged together, published once: one ring for the whole burst.
    for (uint32_t i = 0; i < 50; i++)
        p[0].stage(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(100, i)));
    p[0].publish(0);
    for (uint32_t i = 0; i < 50; i++)
        p[1].receive(0);
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_doorbells), 1u);
    EXPECT_LE(p.stat(1, NUPA_STAT_rx_interrupts), 2u);
}

TEST(Forwarding, MemoryAboveFourGib) {
    // q35 with so much RAM has 2 GiB below and the rest at 4 GiB; the file is sparse.
    DaemonProcess daemon(2);
    auto a = daemon.plug(0, 0xb0000000);
    auto b = daemon.plug(1);
    a->set_alloc_at(1ull << 32);
    for (FakePort* port : {a.get(), b.get()}) {
        port->enable();
        port->create_queues(0);
        port->set_rx_mode(kModeAll, port->mac());
    }
    Bytes frame = build_ethernet(b->mac(), a->mac(), kTestType, pattern(1000, 1));
    a->send(0, frame);
    EXPECT_EQ(b->receive(0).whole(), frame);
    b->send(0, build_ethernet(a->mac(), b->mac(), kTestType, pattern(1000, 2)));
    EXPECT_EQ(a->receive(0).whole(),
              build_ethernet(a->mac(), b->mac(), kTestType, pattern(1000, 2)));
}

}  // namespace
}  // namespace nupa::testing
