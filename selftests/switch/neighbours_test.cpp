// SPDX-License-Identifier: BSD-3-Clause
// Guests against guests: what one of three does costs the others neither their time, nor their
// memory, nor their address.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "fake_qp.hpp"
#include "hostile_guest.hpp"
#include "qp_pair.hpp"

namespace nupa::testing {
namespace {

constexpr int kHealMs = 5000;

Bytes frame_of(const Mac& to, const Mac& from, uint32_t seed) {
    return build_ethernet(to, from, kTestType, pattern(300, seed));
}

// Port 0 is hostile, 1 and 2 are not.
struct Neighbours : ::testing::Test {
    void SetUp() override {
        p.ports.push_back(p.daemon.plug(0, kHostileRamBytes));
        p.ports[0]->enable();
        for (unsigned i = 1; i < 3; i++) {
            p.ports.push_back(p.daemon.plug(i));
            p.ports[i]->enable();
            p.ports[i]->create_queues(0);
            p.ports[i]->set_rx_mode(kModeAll, p.ports[i]->mac(), 9000);
        }
    }
    void expect_in_time(HostileGuest::Attack attack, double seconds = 2) {
        HostileGuest guest(p[0], {p[1].mac(), p[2].mac()}, 1);
        std::jthread busy([&](const std::stop_token& over) {
            while (!over.stop_requested())
                guest.attack(attack);
        });
        Lateness lateness(p.daemon);
        const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
        while (std::chrono::steady_clock::now() < end && lateness.worst_ms() <= late_max_ms())
            lateness.nop_ms(p[1]);
        EXPECT_LE(lateness.worst_ms(), late_max_ms());
    }
    static Mac mac_of(unsigned id) { return {0x02, 'N', 'U', 'P', 0, static_cast<uint8_t>(id)}; }

    Ports p{0, kModeAll, {}, 1, 64 << 20, 3};
};

TEST_F(Neighbours, LongRegistrationsDelayNobody) {
    expect_in_time(HostileGuest::kLongRegistrations);
}

TEST_F(Neighbours, SmallSegmentsDelayNobody) { expect_in_time(HostileGuest::kBursts); }

TEST_F(Neighbours, FloodsDelayNobody) { expect_in_time(HostileGuest::kFloods); }

TEST_F(Neighbours, ALongRegistrationIsMadeWhole) {
    // It takes many turns, and its host writes over the list as soon as it may.
    constexpr uint32_t kPages = 100'000;
    const uint64_t table = 160 << 20;
    for (uint32_t i = 0; i < kPages; i++)
        p[0].at<uint64_t>(table)[i] = uint64_t{i % 32768} * kPageBytes;
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_REG;
    cmd.id = 7;
    cmd.mr.bytes = uint64_t{kPages} * kPageBytes;
    cmd.mr.table_addr = table;
    cmd.mr.pages = kPages;
    cmd.mr.page_shift = 12;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_OK);
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_EXISTS);
    cmd.id = 8;
    p[0].at<uint64_t>(table)[kPages - 1] = kHostileRamBytes;  // found at the very end
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_ADDRESS);
    cmd = {};
    cmd.op = NUPA_ADMIN_MR_DEREG;
    cmd.id = 8;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_NOENT);
    cmd.id = 7;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_OK);
}

TEST_F(Neighbours, AnAddressInUseIsRefused) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_RX_MODE;
    cmd.rx_mode.mtu = 1500;
    std::memcpy(cmd.rx_mode.mac, p[1].mac().data(), 6);
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_EXISTS);
    const Mac chosen{0x02, 1, 2, 3, 4, 5};
    p[1].set_rx_mode(kModeAll, chosen);
    std::memcpy(cmd.rx_mode.mac, chosen.data(), 6);
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_EXISTS);
    p[1].set_rx_mode(kModeAll, p[1].mac());
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_OK) << "nobody has it any more";
    std::memcpy(cmd.rx_mode.mac, p[1].mac().data(), 6);
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_EXISTS) << "the port's own stays its own";
}

