// SPDX-License-Identifier: BSD-3-Clause
// Plugging, enabling, resetting, pulling the plug; the daemon's own start and end.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fake_qp.hpp"
#include "stderr_to.hpp"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

Bytes test_frame(FakePort& from, FakePort& to, uint32_t seed) {
    return build_ethernet(to.mac(), from.mac(), kTestType, pattern(300, seed));
}

TEST(Lifecycle, RegistersBeforeEnable) {
    DaemonProcess daemon(2);
    auto a = daemon.plug(0);
    auto b = daemon.plug(1);
    const nupa_regs& r = *b->regs();
    EXPECT_EQ(r.magic, static_cast<uint32_t>(NUPA_MAGIC));
    EXPECT_EQ(r.abi_major, NUPA_ABI_MAJOR);
    EXPECT_EQ(r.status, static_cast<uint32_t>(NUPA_STATUS_LINK_UP));
    EXPECT_EQ(r.port_id, 1);
    EXPECT_EQ(r.queue_pairs, 4);
    EXPECT_TRUE(r.features & NUPA_FEAT_QP);
    EXPECT_NE(a->mac(), b->mac());
    EXPECT_EQ(a->mac()[0], 0x02);
    EXPECT_EQ(r.mtu_max, static_cast<uint32_t>(NUPA_MTU_MAX));
    EXPECT_GT(r.qps_max, 100000u);
}

TEST(Lifecycle, ResetTakesQueuesMrsAndQpsAway) {
    Ports p(2);
    TcpFrame base = p.frame(0, 1);
    FakeMr mr(p[1], 7, 0x10000, 8192, 5, NUPA_ACCESS_LOCAL_WRITE);
    FakeQp qp(p[1], base);
    EXPECT_EQ(p.daemon.control({{"cmd", "qps"}})["qps"].size(), 1u);
    p[1].disable();
    EXPECT_FALSE(p[1].status() & NUPA_STATUS_READY);
    EXPECT_EQ(p.daemon.control({{"cmd", "qps"}})["qps"].size(), 0u);
    p[1].enable();
    EXPECT_TRUE(p[1].status() & NUPA_STATUS_READY);
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_DEREG;
    cmd.id = 7;
    EXPECT_EQ(p[1].admin_status(cmd), NUPA_E_NOENT);
    cmd.op = NUPA_ADMIN_TXQ_DESTROY;
    cmd.id = 0;
    EXPECT_EQ(p[1].admin_status(cmd), NUPA_E_NOENT);
    p[1].create_queues(0);
    p[1].set_rx_mode(kModeAll, p[1].mac());
    p[0].send(0, test_frame(p[0], p[1], 1));
    EXPECT_EQ(p[1].receive(0).whole(), test_frame(p[0], p[1], 1));
}

TEST(Lifecycle, EnableTwiceIsAReset) {
    Ports p(1);
    p[0].enable();
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_RXQ_DESTROY;
    EXPECT_EQ(p[0].admin_status(cmd), NUPA_E_NOENT);
}

TEST(Lifecycle, QueuesCanBeDestroyedAndMadeAgain) {
    Ports p(2);
    for (uint16_t op : {NUPA_ADMIN_TXQ_DESTROY, NUPA_ADMIN_RXQ_DESTROY}) {
        nupa_admin_cmd cmd{};
        cmd.op = op;
        p[1].must(cmd);
        EXPECT_EQ(p[1].admin_status(cmd), NUPA_E_NOENT);
    }
    p[0].send(0, test_frame(p[0], p[1], 1));
    p[0].wait_sent(0);
    EXPECT_EQ(p.stat(1, NUPA_STAT_rx_drop_no_queue), 1u);
    p[1].create_queues(0);
    p[0].send(0, test_frame(p[0], p[1], 2));
    EXPECT_EQ(p[1].receive(0).whole(), test_frame(p[0], p[1], 2));
}

