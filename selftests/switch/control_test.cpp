// SPDX-License-Identifier: BSD-3-Clause
// The control socket, nupactl, and capture files as other programs read them.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fake_qp.hpp"
#include "pcap_file.hpp"
#include "stderr_to.hpp"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Control, BadRequestsGetAReasonAndTheConnectionLives) {
    DaemonProcess daemon(1);
    for (const nlohmann::json& request :
         {nlohmann::json{{"cmd", "dance"}}, nlohmann::json{{"cmd", 7}}, nlohmann::json::array(),
          nlohmann::json{{"cmd", "link"}, {"port", "nobody"}},
          nlohmann::json{{"cmd", "link"}, {"port", "n0"}, {"up", "maybe"}},
          nlohmann::json{{"cmd", "faults"}, {"port", "n0"}, {"set", {{"loss", 2}}}},
          nlohmann::json{{"cmd", "faults"}, {"port", "n0"}, {"set", {{"lost", 0.1}}}},
          nlohmann::json{{"cmd", "faults"}, {"port", "n0"}, {"set", {{"seed", -1}}}},
          nlohmann::json{{"cmd", "pcap"}, {"port", "n0"}, {"file", "/no/such/dir/x"}}}) {
        nlohmann::json reply = daemon.control(request);
        EXPECT_FALSE(reply["ok"]) << request;
        EXPECT_FALSE(reply["error"].get<std::string>().empty()) << request;
    }
    EXPECT_TRUE(daemon.control({{"cmd", "ports"}})["ok"]);
}

// A raw connection, for bytes that are no request.
class RawControl {
public:
    explicit RawControl(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
        EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        timeval limit{.tv_sec = kWaitMs / 1000, .tv_usec = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    }
    ~RawControl() { ::close(fd_); }
    bool write(const std::string& text) const {
        return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(text.size());
    }
    // Everything up to @lines newlines, or what came before the end.
    std::string read(size_t lines) const {
        std::string text;
        char c = 0;
        while (lines && ::recv(fd_, &c, 1, 0) == 1) {
            text += c;
            lines -= c == '\n';
        }
        return text;
    }

private:
    int fd_;
};

TEST(Control, ManyRequestsOnOneConnectionInAnyPieces) {
    DaemonProcess daemon(1);
    RawControl raw(daemon.path("control"));
    ASSERT_TRUE(raw.write("{\"cmd\":\"po"));
    ASSERT_TRUE(raw.write("rts\"}\n\xff\xfe garbage\n{\"cmd\":\"macs\"}\n"));
    std::string replies = raw.read(3);
    EXPECT_TRUE(contains(replies, "\"name\":\"n0\"")) << replies;
    EXPECT_TRUE(contains(replies, "\"ok\":false"));
    EXPECT_TRUE(contains(replies, "\"macs\":[]"));
}

TEST(Control, EndlessLineIsCutOff) {
    DaemonProcess daemon(1);
    RawControl raw(daemon.path("control"));
    std::string chunk(32 << 10, 'x');
    while (raw.write(chunk)) {
    }
    EXPECT_TRUE(daemon.control({{"cmd", "ports"}})["ok"]);
}

TEST(Nupactl, ShowsPortsStatsMacsAndQps) {
    Ports p(2);
    FakeQp qp(p[1], p.frame(0, 1));
    p[0].send(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(60, 1)));
    p[1].receive(0);
    CommandResult ports = nupactl(p.daemon, {"ports"});
    EXPECT_EQ(ports.status, 0) << ports.out;
    EXPECT_TRUE(contains(ports.out, "n1")) << ports.out;
    EXPECT_TRUE(contains(ports.out, "running")) << ports.out;
    CommandResult stats = nupactl(p.daemon, {"stats", "n1"});
    EXPECT_TRUE(contains(stats.out, "rx_packets")) << stats.out;
    EXPECT_FALSE(contains(stats.out, "queue_drop")) << "zero counters are left out";
    EXPECT_TRUE(contains(nupactl(p.daemon, {"stats", "--all"}).out, "queue_drop"));
    CommandResult macs = nupactl(p.daemon, {"macs"});
    EXPECT_TRUE(contains(macs.out, "02:4e:55:50:00:01")) << macs.out;
    CommandResult qps = nupactl(p.daemon, {"qps"});
    EXPECT_TRUE(contains(qps.out, "10.0.0.1:1000 -> 10.0.0.2:2000")) << qps.out;
    auto json = nlohmann::json::parse(nupactl(p.daemon, {"--json", "stats", "n1"}).out);
    EXPECT_EQ(json["stats"]["n1"]["rx_packets"], 1);
}

