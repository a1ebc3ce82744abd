// SPDX-License-Identifier: BSD-3-Clause
// One litmus test for each rule of docs/ordering.md.  The active side runs them
// one after the other, many rounds each; the passive side serves.
//
//   qp_litmus --port PORT [--connect ADDR] [--engine E] [--rounds N]
#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "command.hpp"
#include "pattern.hpp"
#include "rdma_peer.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

struct Options {
    PeerOptions peer;
    uint32_t rounds = 60;
};

constexpr uint32_t kBytes = 50000;          // of most messages: several segments
constexpr uint32_t kCounterAt = 900 << 10;  // in the region; the lines and data lie before
constexpr uint32_t kLineBytes = 128;
constexpr uint32_t kLines = 64;
constexpr uint32_t kCpuAdds = 20000;
constexpr uint32_t kReceives = 32;

[[noreturn]] void wrong(const std::string& what) { throw std::runtime_error(what); }

uint64_t word_at(std::span<const uint8_t> memory, size_t at) {
    uint64_t v = 0;
    std::memcpy(&v, &memory[at], sizeof v);
    return v;
}

// ---- the active side ----

class Active {
public:
    explicit Active(RdmaPeer& peer) : peer_(peer) {}

    ibv_sge local(size_t at, uint32_t bytes) {
        return {reinterpret_cast<uint64_t>(peer_.scratch().data()) + at, bytes,
                peer_.scratch_key()};
    }
    // Posts without waiting; @flags in addition to SIGNALED.
    void post(ibv_wr_opcode opcode, size_t at, uint32_t bytes, uint64_t remote = 0,
              unsigned flags = 0, uint32_t imm = 0) {
        ibv_sge sge = local(at, bytes);
        ibv_send_wr wr{};
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED | flags;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.imm_data = htonl(imm);
        wr.wr.rdma = {peer_.peer().address + remote, peer_.peer().key};
        peer_.post(wr);
        posted_++;
    }
    void fetch_add(size_t at, uint64_t remote, uint64_t add) {
        ibv_sge sge = local(at, 8);
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.atomic = {peer_.peer().address + remote, add, 0, peer_.peer().key};
        peer_.post(wr);
        posted_++;
    }
    void complete_all() {
        for (; posted_; posted_--) {
            const ibv_wc wc = peer_.wait();
            if (wc.status != IBV_WC_SUCCESS)
                wrong(ibv_wc_status_str(wc.status));
        }
    }
    std::span<uint8_t> at(size_t at, size_t bytes) { return peer_.scratch().subspan(at, bytes); }
    // The passive side checks what @imm asks for, and says when it has.
    void ask(uint32_t imm) {
        expect_answer();
        post(IBV_WR_SEND_WITH_IMM, 0, 0, 0, 0, imm);
    }
    void expect_answer() {
        peer_.post_receive(0, 0, 0);
        posted_++;
    }

private:
    RdmaPeer& peer_;
    uint32_t posted_ = 0;
};

// What an immediate says: which rule, which round.
constexpr uint32_t imm_of(uint32_t rule, uint32_t round) { return rule << 24 | round; }
enum Rule : uint32_t {
    kEnd,
    kWriteSend,
    kLastWins,
    kWriteImm,
    kReuse,
    kLinesBegin,
    kLinesEnd,
    kCpu
};

void write_then_send(Active& a, uint32_t round) {
    fill(a.at(0, kBytes), imm_of(kWriteSend, round));
    a.post(IBV_WR_RDMA_WRITE, 0, kBytes, 0);
    a.ask(imm_of(kWriteSend, round));
    a.complete_all();
}

void last_write_wins(Active& a, uint32_t round) {
    constexpr uint32_t kWrites = 6;
    for (uint32_t i = 0; i < kWrites; i++) {
        fill(a.at(i * kBytes, kBytes), imm_of(kLastWins, round) + (i == kWrites - 1 ? 0 : 77 + i));
        a.post(IBV_WR_RDMA_WRITE, i * kBytes, kBytes, 0);
    }
    a.ask(imm_of(kLastWins, round));
    a.complete_all();
}

