// SPDX-License-Identifier: BSD-3-Clause
// WRITE, READ and atomics on one attached queue pair, against a model.
//
//   qp_rdma --port PORT                      the passive side, one connection
//   qp_rdma --port PORT --connect ADDR       the active side
//
// The active side alone changes the passive side's region, and keeps a copy of
// what must be there: each READ and each atomic's answer is compared with it.
// The passive side sees immediates only, and compares its region at the end.
#include <arpa/inet.h>

#include <cstdio>
#include <deque>
#include <random>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "command.hpp"
#include "pattern.hpp"
#include "rdma_peer.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

struct Options {
    PeerOptions peer;
    int wire = -1;
    uint32_t operations = 400;
    uint32_t max_bytes = 60000;
    uint32_t train = 1;   // WRITEs of one length, equally far apart, posted at once
    bool uneven = false;  // of any lengths, to anywhere
    uint64_t seed = 1;
    std::string memory = "pages";
    uint32_t region_mib = 1;
};

constexpr uint32_t kSlots = 24;  // operations in flight, each with its own scratch
constexpr uint32_t kSlotBytes = 128 << 10;
constexpr uint32_t kTrainMaxBytes =
    20000;  // of each; eight of them twice as far apart fit the region
constexpr uint32_t kImmEnd = 0xffffffff;

RdmaPeer::Options peer_options(const Options& o) {
    RdmaPeer::Options p;
    p.engine = o.peer.engine_id();
    p.memory = memory_of(o.memory);
    p.region_bytes = size_t{o.region_mib} << 20;
    p.wire_flags = o.wire == 0   ? TCP_QP_ATTACH_F_WIRE_V0
                   : o.wire == 1 ? TCP_QP_ATTACH_F_WIRE_V1
                                 : 0;
    return p;
}

class Active {
public:
    Active(RdmaPeer& peer, const Options& o)
        : peer_(peer), o_(o), random_(o.seed), model_(peer.peer().bytes), slots_(kSlots) {
        for (uint32_t i = 0; i < kSlots; i++)
            free_.push_back(i);
    }
    void run();
    [[nodiscard]] uint32_t immediates() const { return immediates_; }

private:
    struct Slot {
        ibv_wr_opcode opcode{};
        uint32_t bytes = 0;
        uint64_t at = 0;                // in the region
        std::vector<uint8_t> expected;  // of a READ or an atomic
    };

    void one();
    static std::string wrong_data(const Slot& s, const uint8_t* got);
    void complete_one();
    void write(uint32_t slot, bool immediate);
    void write_train();
    void read(uint32_t slot);
    void atomic(uint32_t slot);
    void post(uint32_t slot, std::span<ibv_sge> sges, ibv_send_wr wr);
    void finish();
    void check_whole_region();

    uint8_t* scratch(uint32_t slot) { return peer_.scratch().data() + slot * kSlotBytes; }
    std::vector<ibv_sge> cut(uint32_t slot, uint32_t bytes);
    uint32_t any(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

    RdmaPeer& peer_;
    const Options& o_;
    std::mt19937_64 random_;
    std::vector<uint8_t> model_;
    std::vector<Slot> slots_;
    std::deque<uint32_t> free_;
    uint32_t immediates_ = 0;
    bool reads_in_flight_ = false;
    bool atomics_in_flight_ = false;
};

// The slot's memory as one to three SGEs, some of them empty.
std::vector<ibv_sge> Active::cut(uint32_t slot, uint32_t bytes) {
    std::vector<ibv_sge> sges;
    uint32_t at = 0;
    for (uint32_t pieces = 1 + any(3); pieces; pieces--) {
        const uint32_t n = pieces == 1 ? bytes - at : any(bytes - at + 1);
        sges.push_back({reinterpret_cast<uint64_t>(scratch(slot) + at), n, peer_.scratch_key()});
        at += n;
    }
    return sges;
}

void Active::post(uint32_t slot, std::span<ibv_sge> sges, ibv_send_wr wr) {
    wr.wr_id = slot;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.send_flags |= IBV_SEND_SIGNALED;
    peer_.post(wr);
}

void Active::write(uint32_t slot, bool immediate) {
    Slot& s = slots_[slot];
    const std::span<uint8_t> data{scratch(slot), s.bytes};
    fill(data, random_());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<long>(s.at));
    ibv_send_wr wr{};
    wr.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    if (immediate)
        wr.imm_data = htonl(immediates_++);
    wr.wr.rdma = {peer_.peer().address + s.at, peer_.peer().key};
    // what a READ or an atomic before it asked for must not change under it
    if (reads_in_flight_ || atomics_in_flight_)
        wr.send_flags = IBV_SEND_FENCE;
    auto sges = cut(slot, s.bytes);
    post(slot, sges, wr);
}

