// SPDX-License-Identifier: BSD-3-Clause
// Long buffers: which runs get them, what comes where there are none, and hosts that break their
// rules.
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "ports/vm/rx_buffers.hpp"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

using daemon::best_buffers;
using daemon::BufferCount;

constexpr uint16_t kLongRunMss = 1448;
constexpr uint32_t kShortBytes = 4096, kLongBytes = 65536;
constexpr size_t kIpv4TcpBytes = 40;

constexpr QueueShape long_shape(uint32_t longs = 0) {
    QueueShape shape;
    shape.long_entries = 64;
    shape.long_buf_bytes = kLongBytes;
    shape.longs = longs;
    return shape;
}

// Port 0 sends; port 1 has long buffers and takes runs of IPv4 up to @run4_max_bytes.
struct LongRuns : ::testing::Test {
    std::optional<Ports> ports;

    void start(const QueueShape& shape, uint32_t run4_max_bytes = NUPA_RX_RUN_MAX_BYTES) {
        ports.emplace(1, kModeAll, QueueShape{}, 1, 64 << 20, 1);
        FakePort& rx = *ports->ports.emplace_back(ports->daemon.plug(1, 64 << 20));
        rx.enable();
        rx.create_queues(0, shape);
        rx.set_rx_mode(kModeAll, rx.mac(), 9000, 0, run4_max_bytes);
    }
    FakePort& tx() { return (*ports)[0]; }
    FakePort& rx() { return (*ports)[1]; }

    TcpFrame burst(size_t bytes, uint32_t seq = 1, bool v6 = false) {
        TcpFrame f = ports->frame(0, 1);
        f.v6 = v6;
        f.seq = seq;
        f.payload = pattern(bytes, seq);
        return f;
    }
    void send(const TcpFrame& f, uint16_t mss = kLongRunMss) {
        tx().send(0, build_tcp(f, false), offload(f, mss));
        tx().wait_sent(0);
    }
    // All that has come, packet by packet.
    std::vector<RxPacket> take() {
        std::vector<RxPacket> all;
        while (auto packet = rx().try_receive(0))
            all.push_back(std::move(*packet));
        return all;
    }
    static Bytes payload(const std::vector<RxPacket>& packets) {
        Bytes all;
        for (const RxPacket& packet : packets) {
            auto f = parse_tcp(packet.whole());
            if (!f)
                throw std::runtime_error("not TCP");
            all.insert(all.end(), f->payload.begin(), f->payload.end());
        }
        return all;
    }
};

TEST(RxBuffers, BestBuffers) {
    for (uint32_t bytes = 1; bytes <= NUPA_RX_RUN_MAX_BYTES; bytes += bytes < 70000 ? 1 : 61) {
        const BufferCount n = best_buffers(bytes, kShortBytes, kLongBytes);
        const uint64_t room = uint64_t{n.longs} * kLongBytes + uint64_t{n.shorts} * kShortBytes;
        ASSERT_LE(n.all(), uint32_t{NUPA_RX_BUFS_PER_PACKET_MAX}) << bytes;
        ASSERT_GE(room, bytes);
        ASSERT_LT(room - bytes, n.shorts ? kShortBytes : kLongBytes)
            << bytes << ": the last is used";
        ASSERT_LE(room - bytes, std::max(kShortBytes, bytes / daemon::kEmptyPart)) << bytes;
    }
    EXPECT_EQ(best_buffers(1448, kShortBytes, kLongBytes), (BufferCount{0, 1}));
    EXPECT_EQ(best_buffers(kLongBytes, kShortBytes, kLongBytes), (BufferCount{1, 0}));
    EXPECT_EQ(best_buffers(1 << 20, kShortBytes, kLongBytes), (BufferCount{16, 0}));
    EXPECT_EQ(best_buffers((1 << 20) + 1, kShortBytes, kLongBytes), (BufferCount{17, 0}));
    EXPECT_EQ(best_buffers(2 * kLongBytes + 1, kShortBytes, kLongBytes), (BufferCount{2, 1}));
    EXPECT_EQ(best_buffers(70000, kShortBytes, 0), (BufferCount{0, 18})) << "no long ones";
}