TEST_F(Neighbours, ASourceThatIsAnothersIsDropped) {
    p[0].create_queues(0);
    p[0].set_rx_mode(kModeAll, p[0].mac(), 9000);
    p[0].send(0, frame_of(p[2].mac(), p[1].mac(), 1));
    p[0].send(0, frame_of(p[2].mac(), Mac{0x01, 0, 0, 0, 0, 1}, 2));
    p[0].send(0, frame_of(p[2].mac(), p[0].mac(), 3));
    EXPECT_EQ(p[2].receive(0).whole(), frame_of(p[2].mac(), p[0].mac(), 3)) << "it alone";
    EXPECT_EQ(p.stat(0, NUPA_STAT_tx_drop_source), 2u);
    p[2].send(0, frame_of(p[1].mac(), p[2].mac(), 4));
    EXPECT_EQ(p[1].receive(0).whole(), frame_of(p[1].mac(), p[2].mac(), 4));
}

TEST_F(Neighbours, AnUnpluggedPortsAddressIsRefused) {
    Mac absent = p[2].mac();
    p[2].disconnect();
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_RX_MODE;
    cmd.rx_mode.mtu = 1500;
    std::memcpy(cmd.rx_mode.mac, absent.data(), 6);
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_EXISTS);
}

TEST_F(Neighbours, ScribbledRegistersAreRestored) {
    std::memset(p[0].regs(), 0x5a, offsetof(nupa_regs, control));
    const nupa_regs& r = *p[0].regs();
    for (int ms = 0; ms < kHealMs && __atomic_load_n(&r.magic, __ATOMIC_ACQUIRE) != NUPA_MAGIC;
         ms += 10)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(r.magic, static_cast<uint32_t>(NUPA_MAGIC)) << "by the next heartbeat";
    EXPECT_EQ(p[0].mac(), mac_of(0));
    EXPECT_EQ(r.queue_pairs, 4);
    std::memset(p[0].regs(), 0x5a, offsetof(nupa_regs, control));
    p[0].disable();  // waits for reset_ack
    EXPECT_EQ(r.magic, static_cast<uint32_t>(NUPA_MAGIC)) << "by a reset";
    p[0].enable();
    p[0].create_queues(0);
    p[0].set_rx_mode(kModeAll, p[0].mac());
    p[0].send(0, frame_of(p[1].mac(), p[0].mac(), 1));
    EXPECT_EQ(p[1].receive(0).whole(), frame_of(p[1].mac(), p[0].mac(), 1));
}

TEST_F(Neighbours, TheHeartBeatsAndEndsWithAWord) {
    const auto beat = [this] { return __atomic_load_n(&p[1].regs()->beat, __ATOMIC_ACQUIRE); };
    const uint32_t first = beat();
    for (int ms = 0; ms < kHealMs && beat() - first < 2; ms += 10)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_GE(beat() - first, 2u);
    p[1].take_interrupts(0);
    p.daemon.stop(SIGTERM);
    EXPECT_EQ(p[1].status(), static_cast<uint32_t>(NUPA_STATUS_GONE));
    EXPECT_GE(p[1].take_interrupts(0), 1u);
}

TEST_F(Neighbours, ACrashEndsWithAWord) {
    p[1].take_interrupts(0);
    p.daemon.stop(SIGSEGV);
    EXPECT_EQ(p[1].status(), static_cast<uint32_t>(NUPA_STATUS_GONE));
    EXPECT_GE(p[1].take_interrupts(0), 1u);
}