TEST(Nupactl, SetsShowsAndClearsFaults) {
    DaemonProcess daemon(1);
    CommandResult set = nupactl(
        daemon, {"faults", "n0", "--loss", "1%", "--reorder", "0.05", "--rate-mbps", "100"});
    EXPECT_EQ(set.status, 0) << set.out;
    CommandResult show = nupactl(daemon, {"faults", "n0"});
    EXPECT_TRUE(contains(show.out, "1%")) << show.out;
    EXPECT_TRUE(contains(show.out, "5%")) << show.out;
    EXPECT_TRUE(contains(show.out, "100 Mbit/s")) << show.out;
    EXPECT_TRUE(contains(nupactl(daemon, {"faults", "n0", "clear"}).out, "no faults"));
    EXPECT_NE(nupactl(daemon, {"faults", "n0", "--loss", "lots"}).status, 0);
    EXPECT_NE(nupactl(daemon, {"faults", "n0", "--loss", "101%"}).status, 0);
}

TEST(Nupactl, TellsWhenThereIsNoSwitch) {
    CommandResult result =
        run({NUPACTL_PROGRAM, "--control", "/tmp/nupa_no_such_control", "ports"});
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(contains(result.out, "is nupa_switch running")) << result.out;
}

TEST(Pcap, HoldsEveryWireSegmentWithRightChecksums) {
    Ports p(2);
    QpShape sender;
    sender.flags = NUPA_QP_F_TX_V0 | NUPA_QP_F_NO_RQ | NUPA_QP_F_ICRC;
    TcpFrame base = p.frame(0, 1);
    FakeQp qp(p[0], ack_of(base, base.seq), sender);
    const std::string sent_file = p.daemon.path("sent.pcap");
    const std::string got_file = p.daemon.path("got.pcap");
    ASSERT_EQ(nupactl(p.daemon, {"pcap", "n0", sent_file}).status, 0);
    ASSERT_EQ(nupactl(p.daemon, {"pcap", "n1", got_file}).status, 0);

    Bytes data = pattern(10000, 1);
    TcpFrame f = send_message(base, 0, data);
    p[0].send(0, build_tcp(f, false), offload(f, 1408));
    for (size_t bytes = 0; bytes < data.size();)
        bytes += parse_tcp(p[1].receive(0).whole())->payload.size();
    ASSERT_EQ(nupactl(p.daemon, {"pcap", "n0", "off"}).status, 0);
    ASSERT_EQ(nupactl(p.daemon, {"pcap", "n1", "off"}).status, 0);

    for (const std::string& file : {sent_file, got_file}) {
        std::vector<Bytes> frames = read_pcap(file);
        ASSERT_EQ(frames.size(), 8u) << file;
        Bytes all;
        for (size_t i = 0; i < frames.size(); i++) {
            EXPECT_TRUE(checksums_right(frames[i]));
            auto segment = parse_tcp(frames[i]);
            ASSERT_TRUE(segment);
            auto bth = find_bth(*segment);
            ASSERT_TRUE(bth) << "segment " << i;
            EXPECT_EQ(bth->ver, 0);
            EXPECT_EQ(bth->mbo, 1408 * i);
            EXPECT_EQ(bth->segno, i);
            EXPECT_EQ(bth->opcode, i == 0   ? TCP_BTH_OP_SEND_FIRST
                                   : i == 7 ? TCP_BTH_OP_SEND_LAST
                                            : TCP_BTH_OP_SEND_MIDDLE);
            all.insert(all.end(), segment->payload.begin(), segment->payload.end());
        }
        EXPECT_EQ(all, data);
    }
}

TEST(Pcap, IsReadableWhileItGrows) {
    Ports p(2);
    const std::string file = p.daemon.path("n1.pcap");
    ASSERT_TRUE(p.daemon.control({{"cmd", "pcap"}, {"port", "n1"}, {"file", file}})["ok"]);
    EXPECT_EQ(read_pcap(file).size(), 0u);
    Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(60, 1));
    p[0].send(0, frame);
    p[1].receive(0);
    p.daemon.control({{"cmd", "ports"}});  // a later turn
    ASSERT_EQ(read_pcap(file).size(), 1u);
    EXPECT_EQ(read_pcap(file)[0], frame);
}

constexpr size_t kPcapHeadBytes = 24, kPcapRecordBytes = 16;

nlohmann::json capture(Ports& p, unsigned port, const nlohmann::json& file) {
    return p.daemon.control(
        {{"cmd", "pcap"}, {"port", "n" + std::to_string(port)}, {"file", file}});
}

nlohmann::json captured(Ports& p, unsigned port) {
    return p.daemon.control({{"cmd", "ports"}})["ports"][port]["pcap"];
}

void pass(Ports& p, const Bytes& frame) {
    p[0].send(0, frame);
    EXPECT_EQ(p[1].receive(0).whole(), frame);
}

