// SPDX-License-Identifier: BSD-3-Clause
// What lies between the hosts: delay, and everything that can go wrong there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/packet.hpp"
#include "host.hpp"

namespace sim {

class World;

struct Flight {
    nupa::Packet packet;
    Truth truth;
};

class Fabric {
public:
    explicit Fabric(World& world) noexcept : world_(world) {}

    // Takes a copy of @segment, which may point into its sender's memory.
    void send(nupa::Packet& segment, const Truth& truth);
    // What arrives now; back to the pool when dropped.
    std::unique_ptr<Flight> take(std::uint32_t slot);
    void give_back(std::unique_ptr<Flight> flight) { pool_.push_back(std::move(flight)); }
    bool empty() const noexcept { return in_flight_ == 0; }
    void tick();

private:
    std::unique_ptr<Flight> fresh();
    bool tamper(Flight& flight);
    void replay(Flight& flight, std::uint8_t* option, std::uint8_t bytes);
    void forge(const Flight& flight);
    bool damage(Flight& flight);
    void launch(std::unique_ptr<Flight> flight, std::uint64_t delay_us);

    World& world_;
    std::vector<std::unique_ptr<Flight>> pool_, slots_;
    std::vector<std::uint32_t> free_slots_;
    std::size_t in_flight_ = 0;
    std::uint64_t down_until_us_ = 0;
    struct Option {
        std::uint32_t connection;
        int to;
        std::uint8_t bytes;
        std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> raw;
    };
    std::vector<Option> seen_;  // options that went by, to be put on something else
    std::size_t seen_next_ = 0;
};

}  // namespace sim
