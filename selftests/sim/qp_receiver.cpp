// SPDX-License-Identifier: BSD-3-Clause
#include "qp_receiver.hpp"

#include <algorithm>
#include <iterator>

#include "end.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kRegions = 2;  // of one QP's receive buffers
constexpr std::uint32_t kPlaceSlackBytes = 64;
constexpr std::uint32_t kPostsPerTurn = 4;

// The sender's numbering.
std::uint16_t first_msn(const End& end) { return end.connection().end[1 - end.side()].first_msn; }

}  // namespace

QpReceiver::QpReceiver(End& end)
    : end_(end),
      host_(end.host()),
      ring_(host_.ram, end.settings().rq_entries, end.settings().sges_max, end.settings().rq_index,
            first_msn(end), end.settings().shared),
      cq_(host_.ram),
      sends_(host_.ram, ring_.cmd.shadow_addr),
      known_{first_msn(end), first_msn(end)},
      seen_(known_) {
    const std::uint16_t first = first_msn(end);
    next_ = {first, first, first, end.settings().first_msn};  // responses: our own requests'
    cq_.cmd.flags = end.settings().quiet ? NUPA_CQ_F_WAITING : 0;
    sends_.cq_command().flags = cq_.cmd.flags;
    const std::uint32_t bytes = end.connection().message_max + kPlaceSlackBytes;
    const std::uint32_t each = (end.buffers() + kRegions - 1) / kRegions;
    for (std::uint32_t i = 0; i < kRegions; i++) {
        const std::size_t r = host_.add_region(key_of(end, i), pd_of(end), NUPA_ACCESS_LOCAL_WRITE,
                                               std::uint64_t{each} * bytes);
        for (std::uint32_t p = 0; p < each; p++)
            places_.push_back({r, host_.region(r).iova + std::uint64_t{p} * bytes, bytes, false});
    }
}

nupa_cmd_qp QpReceiver::command() const {
    if (!shared())
        return ring_.cmd;
    nupa_cmd_qp cmd{};
    cmd.shadow_addr = ring_.cmd.shadow_addr;
    return cmd;
}

// ---- application ----

void QpReceiver::turn() {
    poll();
    const EndSettings& s = end_.settings();
    Dice& dice = end_.dice();
    const bool quiet = end_.world().quiet();
    if (quiet || !dice.percent(s.lazy))
        for (std::uint32_t i = 0; i < kPostsPerTurn && (quiet || dice.percent(60)); i++)
            post();
    if (quiet)
        return;
    if (s.hostile && dice.percent(20))
        scribble();
    if (dice.per_mille(s.deregister))
        deregister();
    if (end_.has_context() && dice.per_mille(s.recreate))
        end_.recreate_context();
}

void QpReceiver::post_all() {
    for (std::size_t i = 0; i < places_.size(); i++)
        post();
}

