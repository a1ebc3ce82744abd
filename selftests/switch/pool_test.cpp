// SPDX-License-Identifier: BSD-3-Clause
// The pool of memory: leases, what hosts may name of it, and what is left of a host that is gone.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "fake_qp.hpp"
#include "fake_window.hpp"
#include "two_ports.hpp"
#include "unit/seed.hpp"

namespace nupa::testing {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kPoolBytes = 4 << 20;
constexpr uint64_t kBase = 0x4000000000;
constexpr uint32_t kPoolKey = 7;
constexpr uint16_t kPooledMss = 1408;
constexpr unsigned kHandOverDeaths = 1000;

nupa_admin_cmd set_window(const FakeWindow& window) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_WINDOW_SET;
    cmd.window = {.base = kBase, .bytes = window.bytes(), .memory = window.regs()->id};
    return cmd;
}

nupa_admin_cmd pool_region(FakePort& port, uint32_t key, uint64_t at, uint32_t pages = 1) {
    const uint64_t table = port.alloc(kPageBytes);
    for (uint32_t i = 0; i < pages; i++)
        port.at<uint64_t>(table)[i] = kBase + at + i * kPageBytes;
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_REG;
    cmd.id = key;
    cmd.mr.iova = 0;
    cmd.mr.bytes = pages * kPageBytes;
    cmd.mr.table_addr = table;
    cmd.mr.pages = pages;
    cmd.mr.pd = 5;
    cmd.mr.access = NUPA_ACCESS_LOCAL_WRITE;
    cmd.mr.page_shift = 12;
    return cmd;
}

nupa_admin_cmd deregister(uint32_t key) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_DEREG;
    cmd.id = key;
    return cmd;
}

bool all_zero(const uint8_t* at, uint64_t bytes) {
    return std::all_of(at, at + bytes, [](uint8_t byte) { return byte == 0; });
}

// Two hosts of one pool, each with its port enabled and its window known to it.
struct Pool : ::testing::Test {
    Pool() {
        for (int i = 0; i < 2; i++) {
            const std::string path = directory + (i == 0 ? "p0" : "p1");
            ports.push_back(std::make_unique<FakePort>(path + ".socket", path + ".ram", 64 << 20));
            ports[i]->enable();
            ports[i]->create_queues(0);
            ports[i]->set_rx_mode(kModeAll, ports[i]->mac(), 9000);
            windows.push_back(std::make_unique<FakeWindow>(path + ".pool"));
            windows[i]->set_control(NUPA_CONTROL_ENABLE);
            ports[i]->must(set_window(*windows[i]));
        }
    }
    ~Pool() override { std::filesystem::remove_all(directory); }
    [[nodiscard]] std::string port_option(const std::string& name) const {
        const std::string path = directory + name;
        return "name=" + name + ",socket=" + path + ".socket,ram=" + path + ".ram,pool=" + path +
               ".pool,share-mib=" + std::to_string(kPoolBytes >> 20);
    }
    [[nodiscard]] std::vector<std::string> arguments() const {
        std::vector<std::string> all{"--mode", "cxl", "--pool-mib",
                                     std::to_string(kPoolBytes >> 20)};
        for (const char* name : {"p0", "p1"})
            all.insert(all.end(), {"--port", port_option(name)});
        return all;
    }
    Json pool() { return daemon.control({{"cmd", "pool"}}); }
    uint64_t free_bytes() { return pool()["free_bytes"]; }
    void wait_all_free() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
        while (free_bytes() != kPoolBytes)
            ASSERT_LT(std::chrono::steady_clock::now(), end) << "leases are not back";
    }

    const std::string directory = make_directory() + "/";
    DaemonProcess daemon{0, arguments()};
    std::vector<std::unique_ptr<FakePort>> ports;
    std::vector<std::unique_ptr<FakeWindow>> windows;
};