TEST(Pcap, NobodyWaitsForAReader) {
    Ports p(2);
    const std::string fifo = p.daemon.path("fifo");
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_FALSE(capture(p, 1, fifo)["ok"]) << "nobody reads it";
    const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_TRUE(capture(p, 1, fifo)["ok"]);
    // More than the pipe and the switch keep.
    const Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(1400, 1));
    const size_t record = kPcapRecordBytes + frame.size();
    const size_t frames = (2 << 20) / record;
    for (size_t i = 0; i < frames; i++)
        pass(p, frame);
    // What comes is whole records, and fewer than passed.
    Bytes all, chunk(1 << 20);
    for (int quiet = 0; quiet < 20;) {
        const ssize_t n = ::read(reader, chunk.data(), chunk.size());
        quiet = n > 0 ? 0 : quiet + 1;
        if (n > 0)
            all.insert(all.end(), chunk.begin(), chunk.begin() + n);
        else
            p.daemon.control({{"cmd", "ports"}});  // a later turn
    }
    ::close(reader);
    ASSERT_GT(all.size(), kPcapHeadBytes);
    EXPECT_EQ((all.size() - kPcapHeadBytes) % record, 0u);
    EXPECT_LT((all.size() - kPcapHeadBytes) / record, frames);
    for (size_t at = kPcapHeadBytes; at < all.size(); at += record)
        ASSERT_TRUE(std::equal(frame.begin(), frame.end(), all.begin() + at + kPcapRecordBytes));
    pass(p, frame);  // also when its reader has gone
    EXPECT_EQ(captured(p, 1), nullptr);
}

// A limit in place of a full disk.
TEST(Pcap, AFullFileEndsWithAWholeRecord) {
    std::signal(SIGXFSZ, SIG_IGN);  // the daemon inherits it
    Ports p(2);
    std::signal(SIGXFSZ, SIG_DFL);
    const std::string file = p.daemon.path("full.pcap");
    ASSERT_TRUE(capture(p, 1, file)["ok"]);
    const Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(600, 1));
    const size_t record = kPcapRecordBytes + frame.size();
    rlimit limit{};
    ASSERT_EQ(::prlimit(p.daemon.pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
    limit.rlim_cur = kPcapHeadBytes + 2 * record + 100;
    ASSERT_EQ(::prlimit(p.daemon.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
    for (int i = 0; i < 20; i++)
        pass(p, frame);
    EXPECT_EQ(captured(p, 1), nullptr) << "it has ended";
    EXPECT_EQ(std::filesystem::file_size(file), kPcapHeadBytes + 2 * record);
    EXPECT_EQ(read_pcap(file), std::vector<Bytes>(2, frame));
}

TEST(Pcap, GoesOnWhenAnotherFileIsRefused) {
    Ports p(2);
    const std::string file = p.daemon.path("n1.pcap"), other = p.daemon.path("n0.pcap");
    const Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(60, 1));
    ASSERT_TRUE(capture(p, 1, file)["ok"]);
    EXPECT_FALSE(capture(p, 1, "/no/such/dir/x")["ok"]);
    EXPECT_FALSE(capture(p, 1, 7)["ok"]);
    EXPECT_FALSE(capture(p, 1, "/dev/full")["ok"]);
    EXPECT_EQ(captured(p, 1), file);
    pass(p, frame);
    EXPECT_FALSE(capture(p, 0, file)["ok"]) << "the other port's";
    ASSERT_TRUE(capture(p, 0, other)["ok"]);
    pass(p, frame);
    ASSERT_TRUE(capture(p, 1, nullptr)["ok"]);
    EXPECT_EQ(read_pcap(file), std::vector<Bytes>(2, frame));
    ASSERT_TRUE(capture(p, 0, other)["ok"]) << "the same file anew";
    EXPECT_EQ(read_pcap(other).size(), 0u);
}

// Whoever reads the log may have stopped.
TEST(Log, NobodyWaitsForItsReader) {
    int log[2];
    ASSERT_EQ(::pipe2(log, O_CLOEXEC | O_NONBLOCK), 0);
    std::unique_ptr<DaemonProcess> daemon;
    {
        const StderrTo to(log[1]);
        daemon = std::make_unique<DaemonProcess>(1);
    }
    while (::write(log[1], "x", 1) == 1)
        ;
    ::fcntl(log[1], F_SETFL, 0);  // the daemon's descriptor is of the same file
    EXPECT_EQ(daemon->plug(0)->status() & NUPA_STATUS_READY, 0u);
    EXPECT_TRUE(daemon->control({{"cmd", "ports"}})["ok"]);
    ::fcntl(log[0], F_SETFL, O_NONBLOCK);
    std::string text(1 << 20, 0);
    while (::read(log[0], text.data(), text.size()) > 0)
        ;
    daemon->plug(0);
    EXPECT_TRUE(daemon->control({{"cmd", "ports"}})["ok"]);
    const ssize_t n = ::read(log[0], text.data(), text.size());
    ASSERT_GT(n, 0);
    EXPECT_TRUE(contains(text.substr(0, static_cast<size_t>(n)), "lines were lost here"));
    daemon.reset();
    ::close(log[0]);
    ::close(log[1]);
}

// A host that enables its port again and again, without memory.
TEST(Log, IsNotFilledByAHost) {
    const auto lines = stderr_of([] {
        DaemonProcess daemon(1);
        const auto port = daemon.plug(0);
        std::filesystem::remove(daemon.path("n0.ram"));
        for (int i = 0; i < 100; i++)
            port->enable();
    });
    EXPECT_GT(lines.size(), 4u);
    EXPECT_LT(lines.size(), 40u);
}

}  // namespace
}  // namespace nupa::testing
