// SPDX-License-Identifier: BSD-3-Clause
// From one port to others: learn, cut, forward, impair, hand over.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/segment.hpp"
#include "fabric/hold_queue.hpp"
#include "fabric/link.hpp"
#include "fabric/mac_table.hpp"

namespace nupa::daemon {

inline constexpr unsigned kHeldPerTurn = 256;
// Of one burst that goes to every port: each segment is copied for each of them.  TCP sends the
// rest again, by when the address is known.
inline constexpr uint32_t kFloodSegmentsMax = 64;

class Fabric {
public:
    Fabric();
    void attach(Port& port);  // set-up only; ids are 0, 1, ... in this order
    // By the ports' ids.
    [[nodiscard]] const std::vector<std::unique_ptr<Link>>& links() const noexcept {
        return links_;
    }
    [[nodiscard]] Link& link_of(const Port& port) const noexcept { return *links_[port.id()]; }
    MacTable& macs() noexcept { return macs_; }
    [[nodiscard]] const MacTable& macs() const noexcept { return macs_; }
    [[nodiscard]] int timer_fd() const noexcept { return held_.timer_fd(); }

    // Packets that will be forwarded soon, kLookaheadMax at most: tells their destinations.
    void expect(std::span<const Packet> packets) noexcept;
    // Where @packet goes: a port, or kNoPort for all.
    [[nodiscard]] uint16_t port_of(const Packet& packet) const noexcept;
    // A packet or burst from @from, which its ingress names.  Its bytes must stay until flush()
    // returns.
    void forward(Port& from, const Packet& packet, TxRewrite rewrite) noexcept;
    // Everything delivered so far goes up to its host.
    void flush() noexcept;
    // The timer fired: hands over what fell due; true when more is due already.
    bool release_due() noexcept;
    // The port's host left: nothing of it stays, nothing waits for it.
    void unplugged(const Port& port) noexcept;
    // End of a turn: timers and capture files.
    void end_turn(bool idle) noexcept;

private:
    Link* destination(const Packet& packet) const noexcept;
    void send(const Link& from, Link* to, Packet& segment) noexcept;
    void flood(const Link& from, const Packet& segment) noexcept;
    void egress(Link& to, Packet& segment) noexcept;
    void impair(Link& to, Packet& segment) noexcept;
    void schedule(Link& to, Packet& segment, const FaultDecision& fault) noexcept;
    void hand_over(Link& to, Packet& segment) noexcept;
    void capture(const Link& link, const Packet& segment) noexcept;

    std::vector<std::unique_ptr<Link>> links_;
    std::vector<Link*> dirty_;
    MacTable macs_;
    HoldQueue held_;
    Packet segment_;  // of the burst being cut
    Packet copy_;     // for one of several receivers
    Packet duplicate_;
    Packet captured_;
    std::vector<std::byte> capture_bytes_;
};

}  // namespace nupa::daemon