void write_with_immediate(Active& a, uint32_t round) {
    const uint64_t key = imm_of(kWriteImm, round);
    fill(a.at(0, 2 * kBytes), key);
    a.expect_answer();
    a.post(IBV_WR_RDMA_WRITE, 0, kBytes, 0);
    a.post(IBV_WR_RDMA_WRITE_WITH_IMM, kBytes, kBytes, kBytes, 0, imm_of(kWriteImm, round));
    a.complete_all();
}

void read_after_write(Active& a, uint32_t round) {
    fill(a.at(0, kBytes), round + 5);
    std::ranges::fill(a.at(kBytes, kBytes), uint8_t{0});
    a.post(IBV_WR_RDMA_WRITE, 0, kBytes, 0);
    a.post(IBV_WR_RDMA_READ, kBytes, kBytes, 0);
    a.complete_all();
    if (first_wrong(a.at(kBytes, kBytes), round + 5) != kBytes)
        wrong("a READ did not see the WRITE before it");
}

void write_after_read(Active& a, uint32_t round) {
    read_after_write(a, round);  // what is there now
    fill(a.at(2 * kBytes, kBytes), round + 1000);
    std::ranges::fill(a.at(kBytes, kBytes), uint8_t{0});
    a.post(IBV_WR_RDMA_READ, kBytes, kBytes, 0);
    a.post(IBV_WR_RDMA_WRITE, 2 * kBytes, kBytes, 0, IBV_SEND_FENCE);
    a.complete_all();
    if (first_wrong(a.at(kBytes, kBytes), round + 5) != kBytes)
        wrong("a READ saw the fenced WRITE after it");
}

// A completed WRITE's buffer is the application's: what it writes there must not travel.
void buffer_reuse(Active& a, uint32_t round) {
    fill(a.at(0, kBytes), imm_of(kReuse, round));
    a.post(IBV_WR_RDMA_WRITE, 0, kBytes, 0);
    a.complete_all();
    std::ranges::fill(a.at(0, kBytes), uint8_t{0xee});
    a.ask(imm_of(kReuse, round));
    a.complete_all();
}

// Whole 128-byte lines, low to high: a poller on a line's last word finds the rest.
void lines(Active& a, uint32_t rounds) {
    a.ask(imm_of(kLinesBegin, rounds));
    a.complete_all();
    for (uint64_t round = 1; round <= rounds; round++) {
        for (uint32_t i = 0; i < kLines; i++)
            for (uint32_t w = 0; w < kLineBytes / 8; w++)
                std::memcpy(&a.at(i * kLineBytes, kLineBytes)[w * 8], &round, 8);
        a.post(IBV_WR_RDMA_WRITE, 0, kLines * kLineBytes, 0);
        a.complete_all();
    }
    a.ask(imm_of(kLinesEnd, 0));
    a.complete_all();
}

// Adds of ours and of the peer's CPU to one counter: none is lost, and each sees another value.
void atomics_and_cpu(Active& a, uint32_t rounds) {
    constexpr uint32_t kBatch = 8;
    a.ask(imm_of(kCpu, rounds * kBatch));
    a.complete_all();
    uint64_t last = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < kBatch; i++)
            a.fetch_add(i * 8, kCounterAt, 1);
        a.complete_all();
        for (uint32_t i = 0; i < kBatch; i++) {
            const uint64_t seen = word_at(a.at(i * 8, 8), 0);
            if ((round || i) && seen <= last)
                wrong(fmt::format("an atomic saw {} after {}", seen, last));
            last = seen;
        }
    }
}

void active(RdmaPeer& peer, const Options& o) {
    Active a(peer);
    using Litmus = void (*)(Active&, uint32_t);
    for (const Litmus litmus : {write_then_send, last_write_wins, write_with_immediate,
                                read_after_write, write_after_read, buffer_reuse})
        for (uint32_t round = 0; round < o.rounds; round++)
            litmus(a, round);
    lines(a, o.rounds);
    atomics_and_cpu(a, o.rounds);
    a.ask(imm_of(kEnd, 0));
    a.complete_all();
}

// ---- the passive side ----

