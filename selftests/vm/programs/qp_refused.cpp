// SPDX-License-Identifier: BSD-3-Clause
// Requests that the peer must refuse: keys, bounds and rights that are not the
// requester's.  Each case is a connection of its own: a WRITE and a READ that
// are in order, in some cases SENDs or WRITEs that travel as a train, the one that
// is not in order, and a SEND behind it.  All before it must succeed, it must
// fail with just the status that IBTA names, the last be flushed; and not one
// byte of the region may change.  Prints how long the middle one of the cases took.
//
// With --questions there is instead, in front of it, a SEND that the peer answers as soon as it has
// it, as it did with others before: what is wrong has come by then, and nobody has looked at it.
//
// With --until FILE there is instead a READ at each end, with a request behind it whose own key is
// wrong: posted as soon as FILE is there, which "posted" says, and the other end's must be
// answered.
//
//   qp_refused --port PORT [--connect ADDR] [--engine E] [--case NAME ...] [--questions N]
//              [--until FILE]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "command.hpp"
#include "rdma_peer.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

constexpr uint8_t kFill = 0x5c;
constexpr uint32_t kReceives = 4;
constexpr uint32_t kQuestionsMax = 60;  // each has a receive
constexpr int kBacklog = 8;
constexpr int kLookMs = 10;
constexpr uint32_t kReceiveBytes = 4096;
constexpr uint32_t kSendBytes = 64;
constexpr uint32_t kLongBytes = 3000;  // sent from where they lie
constexpr size_t kRegionBytes = 1 << 20;

enum class Target { kKey, kReadOnly, kStale, kForeign, kGuessed };

struct Case {
    const char* name;
    ibv_wr_opcode opcode;
    Target target;
    int64_t offset;  // from the region's begin
    uint32_t bytes;
    ibv_wc_status status;
    int passive_access = kRemoteAll;
    bool local_key = true;  // false: the requester's own key is wrong
    uint32_t sends = 0;     // in front of it, fewer than receives
    uint32_t send_bytes = kSendBytes;
    uint32_t writes = 0;  // in front of it, as long, one behind the other and it behind them;
    bool uneven = false;  // with gaps that grow
};

