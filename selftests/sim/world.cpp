// SPDX-License-Identifier: BSD-3-Clause
#include "world.hpp"

#include <cstdio>
#include <string>

namespace sim {

namespace {

constexpr std::size_t kHostBytes = 32 << 10, kEndBytes = 112 << 10, kOneSidedBytes = 56 << 10;
constexpr std::uint64_t kProgressLimitUs = 3'000'000;  // after the faults have ended
constexpr std::uint64_t kEventsMax = 400'000;
constexpr std::uint32_t kTickMaxUs = 400, kFlushMaxUs = 60, kFabricTickUs = 500;

}  // namespace

World::World(std::uint64_t seed, Coverage& coverage_)
    : dice(seed), coverage(coverage_), settings_(Settings::draw(seed, dice)), fabric_(*this) {
    forger_ = seed % 4 == 0;
    std::vector<std::size_t> bytes(settings_.hosts, kHostBytes);
    for (const ConnectionSettings& c : settings_.connections)
        for (const EndSettings& e : c.end)
            bytes[e.host] += kEndBytes + (c.one_sided ? kOneSidedBytes : 0);
    for (std::uint32_t i = 0; i < settings_.hosts; i++)
        hosts_.push_back(std::make_unique<Host>(*this, i, bytes[i]));
    for (std::size_t i = 0; i < 2 * settings_.connections.size(); i++)
        streams_.push_back(std::make_unique<Stream>());
    for (std::uint32_t i = 0; i < settings_.connections.size(); i++) {
        const ConnectionSettings& c = settings_.connections[i];
        for (int side = 0; side < 2; side++)
            ends_.push_back(std::make_unique<End>(*this, *hosts_[c.end[side].host], c, i, side,
                                                  draw_plan(c, dice)));
    }
}

World::~World() = default;

Stream& World::stream_from(std::uint32_t connection, int side) {
    return *streams_[2 * connection + static_cast<std::uint32_t>(side)];
}

void World::at(std::uint64_t when_us, EventKind kind, std::uint32_t who) {
    events_.push({when_us, order_++, kind, who});
}

void World::violation(const char* text, std::initializer_list<std::uint64_t> numbers) {
    log.add(now_, text, numbers);
    throw Violation(filled(text, {numbers.begin(), numbers.size()}));
}

void World::run() {
    for (std::uint32_t i = 0; i < ends_.size(); i++)
        at(dice.below(kTickMaxUs), EventKind::kTick, i);
    at(0, EventKind::kFabric, 0);
    for (std::uint64_t events = 0; !finished(); events++) {
        if (events == kEventsMax || now_ > settings_.faults.until_us + kProgressLimitUs)
            no_progress();
        const Event event = events_.top();
        events_.pop();
        now_ = event.at;
        dispatch(event);
        coverage.add(k_events);
    }
    for (const auto& end : ends_)
        end->check_epilogue();
    for (const auto& end : ends_)
        end->destroy_context();
}

void World::no_progress() {
    for (const auto& end : ends_)
        end->log_state();
    violation("no progress: messages are missing {} us after the last fault",
              {now_ - settings_.faults.until_us});
}

// All that can be asked for has arrived, and nothing is left on the way.
bool World::finished() const {
    if (!quiet_ || !fabric_.empty())
        return false;
    for (const auto& end : ends_)
        if (!end->finished())
            return false;
    return true;
}

void World::dispatch(const Event& event) {
    switch (event.kind) {
        case EventKind::kArrive:
            arrive(event.who);
            break;
        case EventKind::kFlush:
            hosts_[event.who]->turn();
            break;
        case EventKind::kHear:
            hosts_[event.who]->hear_if_due();
            break;
        case EventKind::kTick:
            tick(event.who);
            break;
        case EventKind::kFabric:
            if (!quiet_ && now_ >= settings_.faults.until_us) {
                quiet_ = true;
                log.add(now_, "the faults have ended", {});
            }
            fabric_.tick();
            if (!quiet_)
                at(now_ + kFabricTickUs, EventKind::kFabric, 0);
            break;
    }
}

void World::arrive(std::uint32_t slot) {
    std::unique_ptr<Flight> flight = fabric_.take(slot);
    Host& host = end(flight->truth.connection, flight->truth.to).host();
    host.receive(flight->packet, flight->truth);
    fabric_.give_back(std::move(flight));
    at(now_ + dice.below(kFlushMaxUs), EventKind::kFlush, host.id());
}

void World::tick(std::uint32_t who) {
    End& end = *ends_[who];
    end.tick();
    if (end.host().unchecked())
        end.host().check_memory();
    at(now_ + 1 + dice.below(kTickMaxUs), EventKind::kTick, who);
}

}  // namespace sim