TEST_F(Pool, IsSharedByLeases) {
    const uint64_t a = windows[0]->lease(kPoolBytes / 2);
    const uint64_t b = windows[1]->lease(kPoolBytes / 2);
    EXPECT_TRUE(a + kPoolBytes / 2 <= b || b + kPoolBytes / 2 <= a);
    EXPECT_EQ(windows[0]->status(FakeWindow::lease_cmd(kPageBytes)), NUPA_POOL_E_NOSPACE);
    EXPECT_EQ(windows[1]->status(FakeWindow::release_cmd(a)), NUPA_POOL_E_NOENT)
        << "the neighbour's";
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_POOL_E_NOENT) << "twice";
    EXPECT_EQ(windows[1]->lease(kPoolBytes / 2), a) << "it is the neighbour's now";
    const Json shown = pool();
    EXPECT_EQ(shown["mode"], "cxl");
    EXPECT_EQ(shown["free_bytes"], 0);
    EXPECT_EQ(shown["ports"][1]["leased_bytes"], kPoolBytes);
    EXPECT_NE(nupactl(daemon, {"pool"}).out.find("leased"), std::string::npos);
}

TEST_F(Pool, WrongCommandsAreRefused) {
    FakeWindow& window = *windows[0];
    nupa_accel_cmd cmd = FakeWindow::lease_cmd(kPageBytes);
    cmd.op = NUPA_ACCEL_FILL;
    EXPECT_EQ(window.status(cmd), NUPA_ACCEL_E_OPCODE);
    for (const uint64_t bytes : {uint64_t{0}, kPageBytes + 1})
        EXPECT_EQ(window.status(FakeWindow::lease_cmd(bytes)), NUPA_ACCEL_E_INVALID);
    for (const uint64_t bytes : {kPoolBytes + kPageBytes, ~(kPageBytes - 1)})
        EXPECT_EQ(window.status(FakeWindow::lease_cmd(bytes)), NUPA_POOL_E_NOSPACE);
    cmd = FakeWindow::lease_cmd(kPageBytes);
    cmd.to = kPageBytes;
    EXPECT_EQ(window.status(cmd), NUPA_ACCEL_E_INVALID);
    cmd = FakeWindow::lease_cmd(kPageBytes);
    cmd.reserved[15] = 1;
    EXPECT_EQ(window.status(cmd), NUPA_ACCEL_E_INVALID);
    EXPECT_EQ(window.status(FakeWindow::release_cmd(~uint64_t{0})), NUPA_POOL_E_NOENT);
    EXPECT_EQ(free_bytes(), kPoolBytes);
}

// What an owner wrote is in no later lease: neither the same host's, nor another's; and what a
// host scribbled before it had a lease is not, either.
TEST_F(Pool, LeasesAreZero) {
    const uint64_t a = windows[0]->lease(kPoolBytes);
    std::memset(windows[0]->memory(a), 0x5a, kPoolBytes);
    ASSERT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
    std::memset(windows[1]->memory(), 0xa5, kPoolBytes);
    EXPECT_TRUE(all_zero(windows[0]->memory(), kPoolBytes)) << "a neighbour's scribbles";
    const uint64_t b = windows[1]->lease(kPoolBytes);
    EXPECT_TRUE(all_zero(windows[1]->memory(b), kPoolBytes));
    ASSERT_EQ(windows[1]->status(FakeWindow::release_cmd(b)), NUPA_ACCEL_OK);
    const uint64_t c = windows[0]->lease(kPoolBytes);
    EXPECT_TRUE(all_zero(windows[0]->memory(c), kPoolBytes));
}