TEST_F(LongRuns, LongRunIsOnePacketInLongBuffers) {
    start(long_shape());
    const TcpFrame f = burst(700 * kLongRunMss + 11);
    send(f);
    const auto packets = take();
    ASSERT_EQ(packets.size(), 1u);
    const nupa_rx_comp& comp = packets[0].comp;
    EXPECT_EQ(comp.gso_size, kLongRunMss);
    EXPECT_EQ(comp.gso_segs, 701);
    EXPECT_EQ(comp.payload_bytes, f.payload.size());
    EXPECT_EQ((BufferCount{comp.long_bufs, comp.bufs}),
              best_buffers(comp.payload_bytes, kShortBytes, kLongBytes));
    EXPECT_GE(comp.long_bufs, 15);
    EXPECT_EQ(packets[0].header[16] | packets[0].header[17], 0) << "IPv4 total length: none";
    EXPECT_EQ(payload(packets), f.payload);
}

TEST_F(LongRuns, ShortRunsGetShortBuffers) {
    start(long_shape());
    size_t sent = 0;
    for (const size_t bytes : {300u, 1448u, 9000u, 40000u}) {
        send(burst(bytes, static_cast<uint32_t>(1 + sent)));
        sent += bytes;
        const auto packets = take();
        ASSERT_EQ(packets.size(), 1u);
        EXPECT_EQ(packets[0].comp.long_bufs, 0) << bytes;
        EXPECT_EQ(packets[0].comp.bufs, (bytes + kShortBytes - 1) / kShortBytes);
    }
}

TEST_F(LongRuns, RunsAreNoLongerThanTheHostSays) {
    for (const uint32_t run4_max : {0u, 40u, 41u, 2000u, 65535u, 65536u, 200000u}) {
        start(long_shape(), run4_max);
        const TcpFrame f = burst(400 * kLongRunMss);
        send(f);
        const auto packets = take();
        const size_t limit =
            std::max<size_t>(run4_max ? run4_max : 65535, kIpv4TcpBytes + kLongRunMss);
        for (const RxPacket& packet : packets)
            EXPECT_LE(packet.comp.payload_bytes + kIpv4TcpBytes, limit);
        EXPECT_EQ(
            packets.size(),
            (f.payload.size() - 1) / ((limit - kIpv4TcpBytes) / kLongRunMss * kLongRunMss) + 1);
        EXPECT_EQ(payload(packets), f.payload);
    }
}

TEST_F(LongRuns, Ipv6HasNoLongerRunsThanItsHeaderCanSay) {
    start(long_shape());
    const TcpFrame f = burst(400 * kLongRunMss, 1, true);
    send(f);
    const auto packets = take();
    EXPECT_EQ(packets.size(), 9u) << "of 45 segments";
    for (const RxPacket& packet : packets)
        EXPECT_LE(packet.comp.payload_bytes, 65535u);
    EXPECT_EQ(packets[0].comp.long_bufs, 1);
    EXPECT_EQ(packets[0].comp.bufs, 0);
    EXPECT_EQ(payload(packets), f.payload);
}

// As many long buffers as there are, and short ones for what they do not hold.
TEST_F(LongRuns, WithFewLongBuffersShortOnesDo) {
    for (const uint32_t longs : {1u, 2u, 5u}) {
        QueueShape shape = long_shape(longs);
        shape.fill_entries = 1024;
        start(shape);
        const TcpFrame f = burst(700 * kLongRunMss);
        send(f);
        const auto packets = take();
        uint32_t used = 0;
        for (const RxPacket& packet : packets)
            used += packet.comp.long_bufs;
        EXPECT_EQ(used, longs);
        EXPECT_EQ(payload(packets), f.payload);
        EXPECT_EQ(ports->stat(1, NUPA_STAT_rx_drop_no_buffer), 0u);
    }
}