// Side by side, with gaps, or all to one place, where the last one wins; or anywhere, sometimes one
// over the other.
void Active::write_train() {
    const uint32_t count = 2 + any(o_.train - 1);
    uint32_t bytes = 1 + any(any(2) ? 200 : std::min(o_.max_bytes, kTrainMaxBytes));
    const uint64_t apart = uint64_t{any(3)} * bytes;
    const uint64_t first = random_() % (model_.size() - (count - 1) * apart - bytes);
    const bool uneven = o_.uneven && any(3);
    const uint64_t within = any(2) ? model_.size() : 4 * kTrainMaxBytes;
    std::vector<ibv_send_wr> wrs(count);
    std::vector<std::vector<ibv_sge>> sges(count);
    while (free_.size() < count)
        complete_one();
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = free_.front();
        free_.pop_front();
        uint64_t at = first + i * apart;
        if (uneven) {
            bytes = 1 + any(any(2) ? 200 : std::min(o_.max_bytes, kTrainMaxBytes));
            at = random_() % (within - bytes);
        }
        slots_[slot] = {IBV_WR_RDMA_WRITE, bytes, at, {}};
        const std::span<uint8_t> data{scratch(slot), bytes};
        fill(data, random_());
        std::ranges::copy(data, model_.begin() + static_cast<long>(slots_[slot].at));
        sges[i] = cut(slot, bytes);
        wrs[i].wr_id = slot;
        wrs[i].sg_list = sges[i].data();
        wrs[i].num_sge = static_cast<int>(sges[i].size());
        wrs[i].opcode = IBV_WR_RDMA_WRITE;
        wrs[i].send_flags = IBV_SEND_SIGNALED;
        wrs[i].wr.rdma = {peer_.peer().address + slots_[slot].at, peer_.peer().key};
        wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
    }
    if (reads_in_flight_ || atomics_in_flight_)
        wrs[0].send_flags |= IBV_SEND_FENCE;
    peer_.post(wrs[0]);
}

void Active::read(uint32_t slot) {
    Slot& s = slots_[slot];
    s.expected.assign(model_.begin() + static_cast<long>(s.at),
                      model_.begin() + static_cast<long>(s.at + s.bytes));
    std::fill_n(scratch(slot), s.bytes + 64, 0xa5);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma = {peer_.peer().address + s.at, peer_.peer().key};
    auto sges = cut(slot, s.bytes);
    post(slot, sges, wr);
    reads_in_flight_ = true;
}

void Active::atomic(uint32_t slot) {
    Slot& s = slots_[slot];
    s.at &= ~uint64_t{7};
    s.bytes = 8;
    uint64_t old = 0;
    std::memcpy(&old, &model_[s.at], 8);
    s.expected.assign(model_.begin() + static_cast<long>(s.at),
                      model_.begin() + static_cast<long>(s.at + 8));
    ibv_send_wr wr{};
    wr.wr.atomic = {peer_.peer().address + s.at, random_(), random_(), peer_.peer().key};
    uint64_t now = old + wr.wr.atomic.compare_add;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (any(2)) {
        wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        if (any(2))
            wr.wr.atomic.compare_add = old;
        now = wr.wr.atomic.compare_add == old ? wr.wr.atomic.swap : old;
    }
    std::memcpy(&model_[s.at], &now, 8);
    if (reads_in_flight_)
        wr.send_flags = IBV_SEND_FENCE;
    ibv_sge sge{reinterpret_cast<uint64_t>(scratch(slot)), 8, peer_.scratch_key()};
    post(slot, {&sge, 1}, wr);
    atomics_in_flight_ = true;
}

void Active::one() {
    if (o_.train > 1 && any(2))
        return write_train();
    if (free_.empty())
        complete_one();
    const uint32_t slot = free_.front();
    free_.pop_front();
    Slot& s = slots_[slot];
    s.bytes = any(6) == 0 ? any(200) : any(o_.max_bytes + 1);
    s.at = random_() % (model_.size() - s.bytes - 8);
    switch (any(5)) {
        case 0:
        case 1:
            s.opcode = IBV_WR_RDMA_WRITE;
            return write(slot, false);
        case 2:
            s.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            return write(slot, true);
        case 3:
            s.opcode = IBV_WR_RDMA_READ;
            return read(slot);
        default:
            s.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            return atomic(slot);
    }
}

std::string Active::wrong_data(const Slot& s, const uint8_t* got) {
    size_t at = 0;
    while (s.expected[at] == got[at])
        at++;
    const size_t n = std::min<size_t>(8, s.bytes - at);
    return fmt::format("{} of {} bytes at {}: from byte {} on {:02x} instead of {:02x}",
                       s.opcode == IBV_WR_RDMA_READ ? "READ" : "atomic", s.bytes, s.at, at,
                       fmt::join(got + at, got + at + n, " "),
                       fmt::join(s.expected.begin() + static_cast<long>(at),
                                 s.expected.begin() + static_cast<long>(at + n), " "));
}