// A hostile guest names every address it can think of; its neighbour's lease is as it was.
TEST_F(Pool, NoAddressOutsideOfALeaseIsTaken) {
    const uint64_t a = windows[0]->lease(2 * kPageBytes), b = windows[1]->lease(2 * kPageBytes);
    std::memset(windows[1]->memory(b), 0x77, 2 * kPageBytes);
    ports[1]->must(pool_region(*ports[1], kPoolKey, b, 2));
    FakePort& port = *ports[0];
    EXPECT_EQ(port.admin_status(pool_region(port, 1, a, 2)), NUPA_OK);
    EXPECT_EQ(port.admin_status(pool_region(port, 2, a, 3)), NUPA_E_ADDRESS) << "one page too long";
    EXPECT_EQ(port.admin_status(pool_region(port, 2, b)), NUPA_E_ADDRESS) << "the neighbour's";
    EXPECT_EQ(port.admin_status(pool_region(port, 2, kPoolBytes)), NUPA_E_ADDRESS)
        << "beyond the pool";
    EXPECT_EQ(port.admin_status(pool_region(port, 2, windows[0]->bytes())), NUPA_E_ADDRESS)
        << "beyond the window";
    EXPECT_EQ(port.admin_status(pool_region(port, 2, 0 - kPageBytes)), NUPA_E_ADDRESS)
        << "its registers";
    nupa_admin_cmd rss{};
    rss.op = NUPA_ADMIN_RSS;
    rss.rss.table_addr = kBase + a;
    EXPECT_EQ(port.admin_status(rss), NUPA_E_ADDRESS) << "not even its own, for a table";
    nupa_admin_cmd window = set_window(*windows[1]);
    window.id = 1;
    EXPECT_EQ(port.admin_status(window), NUPA_E_NOENT) << "the neighbour's window";
    EXPECT_EQ(std::count(windows[1]->memory(b), windows[1]->memory(b) + 2 * kPageBytes, 0x77),
              2 * static_cast<long>(kPageBytes));
}

// What it may not send from stops its port, and nobody else's.
TEST_F(Pool, NothingIsSentFromOutsideOfALease) {
    const uint64_t b = windows[1]->lease(kPageBytes);
    FakePort& port = *ports[0];
    port.stage(0, build_ethernet(ports[1]->mac(), port.mac(), 0x88b5, pattern(300, 1)));
    const auto& ring = port.tx(0);
    auto* entry = port.at<nupa_tx_entry>(ring.ring) + ((ring.prod - 1) & (ring.entries - 1));
    entry->buf.addr = kBase + b;
    port.publish(0);
    port.wait_until([&] { return port.status() & NUPA_STATUS_FAILED; }, 0, "failure");
    EXPECT_FALSE(ports[1]->status() & NUPA_STATUS_FAILED);
    ports[1]->must(pool_region(*ports[1], kPoolKey, b));
    EXPECT_FALSE(ports[1]->try_receive(0));
}

// From one host's lease to the other's, placed by the switch.
TEST_F(Pool, PayloadGoesFromLeaseToLease) {
    const uint64_t a = windows[0]->lease(16 * kPageBytes), b = windows[1]->lease(16 * kPageBytes);
    ports[1]->must(pool_region(*ports[1], kPoolKey, b, 16));
    TcpFrame base;
    base.src = ports[0]->mac();
    base.dst = ports[1]->mac();
    base.saddr = 0x0a000001, base.daddr = 0x0a000002;
    FakeQp qp(*ports[1], base);
    const TcpFrame ack = ack_of(base, base.seq);
    ports[1]->send(0, build_tcp(ack, false), offload(ack));
    ports[0]->receive(0);
    qp.post({{0, 16 * kPageBytes}}, kPoolKey);
    const Bytes data = pattern(50000, 3);
    const TcpFrame f = send_message(base, 0, data);
    const Bytes frame = build_tcp(f, false);
    TxOptions options = offload(f, kPooledMss);
    options.split_at = frame.size() - data.size();
    ports[0]->stage(0, frame, options);
    const auto& ring = ports[0]->tx(0);
    auto* entry = ports[0]->at<nupa_tx_entry>(ring.ring) + ((ring.prod - 1) & (ring.entries - 1));
    ASSERT_EQ(entry->buf.bytes, data.size());
    std::memset(ports[0]->ram(entry->buf.addr), 0, data.size());
    std::memcpy(windows[0]->memory(a), data.data(), data.size());
    entry->buf.addr = kBase + a;
    ports[0]->publish(0);
    const RxPacket packet = ports[1]->receive(0);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_PLACED);
    EXPECT_EQ(packet.comp.payload_bytes, data.size());
    EXPECT_EQ(std::memcmp(windows[1]->memory(b), data.data(), data.size()), 0);
}

