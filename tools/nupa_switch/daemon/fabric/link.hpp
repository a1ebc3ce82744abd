// SPDX-License-Identifier: BSD-3-Clause
// The cable between the fabric and one port: up or down, impaired towards the port, captured.
#pragma once

#include <memory>
#include <utility>

#include "fabric/impairments.hpp"
#include "fabric/pcap_writer.hpp"
#include "fabric/port.hpp"

namespace nupa::daemon {

class Link {
public:
    explicit Link(Port& port) noexcept : port_(port) {}

    [[nodiscard]] Port& port() noexcept { return port_; }
    [[nodiscard]] const Port& port() const noexcept { return port_; }

    [[nodiscard]] bool up() const noexcept { return up_; }
    void set_up(bool up) noexcept {
        up_ = up;
        port_.link_changed(up);
    }

    [[nodiscard]] Impairments& impairments() noexcept { return impairments_; }
    [[nodiscard]] bool impaired() const noexcept { return impairments_.any(); }

    // Null: nobody captures.
    [[nodiscard]] PcapWriter* pcap() const noexcept { return pcap_.get(); }
    void capture_to(std::unique_ptr<PcapWriter> pcap) noexcept { pcap_ = std::move(pcap); }

    void hand_over(Packet& segment) noexcept { port_.deliver(segment); }
    // True: it was not marked yet.
    [[nodiscard]] bool mark_dirty() noexcept { return !std::exchange(dirty_, true); }
    void flush() noexcept {
        dirty_ = false;
        port_.flush();
    }

private:
    Port& port_;
    Impairments impairments_;
    std::unique_ptr<PcapWriter> pcap_;
    bool up_ = true;
    bool dirty_ = false;  // delivered to since the last flush
};

}  // namespace nupa::daemon