TEST(Lifecycle, AfterUnpluggingTheNextHostFindsACleanPort) {
    Ports p(2);
    p[0].send(0, test_frame(p[0], p[1], 1));
    p[1].receive(0);
    for (int round = 0; round < 5; round++) {
        const Mac mac = p[1].mac();
        p.ports[1].reset();
        p[0].send(0, build_ethernet(mac, p[0].mac(), kTestType, pattern(60, 1)));  // into the void
        p[0].wait_sent(0);
        p.ports[1] = p.daemon.plug(1);
        EXPECT_EQ(p[1].status(), static_cast<uint32_t>(NUPA_STATUS_LINK_UP));
        EXPECT_EQ(p[1].regs()->reset_ack, 0u);
        p[1].enable();
        p[1].create_queues(0);
        p[1].set_rx_mode(kModeAll, p[1].mac());
        EXPECT_EQ(p.stat(1, NUPA_STAT_rx_packets), 0u);
        p[0].send(0, test_frame(p[0], p[1], 2));
        EXPECT_EQ(p[1].receive(0).whole(), test_frame(p[0], p[1], 2));
    }
}

TEST(Lifecycle, WhoComesAndGoesDoesNotFillTheLog) {
    const auto lines = stderr_of([] {
        DaemonProcess daemon(2);
        for (int i = 0; i < 100; i++)
            daemon.plug(0, 1 << 20);
        const auto stays = daemon.plug(0, 1 << 20);
        for (int i = 0; i < 100; i++)
            EXPECT_THROW(FakePort(daemon.path("n0.sock"), daemon.path("other.ram"), 1 << 20),
                         std::runtime_error);
        daemon.plug(1, 1 << 20);
        daemon.stop(SIGTERM);
    });
    const auto of = [&](const char* port) {
        return std::ranges::count_if(
            lines, [port](const std::string& line) { return line.find(port) != line.npos; });
    };
    EXPECT_GT(of("n0: "), 1);
    EXPECT_LT(of("n0: "), 50);
    EXPECT_EQ(of("n1: "), 2);  // what another one does costs it no line
}

TEST(Lifecycle, SecondClientIsTurnedAway) {
    Ports p(2);
    EXPECT_THROW(FakePort(p.daemon.path("n1.sock"), p.daemon.path("other.ram"), 1 << 20),
                 std::runtime_error);
    p[0].send(0, test_frame(p[0], p[1], 1));
    EXPECT_EQ(p[1].receive(0).whole(), test_frame(p[0], p[1], 1));
}

TEST(Lifecycle, PluggedButNotEnabledReceivesNothing) {
    DaemonProcess daemon(2);
    auto a = daemon.plug(0);
    auto b = daemon.plug(1);
    a->enable();
    a->create_queues(0);
    a->set_rx_mode(kModeAll, a->mac());
    a->send(0, build_ethernet(kBroadcast, a->mac(), kTestType, pattern(60, 1)));
    a->wait_sent(0);
    auto stats = daemon.control({{"cmd", "stats"}, {"port", "n1"}})["stats"]["n1"];
    EXPECT_EQ(stats["rx_drop_no_queue"], 1);
}

TEST(Lifecycle, MissingMemoryFileFailsThePortWithAReason) {
    DaemonProcess daemon(1);
    auto a = daemon.plug(0);
    std::filesystem::remove(daemon.path("n0.ram"));
    EXPECT_NO_THROW(a->enable());
    EXPECT_TRUE(a->status() & NUPA_STATUS_FAILED);
}

