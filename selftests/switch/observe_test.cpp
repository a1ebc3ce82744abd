// SPDX-License-Identifier: BSD-3-Clause
// nupactl top, and what Prometheus scrapes.
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "fake_qp.hpp"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

constexpr int kSkipped = 77;

std::vector<std::string> words(const std::string& line) {
    std::istringstream in(line);
    return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
        all.push_back(line);
    return all;
}

// What is below the head that begins with PORT and has @column, by the first cell.
std::vector<std::string> table(const std::string& text, const std::string& column) {
    std::vector<std::string> rows;
    bool inside = false;
    for (const std::string& line : lines(text)) {
        const bool head = line.rfind("PORT", 0) == 0;
        if (head || line.empty())
            inside = head && line.find(column) != std::string::npos;
        else if (inside)
            rows.push_back(line);
    }
    return rows;
}

TEST(Prometheus, TakesEveryCounterOfEveryPort) {
    Ports p(2);
    FakeQp qp(p[1], p.frame(0, 1));
    p[0].send(0, build_ethernet(p[1].mac(), p[0].mac(), 0x88b5, pattern(60, 1)));
    p[1].receive(0);
    const CommandResult text = nupactl(p.daemon, {"stats", "--prometheus", "--flows"});
    ASSERT_EQ(text.status, 0) << text.out;
    EXPECT_EQ(text.out.find("Not known here"), std::string::npos) << "a counter without a HELP";
    const std::string file = p.daemon.path("metrics");
    std::ofstream(file) << text.out;

    const CommandResult parsed = run({EXPOSITION_PROGRAM, file});
    if (parsed.status == kSkipped)
        GTEST_SKIP() << "no python3-prometheus-client";
    ASSERT_EQ(parsed.status, 0) << parsed.out << text.out;
    const auto all = nlohmann::json::parse(parsed.out);
    std::set<std::string> seen;
    for (const auto& sample : all["samples"]) {
        const std::string name = sample[0];
        seen.insert(name + "/" + sample[1]["port"].get<std::string>());
        if (name == "nupa_port_rx_packets_total" && sample[1]["port"] == "n1") {
            EXPECT_EQ(sample[2], 1);
        }
        if (name == "nupa_qp_placed_bytes_total") {
            EXPECT_EQ(sample[1]["flow"], "10.0.0.1:1000 -> 10.0.0.2:2000");
            EXPECT_EQ(sample[1]["qpn"], "17");
        }
    }
    const auto stats = p.daemon.control({{"cmd", "stats"}})["stats"];
    for (const auto& [port, counters] : stats.items())
        for (const auto& [name, value] : counters.items())
            EXPECT_TRUE(seen.contains("nupa_port_" + name + "_total/" + port)) << name;
    EXPECT_TRUE(seen.contains("nupa_qp_placed_bytes_total/n1"));
    EXPECT_EQ(all["families"]["nupa_port_rx_packets"][0], "counter");
    EXPECT_EQ(all["families"]["nupa_port_link_up"][0], "gauge");
}

TEST(Prometheus, HasOnePortOnlyAndNoFlowsUnlessAsked) {
    Ports p(2);
    FakeQp qp(p[1], p.frame(0, 1));
    const CommandResult text = nupactl(p.daemon, {"stats", "n1", "--prometheus"});
    EXPECT_EQ(text.status, 0) << text.out;
    EXPECT_NE(text.out.find("{port=\"n1\"}"), std::string::npos) << text.out;
    EXPECT_EQ(text.out.find("\"n0\""), std::string::npos) << text.out;
    EXPECT_EQ(text.out.find("nupa_qp_"), std::string::npos) << text.out;
    EXPECT_EQ(nupactl(p.daemon, {"stats", "nobody", "--prometheus"}).status, 1);
    EXPECT_NE(nupactl(p.daemon, {"stats", "--flows"}).status, 0);
}

TEST(Top, OnceHasPortsAndFlowsMostFirst) {
    Ports p(3);
    FakeQp first(p[1], p.frame(0, 1));
    FakeQp second(p[2], p.frame(0, 2));
    const CommandResult top =
        nupactl(p.daemon, {"top", "--once", "--interval", "0.2", "--sort", "name"});
    ASSERT_EQ(top.status, 0) << top.out;
    const auto ports = table(top.out, "MARKS/s");
    ASSERT_EQ(ports.size(), 3u) << top.out;
    for (size_t i = 0; i < ports.size(); i++)
        EXPECT_EQ(words(ports[i])[0], "n" + std::to_string(i)) << top.out;
    EXPECT_EQ(words(ports[0])[1], "running");
    const auto flows = table(top.out, "QPN");
    ASSERT_EQ(flows.size(), 2u) << top.out;
    EXPECT_NE(flows[0].find("10.0.0.1:1000 -> 10.0.0.2:2000"), std::string::npos) << top.out;
}

TEST(Top, RatesAreOfTheIntervalAndSorted) {
    Ports p(3);
    std::atomic<bool> over = false;
    // From n2 and from nobody else, until the table has been made.
    std::thread sender([&] {
        const Bytes frame = build_ethernet(p[1].mac(), p[2].mac(), 0x88b5, pattern(1000, 1));
        while (!over) {
            p[2].send(0, frame);
            p[1].receive(0);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));  // each frame takes RAM
        }
    });
    const CommandResult top =
        nupactl(p.daemon, {"top", "--once", "--interval", "0.3", "--sort", "sent"});
    over = true;
    sender.join();
    ASSERT_EQ(top.status, 0) << top.out;
    const auto ports = table(top.out, "MARKS/s");
    ASSERT_EQ(ports.size(), 3u) << top.out;
    EXPECT_EQ(words(ports[0])[0], "n2") << top.out;
    EXPECT_NE(words(ports[0])[2], "0b/s") << top.out;
    EXPECT_EQ(words(ports[1])[2], "0b/s") << top.out;
}

TEST(Top, SaysWhatIsWrong) {
    DaemonProcess daemon(1);
    EXPECT_NE(nupactl(daemon, {"top", "--interval", "0"}).status, 0);
    EXPECT_NE(nupactl(daemon, {"top", "--sort", "colour"}).status, 0);
    const CommandResult gone = run({NUPACTL_PROGRAM, "--control", "/tmp/nupa_no_such", "top"});
    EXPECT_EQ(gone.status, 1);
    EXPECT_NE(gone.out.find("no switch at"), std::string::npos) << gone.out;
}

}  // namespace
}  // namespace nupa::testing