// One completion: in order, successful, and with the data that the model says.
void Active::complete_one() {
    const ibv_wc wc = peer_.wait();
    const auto slot = static_cast<uint32_t>(wc.wr_id);
    const Slot& s = slots_.at(slot);
    if (wc.status != IBV_WC_SUCCESS)
        throw std::runtime_error(fmt::format("operation {} of {} bytes at {}: {}", int(s.opcode),
                                             s.bytes, s.at, ibv_wc_status_str(wc.status)));
    const bool answered = s.opcode == IBV_WR_RDMA_READ || s.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (answered && !std::equal(s.expected.begin(), s.expected.end(), scratch(slot)))
        throw std::runtime_error(wrong_data(s, scratch(slot)));
    if (s.opcode == IBV_WR_RDMA_READ &&
        std::any_of(scratch(slot) + s.bytes, scratch(slot) + s.bytes + 64,
                    [](uint8_t b) { return b != 0xa5; }))
        throw std::runtime_error("a READ wrote beyond its end");
    free_.push_back(slot);
}

void Active::finish() {
    while (free_.size() < kSlots)
        complete_one();
    reads_in_flight_ = atomics_in_flight_ = false;
}

void Active::check_whole_region() {
    for (uint64_t at = 0; at < model_.size(); at += kSlotBytes / 2) {
        Slot& s = slots_[0];
        s.opcode = IBV_WR_RDMA_READ;
        s.at = at;
        s.bytes = static_cast<uint32_t>(std::min<uint64_t>(kSlotBytes / 2, model_.size() - at));
        free_.pop_front();
        read(0);
        complete_one();
        free_.pop_back();
        free_.push_front(0);
    }
}

void Active::run() {
    for (uint32_t i = 0; i < o_.operations; i++) {
        one();
        if (any(40) == 0)
            finish();
    }
    finish();
    while (free_.front() != 0) {
        free_.push_back(free_.front());
        free_.pop_front();
    }
    check_whole_region();
    ibv_send_wr end{};
    end.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;  // of no bytes
    end.imm_data = htonl(kImmEnd);
    free_.pop_front();
    slots_[0] = {};
    slots_[0].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    post(0, {}, end);
    complete_one();
}

// Immediates in order, and no other completion, until the last one.
// The active side reads all of the region before the last one.
uint32_t passive(RdmaPeer& peer, const Options& o) {
    constexpr uint32_t kReceives = 32;
    const int limit_ms = 30000 + static_cast<int>(o.region_mib) * 200;
    uint32_t next = 0;
    for (uint32_t i = 0; i < kReceives; i++)
        peer.post_receive(i, 0, 0);
    for (;;) {
        const ibv_wc wc = peer.wait(limit_ms);
        if (wc.status != IBV_WC_SUCCESS)
            throw std::runtime_error(ibv_wc_status_str(wc.status));
        if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || !(wc.wc_flags & IBV_WC_WITH_IMM))
            throw std::runtime_error("a completion that is no immediate's");
        const uint32_t imm = ntohl(wc.imm_data);
        if (imm == kImmEnd)
            return next;
        if (imm != next++)
            throw std::runtime_error(fmt::format("immediate {} where {} was due", imm, next - 1));
        peer.post_receive(wc.wr_id, 0, 0);
    }
}

void all(const Options& o) {
    auto context = tcpqp::open_device(o.peer.interface);
    RdmaPeer peer(*context, o.peer.socket(), peer_options(o));
    uint32_t immediates = 0;
    if (o.peer.listens()) {
        immediates = passive(peer, o);
    } else {
        Active active(peer, o);
        active.run();
        immediates = active.immediates();
    }
    std::printf("{\"immediates\": %u, \"counters\": %s}\n", immediates,
                counters_json(peer).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_rdma", "WRITE, READ and atomics against a model")
        .peer(o.peer)
        .option("--wire", o.wire, "0 or 1: this version on sent segments")
        .option("--operations", o.operations)
        .option("--max-bytes", o.max_bytes, {1, 131000}, "of one operation")
        .option("--train", o.train, {1, 8}, "WRITEs of one length at once")
        .flag("--uneven", o.uneven, "but most of any lengths, and to anywhere")
        .option("--seed", o.seed)
        .choice("--memory", o.memory, {"pages", "huge", "udmabuf", "dma-heap", "hbm", "pool"})
        .option("--region-mib", o.region_mib, {1, 2048}, "on both sides the same")
        .run(argc, argv, [&] {
            all(o);
            return 0;
        });
}