TEST_F(Pool, ALeaseStaysWhileItMayBePlacedInto) {
    const uint64_t a = windows[0]->lease(kPageBytes);
    ports[0]->must(pool_region(*ports[0], kPoolKey, a));
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_POOL_E_BUSY);
    EXPECT_EQ(pool()["ports"][0]["leases"][0]["regions"], 1);
    ports[0]->must(deregister(kPoolKey));
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
}

TEST_F(Pool, APortsResetTakesItsRegionsOutOfLeases) {
    const uint64_t a = windows[0]->lease(kPageBytes);
    ports[0]->must(pool_region(*ports[0], kPoolKey, a));
    ports[0]->disable();
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
}

TEST_F(Pool, AResetGivesAllBack) {
    windows[0]->lease(kPageBytes);
    windows[0]->lease(kPoolBytes / 2);
    windows[1]->lease(kPageBytes);
    windows[0]->set_control(0);
    EXPECT_EQ(free_bytes(), kPoolBytes - kPageBytes);
    windows[0]->set_control(NUPA_CONTROL_ENABLE);
    EXPECT_FALSE(ports[0]->status() & NUPA_STATUS_FAILED) << "nothing was in them";
    EXPECT_EQ(ports[0]->admin_status(pool_region(*ports[0], kPoolKey, 0)), NUPA_E_ADDRESS);
    windows[0]->lease(kPageBytes);
}

// Under its regions: the port is stopped rather than left with pointers.
TEST_F(Pool, AResetUnderRegionsStopsThatPortOnly) {
    const uint64_t a = windows[0]->lease(kPageBytes);
    ports[0]->must(pool_region(*ports[0], kPoolKey, a));
    windows[0]->set_control(0);
    ports[0]->wait_until([&] { return ports[0]->status() & NUPA_STATUS_FAILED; }, 0, "failure");
    EXPECT_EQ(free_bytes(), kPoolBytes);
    EXPECT_FALSE(ports[1]->status() & NUPA_STATUS_FAILED);
    ports[0]->disable();
    ports[0]->enable();
    EXPECT_EQ(ports[0]->admin_status(set_window(*windows[0])), NUPA_OK);
}

TEST_F(Pool, AHostThatDiesGivesAllBack) {
    const uint64_t a = windows[0]->lease(kPoolBytes);
    std::memset(windows[0]->memory(a), 0x5a, kPoolBytes);
    ports[0]->must(pool_region(*ports[0], kPoolKey, a));
    windows[0]->disconnect();
    wait_all_free();
    const uint64_t b = windows[1]->lease(kPoolBytes);
    EXPECT_TRUE(all_zero(windows[1]->memory(b), kPoolBytes));
    // what it still has mapped is its own alone
    std::memset(windows[0]->memory(a), 0xff, kPoolBytes);
    EXPECT_TRUE(all_zero(windows[1]->memory(b), kPoolBytes));
    FakeWindow next(directory + "p0.pool");
    EXPECT_NE(next.regs()->id, windows[0]->regs()->id);
    EXPECT_TRUE(all_zero(next.memory(), next.bytes()));
}

// ---- leases that change hands ----

TEST_F(Pool, ALeaseIsHandedOverWithWhatIsInIt) {
    constexpr uint64_t kBytes = kPoolBytes / 2;
    const uint64_t a = windows[0]->lease(kBytes);
    const Bytes data = pattern(kBytes, 5);
    std::memcpy(windows[0]->memory(a), data.data(), kBytes);
    const uint64_t token = windows[0]->offer(a);
    EXPECT_EQ(pool()["ports"][0]["leases"][0]["state"], "offered");
    EXPECT_EQ(ports[0]->admin_status(pool_region(*ports[0], kPoolKey, a)), NUPA_E_ADDRESS)
        << "offered";
    const nupa_accel_comp taken = windows[1]->command(FakeWindow::take_cmd(token, kBytes));
    ASSERT_EQ(taken.status, NUPA_ACCEL_OK);
    EXPECT_EQ(taken.result, a) << "the same offset in every window";
    EXPECT_EQ(std::memcmp(windows[1]->memory(a), data.data(), kBytes), 0);
    EXPECT_TRUE(all_zero(windows[0]->memory(a), kBytes)) << "it is still in the other window";
    EXPECT_EQ(ports[0]->admin_status(pool_region(*ports[0], kPoolKey, a)), NUPA_E_ADDRESS)
        << "gone";
    ports[1]->must(pool_region(*ports[1], kPoolKey, a));
    ports[1]->must(deregister(kPoolKey));
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a, token)), NUPA_POOL_E_NOENT);
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_POOL_E_NOENT);
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(token, kBytes)), NUPA_POOL_E_NOENT)
        << "twice";
    const Json shown = pool();
    EXPECT_EQ(shown["handovers"], 1);
    EXPECT_EQ(shown["handover_bytes"], kBytes);
    EXPECT_EQ(shown["ports"][0]["leased_bytes"], 0);
    EXPECT_EQ(windows[1]->status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
    EXPECT_EQ(free_bytes(), kPoolBytes);
}

