// SPDX-License-Identifier: BSD-3-Clause
#include "host.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "end.hpp"
#include "engine/faults.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint64_t kHashSeed = 7;
constexpr std::uint32_t kMergerBufBytes = 2048;
constexpr std::uint32_t kHoldMaxUs = 2000, kHoldShortUs = 20;
constexpr std::uint32_t kForgeEach = 32;  // data segments
constexpr std::uint32_t kQuietShare = 4;  // of the hold, and
constexpr std::size_t kQuietMax = 32;     // as in ports/vm/rx_queue.cpp
constexpr std::size_t kLaterMax = 5;      // as in nupa_dev

}  // namespace

bool Region::allows(std::uint32_t of_pd, std::uint64_t addr, std::uint64_t n,
                    std::uint32_t right) const noexcept {
    return live && pd == of_pd && access & right && addr >= iova && addr - iova <= bytes &&
           n <= bytes - (addr - iova);
}

void Region::runs(std::uint64_t addr, std::uint64_t n,
                  const std::function<void(std::uint64_t, std::uint64_t)>& each) const {
    while (n) {
        const std::uint64_t in_page = addr % kPageBytes;
        const std::uint64_t step = std::min(n, kPageBytes - in_page);
        each(pages[addr / kPageBytes - iova / kPageBytes] + in_page, step);
        addr += step, n -= step;
    }
}

Host::Host(World& world, std::uint32_t id, std::size_t bytes)
    : ram(bytes), engine(ram.memory(), stats, kHashSeed), world_(world), id_(id) {
    merger_.configure(kMergerBufBytes, world.dice.percent(80));
    if (world.dice.percent(60))
        hold_us_ = world.dice.below(kHoldMaxUs);
    // not drawn, as the other seeds' schedules stay: a wait that is often in vain
    if (world.settings().seed % 4 == 3 && hold_us_)
        hold_us_ = 1 + hold_us_ % kHoldShortUs;
    if (world_.settings().quiet && !hold_us_)
        hold_us_ = 1 + world_.settings().seed % kHoldMaxUs;
    add_region(kForeignKey, kForeignPd,
               NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE | NUPA_ACCESS_REMOTE_READ |
                   NUPA_ACCESS_REMOTE_ATOMIC,
               kPageBytes);
}

std::size_t Host::add_region(std::uint32_t key, std::uint32_t pd, std::uint32_t access,
                             std::uint64_t bytes) {
    Region r;
    r.key = key, r.pd = pd, r.access = access, r.bytes = bytes, r.live = true;
    r.iova = 0x7f0000000000 + std::uint64_t{key} * (1 << 24) + world_.dice.below(kPageBytes);
    const std::uint64_t pages = (r.iova + bytes - 1) / kPageBytes - r.iova / kPageBytes + 1;
    const std::uint64_t first = ram.alloc(pages * kPageBytes, kPageBytes);
    for (std::uint64_t i = 0; i < pages; i++)
        r.pages.push_back(first + i * kPageBytes);
    for (std::size_t i = r.pages.size(); i > 1; i--)
        std::swap(r.pages[i - 1], r.pages[world_.dice.below(static_cast<std::uint32_t>(i))]);
    const std::uint64_t table = ram.alloc(pages * sizeof(std::uint64_t), sizeof(std::uint64_t));
    for (std::uint64_t i = 0; i < pages; i++)
        ram.put(table + i * sizeof(std::uint64_t), r.pages[i]);
    nupa_cmd_mr cmd{};
    cmd.iova = r.iova, cmd.bytes = bytes, cmd.table_addr = table;
    cmd.pages = static_cast<std::uint32_t>(pages);
    cmd.pd = pd, cmd.access = access, cmd.page_shift = 12;
    if (engine.mr_reg(key, cmd) != NUPA_OK)
        throw std::logic_error("mr_reg");
    regions_.push_back(std::move(r));
    return regions_.size() - 1;
}

const Region* Host::find(std::uint32_t key) const noexcept {
    const auto it = std::find_if(regions_.begin(), regions_.end(),
                                 [&](const Region& r) { return r.key == key && r.live; });
    return it == regions_.end() ? nullptr : &*it;
}

std::uint64_t Host::region_iova(std::uint32_t key) const noexcept {
    const auto it = std::find_if(regions_.begin(), regions_.end(),
                                 [&](const Region& r) { return r.key == key; });
    return it == regions_.end() ? 0 : it->iova;
}

void Host::deregister(std::uint32_t key) {
    for (Region& r : regions_)
        if (r.key == key)
            r.live = false;
    if (engine.mr_dereg(key) != NUPA_OK)
        throw std::logic_error("mr_dereg");
}

