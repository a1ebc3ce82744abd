// SPDX-License-Identifier: BSD-3-Clause
// A host that breaks the rules is stopped and counted; its neighbours never notice.
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "fake_qp.hpp"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

// Port 0 misbehaves; 1 and 2 are bystanders.
struct Hostile : ::testing::Test {
    Ports p{3};

    Bytes frame(unsigned from, unsigned to) {
        return build_ethernet(p[to].mac(), p[from].mac(), kTestType, pattern(300, from));
    }
    void expect_failed(unsigned port = 0) {
        p[port].wait_until([&] { return (p[port].status() & NUPA_STATUS_FAILED) != 0; }, 0,
                           "failure");
        EXPECT_FALSE(p[port].status() & NUPA_STATUS_READY);
        auto stats = p.daemon.control({{"cmd", "stats"}, {"port", "n" + std::to_string(port)}});
        EXPECT_GE(stats["stats"]["n" + std::to_string(port)]["abi_errors"].get<int>(), 1);
    }
    void expect_bystanders_well() {
        p[1].send(0, frame(1, 2));
        EXPECT_EQ(p[2].receive(0).whole(), frame(1, 2));
        p[2].send(0, frame(2, 1));
        EXPECT_EQ(p[1].receive(0).whole(), frame(2, 1));
    }
    void expect_recovers() {
        p[0].disable();
        EXPECT_FALSE(p[0].status() & NUPA_STATUS_FAILED);
        p[0].enable();
        p[0].create_queues(0);
        p[0].set_rx_mode(kModeAll, p[0].mac());
        p[0].send(0, frame(0, 1));
        EXPECT_EQ(p[1].receive(0).whole(), frame(0, 1));
    }
    void expect_stopped_alone() {
        expect_failed();
        expect_bystanders_well();
        expect_recovers();
    }
    // The entry that the next packet will use, to spoil after stage().
    nupa_tx_entry& entry(uint32_t index) {
        FakePort::TxRing& tx = p[0].tx(0);
        return p[0].at<nupa_tx_entry>(tx.ring)[index % tx.entries];
    }
    void send_spoilt(const std::function<void(nupa_tx_ctx&, nupa_tx_buf&)>& spoil) {
        uint32_t index = p[0].tx(0).prod;
        p[0].stage(0, frame(0, 1));
        spoil(entry(index).ctx, entry(index + 1).buf);
        p[0].publish(0);
    }
};

