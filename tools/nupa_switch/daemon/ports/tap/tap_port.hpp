// SPDX-License-Identifier: BSD-3-Clause
// The uplink: a TAP interface of the host's own Linux stack.
#pragma once

#include <array>
#include <vector>

#include "ports/port_type.hpp"
#include "ports/tap/tap_device.hpp"

namespace nupa::daemon {

inline constexpr size_t kTapFramesPerTurn = 16;

class TapPort final : public Port, private EventHandler {
public:
    TapPort(const PortContext& context, const std::string& name, const std::string& ifname,
            uint16_t id);

    void deliver(Packet& segment) noexcept override;
    [[nodiscard]] const char* state() const noexcept override {
        return device_.gone() ? "failed" : "running";
    }
    [[nodiscard]] std::vector<PortFact> facts() const override {
        return {{"kind", "tap"}, {"ifname", ifname_}};
    }

private:
    // Frames the host sent, within one turn's bound; level-triggered, so the rest comes again.
    void handle(uint32_t what, uint32_t events) noexcept override;
    bool read_frame(std::span<uint8_t> buffer) noexcept;

    Epoll& epoll_;
    Fabric& fabric_;
    std::string ifname_;
    TapDevice device_;
    std::vector<uint8_t> buffers_;  // one a frame: receivers refer to them until the turn's flush
    Packet packet_;
};

}  // namespace nupa::daemon
