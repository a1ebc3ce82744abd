// SPDX-License-Identifier: BSD-3-Clause
// What a frame costs the switch as ports, and queue pairs, are added: processor time of the daemon,
// with hosts that are part of this program.
#include <benchmark/benchmark.h>

#include <fstream>

#include "qp_pair.hpp"

namespace {

using namespace nupa::testing;

constexpr uint16_t kType = 0x88b5;  // IEEE 802 local experimental
constexpr size_t kFrameBytes = 1000;
constexpr unsigned kBatch = 32;  // frames of a port in one turn
constexpr unsigned kTurnsFirst = 64;

uint64_t processor_ns(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/schedstat");
    uint64_t ns = 0;
    file >> ns;
    return ns;
}

// Each port sends to the next one, all at once, from buffers that it uses again and again: a host's
// memory is mapped long before most of its frames.
void ports(benchmark::State& state) {
    const auto count = static_cast<unsigned>(state.range(0));
    Ports p(count, kModeAll, {}, 1, 16 << 20);
    std::vector<Bytes> frames;
    std::vector<uint64_t> buffers;
    for (unsigned i = 0; i < count; i++) {
        frames.push_back(
            build_ethernet(p[(i + 1) % count].mac(), p[i].mac(), kType, pattern(kFrameBytes, i)));
        buffers.push_back(p[i].alloc(2 * kBatch * kFrameBytes));
    }
    const auto turn = [&] {
        for (unsigned i = 0; i < count; i++) {
            p[i].set_alloc_at(buffers[i]);
            for (unsigned n = 0; n < kBatch; n++)
                p[i].stage(0, frames[i]);
            p[i].publish(0);
        }
        for (unsigned i = 0; i < count; i++) {
            for (unsigned n = 0; n < kBatch; n++)
                benchmark::DoNotOptimize(p[i].receive(0));
            p[i].wait_sent(0);
        }
    };
    for (unsigned i = 0; i < kTurnsFirst; i++)  // through all of the receive rings
        turn();
    const uint64_t before = processor_ns(p.daemon.pid());
    int64_t sent = 0;
    for (auto _ : state) {
        turn();
        sent += int64_t{count} * kBatch;
    }
    state.SetItemsProcessed(sent);
    state.counters["switch_ns_per_frame"] =
        static_cast<double>(processor_ns(p.daemon.pid()) - before) / static_cast<double>(sent);
}
BENCHMARK(ports)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(24)->Iterations(64)->UseRealTime();

// Messages of 64 bytes, each a frame and each of another of many queue pairs, from one port to the
// other; both have a context for it.
class Flows {
public:
    explicit Flows(uint32_t count) : count_(count) {
        for (uint32_t n = 0; n < count; n++) {
            const TcpFrame f = frame(n);
            QpShape shape{.qpn = 100 + n, .flags = NUPA_QP_F_NO_RQ | NUPA_QP_F_REMOTE_WRITE};
            p_[1].must(FakeQp::command(f, shape));
            p_[0].must(FakeQp::command(ack_of(f, f.seq), shape));
        }
        for (uint32_t n = 0; n < count; n += kBatch)
            send(1, [&](uint32_t i) {
                const TcpFrame f = frame((n + i) % count);
                return ack_of(f, f.seq);
            });
    }
    void turn() {
        send(0, [&](uint32_t) {
            random_ = random_ * 6364136223846793005 + 1442695040888963407;
            const auto n = static_cast<uint32_t>((random_ >> 32) * count_ >> 32);
            const TcpFrame f = write_message(frame(n), sent_[n], kMessage, kIova, kKey);
            sent_[n]++;
            return f;
        });
    }
    [[nodiscard]] uint64_t placed() { return p_.stat(1, NUPA_STAT_placed_segments); }
    [[nodiscard]] pid_t pid() const { return p_.daemon.pid(); }

private:
    TcpFrame frame(uint32_t n) {
        TcpFrame f = p_.frame(0, 1);
        f.saddr += n << 8;
        f.seq = 1000 + sent_[n] * static_cast<uint32_t>(kMessage.size());
        return f;
    }
    template <class Next>
    void send(unsigned from, Next&& next) {
        p_[from].set_alloc_at(buffers_[from]);
        for (uint32_t i = 0; i < kBatch; i++) {
            const TcpFrame f = next(i);
            p_[from].stage(0, build_tcp(f, false), offload(f));
        }
        p_[from].publish(0);
        for (uint32_t i = 0; i < kBatch; i++)
            benchmark::DoNotOptimize(p_[1 - from].receive(0));
        p_[from].wait_sent(0);
    }

    const Bytes kMessage = pattern(64, 1);
    uint32_t count_;
    Ports p_{2, kModeAll, {}, 1, 64 << 20};
    FakeMr mr_{p_[1], kKey, kIova, kMrBytes, QpShape{}.pd, kAccess};
    std::vector<uint16_t> sent_ = std::vector<uint16_t>(count_);
    uint64_t buffers_[2] = {p_[0].alloc(kBatch * 4096), p_[1].alloc(kBatch * 4096)};
    uint64_t random_ = 1;
};

void flows(benchmark::State& state) {
    Flows all(static_cast<uint32_t>(state.range(0)));
    for (unsigned i = 0; i < kTurnsFirst; i++)
        all.turn();
    const uint64_t before = processor_ns(all.pid());
    int64_t sent = 0;
    for (auto _ : state) {
        all.turn();
        sent += kBatch;
    }
    const uint64_t spent = processor_ns(all.pid()) - before;
    if (all.placed() != static_cast<uint64_t>(sent) + kTurnsFirst * kBatch)
        state.SkipWithError("not all of it was placed");
    state.SetItemsProcessed(sent);
    state.counters["switch_ns_per_frame"] = static_cast<double>(spent) / static_cast<double>(sent);
}
BENCHMARK(flows)->Arg(10)->Arg(1000)->Arg(20000)->Iterations(1000)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
