// SPDX-License-Identifier: BSD-3-Clause
// The uplink, seen from the host's side of the TAP interface by a packet socket.
// In a network namespace of its own; skipped where neither that nor a TAP may be made.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "two_ports.hpp"

namespace nupa::testing {
namespace {

constexpr const char* kIfname = "nupatest0";
constexpr uint16_t kTapMss = 1448;

// struct virtio_net_hdr
struct VnetHeader {
    uint8_t flags = 0;
    uint8_t gso_type = 0;
    uint16_t header_bytes = 0;
    uint16_t gso_size = 0;
    uint16_t csum_start = 0;
    uint16_t csum_offset = 0;
};

// Frames into and out of the interface, as the host's stack would send and get them.
class PacketSocket {
public:
    PacketSocket() : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(kAllProtocols))) {
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(kAllProtocols);
        address.sll_ifindex = static_cast<int>(::if_nametoindex(kIfname));
        int on = 1;
        ::setsockopt(fd_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on));
        ::setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
        if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0)
            throw std::runtime_error("bind to the tap");
    }
    ~PacketSocket() { ::close(fd_); }

    void send(const VnetHeader& head, const Bytes& frame) const {
        Bytes all(sizeof(head) + frame.size());
        std::memcpy(all.data(), &head, sizeof(head));
        std::memcpy(all.data() + sizeof(head), frame.data(), frame.size());
        if (::send(fd_, all.data(), all.size(), 0) != static_cast<ssize_t>(all.size()))
            throw std::runtime_error(std::string("send: ") + std::strerror(errno));
    }
    // The next frame from @src; the kernel's own chatter is passed over.
    Bytes receive(const Mac& src) const {
        Bytes buffer(128 << 10);
        for (pollfd p{.fd = fd_, .events = POLLIN, .revents = 0}; ::poll(&p, 1, kWaitMs) == 1;) {
            ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), 0);
            if (n < static_cast<ssize_t>(sizeof(VnetHeader)) + 14)
                continue;
            const uint8_t* frame = buffer.data() + sizeof(VnetHeader);
            if (std::memcmp(frame + 6, src.data(), src.size()) != 0)
                continue;
            return {frame, static_cast<const uint8_t*>(buffer.data()) + n};
        }
        throw std::runtime_error("no frame from the tap");
    }

private:
    static constexpr uint16_t kAllProtocols = 3;
    int fd_;
};

// A network of our own: as root at once, else as root of a user namespace. Without the mapping the
// daemon would lose that right when it is executed.
bool own_network() {
    if (::unshare(CLONE_NEWNET) == 0)
        return true;
    const uid_t user = ::geteuid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1\n";
    return ::geteuid() == 0;
}

bool tap_possible() {
    static const bool possible = [] {
        if (!own_network())
            return false;
        int fd = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            ::close(fd);
        return fd >= 0;
    }();
    return possible;
}

struct Tap : ::testing::Test {
    void SetUp() override {
        if (!tap_possible())
            GTEST_SKIP() << "needs root or user namespaces, and /dev/net/tun";
        daemon = std::make_unique<DaemonProcess>(
            1, std::vector<std::string>{"--tap", std::string("name=up0,ifname=") + kIfname});
        port = daemon->plug(0);
        port->enable();
        port->create_queues(0);
        port->set_rx_mode(kModeAll, port->mac());
        host = std::make_unique<PacketSocket>();
    }
    TcpFrame frame(bool to_port) {
        TcpFrame f;
        f.src = to_port ? kHostMac : port->mac();
        f.dst = to_port ? port->mac() : kHostMac;
        return f;
    }
    // Skips what the host's own stack says (neighbour discovery is multicast, filtered by the
    // port).
    RxPacket receive_from_host() {
        for (;;) {
            RxPacket packet = port->receive(0);
            if (std::memcmp(packet.header.data() + 6, kHostMac.data(), 6) == 0)
                return packet;
        }
    }
    static constexpr Mac kHostMac{0x02, 0xaa, 0, 0, 0, 1};
    std::unique_ptr<DaemonProcess> daemon;
    std::unique_ptr<FakePort> port;
    std::unique_ptr<PacketSocket> host;
};

TEST_F(Tap, FramesPassUnchangedBothWays) {
    Bytes down = build_ethernet(port->mac(), kHostMac, kTestType, pattern(500, 1));
    host->send({}, down);
    EXPECT_EQ(receive_from_host().whole(), down);
    Bytes up = build_ethernet(kHostMac, port->mac(), kTestType, pattern(500, 2));
    port->send(0, up);
    EXPECT_EQ(host->receive(port->mac()), up);
}

TEST_F(Tap, HostsBurstIsCutAndMerged) {
    TcpFrame f = frame(true);
    f.payload = pattern(20 * kTapMss, 1);
    VnetHeader head;
    head.flags = 1;     // needs checksum
    head.gso_type = 1;  // TCPv4
    head.header_bytes = static_cast<uint16_t>(header_bytes(f));
    head.gso_size = kTapMss;
    head.csum_start = 34;
    head.csum_offset = 16;
    host->send(head, build_tcp(f, false));
    RxPacket packet = receive_from_host();
    auto got = parse_tcp(packet.whole());
    ASSERT_TRUE(got);
    EXPECT_EQ(got->payload, f.payload);
    EXPECT_EQ(packet.comp.gso_segs, 20);
    EXPECT_TRUE(packet.comp.flags & NUPA_RX_F_CSUM_OK);
}

TEST_F(Tap, GuestsBurstReachesTheHostAsRightSegments) {
    host->send({}, build_ethernet(kBroadcast, kHostMac, kTestType,
                                  pattern(60, 1)));  // so that the switch knows us
    receive_from_host();
    TcpFrame f = frame(false);
    f.payload = pattern(5 * kTapMss + 9, 1);
    port->send(0, build_tcp(f, false), offload(f, kTapMss));
    Bytes all;
    for (int i = 0; i < 6; i++) {
        Bytes segment = host->receive(port->mac());
        EXPECT_TRUE(checksums_right(segment));
        auto got = parse_tcp(segment);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->seq, f.seq + all.size());
        all.insert(all.end(), got->payload.begin(), got->payload.end());
    }
    EXPECT_EQ(all, f.payload);
}

// Its descriptor is ready for ever then.
TEST_F(Tap, AnInterfaceThatGoesIsToldAndNotLookedAtAgain) {
    ASSERT_EQ(
        run({"/bin/sh", "-c", std::string("PATH=$PATH:/sbin:/usr/sbin ip link delete ") + kIfname})
            .status,
        0);
    const auto state = [this] {
        return daemon->control({{"cmd", "ports"}})["ports"][1]["state"].get<std::string>();
    };
    for (int i = 0; i < 100 && state() == "running"; i++)
        ::usleep(10'000);
    EXPECT_EQ(state(), "failed");
    const double before = daemon->cpu_seconds();
    ::usleep(500'000);
    EXPECT_LT(daemon->cpu_seconds() - before, 0.1);
    port->send(0, build_ethernet(kHostMac, port->mac(), kTestType, pattern(500, 2)));
    port->wait_sent(0);
}

TEST_F(Tap, IsListedAsOne) {
    auto control = daemon->control({{"cmd", "ports"}});
    EXPECT_EQ(control["ports"][1]["kind"], "tap");
    EXPECT_EQ(control["ports"][1]["ifname"], kIfname);
}

}  // namespace
}  // namespace nupa::testing