class Passive {
public:
    explicit Passive(RdmaPeer& peer) : peer_(peer) {
        for (uint32_t i = 0; i < kReceives; i++)
            peer_.post_receive(i, 0, 0);
    }
    ~Passive() {
        stop_ = true;
        if (poller_.joinable())
            poller_.join();
        if (adder_.joinable())
            adder_.join();
    }
    void serve();

private:
    bool check(uint32_t imm);
    void expect(size_t bytes, uint64_t key, const char* rule) {
        const size_t at = first_wrong(peer_.region().first(bytes), key);
        if (at != bytes)
            wrong(fmt::format("{}: byte {} is not there yet", rule, at));
    }
    void poll_lines();
    void end_lines();
    void answer();

    RdmaPeer& peer_;
    std::atomic<bool> stop_ = false;
    std::atomic<uint64_t> torn_ = 0;
    uint64_t atomics_ = 0;
    std::thread poller_, adder_;
};

// Spins on each line's last word, as NCCL's LL128 does; the rest must be as new.
void Passive::poll_lines() {
    auto* region = peer_.region().data();
    while (!stop_) {
        for (uint32_t i = 0; i < kLines; i++) {
            auto* line = reinterpret_cast<uint64_t*>(region + i * kLineBytes);
            const uint64_t flag = __atomic_load_n(&line[kLineBytes / 8 - 1], __ATOMIC_ACQUIRE);
            for (uint32_t w = 0; w < kLineBytes / 8 - 1; w++)
                if (__atomic_load_n(&line[w], __ATOMIC_RELAXED) < flag)
                    torn_++;
        }
        std::this_thread::yield();
    }
}

void Passive::end_lines() {
    stop_ = true;
    poller_.join();
    stop_ = false;
    if (torn_)
        wrong(fmt::format("{} lines were half new", torn_.load()));
}

void Passive::answer() {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    peer_.post(wr);
}

bool Passive::check(uint32_t imm) {
    const uint32_t round = imm & 0xffffff;
    switch (imm >> 24) {
        case kWriteSend:
            expect(kBytes, imm, "WRITE before a SEND");
            break;
        case kLastWins:
            expect(kBytes, imm, "the last WRITE wins");
            break;
        case kWriteImm:
            expect(2 * kBytes, imm, "WRITE with immediate, and the WRITE before it");
            break;
        case kReuse:
            expect(kBytes, imm, "a WRITE's buffer after its completion");
            break;
        case kLinesBegin:
            std::ranges::fill(peer_.region().first(kLines * kLineBytes), uint8_t{0});
            poller_ = std::thread([this] { poll_lines(); });
            break;
        case kLinesEnd:
            end_lines();
            break;
        case kCpu:
            atomics_ = round;
            adder_ = std::thread([this] {
                auto* counter = reinterpret_cast<uint64_t*>(&peer_.region()[kCounterAt]);
                for (uint32_t i = 0; i < kCpuAdds; i++)
                    __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
            });
            break;
        default:
            return false;
    }
    return true;
}

// Until the last answer has arrived, too: to leave before would take it back.
void Passive::serve() {
    uint32_t on_the_way = 0;
    for (bool more = true; more || on_the_way;) {
        const ibv_wc wc = peer_.wait();
        if (wc.status != IBV_WC_SUCCESS)
            wrong(ibv_wc_status_str(wc.status));
        if (!(wc.opcode & IBV_WC_RECV)) {
            on_the_way--;
            continue;
        }
        more = check(ntohl(wc.imm_data));
        peer_.post_receive(wc.wr_id, 0, 0);
        answer();
        on_the_way++;
    }
    adder_.join();
    const uint64_t sum = word_at(peer_.region(), kCounterAt);
    if (sum != kCpuAdds + atomics_)
        wrong(fmt::format("{} adds made {}", kCpuAdds + atomics_, sum));
}

void all(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    RdmaPeer::Options options;
    options.engine = o.peer.engine_id();
    RdmaPeer peer(*context, o.peer.socket(), options);
    if (o.peer.listens())
        Passive(peer).serve();
    else
        active(peer, o);
    std::printf("%s\n", counters_json(peer).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_litmus", "One litmus test for each ordering rule")
        .peer(o.peer)
        .option("--rounds", o.rounds)
        .run(argc, argv, [&] {
            all(o);
            return 0;
        });
}