TEST(Lifecycle, LinkDownStopsTrafficAndTellsTheHost) {
    Ports p(2);
    const uint32_t events = p[1].regs()->event_seq;
    EXPECT_TRUE(p.daemon.control({{"cmd", "link"}, {"port", "n1"}, {"up", false}})["ok"]);
    p[1].wait_until([&] { return !(p[1].status() & NUPA_STATUS_LINK_UP); }, 0, "link down");
    EXPECT_NE(p[1].regs()->event_seq, events);
    EXPECT_TRUE(p[1].status() & NUPA_STATUS_READY);
    p[0].send(0, test_frame(p[0], p[1], 1));
    p[1].send(0, test_frame(p[1], p[0], 2));
    p[0].wait_sent(0);
    p[1].wait_sent(0);
    EXPECT_FALSE(p[1].try_receive(0));
    EXPECT_FALSE(p[0].try_receive(0));
    EXPECT_TRUE(p.daemon.control({{"cmd", "link"}, {"port", "n1"}, {"up", true}})["ok"]);
    p[1].wait_until([&] { return (p[1].status() & NUPA_STATUS_LINK_UP) != 0; }, 0, "link up");
    p[0].send(0, test_frame(p[0], p[1], 3));
    EXPECT_EQ(p[1].receive(0).whole(), test_frame(p[0], p[1], 3));
}

TEST(Lifecycle, SignalsEndItCleanly) {
    for (int signal : {SIGTERM, SIGINT}) {
        DaemonProcess daemon(1);
        const std::string socket = daemon.path("n0.sock");
        EXPECT_TRUE(std::filesystem::exists(socket));
        EXPECT_EQ(daemon.stop(signal), 0);
        EXPECT_FALSE(std::filesystem::exists(socket));
        EXPECT_FALSE(std::filesystem::exists(daemon.path("control")));
    }
}

TEST(Lifecycle, StaleSocketsAreReplacedLiveOnesAreNot) {
    DaemonProcess daemon(1);
    CommandResult second = run({NUPA_SWITCH_PROGRAM, "--control", daemon.path("control2"), "--port",
                                "name=x,socket=" + daemon.path("n0.sock") + ",ram=/none"});
    EXPECT_EQ(second.status, 1);
    EXPECT_NE(second.out.find("another program listens"), std::string::npos) << second.out;
    EXPECT_TRUE(std::filesystem::exists(daemon.path("n0.sock")));

    daemon.stop(SIGKILL);
    ASSERT_TRUE(std::filesystem::exists(daemon.path("n0.sock")))
        << "left behind by the killed switch";
    DaemonProcess next(0, {"--port", "name=n0,socket=" + daemon.path("n0.sock") +
                                         ",ram=" + daemon.path("n0.ram")});
    FakePort port(daemon.path("n0.sock"), daemon.path("n0.ram"), 16 << 20);
    EXPECT_EQ(port.regs()->magic, static_cast<uint32_t>(NUPA_MAGIC));
}

TEST(Lifecycle, MistakesInTheArgumentsAreExplained) {
    struct Case {
        std::vector<std::string> arguments;
        const char* says;
    };
    for (const Case& c :
         {Case{{}, "no port: give --port or --tap"},
          Case{{"--port", "name=a,socket=/s"}, "socket= and ram= are both needed"},
          Case{{"--port", "name=a,socket=/s,ram=/r,colour=red"}, "unknown key 'colour'"},
          Case{{"--port", "name=a,socket=/s,ram=/r,name=b"}, "'name' is given twice"},
          Case{{"--port", "name=a,socket=/s,ram=/r,queues=17"}, "queues must be 1 to 16"},
          Case{{"--port", "name=a,socket=/s,ram=/r,mac=01:00:00:00:00:00"},
               "not a unicast address"},
          Case{{"--port", "nonsense"}, "'nonsense' is not KEY=VALUE"},
          Case{{"--port", "name=a,socket=/s,ram=/r", "--port", "name=a,socket=/t,ram=/u"},
               "two ports are named 'a'"},
          Case{{"--tap", "name=up,ifname=much-too-long-for-linux"}, "ifname= needs 1 to 15"}}) {
        std::vector<std::string> argv{NUPA_SWITCH_PROGRAM, "--control", "/tmp/nupa_never"};
        argv.insert(argv.end(), c.arguments.begin(), c.arguments.end());
        CommandResult result = run(argv);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.out.find(c.says), std::string::npos) << result.out;
    }
}

}  // namespace
}  // namespace nupa::testing