const std::vector<Case> kCases{
    {"write-guessed", IBV_WR_RDMA_WRITE, Target::kGuessed, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"write-stale", IBV_WR_RDMA_WRITE, Target::kStale, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"write-foreign", IBV_WR_RDMA_WRITE, Target::kForeign, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"write-read-only", IBV_WR_RDMA_WRITE, Target::kReadOnly, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"write-end", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes - 4, 8, IBV_WC_REM_ACCESS_ERR},
    {"write-before", IBV_WR_RDMA_WRITE, Target::kKey, -4, 8, IBV_WC_REM_ACCESS_ERR},
    {"write-long", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes / 2, kRegionBytes,
     IBV_WC_REM_ACCESS_ERR},
    {"write-imm-guessed", IBV_WR_RDMA_WRITE_WITH_IMM, Target::kGuessed, 0, 5000,
     IBV_WC_REM_ACCESS_ERR},
    {"write-imm-long", IBV_WR_RDMA_WRITE_WITH_IMM, Target::kKey, kRegionBytes / 2, kRegionBytes,
     IBV_WC_REM_ACCESS_ERR},
    {"write-closed", IBV_WR_RDMA_WRITE, Target::kKey, 0, 64, IBV_WC_REM_ACCESS_ERR,
     IBV_ACCESS_REMOTE_READ},
    {"read-guessed", IBV_WR_RDMA_READ, Target::kGuessed, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"read-stale", IBV_WR_RDMA_READ, Target::kStale, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"read-foreign", IBV_WR_RDMA_READ, Target::kForeign, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"read-end", IBV_WR_RDMA_READ, Target::kKey, kRegionBytes - 4, 8, IBV_WC_REM_ACCESS_ERR},
    {"read-long", IBV_WR_RDMA_READ, Target::kKey, 4096, kRegionBytes, IBV_WC_REM_ACCESS_ERR},
    {"atomic-guessed", IBV_WR_ATOMIC_FETCH_AND_ADD, Target::kGuessed, 0, 8, IBV_WC_REM_ACCESS_ERR},
    {"atomic-read-only", IBV_WR_ATOMIC_CMP_AND_SWP, Target::kReadOnly, 0, 8, IBV_WC_REM_ACCESS_ERR},
    {"atomic-end", IBV_WR_ATOMIC_FETCH_AND_ADD, Target::kKey, kRegionBytes, 8,
     IBV_WC_REM_ACCESS_ERR},
    {"send-inv", IBV_WR_SEND_WITH_INV, Target::kGuessed, 0, 64, IBV_WC_REM_ACCESS_ERR},
    {"send-inv-long", IBV_WR_SEND_WITH_INV, Target::kGuessed, 0, kLongBytes, IBV_WC_REM_ACCESS_ERR},
    {"local-key", IBV_WR_RDMA_WRITE, Target::kKey, 0, 64, IBV_WC_LOC_PROT_ERR, kRemoteAll, false},
    {"local-sink", IBV_WR_RDMA_READ, Target::kKey, 0, 64, IBV_WC_LOC_PROT_ERR, kRemoteAll, false},
    {"send-long", IBV_WR_SEND, Target::kKey, 0, kReceiveBytes + 1, IBV_WC_REM_INV_REQ_ERR},
    {"second-of-train", IBV_WR_SEND, Target::kKey, 0, kSendBytes, IBV_WC_LOC_PROT_ERR, kRemoteAll,
     false, 1},
    {"last-of-train", IBV_WR_SEND, Target::kKey, 0, kSendBytes, IBV_WC_LOC_PROT_ERR, kRemoteAll,
     false, 3},
    {"long-behind-train", IBV_WR_SEND, Target::kKey, 0, kReceiveBytes + 1, IBV_WC_REM_INV_REQ_ERR,
     kRemoteAll, true, 3},
    {"write-behind-train", IBV_WR_RDMA_WRITE, Target::kGuessed, 0, kSendBytes,
     IBV_WC_REM_ACCESS_ERR, kRemoteAll, true, 3},
    {"second-of-long-train", IBV_WR_SEND, Target::kKey, 0, kLongBytes, IBV_WC_LOC_PROT_ERR,
     kRemoteAll, false, 1, kLongBytes},
    {"last-of-long-train", IBV_WR_SEND, Target::kKey, 0, kLongBytes, IBV_WC_LOC_PROT_ERR,
     kRemoteAll, false, 3, kLongBytes},
    {"longer-behind-long-train", IBV_WR_SEND, Target::kKey, 0, kReceiveBytes + 1,
     IBV_WC_REM_INV_REQ_ERR, kRemoteAll, true, 3, kLongBytes},
    {"end-of-write-train", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes, kSendBytes,
     IBV_WC_REM_ACCESS_ERR, kRemoteAll, true, 0, kSendBytes, 5},
    {"end-of-long-write-train", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes - kLongBytes / 2,
     kLongBytes, IBV_WC_REM_ACCESS_ERR, kRemoteAll, true, 0, kSendBytes, 5},
    {"own-key-in-long-write-train", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes / 2, kLongBytes,
     IBV_WC_LOC_PROT_ERR, kRemoteAll, false, 0, kSendBytes, 5},
    {"end-of-mixed-write-train", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes - kSendBytes + 1,
     kSendBytes, IBV_WC_REM_ACCESS_ERR, kRemoteAll, true, 0, kSendBytes, 5, true},
    {"end-of-long-mixed-write-train", IBV_WR_RDMA_WRITE, Target::kKey,
     kRegionBytes - kLongBytes / 2, kLongBytes, IBV_WC_REM_ACCESS_ERR, kRemoteAll, true, 0,
     kSendBytes, 5, true},
    {"guessed-mixed-write-train", IBV_WR_RDMA_WRITE, Target::kGuessed, kRegionBytes / 2, kLongBytes,
     IBV_WC_REM_ACCESS_ERR, kRemoteAll, true, 0, kSendBytes, 5, true},
    {"own-key-in-mixed-write-train", IBV_WR_RDMA_WRITE, Target::kKey, kRegionBytes / 2, kLongBytes,
     IBV_WC_LOC_PROT_ERR, kRemoteAll, false, 0, kSendBytes, 5, true},
};

struct Options {
    PeerOptions peer;
    std::vector<std::string> cases;
    uint32_t questions = 0;
    std::string until;
};

enum Id : uint64_t { kGoodWrite, kGoodRead, kBad, kAfter, kGoodSend, kAnswer, kFirstAnswer = 1000 };

uint32_t key_of(const Offer& offer, Target target) {
    switch (target) {
        case Target::kReadOnly:
            return offer.read_only_key;
        case Target::kStale:
            return offer.stale_key;
        case Target::kForeign:
            return offer.foreign_key;
        case Target::kGuessed:
            return offer.key ^ 0x5a00;
        default:
            return offer.key;
    }
}

