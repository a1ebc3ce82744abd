// SPDX-License-Identifier: BSD-3-Clause
#include "fabric.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <cstring>

#include "world.hpp"

namespace sim {

namespace {

constexpr std::size_t kOptionsSeenMax = 64;
constexpr std::uint32_t kDownMaxUs = 8000;

}  // namespace

std::unique_ptr<Flight> Fabric::fresh() {
    if (pool_.empty())
        return std::make_unique<Flight>();
    std::unique_ptr<Flight> f = std::move(pool_.back());
    pool_.pop_back();
    f->truth = {};
    return f;
}

void Fabric::tick() {
    if (world_.quiet())
        down_until_us_ = 0;
    else if (world_.dice.per_mille(world_.faults().link_down)) {
        down_until_us_ = world_.now() + world_.dice.below(kDownMaxUs);
        world_.coverage.add(k_link_down);
    }
}

void Fabric::send(nupa::Packet& segment, const Truth& truth) {
    const FaultSettings& f = world_.faults();
    Dice& dice = world_.dice;
    world_.coverage.add(k_segments);
    std::unique_ptr<Flight> flight = fresh();
    if (!nupa::packet_copy(flight->packet, segment))
        throw std::bad_alloc();
    flight->truth = truth;
    if (world_.quiet()) {
        launch(std::move(flight), f.delay_us);
        return;
    }
    if (world_.now() < down_until_us_ || dice.per_mille(f.lose)) {
        world_.coverage.add(k_lost);
        give_back(std::move(flight));
        return;
    }
    if (segment.mss) {  // a run: nothing on its way changes it
        world_.coverage.add(k_runs);
    } else if (truth.len && tamper(*flight)) {
        world_.log.add(
            world_.now(), "fabric changes the option of {}.{} at {} + {}",
            {truth.connection, static_cast<std::uint64_t>(truth.to), truth.at, truth.len});
    }
    if (!segment.mss && !damage(*flight)) {
        give_back(std::move(flight));
        return;
    }
    for (const std::uint32_t late : {0u, 1u}) {
        if (!dice.per_mille(late ? f.late : f.duplicate))
            continue;
        std::unique_ptr<Flight> twin = fresh();
        if (!nupa::packet_copy(twin->packet, flight->packet))
            throw std::bad_alloc();
        twin->truth = flight->truth;
        twin->truth.late = late;
        world_.coverage.add(late ? k_late : k_duplicated);
        launch(
            std::move(twin),
            f.delay_us + dice.below(static_cast<std::uint32_t>(late ? f.late_us : f.reorder_us)));
    }
    if (dice.per_mille(f.forge))
        forge(*flight);
    std::uint64_t delay = f.delay_us + dice.below(static_cast<std::uint32_t>(f.jitter_us) + 1);
    if (dice.per_mille(f.reorder)) {
        delay += dice.below(static_cast<std::uint32_t>(f.reorder_us));
        world_.coverage.add(k_reordered);
    }
    launch(std::move(flight), delay);
}

// A blind attacker: the same segment with SYN, right in every other way.
void Fabric::forge(const Flight& flight) {
    if (!flight.truth.len || !flight.packet.at.tcp())
        return;
    std::unique_ptr<Flight> twin = fresh();
    nupa::Packet& p = twin->packet;
    if (!nupa::packet_copy(p, flight.packet))
        throw std::bad_alloc();
    twin->truth = flight.truth;
    p.at.tcp_flags |= nupa::kTcpSyn;
    p.header[p.at.l4_at + 13u] = p.at.tcp_flags;
    p.csum = nupa::Csum::kPartial;
    world_.coverage.add(k_forged);
    launch(std::move(twin),
           world_.dice.below(static_cast<std::uint32_t>(world_.faults().reorder_us)));
}

// A middlebox that keeps checksums right: removes the option, puts an earlier
// one in its place, or changes it.
bool Fabric::tamper(Flight& flight) {
    const FaultSettings& f = world_.faults();
    Dice& dice = world_.dice;
    nupa::Packet& p = flight.packet;
    tcp_bth bth;
    unsigned int at = 0;
    std::uint8_t* options = p.header.data() + p.at.options_at;
    if (tcp_bth_find(options, p.at.option_bytes(), p.at.seq, p.payload.bytes(), &bth, &at) !=
        TCP_BTH_OK)
        return false;
    std::uint8_t* option = options + at;
    const std::uint8_t bytes = option[1];
    if (dice.per_mille(f.bleach)) {
        nupa::fault_bleach(p);
        world_.coverage.add(k_bleached);
        flight.truth.bleached = true;
        return true;
    }
    if (dice.per_mille(f.replay)) {
        replay(flight, option, bytes);
        return flight.truth.tampered;
    }
    if (dice.per_mille(f.mangle)) {
        option[4 + dice.below(bytes - 4u)] ^= static_cast<std::uint8_t>(1 + dice.below(255));
        world_.coverage.add(k_mangled);
        flight.truth.tampered = true;
        return true;
    }
    if (f.replay) {
        Option o{flight.truth.connection, flight.truth.to, bytes, {}};
        std::memcpy(o.raw.data(), option, bytes);
        if (seen_.size() < kOptionsSeenMax)
            seen_.push_back(o);
        else
            seen_[seen_next_++ % kOptionsSeenMax] = o;
    }
    return false;
}

void Fabric::replay(Flight& flight, std::uint8_t* option, std::uint8_t bytes) {
    if (seen_.empty())
        return;
    const Option& o = seen_[world_.dice.below(static_cast<std::uint32_t>(seen_.size()))];
    if (o.bytes != bytes || o.connection != flight.truth.connection || o.to != flight.truth.to)
        return;
    std::memcpy(option, o.raw.data(), bytes);
    world_.coverage.add(k_replayed);
    flight.truth.tampered = true;
}

// What a checksum must find.  False: the packet is gone.
bool Fabric::damage(Flight& flight) {
    const FaultSettings& f = world_.faults();
    Dice& dice = world_.dice;
    nupa::Packet& p = flight.packet;
    if (flight.truth.tampered && p.csum == nupa::Csum::kGood)
        p.csum = nupa::Csum::kPartial;
    if (dice.per_mille(f.truncate)) {
        world_.coverage.add(k_truncated);
        return nupa::fault_truncate(p, dice.bits());
    }
    if (dice.per_mille(f.corrupt)) {
        world_.coverage.add(k_corrupted);
        return nupa::fault_corrupt(p, dice.bits());
    }
    if (dice.per_mille(f.materialise)) {  // over a trunk: the receiver verifies
        p.fill_checksums();
        p.csum = nupa::Csum::kUnknown;
    }
    return true;
}

void Fabric::launch(std::unique_ptr<Flight> flight, std::uint64_t delay_us) {
    std::uint32_t slot;
    if (free_slots_.empty()) {
        slot = static_cast<std::uint32_t>(slots_.size());
        slots_.push_back(nullptr);
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    slots_[slot] = std::move(flight);
    in_flight_++;
    world_.at(world_.now() + delay_us, EventKind::kArrive, slot);
}

std::unique_ptr<Flight> Fabric::take(std::uint32_t slot) {
    free_slots_.push_back(slot);
    in_flight_--;
    return std::move(slots_[slot]);
}

}  // namespace sim
