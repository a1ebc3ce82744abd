// SPDX-License-Identifier: BSD-3-Clause
// One schedule: hosts, connections, fabric, virtual time.  One seed, one course of events.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <queue>
#include <vector>

#include "coverage.hpp"
#include "dice.hpp"
#include "end.hpp"
#include "event_log.hpp"
#include "fabric.hpp"
#include "host.hpp"
#include "settings.hpp"
#include "violation.hpp"

namespace sim {

enum class EventKind : std::uint8_t { kArrive, kFlush, kHear, kTick, kFabric };

class World {
public:
    World(std::uint64_t seed, Coverage& coverage);
    ~World();

    // Throws Violation at the first invariant that does not hold.
    void run();

    std::uint64_t now() const noexcept { return now_; }
    // The time of faults is over.
    bool quiet() const noexcept { return quiet_; }
    // Somebody else on the switch forges segments, in a quarter of the schedules.
    bool forger() const noexcept { return forger_ && !quiet_; }
    const FaultSettings& faults() const noexcept { return settings_.faults; }
    const Settings& settings() const noexcept { return settings_; }
    End& end(std::uint32_t connection, int side) const {
        return *ends_[2 * connection + static_cast<std::uint32_t>(side)];
    }
    // What @side of @connection sends.
    Stream& stream_from(std::uint32_t connection, int side);
    Fabric& fabric() noexcept { return fabric_; }
    void at(std::uint64_t when_us, EventKind kind, std::uint32_t who);
    [[noreturn]] void violation(const char* text, std::initializer_list<std::uint64_t> numbers);

    Dice dice;
    Coverage& coverage;
    EventLog log;

private:
    struct Event {
        std::uint64_t at, order;
        EventKind kind;
        std::uint32_t who;
        bool operator>(const Event& other) const noexcept {
            return at != other.at ? at > other.at : order > other.order;
        }
    };

    void dispatch(const Event& event);
    void arrive(std::uint32_t slot);
    void tick(std::uint32_t who);
    bool finished() const;
    [[noreturn]] void no_progress();

    Settings settings_;
    std::vector<std::unique_ptr<Host>> hosts_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<std::unique_ptr<End>> ends_;
    Fabric fabric_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::uint64_t now_ = 0, order_ = 0;
    bool quiet_ = false;
    bool forger_ = false;
};

}  // namespace sim