void expect(const ibv_wc& wc, Id id, ibv_wc_status status) {
    if (wc.wr_id != id || wc.status != status)
        throw std::runtime_error(fmt::format("request {} ended with \"{}\", not {} with \"{}\"",
                                             wc.wr_id, ibv_wc_status_str(wc.status), int(id),
                                             ibv_wc_status_str(status)));
}

void send(RdmaPeer& peer, Id id) {
    ibv_sge sge{reinterpret_cast<uint64_t>(peer.scratch().data()), kSendBytes, peer.scratch_key()};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    peer.post(wr);
}

void ask(RdmaPeer& peer, uint32_t questions) {
    for (uint32_t i = 0; i < questions; i++)
        peer.post_receive(kAnswer, i * kReceiveBytes, kReceiveBytes);
    for (uint32_t i = 1; i < questions; i++) {
        send(peer, kGoodSend);
        for (int of = 0; of < 2; of++)  // one may be told of before the other
            if (const ibv_wc wc = peer.spin(); wc.status != IBV_WC_SUCCESS)
                expect(wc, kGoodSend, IBV_WC_SUCCESS);
    }
}

// Of what was posted to be sent: answers come at any time.
ibv_wc next_request(RdmaPeer& peer) {
    ibv_wc wc = peer.spin();
    while (wc.wr_id == kAnswer)
        wc = peer.spin();
    return wc;
}

