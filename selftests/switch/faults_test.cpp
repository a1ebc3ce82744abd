// SPDX-License-Identifier: BSD-3-Clause
// What the fabric can do to segments, set through the control socket.
#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fake_qp.hpp"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

constexpr uint32_t kFrames = 400;

struct Faulty : ::testing::Test {
    Ports p{2, kModeAll, shape()};
    static QueueShape shape() {
        QueueShape s;
        s.tx_entries = 4096;
        s.comp_entries = 2048;
        s.fill_entries = 2048;
        return s;
    }
    void set(const nlohmann::json& faults) {
        nlohmann::json reply =
            p.daemon.control({{"cmd", "faults"}, {"port", "n1"}, {"clear", true}, {"set", faults}});
        ASSERT_TRUE(reply["ok"]) << reply;
    }
    void send_numbered(uint32_t count = kFrames) {
        for (uint32_t i = 0; i < count; i++) {
            Bytes payload = pattern(200, i);
            payload[0] = static_cast<uint8_t>(i >> 8);
            payload[1] = static_cast<uint8_t>(i);
            p[0].stage(0, build_ethernet(p[1].mac(), p[0].mac(), kTestType, payload));
        }
        p[0].publish(0);
        p[0].wait_sent(0);
    }
    std::vector<uint32_t> receive_numbers(size_t count) {
        std::vector<uint32_t> numbers;
        while (numbers.size() < count) {
            Bytes whole = p[1].receive(0).whole();
            numbers.push_back(static_cast<uint32_t>(whole[14] << 8 | whole[15]));
        }
        return numbers;
    }
    std::vector<uint32_t> waiting_numbers() {
        std::vector<uint32_t> numbers;
        while (auto packet = p[1].try_receive(0)) {
            Bytes whole = packet->whole();
            numbers.push_back(static_cast<uint32_t>(whole[14] << 8 | whole[15]));
        }
        return numbers;
    }
};

TEST_F(Faulty, LossIsSeededAndRepeats) {
    std::vector<uint32_t> runs[3];
    for (int i = 0; i < 3; i++) {
        set({{"loss", 0.2}, {"seed", i == 2 ? 8 : 7}});
        send_numbered();
        runs[i] = waiting_numbers();
        EXPECT_GT(runs[i].size(), kFrames / 2);
        EXPECT_LT(runs[i].size(), kFrames);
    }
    EXPECT_EQ(runs[0], runs[1]);
    EXPECT_NE(runs[0], runs[2]);
    EXPECT_EQ(p.stat(1, NUPA_STAT_fault_loss),
              3 * kFrames - runs[0].size() - runs[1].size() - runs[2].size());
}

TEST_F(Faulty, DuplicatesComeTwice) {
    set({{"duplicate", 0.1}});
    send_numbered();
    std::vector<uint32_t> got = waiting_numbers();
    const uint64_t twice = p.stat(1, NUPA_STAT_fault_duplicate);
    EXPECT_GT(twice, 0u);
    EXPECT_EQ(got.size(), kFrames + twice);
    EXPECT_EQ(std::set<uint32_t>(got.begin(), got.end()).size(), kFrames);
}

TEST_F(Faulty, ReorderedComeLaterAndAllCome) {
    set({{"reorder", 0.1}, {"reorder_packets", 4}});
    send_numbered();
    std::vector<uint32_t> got = receive_numbers(kFrames);
    EXPECT_EQ(std::set<uint32_t>(got.begin(), got.end()).size(), kFrames);
    EXPECT_FALSE(std::is_sorted(got.begin(), got.end()));
    for (uint32_t i = 0; i < got.size(); i++)
        EXPECT_LE(got[i] > i ? got[i] - i : i - got[i], 20u);
    EXPECT_GT(p.stat(1, NUPA_STAT_fault_reorder), 0u);
}

TEST_F(Faulty, ReorderedWithNothingBehindItStillArrives) {
    set({{"reorder", 1}});
    send_numbered(1);
    EXPECT_EQ(receive_numbers(1), std::vector<uint32_t>{0});
}

TEST_F(Faulty, CorruptionIsSeenByTheChecksum) {
    set({{"corrupt", 1}});
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(1000, 1);
    Bytes sent = build_tcp(f);
    unsigned bad = 0, seen = 0;
    for (uint32_t i = 0; i < 50; i++)
        p[0].stage(0, build_tcp(f, false), offload(f));
    p[0].publish(0);
    p[0].wait_sent(0);
    while (auto packet = p[1].try_receive(0)) {
        seen++;
        EXPECT_NE(packet->whole(), sent);
        bad += packet->comp.flags & NUPA_RX_F_CSUM_BAD ? 1 : 0;
    }
    EXPECT_GT(seen, 40u) << "a flipped address bit makes it somebody else's";
    EXPECT_GT(bad, 40u);
    EXPECT_EQ(p.stat(1, NUPA_STAT_fault_corrupt), 50u);
}