// Page by page: neighbours in memory need not be neighbours in a region.
bool Host::writable(std::uint64_t addr, std::uint64_t bytes, std::uint32_t pd,
                    std::uint32_t right) const {
    while (bytes) {
        const std::uint64_t n = std::min(bytes, kPageBytes - addr % kPageBytes);
        if (!page_writable(addr, n, pd, right))
            return false;
        addr += n, bytes -= n;
    }
    return true;
}

bool Host::page_writable(std::uint64_t addr, std::uint64_t bytes, std::uint32_t pd,
                         std::uint32_t right) const {
    for (const Region& r : regions_) {
        if (!r.live || r.pd != pd || !(r.access & right))
            continue;
        bool inside = false;
        r.runs(r.iova, r.bytes, [&](std::uint64_t at, std::uint64_t n) {
            inside |= addr >= at && addr - at <= n && bytes <= n - (addr - at);
        });
        if (inside)
            return true;
    }
    return false;
}

void Host::check_memory() {
    unchecked_ = false;
    if (const auto addr = ram.stray())
        world_.violation("host {} byte at {} changed that nobody may write now", {id_, *addr});
}

// @genuine may be damaged, so that the forgery says any sequence number.
void Host::forge(const nupa::Packet& genuine) {
    constexpr std::uint16_t kForgersPort = 77;
    constexpr std::uint32_t kNeverSentBytes = 1 << 29;
    nupa::Packet packet;
    if (!nupa::packet_copy(packet, genuine))
        return;
    for (std::uint32_t i = 0; i < packet.payload.bytes(); i++)
        packet.owned[i] ^= std::byte{0x5a};
    packet.csum = nupa::Csum::kGood;
    if (data_segments_ / kForgeEach % 2)
        packet.ingress = kForgersPort;
    else
        packet.at.ack += kNeverSentBytes;
    nupa::Decision decision;
    {
        Observer observer(ram, writes_);
        decision = engine.receive(packet);
    }
    world_.coverage.add(k_forged_segments);
    world_.coverage.reasons[static_cast<std::size_t>(decision.reason)]++;
    // what was placed before may be called so again: it is in memory, and not the forger's
    if (decision.reason == nupa::Reason::kPlaced || !writes_.empty())
        world_.violation("host {} placed a forged segment at {}", {id_, packet.at.seq});
    if (decision.has_qp && !decision.dropped())
        end_of(world_, decision.qpn).forged(packet);
    check_memory();
}

void Host::receive(nupa::Packet& packet, const Truth& truth) {
    if (truth.len && world_.forger() && ++data_segments_ % kForgeEach == 0 && packet.at.tcp())
        forge(packet);
    nupa::Decision decision;
    bool wild = false;
    End& end = world_.end(truth.connection, truth.to);
    end.segment_seen(packet, truth);
    {
        Observer observer(ram, writes_);
        decision = engine.receive(packet);
        wild = observer.wild();
    }
    world_.coverage.reasons[static_cast<std::size_t>(decision.reason)]++;
    if (truth.len)
        world_.log.add(world_.now(), "host {} end {}.{} segment {} + {} msn {}",
                       {id_, truth.connection, static_cast<std::uint64_t>(truth.to), truth.at,
                        truth.len, decision.has_bth ? decision.bth.msn : 0u},
                       nupa::reason_name(decision.reason));
    if (wild)
        world_.violation("host {} written outside its memory", {id_});
    if (!decision.placed() && !writes_.empty())
        world_.violation("host {} segment at {} written, but not called placed", {id_, truth.at});
    if (decision.placed())
        end.judge_placed(truth, decision.bth, writes_);
    end.judge_completed(truth, decision);
    end.judge_quiet(decision);
    if (truth.len)
        check_memory();
    else
        unchecked_ = true;
    if (truth.late)
        end.count_late(truth);
    if (!decision.dropped() && packet.has_flow() && packet.flow() == end.flow())
        merge(packet, decision, truth);
}

void Host::merge(nupa::Packet& packet, const nupa::Decision& decision, const Truth& truth) {
    if (merger_.active() && !merger_.fits(packet, decision))
        flush();
    if (merger_.active()) {
        merger_.append(packet, decision);
        run_truth_.len += truth.len;
        run_truth_.tampered |= truth.tampered;
        run_truth_.bleached |= truth.bleached;
        run_quiet_ = run_quiet_ && decision.quiet;
        run_later_ = run_later_ && decision.later;
        world_.coverage.add(k_merged);
    } else {
        merger_.start(packet, decision);
        run_truth_ = truth;
        run_bad_ = packet.csum == nupa::Csum::kBad || packet.at.ip_csum_bad || !packet.at.tcp();
        run_placed_ = decision.placed();
        run_quiet_ = decision.quiet;
        run_later_ = decision.later;
        run_data_.clear();
    }
    if (!decision.placed()) {
        const std::size_t had = run_data_.size();
        run_data_.resize(had + packet.payload.bytes());
        packet.payload.copy_to(run_data_.data() + had);
    }
    run_may_wait_ = decision.may_wait;
    run_due_ = world_.now() + hold_us_;
    if (merger_.closed())
        flush();
}