void active(RdmaPeer& peer, const Case& c, uint32_t questions) {
    std::ranges::fill(peer.scratch(), kFill);
    ibv_sge good{reinterpret_cast<uint64_t>(peer.scratch().data()), c.send_bytes,
                 peer.scratch_key()};
    ibv_sge alike{good.addr, c.bytes, good.lkey};
    ibv_sge bad{good.addr, c.bytes, good.lkey ^ (c.local_key ? 0u : 0x5a00u)};
    const uint64_t address = peer.peer().address + static_cast<uint64_t>(c.offset);
    std::vector<ibv_send_wr> wrs;
    auto add = [&](Id id, ibv_wr_opcode opcode) -> ibv_send_wr& {
        ibv_send_wr& wr = wrs.emplace_back();
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = id == kBad ? &bad : &good;
        wr.num_sge = 1;
        wr.wr.rdma = {peer.peer().address, peer.peer().key};
        return wr;
    };
    ask(peer, questions);
    if (!questions && c.passive_access & IBV_ACCESS_REMOTE_WRITE)
        add(kGoodWrite, IBV_WR_RDMA_WRITE);
    if (!questions)
        add(kGoodRead, IBV_WR_RDMA_READ);
    for (uint32_t i = 0; i < (questions ? 1 : c.sends); i++)
        add(kGoodSend, IBV_WR_SEND);
    for (uint32_t i = c.writes; i; i--) {
        ibv_send_wr& wr = add(kGoodWrite, IBV_WR_RDMA_WRITE);
        wr.sg_list = &alike;
        wr.wr.rdma.remote_addr =
            address - uint64_t{i} * c.bytes - (c.uneven ? 8 * uint64_t{i} * i : 0);
    }
    ibv_send_wr& wrong = add(kBad, c.opcode);
    if (c.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || c.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wrong.wr.atomic = {address, 1, 2, key_of(peer.peer(), c.target)};
    else if (c.opcode == IBV_WR_SEND_WITH_INV)
        wrong.invalidate_rkey = key_of(peer.peer(), c.target);
    else
        wrong.wr.rdma = {address, key_of(peer.peer(), c.target)};
    add(kAfter, IBV_WR_SEND);
    for (size_t i = 0; i + 1 < wrs.size(); i++)
        wrs[i].next = &wrs[i + 1];
    peer.post(wrs.front());
    for (const ibv_send_wr& wr : wrs) {
        const auto id = static_cast<Id>(wr.wr_id);
        expect(questions ? next_request(peer) : peer.wait(), id,
               id == kBad     ? c.status
               : id == kAfter ? IBV_WC_WR_FLUSH_ERR
                              : IBV_WC_SUCCESS);
    }
}

// Of a receive.  Answers are done at some time, the last one may fail.
ibv_wc next_receive(RdmaPeer& peer, bool spin) {
    for (;;) {
        const ibv_wc wc = spin ? peer.spin() : peer.wait();
        if (wc.wr_id < kFirstAnswer)
            return wc;
    }
}

void passive(RdmaPeer& peer, const Case& c, uint32_t questions) {
    const uint32_t sends = questions ? questions : c.sends;
    const uint32_t receives = kReceives + questions;
    for (uint32_t i = 0; i < receives; i++)
        peer.post_receive(i, i * kReceiveBytes, kReceiveBytes);
    for (uint32_t i = 0; i < receives; i++) {
        const ibv_wc wc = next_receive(peer, i < questions);
        const bool too_long = c.opcode == IBV_WR_SEND && c.local_key && i == sends;
        const ibv_wc_status status = i < sends  ? IBV_WC_SUCCESS
                                     : too_long ? IBV_WC_LOC_LEN_ERR
                                                : IBV_WC_WR_FLUSH_ERR;
        if (i < questions)
            send(peer, kFirstAnswer);
        if (wc.wr_id != i || wc.status != status || (i < sends && wc.byte_len != c.send_bytes))
            throw std::runtime_error(fmt::format("receive {} ended with \"{}\"", wc.wr_id,
                                                 ibv_wc_status_str(wc.status)));
    }
    if (std::ranges::any_of(peer.region(), [](uint8_t b) { return b != kFill; }))
        throw std::runtime_error("the region changed");
}

// What follows a READ is refused here; the READ is answered, by an end which is in the same case.
void both(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    RdmaPeer::Options options;
    options.engine = o.peer.engine_id();
    RdmaPeer peer(*context, o.peer.socket(), options);
    ibv_sge good{reinterpret_cast<uint64_t>(peer.scratch().data()), kSendBytes, peer.scratch_key()};
    ibv_sge bad{good.addr, kSendBytes, good.lkey ^ 0x5a00u};
    ibv_send_wr wrs[2]{};
    wrs[0].wr_id = kGoodRead;
    wrs[0].opcode = IBV_WR_RDMA_READ;
    wrs[0].sg_list = &good;
    wrs[0].wr.rdma = {peer.peer().address, peer.peer().key};
    wrs[0].next = &wrs[1];
    wrs[1].wr_id = kBad;
    wrs[1].opcode = IBV_WR_SEND;
    wrs[1].sg_list = &bad;
    for (ibv_send_wr& wr : wrs)
        wr.send_flags = IBV_SEND_SIGNALED, wr.num_sge = 1;
    std::puts("attached");
    std::fflush(stdout);
    while (::access(o.until.c_str(), F_OK) != 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    peer.post(wrs[0]);
    std::puts("posted");
    std::fflush(stdout);
    expect(peer.wait(), kGoodRead, IBV_WC_SUCCESS);
    const ibv_wc wc = peer.wait();
    if (wc.status != IBV_WC_WR_FLUSH_ERR)  // the other end's may be heard of first
        expect(wc, kBad, IBV_WC_LOC_PROT_ERR);
}

void one(const tcpqp::Context& context, tcpqp::Fd socket, const Options& o, const Case& c) {
    RdmaPeer::Options options;
    options.engine = o.peer.engine_id();
    options.region_bytes = kRegionBytes;
    options.qp_access = c.passive_access;
    options.fill = kFill;
    try {
        RdmaPeer peer(context, std::move(socket), options);
        o.peer.listens() ? passive(peer, c, o.questions) : active(peer, c, o.questions);
    } catch (const std::exception& e) {
        throw std::runtime_error(fmt::format("{}: {}", c.name, e.what()));
    }
}

void all(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    const tcpqp::Fd listener = o.peer.listener(kBacklog);
    std::vector<int64_t> took_ms;
    for (const Case& c : kCases) {
        if (!o.cases.empty() && std::ranges::find(o.cases, c.name) == o.cases.end())
            continue;
        tcpqp::Fd socket = o.peer.next_socket(listener);
        const auto begin = std::chrono::steady_clock::now();
        one(*context, std::move(socket), o, c);
        took_ms.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(
                              std::chrono::steady_clock::now() - begin)
                              .count());
    }
    std::ranges::sort(took_ms);
    fmt::print("{{\"refused\": {}, \"median_ms\": {}}}\n", took_ms.size(),
               took_ms.at(took_ms.size() / 2));
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_refused", "Requests that the peer must refuse")
        .peer(o.peer)
        .option("--case", o.cases, "these alone, on both sides")
        .option("--questions", o.questions, {0, kQuestionsMax}, "in front of it, on both sides")
        .option("--until", o.until, "both ends ask at once")
        .run(argc, argv, [&] {
            o.until.empty() ? all(o) : both(o);
            return 0;
        });
}