// Of a lease of which little was written, little is in the machine's memory, before and after.
TEST_F(Pool, WhatNobodyWroteTakesNoMemoryWhereItGoes) {
    constexpr uint64_t kBytes = kPoolBytes / 2, kAt = kBytes / 2 + kPageBytes;
    const auto resident = [&](int port) -> uint64_t {
        return pool()["ports"][port]["resident_bytes"];
    };
    const uint64_t a = windows[0]->lease(kBytes);
    EXPECT_EQ(windows[1]->status(FakeWindow::release_cmd(a)), NUPA_POOL_E_NOENT);
    const uint64_t before = resident(1);  // with the pages of its rings
    const Bytes data = pattern(kPageBytes, 6);
    std::memcpy(windows[0]->memory(a + kAt), data.data(), kPageBytes);
    std::memset(windows[1]->memory(a), 0x5a, kPageBytes);  // a host's stray write, before it is its
    const uint64_t token = windows[0]->offer(a);
    ASSERT_EQ(windows[1]->status(FakeWindow::take_cmd(token, kBytes)), NUPA_ACCEL_OK);
    EXPECT_EQ(resident(1), before + kPageBytes);
    EXPECT_TRUE(all_zero(windows[1]->memory(a), kAt));
    EXPECT_EQ(std::memcmp(windows[1]->memory(a + kAt), data.data(), kPageBytes), 0);
    EXPECT_TRUE(all_zero(windows[1]->memory(a + kAt + kPageBytes), kBytes - kAt - kPageBytes));
}

// The old offer's end is not that of the lease, which came back.
TEST_F(Pool, AnOldTokenReleasesNothing) {
    const uint64_t a = windows[0]->lease(kPageBytes);
    const uint64_t first = windows[0]->offer(a);
    ASSERT_EQ(windows[1]->status(FakeWindow::take_cmd(first, kPageBytes)), NUPA_ACCEL_OK);
    const uint64_t second = windows[1]->offer(a);
    ASSERT_EQ(windows[0]->status(FakeWindow::take_cmd(second, kPageBytes)), NUPA_ACCEL_OK);
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a, first)), NUPA_POOL_E_NOENT);
    const uint64_t third = windows[0]->offer(a);
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a, first)), NUPA_POOL_E_NOENT);
    EXPECT_EQ(windows[0]->status(FakeWindow::take_cmd(third, kPageBytes)), NUPA_ACCEL_OK)
        << "its own";
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
}

TEST_F(Pool, OffersEndWithTheirHost) {
    const uint64_t token = windows[0]->offer(windows[0]->lease(kPageBytes));
    windows[0]->set_control(0);
    windows[0]->set_control(NUPA_CONTROL_ENABLE);
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(token, kPageBytes)), NUPA_POOL_E_NOENT);
    const uint64_t at = windows[0]->lease(kPageBytes);
    const uint64_t next = windows[0]->offer(at);
    EXPECT_EQ(windows[0]->status(FakeWindow::release_cmd(at, next)), NUPA_ACCEL_OK) << "withdrawn";
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(next, kPageBytes)), NUPA_POOL_E_NOENT);
    const uint64_t last = windows[0]->offer(windows[0]->lease(kPageBytes));
    windows[0]->disconnect();
    wait_all_free();
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(last, kPageBytes)), NUPA_POOL_E_NOENT);
}

