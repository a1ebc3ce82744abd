// SPDX-License-Identifier: BSD-3-Clause
// The uplink: a TAP interface of the host's own Linux stack.
#pragma once

#include <array>
#include <vector>

#include "event/event.hpp"
#include "fabric/fabric.hpp"
#include "ports/tap/tap_device.hpp"

namespace nupa::daemon {

inline constexpr size_t kTapFramesPerTurn = 16;

class TapPort final : public Port {
public:
    TapPort(Epoll& epoll, Fabric& fabric, const PortOptions& options, uint16_t id);

    // Frames the host sent, within one turn's bound; level-triggered, so the rest comes again.
    void read_frames() noexcept;
    void deliver(Packet& segment) noexcept override;
    [[nodiscard]] const char* state() const noexcept override { return "running"; }

private:
    bool read_frame(std::span<uint8_t> buffer) noexcept;

    Fabric& fabric_;
    TapDevice device_;
    std::vector<uint8_t> buffers_;  // one a frame: receivers refer to them until the turn's flush
    Packet packet_;
};

}  // namespace nupa::daemon