// A run that grows beyond its long buffers goes up as it is, and another one begins.
TEST_F(LongRuns, SegmentsOneByOneFillBothKinds) {
    QueueShape shape = long_shape(3);
    shape.fill_entries = 1024;
    start(shape);
    ports->daemon.control({{"cmd", "faults"},  // of a flow that nobody has: bursts are cut for it
                           {"port", "n1"},
                           {"flow", {{"dport", 7}}},
                           {"set", {{"loss", 1}}}});
    const TcpFrame f = burst(300 * kLongRunMss);
    send(f);
    const auto packets = take();
    EXPECT_EQ(payload(packets), f.payload);
    uint32_t used = 0;
    for (const RxPacket& packet : packets)
        used += packet.comp.long_bufs;
    EXPECT_EQ(used, 3u);
}

TEST_F(LongRuns, AnyLengthsAnyBuffersEveryByteInOrder) {
    std::mt19937_64 random(20);
    QueueShape shape = long_shape(7);
    shape.fill_entries = 256;
    shape.buf_bytes = 2048;
    start(shape);
    uint32_t seq = 1;
    for (unsigned round = 0; round < 300; round++) {
        const uint16_t mss = static_cast<uint16_t>(536 + random() % 8000);
        const TcpFrame f =
            burst(1 + random() % (random() % 4 ? 60000 : 200000), seq, random() % 4 == 0);
        send(f, mss);
        const auto packets = take();
        ASSERT_EQ(payload(packets), f.payload) << round;
        for (const RxPacket& packet : packets)
            ASSERT_LE(packet.comp.bufs + packet.comp.long_bufs, NUPA_RX_BUFS_PER_PACKET_MAX);
        seq += static_cast<uint32_t>(f.payload.size());
    }
    EXPECT_EQ(ports->stat(1, NUPA_STAT_rx_drop_no_buffer), 0u);
}

TEST_F(LongRuns, LongIndexBeyondTheRing) {
    start(long_shape());
    __atomic_store_n(&rx().rxq(0)->long_prod, 65u, __ATOMIC_RELEASE);
    send(burst(200 * kLongRunMss));
    rx().wait_until([&] { return (rx().status() & NUPA_STATUS_FAILED) != 0; }, 0, "failure");
}

TEST_F(LongRuns, LongIndexGoingBack) {
    start(long_shape());
    send(burst(700 * kLongRunMss));
    __atomic_store_n(&rx().rxq(0)->long_prod, 3u, __ATOMIC_RELEASE);
    for (uint32_t i = 1; i < 6; i++)
        send(burst(700 * kLongRunMss, i));
    rx().wait_until([&] { return (rx().status() & NUPA_STATUS_FAILED) != 0; }, 0, "failure");
}

TEST_F(LongRuns, LongBufferOutsideMemory) {
    start(long_shape());
    rx().at<nupa_rx_fill>(rx().rx(0).longs.ring)[0].addr = (64ull << 20) - kLongBytes + 1;
    send(burst(200 * kLongRunMss));
    rx().wait_until([&] { return (rx().status() & NUPA_STATUS_FAILED) != 0; }, 0, "failure");
}

// A driver that knows no long buffers and says nothing of runs: as before there were any.
TEST_F(LongRuns, OldDriver) {
    start(QueueShape{}, 0);
    const TcpFrame f = burst(300 * kLongRunMss);
    send(f);
    const auto packets = take();
    for (const RxPacket& packet : packets) {
        EXPECT_EQ(packet.comp.long_bufs, 0);
        EXPECT_LE(packet.comp.payload_bytes, 65535u);
    }
    EXPECT_EQ(payload(packets), f.payload);
}

}  // namespace
}  // namespace nupa::testing
