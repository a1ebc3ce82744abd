// SPDX-License-Identifier: BSD-3-Clause
// Transmit rings without doorbells: what is sent is seen while it keeps coming, nothing is left
// when it stops, an idle switch sleeps, and a guest that moves its index as it likes harms itself.
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "shared_memory.hpp"
#include "two_ports.hpp"
#include "unit/seed.hpp"

namespace nupa::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kWatchMax = milliseconds(2);  // IndexWatch::kMaxNs
constexpr QueueShape kWatched{.tx_flags = NUPA_TXQ_F_WATCH};

void spin(microseconds time) {
    for (const auto end = Clock::now() + time; Clock::now() < end;)
        ;
}

// Hosts of a switch in mode cxl, port 0 with rings that may be watched.
struct Watched {
    explicit Watched(const std::string& watch, unsigned count = 2,
                     const QueueShape& shape = kWatched)
        : daemon(0, arguments(watch, count)) {
        for (unsigned i = 0; i < count; i++) {
            ports.push_back(
                std::make_unique<FakePort>(path(i) + ".socket", path(i) + ".ram", 256 << 20));
            ports[i]->enable();
            start(i, shape);
        }
    }
    ~Watched() { std::filesystem::remove_all(directory); }

    [[nodiscard]] std::string path(unsigned i) const { return directory + std::to_string(i); }
    [[nodiscard]] std::vector<std::string> arguments(const std::string& watch,
                                                     unsigned count) const {
        std::vector<std::string> all{"--mode", "cxl", "--pool-mib", "1", "--watch", watch};
        for (unsigned i = 0; i < count; i++)
            all.insert(all.end(),
                       {"--port", "name=n" + std::to_string(i) + ",socket=" + path(i) +
                                      ".socket,ram=" + path(i) + ".ram,pool=" + path(i) + ".pool"});
        return all;
    }
    FakePort& operator[](unsigned i) { return *ports[i]; }
    void start(unsigned i, const QueueShape& shape = kWatched) {
        ports[i]->create_queues(0, shape);
        ports[i]->set_rx_mode(kModeAll, ports[i]->mac(), 9000);
    }
    Bytes frame(unsigned from, unsigned to, uint32_t seed) {
        return build_ethernet(ports[to]->mac(), ports[from]->mac(), kTestType, pattern(64, seed));
    }
    // One frame there, and one back: each waits for the other, as messages do.
    void round_trip(uint32_t seed) {
        ports[0]->send(0, frame(0, 1, seed));
        EXPECT_EQ(ports[1]->receive(0).whole(), frame(0, 1, seed));
        ports[1]->send(0, frame(1, 0, seed));
        EXPECT_EQ(ports[0]->receive(0).whole(), frame(1, 0, seed));
    }
    void round_trips(uint32_t count) {
        for (uint32_t i = 0; i < count; i++)
            round_trip(i);
    }
    // By the control socket: it rings no doorbell.
    uint64_t stat(unsigned port, const char* name) {
        return daemon.control({{"cmd", "stats"}})["stats"]["n" + std::to_string(port)][name];
    }
    uint64_t both(const char* name) { return stat(0, name) + stat(1, name); }
    [[nodiscard]] uint64_t sleeps() const {
        std::ifstream status("/proc/" + std::to_string(daemon.pid()) + "/status");
        for (std::string word; status >> word;)
            if (uint64_t count = 0; word == "voluntary_ctxt_switches:" && status >> count)
                return count;
        throw std::runtime_error("no voluntary_ctxt_switches");
    }

    const std::string directory = make_directory() + "/";
    DaemonProcess daemon;
    std::vector<std::unique_ptr<FakePort>> ports;
};

TEST(Watch, IsOfferedInModeCxlAlone) {
    Ports pcie(1);
    EXPECT_FALSE(pcie[0].regs()->features & NUPA_FEAT_WATCH);
    EXPECT_THROW(pcie[0].create_queues(1, kWatched), std::runtime_error) << "refused";
    EXPECT_TRUE(Watched("auto")[0].regs()->features & NUPA_FEAT_WATCH);
    EXPECT_TRUE(Watched("always")[0].regs()->features & NUPA_FEAT_WATCH);
    Watched never("never", 1, {});
    EXPECT_FALSE(never[0].regs()->features & NUPA_FEAT_WATCH);
    EXPECT_THROW(never[0].create_queues(1, kWatched), std::runtime_error);
}

TEST(Watch, AFlagThatIsUnknownIsRefused) {
    Watched w("always", 1);
    QueueShape other = kWatched;
    other.tx_flags = NUPA_TXQ_F_WATCH << 1;
    EXPECT_THROW(w[0].create_queues(1, other), std::runtime_error);
}