TEST_F(Faulty, EachKindOfDamageHasItsOwnCounter) {
    const std::map<const char*, nupa_stat> kinds{{"corrupt", NUPA_STAT_fault_corrupt},
                                                 {"truncate", NUPA_STAT_fault_truncate},
                                                 {"bleach", NUPA_STAT_fault_bleach},
                                                 {"mangle", NUPA_STAT_fault_mangle},
                                                 {"copy", NUPA_STAT_fault_copy}};
    const TcpFrame base = p.frame(0, 1);
    for (const auto& [fault, stat] : kinds) {
        set({{fault, 1}});
        for (uint32_t msn = 0; msn < 4; msn++) {
            const TcpFrame f = send_message(base, msn, pattern(1000, msn));
            p[0].send(0, build_tcp(f, false), offload(f));
        }
        p[0].wait_sent(0);
        // The first segment has no option before it to copy.
        EXPECT_EQ(p.stat(1, stat), stat == NUPA_STAT_fault_copy ? 3u : 4u) << fault;
    }
    uint64_t all = 0;
    for (const auto& [fault, stat] : kinds)
        all += p.stat(1, stat);
    EXPECT_EQ(all, 19u) << "one fault was counted as another";
    EXPECT_EQ(p.stat(1, NUPA_STAT_queue_drop), 0u);
}

TEST_F(Faulty, DelayHoldsThemBack) {
    constexpr auto kDelay = std::chrono::milliseconds(30);
    set({{"delay", 1}, {"delay_min_us", 30000}, {"delay_max_us", 30000}});
    const auto begin = std::chrono::steady_clock::now();
    send_numbered(10);
    EXPECT_EQ(receive_numbers(1), std::vector<uint32_t>{0});
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kDelay);
    EXPECT_EQ(receive_numbers(9), (std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(p.stat(1, NUPA_STAT_fault_delay), 10u);
}

TEST_F(Faulty, RateLimitsQueuesMarksAndDrops) {
    // 214-byte frames take kFrame each; 100 of them fill the queue.
    constexpr std::chrono::microseconds kFrame(171);
    set({{"rate_mbps", 10}, {"queue_bytes", 21400}, {"ecn_bytes", 5000}});
    const auto begin = std::chrono::steady_clock::now();
    send_numbered(200);
    const auto left_meanwhile = (std::chrono::steady_clock::now() - begin) / kFrame;
    const uint64_t dropped = p.stat(1, NUPA_STAT_queue_drop);
    EXPECT_GT(dropped + static_cast<uint64_t>(left_meanwhile), 80u);
    EXPECT_LT(dropped, 120u);
    std::vector<uint32_t> got = receive_numbers(200 - dropped);
    EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kFrame * got.size() * 4 / 5);
}

TEST_F(Faulty, QueueMarksEcnCapablePacketsOnly) {
    set({{"rate_mbps", 1000}, {"ecn_bytes", 4000}});
    for (uint8_t ecn : {0, 2})
        for (bool v6 : {false, true}) {
            TcpFrame f = p.frame(0, 1);
            f.ecn = ecn;
            f.v6 = v6;
            f.payload = pattern(10000, 1);
            p[0].send(0, build_tcp(f, false), offload(f, 1000));
            unsigned marked = 0;
            Bytes got;
            while (got.size() < f.payload.size()) {
                Bytes whole = p[1].receive(0).whole();
                auto segment = parse_tcp(whole);
                ASSERT_TRUE(segment);
                marked += segment->ecn == 3 ? 1 : 0;
                got.insert(got.end(), segment->payload.begin(), segment->payload.end());
            }
            EXPECT_EQ(got, f.payload);
            EXPECT_EQ(marked > 0, ecn == 2) << v6;
        }
    EXPECT_GT(p.stat(1, NUPA_STAT_ecn_marked), 0u);
}

TEST_F(Faulty, SendersMemoryIsFreeWhilePacketsWait) {
    set({{"delay", 1}, {"delay_min_us", 20000}, {"delay_max_us", 20000}});
    TcpFrame f = p.frame(0, 1);
    f.payload = pattern(5000, 1);
    uint32_t index = p[0].tx(0).prod;
    p[0].send(0, build_tcp(f, false), offload(f, 1000));
    p[0].wait_sent(0);  // ours again: scribble
    auto* ring = p[0].at<nupa_tx_entry>(p[0].tx(0).ring);
    for (uint32_t i = 1; i < 3; i++) {
        nupa_tx_buf buf = ring[(index + i) % p[0].tx(0).entries].buf;
        std::fill_n(p[0].ram(buf.addr), buf.bytes, uint8_t{0});
    }
    Bytes got;
    while (got.size() < f.payload.size()) {
        auto segment = parse_tcp(p[1].receive(0).whole());
        ASSERT_TRUE(segment);
        got.insert(got.end(), segment->payload.begin(), segment->payload.end());
    }
    EXPECT_EQ(got, f.payload);
}

TEST_F(Faulty, UnpluggingDropsWhatWaits) {
    set({{"delay", 1}, {"delay_min_us", 20000}, {"delay_max_us", 20000}});
    send_numbered(20);
    p.ports[1] = nullptr;
    p.ports[1] = p.daemon.plug(1);
    p[1].enable();
    p[1].create_queues(0, shape());
    p[1].set_rx_mode(kModeAll, p[1].mac());
    ASSERT_TRUE(p.daemon.control({{"cmd", "faults"}, {"port", "n1"}, {"clear", true}})["ok"]);
    Bytes frame = build_ethernet(p[1].mac(), p[0].mac(), kTestType, pattern(200, 1));
    p[0].send(0, frame);
    EXPECT_EQ(p[1].receive(0).whole(), frame);
}