TEST_F(Pool, WhatIsNotOfferedIsNotTaken) {
    const uint64_t a = windows[0]->lease(2 * kPageBytes);
    const uint64_t token = windows[0]->offer(a);
    EXPECT_EQ(windows[0]->status(FakeWindow::offer_cmd(a)), NUPA_POOL_E_NOENT) << "twice";
    EXPECT_EQ(windows[1]->status(FakeWindow::offer_cmd(a)), NUPA_POOL_E_NOENT) << "another's";
    EXPECT_EQ(windows[1]->status(FakeWindow::release_cmd(a, token)), NUPA_POOL_E_NOENT);
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(token, kPageBytes)), NUPA_POOL_E_NOENT)
        << "a part of it";
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(token + 1, 2 * kPageBytes)),
              NUPA_POOL_E_NOENT);
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(0, 2 * kPageBytes)), NUPA_ACCEL_E_INVALID);
    const uint64_t held = windows[1]->lease(kPageBytes);
    ports[1]->must(pool_region(*ports[1], kPoolKey, held));
    EXPECT_EQ(windows[1]->status(FakeWindow::offer_cmd(held)), NUPA_POOL_E_BUSY);
    EXPECT_EQ(windows[1]->status(FakeWindow::take_cmd(token, 2 * kPageBytes)), NUPA_ACCEL_OK);
}