// On a busy machine either end may be kept from running for longer than any watch: the best of some
// rounds counts.
TEST(Watch, SteadyMessagesNeedFewDoorbells) {
    constexpr uint32_t kTrips = 500;
    Watched w("always");
    uint64_t rung = UINT64_MAX, told = UINT64_MAX;
    for (int round = 0; round < 20 && rung > 2 * kTrips / 10; round++) {
        const uint64_t doorbells = w.both("tx_doorbells"),
                       before = doorbells + w.both("tx_seen") + w.both("tx_watch_ends");
        w.round_trips(kTrips);
        rung = w.both("tx_doorbells") - doorbells;
        told = w.both("tx_doorbells") + w.both("tx_seen") + w.both("tx_watch_ends") - before;
    }
    EXPECT_LE(rung, 2 * kTrips / 10) << "of " << 2 * kTrips << " messages";
    EXPECT_GE(told, 2 * kTrips * 9 / 10) << "each was told of somehow";
}

TEST(Watch, WithoutTheFlagEachMessageRings) {
    constexpr uint32_t kTrips = 200;
    Watched w("always", 2, {});
    w.round_trips(kTrips);
    EXPECT_GE(w.both("tx_doorbells"), 2 * kTrips - kTrips / 4);
    EXPECT_EQ(w.both("tx_seen"), 0u);
}

// What comes now and then is not worth a watch.
TEST(Watch, RareMessagesRing) {
    constexpr uint32_t kTrips = 20;
    Watched w("always");
    for (uint32_t i = 0; i < kTrips; i++) {
        w.round_trip(i);
        std::this_thread::sleep_for(3 * kWatchMax);  // the load, not synchronisation
    }
    // A switch that was kept from running finds one before it has armed the ring.
    EXPECT_GE(w.both("tx_doorbells"), 2 * kTrips - kTrips / 4);
    EXPECT_EQ(w.both("tx_seen"), 0u);
}

TEST(Watch, AnIdleSwitchSleeps) {
    Watched w("always");
    w.round_trips(500);
    std::this_thread::sleep_for(10 * kWatchMax);
    const uint64_t slept = w.sleeps();
    const double cpu = w.daemon.cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(3));  // the measured span
    EXPECT_LE(w.sleeps() - slept, 3u) << "wake-ups in 3 s: the heartbeat's";
    EXPECT_LT(w.daemon.cpu_seconds() - cpu, 0.002);
    w.round_trips(20);
}