TEST_F(Hostile, TransmitIndexBeyondTheRing) {
    __atomic_store_n(&p[0].txq(0)->prod, 5000u, __ATOMIC_RELEASE);
    p[0].ring_doorbell(1);
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitIndexGoingBack) {
    p[0].send(0, frame(0, 1));
    p[1].receive(0);
    p[0].wait_sent(0);
    __atomic_store_n(&p[0].txq(0)->prod, 1u, __ATOMIC_RELEASE);
    p[0].ring_doorbell(1);
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitBufferOutsideMemory) {
    send_spoilt([](nupa_tx_ctx&, nupa_tx_buf& buf) { buf.addr = 64ull << 20; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitBufferThatWraps) {
    send_spoilt([](nupa_tx_ctx&, nupa_tx_buf& buf) { buf.addr = ~0ull - 10; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitBufferOfNoBytes) {
    send_spoilt([](nupa_tx_ctx& ctx, nupa_tx_buf& buf) { buf.bytes = 0, ctx.bytes = 0; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitBufferReachingPastTheEnd) {
    send_spoilt([](nupa_tx_ctx& ctx, nupa_tx_buf& buf) {
        buf.addr = (64ull << 20) - 100;
        buf.bytes = ctx.bytes = 101;
    });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitReservedFieldSet) {
    send_spoilt([](nupa_tx_ctx&, nupa_tx_buf& buf) { buf.reserved = 1; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitSumThatLies) {
    send_spoilt([](nupa_tx_ctx& ctx, nupa_tx_buf&) { ctx.bytes++; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitPacketOfTooManyBuffers) {
    send_spoilt([](nupa_tx_ctx& ctx, nupa_tx_buf&) { ctx.bufs = NUPA_TX_FRAGS_MAX + 1; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitPacketWithoutBuffers) {
    send_spoilt([](nupa_tx_ctx& ctx, nupa_tx_buf&) { ctx.bufs = 0; });
    expect_stopped_alone();
}

TEST_F(Hostile, TransmitPacketPublishedInParts) {
    p[0].stage(0, frame(0, 1));
    p[0].tx(0).prod--;
    p[0].publish(0);
    expect_stopped_alone();
}

TEST_F(Hostile, SendersGoodPacketsBeforeTheBadOneAreDelivered) {
    p[0].stage(0, frame(0, 1));
    uint32_t index = p[0].tx(0).prod;
    p[0].stage(0, frame(0, 1));
    entry(index + 1).buf.addr = ~0ull;
    p[0].publish(0);
    EXPECT_EQ(p[1].receive(0).whole(), frame(0, 1));
    expect_stopped_alone();
}

// What an application can cause by itself (raw sockets) drops a packet, never the port.
TEST_F(Hostile, MalformedPacketsAreDroppedOneByOne) {
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(5000, 1);
    Bytes burst = build_tcp(f, false);
    TxOptions good = offload(f, 1448);
    std::vector<TxOptions> bad(8, good);
    bad[0].mss = 0;
    bad[1].mss = 9100;  // segments longer than any frame
    bad[2].header_bytes += 4;
    bad[3].flags |= NUPA_TX_F_TSO6;  // both families
    bad[4].flags = 0x8000;
    bad[5].flags = 0;  // a frame longer than any without segmentation
    bad[5].split_at = 0;
    bad[6].flags = NUPA_TX_F_TSO6;  // IPv4 said to be IPv6
    bad[7].mss = 1;
    Bytes giant = burst;
    giant.resize(9100);
    p[0].send(0, giant, bad[5]);
    bad.erase(bad.begin() + 5);
    for (const TxOptions& o : bad)
        p[0].send(0, burst, o);
    p[0].send(0, Bytes(13, 1));  // not even an Ethernet header
    TxOptions csum;
    csum.flags = NUPA_TX_F_CSUM;
    csum.csum_start = 299;
    csum.csum_offset = 100;  // behind the end
    p[0].send(0, Bytes(300, 2), csum);
    p[0].send(0, burst, good);
    auto got = parse_tcp(p[1].receive(0).whole());
    ASSERT_TRUE(got);
    EXPECT_EQ(got->payload, f.payload) << "the good one, and it alone";
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_drop_invalid), 10u);
    EXPECT_EQ(p.stat(0, NUPA_STAT_abi_errors), 0u);
}

TEST_F(Hostile, OversizeBurstIsDropped) {
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(NUPA_TSO_MAX_BYTES, 1);  // headers come on top
    p[0].send(0, build_tcp(f, false), offload(f, 1448));
    p[0].send(0, frame(0, 1));
    EXPECT_EQ(p[1].receive(0).whole(), frame(0, 1));
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_drop_invalid), 1u);
}

TEST_F(Hostile, FillIndexBeyondTheRing) {
    // The switch looks again only when what it knows of is used up.
    for (uint32_t i = 0; i < 512; i++) {
        p[1].stage(0, build_ethernet(p[0].mac(), p[1].mac(), kTestType, pattern(400, i)));
        p[1].publish(0);
        if (i % 64 == 63)
            p[1].wait_sent(0);
    }
    p[1].wait_sent(0);
    __atomic_store_n(&p[0].rxq(0)->comp_cons, 512u, __ATOMIC_RELEASE);
    __atomic_store_n(&p[0].rxq(0)->fill_prod, 512u + 513u, __ATOMIC_RELEASE);
    p[1].send(0, build_ethernet(p[0].mac(), p[1].mac(), kTestType, pattern(400, 1)));
    expect_stopped_alone();
}

TEST_F(Hostile, CompletionIndexAheadOfTheSwitch) {
    for (uint32_t i = 0; i < 512; i++) {
        p[1].stage(0, build_ethernet(p[0].mac(), p[1].mac(), kTestType, pattern(60, i)));
        p[1].publish(0);
        if (i % 64 == 63)
            p[1].wait_sent(0);
    }
    p[1].wait_sent(0);
    __atomic_store_n(&p[0].rxq(0)->comp_cons, 513u, __ATOMIC_RELEASE);
    p[1].send(0, build_ethernet(p[0].mac(), p[1].mac(), kTestType, pattern(60, 1)));
    expect_stopped_alone();
}

TEST_F(Hostile, FillBufferOutsideMemory) {
    p[0].at<nupa_rx_fill>(p[0].rx(0).fill.ring)[0].addr = (64ull << 20) - 4095;
    p[1].send(0, frame(1, 0));
    expect_stopped_alone();
}

TEST_F(Hostile, AdminIndexBeyondTheRing) {
    __atomic_store_n(&p[0].admin_ctl()->ring.prod, 1u << 31, __ATOMIC_RELEASE);
    p[0].ring_doorbell(0);
    expect_stopped_alone();
}

TEST_F(Hostile, AdminRingOutsideMemory) {
    p[0].disable();
    p[0].admin_ctl()->ring_addr = (64ull << 20) - 64;
    p[0].regs()->control = NUPA_CONTROL_ENABLE;
    __atomic_store_n(&p[0].regs()->control_gen, p[0].regs()->control_gen + 1, __ATOMIC_RELEASE);
    p[0].ring_doorbell(0);
    expect_stopped_alone();
}

TEST_F(Hostile, AdminCommandsOutOfRangeAreRefused) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_OP_COUNT;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_OPCODE);
    cmd.op = NUPA_ADMIN_NOP;
    cmd.reserved = 1;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd = {};
    cmd.op = NUPA_ADMIN_TXQ_CREATE;
    cmd.id = NUPA_QUEUE_PAIRS_MAX;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.id = 0;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_EXISTS);
    cmd.id = 1;
    cmd.queue.entries = 100;  // no power of two
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.queue.entries = NUPA_RING_ENTRIES_MAX;
    cmd.queue.ring_addr = (64ull << 20) - 4096;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_ADDRESS);
    cmd.op = NUPA_ADMIN_RXQ_CREATE;
    cmd.queue = {.ring_addr = 4096,
                 .comp_addr = 4096,
                 .slot_addr = ~0ull,
                 .entries = 64,
                 .comp_entries = 64,
                 .buf_bytes = 4096,
                 .flags = 0,
                 .long_ring_addr = 0,
                 .long_entries = 0,
                 .long_buf_bytes = 0};
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_ADDRESS);
    cmd.queue.buf_bytes = NUPA_RX_BUF_MAX_BYTES + 1;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.queue.buf_bytes = 4096;
    cmd.queue.slot_addr = 4096;
    cmd.queue.long_buf_bytes = 65536;  // of no long buffers
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.queue.long_buf_bytes = 0;
    cmd.queue.long_ring_addr = 4096;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.queue.long_entries = 64;
    for (const uint32_t bytes : {0u, 4096u, NUPA_RX_BUF_MAX_BYTES + 1u}) {
        cmd.queue.long_buf_bytes = bytes;
        EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID) << bytes;
    }
    cmd.queue.long_buf_bytes = 65536;
    for (const uint32_t entries : {32u, 100u, 2u * NUPA_RING_ENTRIES_MAX}) {
        cmd.queue.long_entries = entries;
        EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID) << entries;
    }
    cmd.queue.long_entries = 64;
    cmd.queue.long_ring_addr = (64ull << 20) - 63ull * 8;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_ADDRESS);
    cmd = {};
    cmd.op = NUPA_ADMIN_RXQ_DESTROY;
    cmd.id = 3;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_NOENT);
    cmd = {};
    cmd.op = NUPA_ADMIN_STATS;
    cmd.stats.count = NUPA_STAT_COUNT + 1;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.stats.count = 2;
    cmd.stats.addr = (64ull << 20) - 8;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_ADDRESS);
    cmd = {};
    cmd.op = NUPA_ADMIN_RX_MODE;
    cmd.rx_mode.mtu = NUPA_MTU_MAX + 1;
    std::memcpy(cmd.rx_mode.mac, p[0].mac().data(), 6);
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    cmd.rx_mode.mtu = 1500;
    cmd.rx_mode.run4_max_bytes = NUPA_RX_RUN_MAX_BYTES + 1;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_INVALID);
    EXPECT_FALSE(p[0].status() & NUPA_STATUS_FAILED);
    expect_bystanders_well();
}