// 1,000 hosts that die around a hand-over: each page is somebody's, once, or free.
TEST_F(Pool, AHostMayDieInAHandOver) {
    const uint32_t seed = test::chosen_seed();
    SCOPED_TRACE("NUPA_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    for (unsigned i = 0; i < kHandOverDeaths; i++) {
        const uint64_t bytes = (1 + random() % 64) * kPageBytes;
        const unsigned from = random() % 2, dies = random() % 2;
        const uint64_t a = windows[from]->lease(bytes);
        std::memset(windows[from]->memory(a), 0x77, bytes);
        const uint64_t token = windows[from]->offer(a);
        FakeWindow& taker = *windows[1 - from];
        taker.start(FakeWindow::take_cmd(token, bytes));
        if (random() % 2 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        windows[dies] = nullptr;
        if (dies == from && taker.finish().status == NUPA_ACCEL_OK) {
            ASSERT_EQ(std::count(taker.memory(a), taker.memory(a) + bytes, 0x77),
                      static_cast<long>(bytes));
            ASSERT_EQ(taker.status(FakeWindow::release_cmd(a)), NUPA_ACCEL_OK);
        }
        windows[dies] =
            std::make_unique<FakeWindow>(directory + (dies == 0 ? "p0" : "p1") + ".pool");
        windows[dies]->set_control(NUPA_CONTROL_ENABLE);
        if (dies != from)  // it took it and is gone, or the offer stands
            windows[from]->status(FakeWindow::release_cmd(a, token));
        ASSERT_EQ(free_bytes(), kPoolBytes) << "after death " << i;
        ASSERT_TRUE(all_zero(windows[from]->memory(a), bytes));
        ASSERT_TRUE(all_zero(windows[1 - from]->memory(a), bytes));
    }
}

// In the middle of commands that take turns.
TEST_F(Pool, AHostMayDieAtAnyMoment) {
    for (int i = 0; i < 50; i++) {
        FakeWindow& window = *windows[0];
        const nupa_accel_cmd cmd = FakeWindow::lease_cmd(kPoolBytes);
        for (unsigned slot = 0; slot < 8; slot++)
            std::memcpy(
                reinterpret_cast<uint8_t*>(window.regs()) + NUPA_ACCEL_CMDS_AT + slot * sizeof(cmd),
                &cmd, sizeof(cmd));
        __atomic_store_n(&window.ring()->prod, 8u, __ATOMIC_RELEASE);
        window.ring_doorbell();
        windows[0] = nullptr;
        windows[0] = std::make_unique<FakeWindow>(directory + "p0.pool");
        windows[0]->set_control(NUPA_CONTROL_ENABLE);
        EXPECT_EQ(windows[0]->lease(kPoolBytes), 0u);
    }
    windows[0] = nullptr;
    wait_all_free();
}

// Registers, ring and table of commands are the guest's to write; it harms itself.
TEST_F(Pool, ScribblesHarmNobodyElse) {
    windows[1]->lease(kPageBytes);
    std::memset(windows[0]->regs(), 0xff, NUPA_ACCEL_CONTROL_BYTES);
    windows[0]->ring_doorbell();
    EXPECT_EQ(windows[1]->lease(kPageBytes), kPageBytes);
    EXPECT_EQ(pool()["ports"][1]["leased_bytes"], 2 * kPageBytes);
    windows[0] = nullptr;
    windows[0] = std::make_unique<FakeWindow>(directory + "p0.pool");
    windows[0]->set_control(NUPA_CONTROL_ENABLE);
    EXPECT_EQ(windows[0]->lease(kPageBytes), 2 * kPageBytes);
}

// A guest that does what it likes with its window and its port, beside one whose bytes must stay.
TEST_F(Pool, ARandomGuestHarmsNobodyElse) {
    const uint32_t seed = test::chosen_seed();
    SCOPED_TRACE("NUPA_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    const uint64_t b = windows[1]->lease(16 * kPageBytes);
    std::memset(windows[1]->memory(b), 0x77, 16 * kPageBytes);
    ports[1]->must(pool_region(*ports[1], kPoolKey, b, 16));
    const auto page = [&] { return random() % (kPoolBytes / kPageBytes + 8) * kPageBytes; };
    const auto heal = [&] {
        windows[0] = nullptr;
        windows[0] = std::make_unique<FakeWindow>(directory + "p0.pool");
        windows[0]->set_control(NUPA_CONTROL_ENABLE);
        ports[0]->disable();
        ports[0]->enable();
        ports[0]->must(set_window(*windows[0]));
    };
    uint64_t token = 1;
    for (unsigned step = 0; step < 600; step++) {
        FakeWindow& window = *windows[0];
        FakePort& port = *ports[0];
        const uint32_t key = random() % 8;
        const unsigned what = random() % 36;
        if (what == 0) {
            heal();
        } else if (what == 1) {  // any bytes for registers, ring and commands
            auto* at = reinterpret_cast<uint8_t*>(window.regs());
            for (int i = 0; i < 4096; i++)
                at[random() % NUPA_ACCEL_CONTROL_BYTES] = static_cast<uint8_t>(random());
            window.ring_doorbell();
            heal();
        } else if (what == 2) {  // under its regions, as it may be
            window.set_control(0);
            heal();
        } else if (what == 3) {
            std::memset(window.memory(random() % kPoolBytes), 0x5a, kPageBytes);
        } else if (what < 13) {
            const nupa_accel_comp comp =
                window.command(FakeWindow::lease_cmd((1 + random() % 300) * kPageBytes));
            ASSERT_TRUE(comp.status != NUPA_ACCEL_OK ||
                        all_zero(window.memory(comp.result), kPageBytes));
        } else if (what < 21) {
            window.command(FakeWindow::release_cmd(page()));
        } else if (what < 29) {
            port.admin_status(pool_region(port, key, page(), 1 + random() % 4));
        } else if (what < 32) {
            port.admin_status(deregister(key));
        } else if (what < 35) {
            const nupa_accel_comp comp = window.command(FakeWindow::offer_cmd(page()));
            token = comp.status == NUPA_ACCEL_OK ? comp.result : token;
        } else {
            const uint64_t bytes = (1 + random() % 4) * kPageBytes;
            FakeWindow& taker = *windows[random() % 2];
            const nupa_accel_comp comp =
                taker.command(FakeWindow::take_cmd(token ^ (random() % 8 == 0), bytes));
            if (comp.status == NUPA_ACCEL_OK && &taker == windows[1].get()) {
                ASSERT_EQ(taker.status(FakeWindow::release_cmd(comp.result)), NUPA_ACCEL_OK);
            }
        }
        if (step % 50 == 0) {
            ASSERT_EQ(windows[1]->status(FakeWindow::release_cmd(b)), NUPA_POOL_E_BUSY);
        }
    }
    EXPECT_EQ(std::count(windows[1]->memory(b), windows[1]->memory(b) + 16 * kPageBytes, 0x77),
              16 * static_cast<long>(kPageBytes));
    EXPECT_FALSE(ports[1]->status() & NUPA_STATUS_FAILED);
    windows[0] = nullptr;
    ports[1]->must(deregister(kPoolKey));
    ASSERT_EQ(windows[1]->status(FakeWindow::release_cmd(b)), NUPA_ACCEL_OK);
    wait_all_free();
}

TEST(PoolShare, IsAnEqualPartUnlessSaid) {
    const std::string directory = make_directory() + "/";
    const auto port = [&](const std::string& name, const std::string& more) {
        const std::string path = directory + name;
        return "name=" + name + ",socket=" + path + ".socket,ram=" + path + ".ram,pool=" + path +
               ".pool" + more;
    };
    {
        DaemonProcess daemon(0, {"--mode", "cxl", "--pool-mib", "4", "--port", port("p0", ""),
                                 "--port", port("p1", ",share-mib=3")});
        FakeWindow greedy(directory + "p0.pool"), other(directory + "p1.pool");
        greedy.set_control(NUPA_CONTROL_ENABLE);
        other.set_control(NUPA_CONTROL_ENABLE);
        EXPECT_EQ(greedy.status(FakeWindow::lease_cmd(kPoolBytes)), NUPA_POOL_E_SHARE);
        EXPECT_EQ(greedy.status(FakeWindow::lease_cmd(2 * kPoolBytes)), NUPA_POOL_E_NOSPACE);
        greedy.lease(kPoolBytes / 2 - kPageBytes);
        const uint64_t last = greedy.lease(kPageBytes);
        EXPECT_EQ(greedy.status(FakeWindow::lease_cmd(kPageBytes)), NUPA_POOL_E_SHARE);
        EXPECT_EQ(greedy.status(FakeWindow::release_cmd(last)), NUPA_ACCEL_OK);
        greedy.lease(kPageBytes);
        other.lease(kPoolBytes / 2);
        EXPECT_EQ(other.status(FakeWindow::lease_cmd(kPageBytes)), NUPA_POOL_E_NOSPACE)
            << "its share is more, and nothing is free";
        const Json shown = daemon.control({{"cmd", "pool"}});
        EXPECT_EQ(shown["ports"][0]["share_bytes"], kPoolBytes / 2);
        EXPECT_EQ(shown["ports"][1]["share_bytes"], 3 << 20);
        EXPECT_NE(nupactl(daemon, {"pool"}).out.find("SHARE"), std::string::npos);
    }
    std::filesystem::remove_all(directory);
}

TEST(PoolOptions, GoTogether) {
    const auto start = [](std::vector<std::string> more) {
        std::vector<std::string> argv{NUPA_SWITCH_PROGRAM, "--control", "/tmp/none"};
        argv.insert(argv.end(), more.begin(), more.end());
        return run(argv);
    };
    const std::string port = "name=a,socket=/tmp/s,ram=/tmp/r";
    EXPECT_EQ(start({"--port", port + ",pool=/tmp/p"}).status, 2) << "in mode pcie";
    EXPECT_EQ(start({"--mode", "cxl", "--port", port}).status, 2);
    EXPECT_EQ(start({"--mode", "cxl", "--port", port + ",pool=/tmp/s"}).status, 2)
        << "the same socket";
    for (const char* share : {"0", "-1", "1x", "99999999"})
        EXPECT_EQ(
            start({"--mode", "cxl", "--port", port + ",pool=/tmp/p,share-mib=" + share}).status, 2)
            << share;
    EXPECT_EQ(start({"--port", port + ",share-mib=1"}).status, 2) << "without a pool";
    EXPECT_NE(start({"--mode", "other", "--port", port}).status, 0);
}

TEST(PoolOptions, ModePcieHasNoPool) {
    DaemonProcess daemon(1);
    EXPECT_EQ(daemon.control({{"cmd", "pool"}})["mode"], "pcie");
    EXPECT_NE(nupactl(daemon, {"pool"}).out.find("no pool"), std::string::npos);
}

}  // namespace
}  // namespace nupa::testing
