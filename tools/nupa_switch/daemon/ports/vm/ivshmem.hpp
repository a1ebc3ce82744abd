// SPDX-License-Identifier: BSD-3-Clause
// The server side of QEMU's ivshmem-doorbell protocol (docs/specs/ivshmem-spec.txt),
// for one port: the switch is peer NUPA_PEER_SWITCH, the one client NUPA_PEER_HOST.
#pragma once

#include <array>

#include "event/fd.hpp"
#include "ports/vm/mapping.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

// One plugged-in host.  Every descriptor is its own: what an earlier client kept
// open can neither ring nor write the port again.
class IvshmemClient {
public:
    explicit IvshmemClient(Fd socket);
    // Hands the client its id, BAR2 and eventfds.  BAR2 should hold valid registers by
    // now: QEMU maps it at once.  Throws std::system_error.
    void handshake();

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] int doorbell(unsigned vector) const noexcept { return doorbells_[vector].get(); }
    [[nodiscard]] std::byte* bar2() const noexcept { return bar2_.data(); }
    void interrupt(unsigned vector) noexcept;
    [[nodiscard]] int interrupt_fd(unsigned vector) const noexcept {
        return interrupts_[vector].get();
    }
    // Takes the pending rings of a doorbell.
    void acknowledge(unsigned vector) noexcept;

private:
    Fd socket_;
    Fd memory_;
    Mapping bar2_;
    std::array<Fd, NUPA_VECTORS> doorbells_;   // the host rings, the switch reads
    std::array<Fd, NUPA_VECTORS> interrupts_;  // the switch writes, the host's MSI-X
};

}  // namespace nupa::daemon