TEST_F(Faulty, PlacementSurvivesDisorderLossAndDuplicates) {
    // No retransmissions here: every byte that arrives must be right where it belongs or be
    // delivered.
    constexpr uint32_t kKey = 3;
    constexpr uint64_t kIova = 0x100000;
    constexpr uint32_t kBytes = 200000;
    TcpFrame base = p.frame(0, 1);
    FakeMr mr(p[1], kKey, kIova, kBytes, 5, NUPA_ACCESS_LOCAL_WRITE);
    FakeQp qp(p[1], base);
    mr.fill(0xee);
    qp.post({{kIova, kBytes}}, kKey);
    TcpFrame ack = ack_of(base, base.seq);
    p[1].send(0, build_tcp(ack, false), offload(ack));
    p[0].receive(0);
    set({{"loss", 0.05}, {"duplicate", 0.1}, {"reorder", 0.1}, {"corrupt", 0.05}, {"seed", 42}});
    Bytes data = pattern(kBytes, 1);
    TcpFrame f = send_message(base, 0, data);
    p[0].send(0, build_tcp(f, false), offload(f, 1408));
    p[0].wait_sent(0);
    ::timespec hold{.tv_sec = 0,
                    .tv_nsec = 50'000'000};  // longer than any reordered packet is held
    ::nanosleep(&hold, nullptr);
    Bytes memory = mr.read(0, kBytes);
    uint64_t placed = 0;
    while (auto packet = p[1].try_receive(0)) {
        auto header = parse_tcp(packet->header);
        if (!header)
            continue;
        const uint32_t at = header->seq - base.seq;
        if (packet->comp.flags & NUPA_RX_F_PLACED) {
            placed += packet->comp.payload_bytes;
            ASSERT_LE(at + packet->comp.payload_bytes, kBytes);
            EXPECT_TRUE(std::equal(memory.begin() + at,
                                   memory.begin() + at + packet->comp.payload_bytes,
                                   data.begin() + at));
        }
    }
    EXPECT_GT(placed, kBytes / 3);
    EXPECT_LT(placed, kBytes);
    EXPECT_EQ(placed, qp.stat(NUPA_QP_STAT_placed_bytes));
}

TEST_F(Faulty, FirstMatchingFlowRuleDecides) {
    const auto rule = [&](nlohmann::json flow, double loss) {
        return p.daemon.control({{"cmd", "faults"},
                                 {"port", "n1"},
                                 {"flow", std::move(flow)},
                                 {"set", {{"loss", loss}}}});
    };
    ASSERT_TRUE(rule({{"sport", 1000}, {"src", "10.0.0.1"}}, 0)["ok"]);  // spared
    ASSERT_TRUE(rule({{"dport", 2000}}, 1)["ok"]);
    EXPECT_FALSE(rule({{"sport", 70000}}, 1)["ok"]);
    EXPECT_FALSE(rule({{"src", "10.0.0.1"}, {"dst", "fd00::1"}}, 1)["ok"]);
    EXPECT_FALSE(p.daemon.control({{"cmd", "faults"},
                                   {"port", "n1"},
                                   {"flow", {{"dport", 1}}},
                                   {"set", {{"rate_mbps", 5}}}})["ok"]);
    const auto send = [&](uint16_t sport, uint16_t dport) {
        TcpFrame f;
        f.dst = p[1].mac(), f.src = p[0].mac(), f.sport = sport, f.dport = dport;
        f.payload = pattern(10, sport);
        p[0].send(0, build_tcp(f, false), offload(f));
    };
    send(1001, 2000);  // lost by the second rule
    send(1000, 2000);
    send(1001, 2001);  // no rule
    p[0].wait_sent(0);
    std::vector<uint16_t> dports;
    for (int i = 0; i < 2; i++)
        dports.push_back(parse_tcp(p[1].receive(0).whole())->dport);
    EXPECT_EQ(dports, (std::vector<uint16_t>{2000, 2001}));
    EXPECT_FALSE(p[1].try_receive(0));
    nlohmann::json reply = p.daemon.control({{"cmd", "faults"}, {"port", "n1"}});
    EXPECT_EQ(reply["flows"].size(), 2u);
    EXPECT_EQ(reply["flows"][0]["flow"]["src"], "10.0.0.1");
    p.daemon.control(
        {{"cmd", "faults"}, {"port", "n1"}, {"flow", {{"dport", 2000}}}, {"clear", true}});
    send(1001, 2000);
    EXPECT_EQ(parse_tcp(p[1].receive(0).whole())->sport, 1001);
    reply = p.daemon.control({{"cmd", "faults"}, {"port", "n1"}, {"clear", true}});
    EXPECT_TRUE(reply["flows"].empty());
}

}  // namespace
}  // namespace nupa::testing