void Host::turn() {
    if (merger_.active() && hold_us_ && run_placed_ && run_may_wait_) {
        if (world_.now() < run_due_) {
            world_.coverage.add(k_held);
            world_.at(run_due_, EventKind::kFlush, id_);
            return;
        }
        world_.coverage.add(k_silences);
        engine.silent(merger_.qpn());
    }
    flush();
}

void Host::flush() {
    if (!merger_.active())
        return;
    const nupa::Merged& merged = merger_.finish();
    if (run_bad_)
        return;
    End& end = world_.end(run_truth_.connection, run_truth_.to);
    Received r;
    r.truth = run_truth_;
    r.tcp = read_frame({merged.header.data(), merged.header_bytes}, end.family());
    r.bytes = merged.payload_bytes;
    r.placed = run_placed_;
    r.data = std::move(run_data_);
    run_data_.clear();
    const bool completed = merged.flags & NUPA_RX_F_COMPLETED;
    end.judge_run(r.tcp.seq + r.bytes, completed);
    ring_.push_back({&end, std::move(r), run_quiet_ ? merger_.qpn() : 0, completed, run_later_});
    if (!run_quiet_ || ring_.size() == kQuietMax)
        return hear(false);
    world_.coverage.add(k_quiet);
    if (ring_.size() == 1) {
        hear_due_ = world_.now() + 1 + hold_us_ / kQuietShare;
        world_.at(hear_due_, EventKind::kHear, id_);
    }
}

// Once of each queue pair.
void Host::note_in_vain() {
    std::set<std::uint32_t> qpns;
    for (const Waiting& waiting : ring_)
        if (waiting.quiet_qpn && qpns.insert(waiting.quiet_qpn).second) {
            world_.coverage.add(k_quiet_in_vain);
            engine.quiet_in_vain(waiting.quiet_qpn);
        }
}

void Host::hear(bool in_vain) {
    if (hearing_)
        return;
    hearing_ = true;
    if (in_vain)
        note_in_vain();
    while (!ring_.empty()) {
        Waiting first = std::move(ring_.front());
        ring_.pop_front();
        join(first);
        first.end->arrive(std::move(first.received));
    }
    hearing_ = false;
}

// As nupa_dev's rx_join.c: it begins where the first one does, and says what the last one says.
void Host::join(Waiting& first) {
    while (!ring_.empty()) {
        const Waiting& next = ring_.front();
        const TcpFields &a = first.received.tcp, &b = next.received.tcp;
        if (!first.completed || !next.completed || next.end != first.end ||
            b.seq != a.seq + first.received.bytes || static_cast<std::int32_t>(b.ack - a.ack) < 0 ||
            ((a.flags | b.flags) & ~nupa::kTcpPsh) != nupa::kTcpAck)
            return;
        Truth truth = next.received.truth;
        truth.at = first.received.truth.at;
        truth.len += first.received.truth.len;
        truth.tampered |= first.received.truth.tampered;
        truth.bleached |= first.received.truth.bleached;
        first.received.truth = std::move(truth);
        const std::uint32_t seq = a.seq;
        first.received.tcp = b;
        first.received.tcp.seq = seq;
        first.received.bytes += next.received.bytes;
        ring_.pop_front();
        world_.coverage.add(k_joined);
    }
}

void Host::hear_if_due() {
    const bool in_vain = !std::exchange(looks_, false);
    if (!in_vain || world_.now() >= hear_due_)
        hear(in_vain);
}

void Host::sent() {
    if (ring_.empty() || hearing_)
        return;
    const bool later = std::all_of(ring_.begin(), ring_.end(),
                                   [](const Waiting& waiting) { return waiting.later; });
    if (later && ring_.size() < kLaterMax &&
        world_.now() + hold_us_ / (std::uint64_t{2} * kQuietShare) < hear_due_) {
        for (Waiting& waiting : ring_)
            waiting.quiet_qpn = 0;
        world_.coverage.add(k_later);
        return;
    }
    looks_ = true;
    world_.at(world_.now(), EventKind::kHear, id_);
}

}  // namespace sim
