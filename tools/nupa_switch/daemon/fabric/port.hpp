// SPDX-License-Identifier: BSD-3-Clause
// What the fabric, the event loop and the operator ask of a port, whatever is behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/packet.hpp"
#include "engine/stats.hpp"
#include "fabric/mac_table.hpp"

namespace nupa::daemon {

inline constexpr unsigned kPortsMax = 256;

// What the operator sees of a port beyond what all ports have.
struct PortFact {
    const char* name;
    std::variant<std::string, uint64_t> value;
};

// A queue pair that the port places for.
struct PortQp {
    uint32_t qpn;
    nupa_flow flow;
    const QpStats* stats;  // null: none yet
};

// What a port has of the pool of memory (mode cxl).
struct PortPool {
    uint64_t pool_bytes = 0;  // of all ports together
    uint64_t free_bytes = 0;
    uint64_t handovers = 0;  // leases of all that changed hands with what was in them
    uint64_t handover_bytes = 0;
    uint64_t share_bytes = 0;     // that this port may lease at a time
    uint64_t resident_bytes = 0;  // of host memory, in this port's window
    struct Lease {
        uint64_t at;
        uint64_t bytes;
        const char* state;
        uint32_t regions;
    };
    std::vector<Lease> leases;
};

class Port {
public:
    static constexpr uint64_t kNever = UINT64_MAX;

    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    virtual ~Port() = default;

    [[nodiscard]] uint16_t id() const noexcept { return id_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] MacTable::Kind kind() const noexcept { return kind_; }
    [[nodiscard]] PortStats& stats() noexcept { return stats_; }
    [[nodiscard]] const PortStats& stats() const noexcept { return stats_; }

    // The fabric's calls.
    //
    // Payload bytes of @burst, a multiple of its mss, that the port takes as one run; 0: it wants
    // segments.  Asked before a burst is cut that nothing on its way can touch.
    virtual uint32_t span(const Packet& /*burst*/) noexcept { return 0; }
    // Segments of @packets, kLookaheadMax at most, will be delivered soon.  Nothing depends on it.
    virtual void expect(std::span<const Packet> /*packets*/) noexcept {}
    // A wire segment (or run) reaches whatever is behind the port.  @segment may be changed and its
    // owned bytes taken; bytes it only refers to are valid until flush() returns.
    virtual void deliver(Packet& segment) noexcept = 0;
    // Let go of every reference taken by deliver(), and tell the host.
    virtual void flush() noexcept {}
    // What waits to be told to the host has waited long enough, if now_ns >= due_ns().
    virtual void expire(uint64_t /*now_ns*/) noexcept {}
    [[nodiscard]] uint64_t due_ns() const noexcept { return due_ns_; }
    // The operator pulled the cable, or put it back.
    virtual void link_changed(bool /*up*/) noexcept {}

    // The event loop's calls.
    //
    // One bounded turn of what its events asked for; true when more waits.
    virtual bool work() noexcept { return false; }
    // Does it look for what its host does without being told?  Then the loop goes on to its next
    // turn without sleeping.
    [[nodiscard]] virtual bool watches() const noexcept { return false; }
    // The switch lives.  False: nobody is there to hear it.
    virtual bool beat() noexcept { return false; }
    // The switch ends: the host hears of it, and nothing of its memory is touched any more.
    virtual void shut_down() noexcept {}

    // The operator's.
    [[nodiscard]] virtual const char* state() const noexcept = 0;
    [[nodiscard]] virtual std::vector<PortFact> facts() const = 0;
    [[nodiscard]] virtual std::vector<PortQp> qps() const { return {}; }
    [[nodiscard]] virtual std::optional<PortPool> pool() const { return std::nullopt; }

protected:
    Port(std::string name, uint16_t id, MacTable::Kind kind)
        : name_(std::move(name)), id_(id), kind_(kind) {}
    // When expire() is wanted.
    void set_due_ns(uint64_t due_ns) noexcept { due_ns_ = due_ns; }

private:
    std::string name_;
    uint16_t id_;
    MacTable::Kind kind_;
    uint64_t due_ns_ = kNever;
    PortStats stats_;
};

}  // namespace nupa::daemon