TEST(PortMemory, IsBounded) {
    DaemonProcess daemon(2, {"--port-memory-mib", "1"});
    auto greedy = daemon.plug(0), other = daemon.plug(1);
    greedy->enable();
    other->enable();
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_REG;
    cmd.mr.table_addr = greedy->alloc(8ull * 1000);
    cmd.mr.bytes = 1000 * kPageBytes;
    cmd.mr.pages = 1000;  // 8 KB of the switch
    cmd.mr.page_shift = 12;
    nupa_admin_status status = NUPA_OK;
    for (cmd.id = 1; cmd.id < 1000 && status == NUPA_OK; cmd.id++)
        status = greedy->admin_status(cmd);
    EXPECT_EQ(status, NUPA_E_QUOTA);
    EXPECT_NEAR(cmd.id, 128, 8);
    nupa_admin_cmd dereg{};
    dereg.op = NUPA_ADMIN_MR_DEREG;
    dereg.id = 1;
    greedy->must(dereg);
    greedy->must(cmd);
    cmd.id++;
    EXPECT_EQ(greedy->admin_status(cmd), NUPA_E_QUOTA);
    cmd.mr.table_addr = other->alloc(8ull * 1000);
    other->must(cmd);
    greedy->disable();
    greedy->enable();
    greedy->must(cmd);
}

// A QP at port 1, its peer at port 0, and a third guest that knows their connection.
struct Forged : ::testing::Test {
    Forged()
        : base(p.frame(0, 1)),
          mr(p[1], kKey, kIova, kMrBytes, kPd, kAccess),
          qp(p[1], base, QpShape{}) {
        mr.fill(0xee);
        TcpFrame ack = ack_of(base, base.seq);
        p[1].send(0, build_tcp(ack, false), offload(ack));
        p[0].receive(0);
    }
    void send(unsigned from, const TcpFrame& f) {
        p[from].send(0, build_tcp(f, false), offload(f, kMss));
    }
    TcpFrame write(uint16_t msn, uint32_t seq, uint8_t seed, uint64_t at = 4096) {
        TcpFrame f = base;
        f.seq = seq;
        return write_message(f, msn, pattern(1000, seed), kIova + at, kKey);
    }
    void expect_delivered(const TcpFrame& f) {
        const RxPacket got = p[1].receive(0);
        EXPECT_FALSE(got.comp.flags & NUPA_RX_F_PLACED);
        EXPECT_EQ(got.payload, f.payload);
        EXPECT_EQ(mr.read(4096, 1000), Bytes(1000, 0xee));
    }

    Ports p{3};
    TcpFrame base;
    FakeMr mr;
    FakeQp qp;
};

TEST_F(Forged, FromAThirdPortWithItsOwnAddress) {
    TcpFrame f = write(0, base.seq, 1);
    f.src = p[2].mac();
    send(2, f);
    expect_delivered(f);
    EXPECT_EQ(p.stat(1, NUPA_STAT_deliver_peer), 1u);
}

TEST_F(Forged, FromAThirdPortWithThePeersAddress) {
    send(2, write(0, base.seq, 1, 8192));
    const TcpFrame good = write(0, base.seq, 2);
    send(0, good);
    EXPECT_TRUE(p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(mr.read(4096, 1000), good.payload);
    EXPECT_EQ(mr.read(8192, 1000), Bytes(1000, 0xee));
    EXPECT_FALSE(p[1].try_receive(0)) << "it alone came";
}

TEST_F(Forged, AcknowledgesWhatWasNeverSent) {
    TcpFrame f = write(0, base.seq, 1);
    f.ack = base.ack + 1;
    send(0, f);
    expect_delivered(f);
    f = write(0, base.seq + 1000, 2);
    f.ack = base.ack - (2 << 20);  // too old
    send(0, f);
    expect_delivered(f);
    EXPECT_EQ(p.stat(1, NUPA_STAT_deliver_peer), 2u);
}

TEST_F(Forged, ThePeerMayMove) {
    // The connection goes on from port 2: as soon as the host sends there.
    TcpFrame ack = ack_of(base, base.seq);
    ack.dst = p[2].mac();
    p[1].send(0, build_tcp(ack, false), offload(ack));
    p[2].receive(0);
    TcpFrame f = write(0, base.seq, 3);
    f.src = p[2].mac();
    send(2, f);
    EXPECT_TRUE(p[1].receive(0).comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(mr.read(4096, 1000), f.payload);
}

}  // namespace
}  // namespace nupa::testing
