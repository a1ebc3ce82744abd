// SPDX-License-Identifier: BSD-3-Clause
// What every port has, whatever is behind it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/faults.hpp"
#include "engine/flow_match.hpp"
#include "engine/packet.hpp"
#include "engine/stats.hpp"
#include "fabric/link_model.hpp"
#include "fabric/mac_table.hpp"
#include "fabric/pcap_writer.hpp"
#include "options.hpp"

namespace nupa::daemon {

inline constexpr size_t kFlowFaultsMax = 64;  // rules of a port; each is tried for each segment

class Port {
public:
    Port(const PortOptions& options, uint16_t id) : options_(options), id_(id) {}
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    virtual ~Port() = default;

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
    virtual void set_link(bool up) noexcept { link_up_ = up; }
    [[nodiscard]] virtual const char* state() const noexcept = 0;

    [[nodiscard]] MacTable::Kind kind() const noexcept {
        return options_.kind == PortOptions::Kind::kVm ? MacTable::Kind::kGuest
                                                       : MacTable::Kind::kUplink;
    }
    [[nodiscard]] uint16_t id() const noexcept { return id_; }
    [[nodiscard]] const PortOptions& options() const noexcept { return options_; }
    [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
    [[nodiscard]] bool link_up() const noexcept { return link_up_; }

    PortStats stats;
    // Towards the port: the first rule that matches, or the port's own.
    struct FlowFaults {
        FlowMatch match;
        Faults faults;
    };
    Faults& faults_of(const Packet& segment) noexcept {
        if (flow_faults.empty())
            return faults;
        const FlowKey flow = segment.flow();
        for (FlowFaults& rule : flow_faults)
            if (rule.match.matches(flow))
                return rule.faults;
        return faults;
    }
    [[nodiscard]] bool impaired() const noexcept {
        return link.limited() || faults.config().any() || !flow_faults.empty();
    }
    Faults faults;
    std::vector<FlowFaults> flow_faults;
    OptionMemory options_seen;
    LinkModel link;
    std::unique_ptr<PcapWriter> pcap;

protected:
    PortOptions options_;
    bool link_up_ = true;
    uint64_t due_ns_ = UINT64_MAX;  // never

private:
    friend class Fabric;
    uint16_t id_;
    bool dirty_ = false;  // delivered to since the last flush
};

}  // namespace nupa::daemon