TEST_F(Hostile, ScribblingOverEveryRegisterHarmsNobodyElse) {
    // Seeded garbage over all of BAR2 with all doorbells rung, again and again.
    for (uint32_t round = 0; round < 200; round++) {
        Bytes garbage = pattern(NUPA_BAR2_BYTES, round);
        std::memcpy(p[0].regs(), garbage.data(), garbage.size());
        if (round % 2)
            p[0].regs()->control = NUPA_CONTROL_ENABLE;
        if (round % 4 == 3) {  // rings in real memory, so that it goes further
            p[0].admin_ctl()->ring_addr = 0;
            p[0].admin_ctl()->comp_addr = 4096;
            std::memcpy(p[0].ram(0), pattern(1 << 16, round).data(), 1 << 16);
        }
        for (unsigned v = 0; v < NUPA_VECTORS; v++)
            p[0].ring_doorbell(v);
        expect_bystanders_well();
    }
}

TEST_F(Hostile, MacFloodDoesNotCrowdOutOthers) {
    for (uint32_t i = 0; i < 3000; i++) {
        Mac fake{0x02, 0xff, 0, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
        p[0].send(0, build_ethernet(p[1].mac(), fake, kTestType, pattern(20, i)));
        if (i % 100 == 99)
            p[0].wait_sent(0);
    }
    p[0].wait_sent(0);
    const uint64_t refused = p.stat(0, NUPA_STAT_tx_drop_source);
    EXPECT_GE(refused, 3000u - 64u);
    for (uint64_t i = refused; i < 3000; i++)
        p[1].receive(0);
    EXPECT_LE(p.daemon.control({{"cmd", "macs"}})["macs"].size(), 64u + 2u);
    expect_bystanders_well();
    EXPECT_EQ(p.stat(1, NUPA_STAT_tx_flood), 0u);
}

}  // namespace
}  // namespace nupa::testing