// Around the moment at which a watch ends, again and again.
TEST(Watch, NoMessageIsLeftBehind) {
    const uint32_t seed = test::chosen_seed();
    SCOPED_TRACE("NUPA_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    Watched w("always");
    for (uint32_t i = 0; i < 3000; i++) {
        w.round_trip(i);
        spin(microseconds(random() % 8 ? random() % 120 : random() % 2500));
    }
    EXPECT_GT(w.both("tx_watch_ends"), 10u) << "watches ended meanwhile";
    EXPECT_GT(w.both("tx_seen"), 10u);
}

// A watched ring that is taken away, by each way there is.
TEST(Watch, ARingMayGoWhileItIsWatched) {
    Watched w("always", 3);
    for (int i = 0; i < 20; i++) {
        w.round_trips(20);
        nupa_admin_cmd cmd{};
        switch (i % 3) {
            case 0:
                cmd.op = NUPA_ADMIN_TXQ_DESTROY;
                w[0].must(cmd);
                cmd.op = NUPA_ADMIN_RXQ_DESTROY;
                w[0].must(cmd);
                break;
            case 1:
                w[0].disable();
                w[0].enable();
                break;
            default:
                w.ports[0] = nullptr;
                w.ports[0] = std::make_unique<FakePort>(w.path(0) + ".socket", w.path(0) + ".ram",
                                                        256 << 20);
                w[0].enable();
        }
        w.start(0);
    }
    w.round_trips(20);
}

// An index that is wild fails its own port at the next look, without a doorbell.
TEST(Watch, AWildIndexStopsThatPortOnly) {
    for (const uint32_t by : {5000u, 0x80000000u, 0xffffffffu}) {
        Watched w("always", 3);
        w.round_trips(50);
        w[0].send(0, w.frame(0, 1, 1));  // its watch begins, if it was over
        w[1].receive(0);
        store(w[0].txq(0)->prod, w[0].txq(0)->prod + by);
        std::this_thread::sleep_for(kWatchMax);
        w[0].ring_doorbell(1);  // should its watch have ended meanwhile
        w[0].wait_until([&] { return w[0].status() & NUPA_STATUS_FAILED; }, 0, "failure");
        EXPECT_FALSE(w[1].status() & NUPA_STATUS_FAILED);
        w[2].send(0, w.frame(2, 1, 7));
        EXPECT_EQ(w[1].receive(0).whole(), w.frame(2, 1, 7));
        w[0].disable();
        w[0].enable();
        w.start(0);
        w.round_trip(9);
    }
}

// It sends without end by moving its index, and rings only where it was asked to: its neighbours
// get their turns.
TEST(Watch, AnIndexThatNeverRestsTakesItsTurnsOnly) {
    constexpr uint64_t kServed = 5000;
    Watched w("always", 3);
    // Every entry of the ring is of a packet, so that the index may move as fast as it can.
    FakePort& hostile = w[0];
    const Bytes own = w.frame(0, 0, 1);  // to itself: no neighbour has work by it
    const uint64_t gpa = hostile.alloc(own.size(), 64);
    std::copy(own.begin(), own.end(), hostile.ram(gpa));
    FakePort::TxRing& ring = hostile.tx(0);
    auto* entries = hostile.at<nupa_tx_entry>(ring.ring);
    for (uint32_t i = 0; i < ring.entries; i += 2) {
        entries[i] = {};
        entries[i].ctx.bufs = 1;
        entries[i].ctx.bytes = static_cast<uint32_t>(own.size());
        entries[i + 1] = {};
        entries[i + 1].buf.addr = gpa;
        entries[i + 1].buf.bytes = static_cast<uint32_t>(own.size());
    }
    std::atomic<bool> stop = false;
    std::thread sender([&] {
        for (uint32_t prod = 0; !stop;) {
            const uint32_t old = prod;
            prod = load(hostile.txq(0)->cons) + ring.entries;
            store(hostile.txq(0)->prod, prod);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            if (prod != old && nupa_need_event(load(hostile.txq(0)->db_event), prod, old))
                hostile.ring_doorbell(1);
        }
    });
    // A busy machine may keep a packet, too, but not each: one in ten may be late.
    unsigned sent = 0, late = 0;
    // Until it was served, too; its thread may begin late.
    for (uint32_t i = 0; i < 200 || w.stat(0, "tx_drop_unknown") <= kServed; i++) {
        if (i == 100'000) {
            ADD_FAILURE() << "it is not served";
            break;
        }
        const auto begin = Clock::now();
        w[1].send(0, w.frame(1, 2, i));
        EXPECT_EQ(w[2].receive(0).whole(), w.frame(1, 2, i));
        sent++;
        late += Clock::now() - begin > milliseconds(100);
    }
    stop = true;
    sender.join();
    EXPECT_LE(late, sent / 10) << "of " << sent << " packets of a neighbour";
    EXPECT_LT(w.stat(0, "tx_doorbells"), w.stat(0, "tx_drop_unknown") / 100);
    EXPECT_FALSE(hostile.status() & NUPA_STATUS_FAILED);
}

struct OneProcessor {
    OneProcessor() {
        ::sched_getaffinity(0, sizeof(before), &before);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
            if (CPU_ISSET(cpu, &before))
                CPU_SET(cpu, &one);
        ::sched_setaffinity(0, sizeof(one), &one);
    }
    ~OneProcessor() { ::sched_setaffinity(0, sizeof(before), &before); }
    cpu_set_t before;
};

TEST(Watch, OnOneProcessorNobodyLooks) {
    const OneProcessor here;
    Watched w("auto");
    w.round_trips(200);
    EXPECT_EQ(w.both("tx_seen"), 0u);
    EXPECT_GE(w.both("tx_doorbells"), 350u);
}

// A thread that is kept from running while it looks: after that, messages ring again.  To be
// stopped is to it as others' work on its processor is.
TEST(Watch, EndsWhereTheThreadCannotRun) {
    constexpr uint32_t kTrips = 20;
    Watched w("auto");
    bool rang = false;
    for (const auto end = Clock::now() + milliseconds(kWaitMs); !rang && Clock::now() < end;) {
        const uint64_t seen = w.both("tx_seen");
        w.round_trips(kTrips);
        rang = w.both("tx_seen") == seen && w.both("tx_watch_ends") > 0;
        ::kill(w.daemon.pid(), SIGSTOP);
        std::this_thread::sleep_for(milliseconds(15));  // what it is kept from
        ::kill(w.daemon.pid(), SIGCONT);
    }
    EXPECT_TRUE(rang) << "it went on looking";
}

}  // namespace
}  // namespace nupa::testing