// Pieces of one place in any order, so that a message is scattered over it.
std::vector<nupa::RecvSge> QpReceiver::cut(const Buffer& place, std::uint32_t bytes) {
    Dice& dice = end_.dice();
    const Region& region = host_.region(place.region);
    const std::uint32_t count = 1 + dice.below(end_.settings().sges_max);
    std::vector<std::uint32_t> cuts = {0, bytes};
    while (cuts.size() < count + 1)
        cuts.push_back(dice.below(bytes + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<nupa::RecvSge> sges;
    for (std::size_t i = 0; i + 1 < cuts.size(); i++)
        sges.push_back({place.addr + cuts[i], cuts[i + 1] - cuts[i], region.key});
    for (std::size_t i = sges.size(); i > 1; i--)
        std::swap(sges[i - 1], sges[dice.below(static_cast<std::uint32_t>(i))]);
    return sges;
}

void QpReceiver::post() {
    const std::vector<Planned>& plan = end_.peer().sender().untagged();
    const auto free = std::find_if(places_.begin(), places_.end(), [&](const Buffer& p) {
        return !p.busy && host_.region(p.region).live;
    });
    if (end_.dead() || receives_.size() == plan.size() + others_ || free == places_.end() ||
        ring_.full())
        return;
    Dice& dice = end_.dice();
    const EndSettings& s = end_.settings();
    const Planned& planned = plan[std::min(receives_.size(), plan.size() - 1)];
    const std::uint32_t length = shared()                      ? end_.connection().message_max
                                 : planned.verb == Verb::kSend ? planned.length
                                                               : 0;
    std::uint32_t room = dice.percent(50) ? length : length + dice.below(free->bytes - length + 1);
    Receive r{{}, static_cast<std::size_t>(free - places_.begin()), true, Receive::State::kPosted};
    if (length > 1 && !end_.world().quiet() && dice.per_mille(s.short_receive)) {
        room = dice.below(length);
        r.good = false;
        end_.world().coverage.add(k_short_receives);
    }
    r.sges = cut(*free, room);
    if (length && !end_.world().quiet() && dice.per_mille(s.bad_key)) {
        const std::uint32_t keys[] = {Host::kForeignKey, key_of(end_, kSourceRegion), Host::kNoKey};
        nupa::RecvSge& sge = r.sges[dice.below(static_cast<std::uint32_t>(r.sges.size()))];
        sge.lkey = keys[dice.below(3)];
        if (const Region* region = host_.find(sge.lkey))
            sge.addr = region->iova;
        if (dice.percent(25))
            sge = {places_.back().addr + places_.back().bytes - 1, sge.length,
                   key_of(end_, kRegions - 1)};
        r.good = false;
        end_.world().coverage.add(k_bad_keys);
    }
    free->busy = true;
    ring_.post(r.sges);
    end_.world().log.add(end_.world().now(), "end {}.{} posts receive {} place {} room {} sges {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()), receives_.size(),
                          r.place, room, r.sges.size()});
    receives_.push_back(std::move(r));
}

void QpReceiver::poison(const Buffer& place) {
    const Region& region = host_.region(place.region);
    const auto value = static_cast<std::uint8_t>(end_.dice().bits());
    region.runs(place.addr, place.bytes,
                [&](std::uint64_t at, std::uint64_t n) { host_.ram.fill(at, n, value); });
}

// The application looks at what is completed and uses its buffers for something else.
void QpReceiver::poll() {
    // a hostile producer index makes the kernel complete what was never posted
    for (;
         polled_ < completed_ && receive_of(polled_) < receives_.size() && end_.dice().percent(80);
         polled_++) {
        Receive& r = receives_[receive_of(polled_)];
        r.state = Receive::State::kReturned;
        poison(places_[r.place]);
        places_[r.place].busy = false;
    }
    cq_.polled(static_cast<std::uint32_t>(polled_));
}

void QpReceiver::flush() {
    for (Receive& r : receives_)
        r.state = Receive::State::kReturned;
    for (Buffer& p : places_) {
        poison(p);
        p.busy = false;
    }
}

// Nonsense in shared memory: only its own process may suffer.
void QpReceiver::scribble() {
    Dice& dice = end_.dice();
    end_.world().coverage.add(k_hostile_writes);
    if (dice.percent(30)) {
        ring_.scribble_producer(static_cast<std::uint32_t>(dice.bits()));
        return;
    }
    const Region& foreign = *host_.find(Host::kForeignKey);
    const std::uint32_t values[] = {static_cast<std::uint32_t>(dice.bits()),
                                    dice.below(40),
                                    0xffffffff,
                                    Host::kForeignKey,
                                    static_cast<std::uint32_t>(foreign.iova),
                                    key_of(end_, 0),
                                    key_of(end_.peer(), 0)};
    ring_.scribble_element(dice.below(8), dice.below(40), values[dice.below(7)]);
}

// One region goes while its buffers are in use: from here on it is the application's alone.
void QpReceiver::deregister() {
    Dice& dice = end_.dice();
    if (end_.connection().one_sided && dice.percent(75)) {
        constexpr std::uint32_t kOthers[] = {kSourceRegion, kTargetRegion, kSinkRegion};
        const std::uint32_t which = dice.below(std::size(kOthers) + 1);
        if (which < std::size(kOthers))
            revoke(kOthers[which]);
        else if (end_.exposed().invalidate(end_.exposed().window().key))
            end_.world().coverage.add(k_revoked_windows);
        return;
    }
    const Region& region = host_.region(places_.back().region);
    if (!region.live)
        return;
    const std::uint32_t key = region.key;
    end_.world().coverage.add(k_deregistered);
    end_.world().log.add(end_.world().now(), "end {}.{} deregisters key {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()), key});
    host_.deregister(key);
    for (Buffer& p : places_)
        if (host_.region(p.region).key == key)
            poison(p);
    for (Receive& r : receives_)
        for (const nupa::RecvSge& sge : r.sges)
            r.good &= sge.lkey != key;
}

void QpReceiver::revoke(std::uint32_t region) {
    const std::uint32_t key = key_of(end_, region);
    if (!host_.find(key))
        return;
    end_.world().coverage.add(region == kSourceRegion   ? k_revoked_sources
                              : region == kTargetRegion ? k_revoked_targets
                                                        : k_revoked_sinks);
    end_.revoke(key);
    end_.exposed().deregister(key);
}

// ---- what may be written where ----

bool QpReceiver::shared() const { return end_.settings().shared; }

bool QpReceiver::open_receive(std::size_t receive) const noexcept {
    return receive < receives_.size() && receives_[receive].state == Receive::State::kPosted &&
           receive >= (shared() ? next_receive_ : completed_);
}

std::size_t QpReceiver::receive_of(std::size_t message) const {
    if (!shared() || message == kNoReceive)
        return message;
    return message < taken_.size() ? taken_[message] : next_receive_ + (message - taken_.size());
}

void QpReceiver::note_completed(std::size_t message) {
    if (const std::size_t r = receive_of(message); r < receives_.size())
        receives_[r].state = Receive::State::kCompleted;
}

// A region's own key alone: the engine knows no windows.
const Region* QpReceiver::tagged_region(const Message& m) const {
    if (!m.write())
        return end_.reads().reach(m.msn, m.va, m.length);
    const Region* r = end_.settings().refuses_writes ? nullptr : host_.find(m.rkey);
    return r && r->allows(pd_of(end_), m.va, m.length, NUPA_ACCESS_REMOTE_WRITE) ? r : nullptr;
}

bool QpReceiver::open(std::size_t index) const {
    const Message& m = end_.peer().sender().stream.messages[index];
    if (index < done_)
        return false;
    return tcp_bth_is_send(m.opcode) ? open_receive(receive_of(m.receive))
                                     : tagged_region(m) != nullptr;
}

std::vector<QpReceiver::Run> QpReceiver::place(std::size_t index, std::uint32_t offset,
                                               std::uint32_t bytes) const {
    const Message& m = end_.peer().sender().stream.messages[index];
    if (tcp_bth_is_send(m.opcode))
        return place_receive(receive_of(m.receive), offset, bytes);
    std::vector<Run> runs;
    if (const Region* region = tagged_region(m))
        region->runs(m.va + offset, bytes, [&](std::uint64_t at, std::uint64_t n) {
            runs.push_back({at, n});
        });
    return runs;
}

std::vector<QpReceiver::Run> QpReceiver::place_receive(std::size_t receive, std::uint32_t offset,
                                                       std::uint32_t bytes) const {
    std::vector<Run> runs;
    if (receive >= receives_.size())
        return runs;
    for (const nupa::RecvSge& sge : receives_[receive].sges) {
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::uint32_t n = std::min(bytes, sge.length - offset);
        const Region* region = host_.find(sge.lkey);
        if (n == 0 || !region || !region->allows(pd_of(end_), sge.addr + offset, n))
            break;
        region->runs(sge.addr + offset, n, [&](std::uint64_t at, std::uint64_t run) {
            runs.push_back({at, run});
        });
        offset = 0;
        bytes -= n;
    }
    return runs;
}

bool QpReceiver::inside_open(std::uint64_t addr, std::uint64_t bytes) const {
    for (std::size_t i = shared() ? next_receive_ : completed_; i < receives_.size(); i++) {
        if (!open_receive(i))
            continue;
        const std::vector<Run> runs = place_receive(i, 0, UINT32_MAX);
        // A write may span runs that follow each other in memory.
        for (const Run& r : runs)
            if (addr >= r.addr && addr - r.addr < r.bytes) {
                const std::uint64_t n = std::min(bytes, r.bytes - (addr - r.addr));
                if (n == bytes)
                    return true;
                addr += n, bytes -= n;
            }
    }
    return false;
}

}  // namespace sim
