// SPDX-License-Identifier: BSD-3-Clause
// The server side of QEMU's ivshmem-doorbell protocol (docs/specs/ivshmem-spec.txt),
// for one device: we are peer NUPA_PEER_SWITCH, the one client is NUPA_PEER_HOST.
#pragma once

#include <cstdint>
#include <vector>

#include "event/fd.hpp"
#include "ivshmem/mapping.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

// Shared memory that no client can shrink: one that did would fault us at our next access.
Fd sealed_memory(const char* name, size_t bytes);

// Of a device with memory of its own, by which its host names that; never 0.
uint64_t random_id();

// One plugged-in host.  Every descriptor is its own: what an earlier client kept
// open can neither ring nor write the port again.
class IvshmemClient {
public:
    // @memory: BAR2, of @bytes, a power of two.
    IvshmemClient(Fd socket, Fd memory, size_t bytes, unsigned vectors);
    // Hands the client its id, BAR2 and eventfds.  BAR2 should hold valid registers by
    // now: QEMU maps it at once.  Throws std::system_error.
    void handshake();

    // What its socket has to tell.  ivshmem clients never speak.
    enum class Event : uint8_t { kNothing, kSpoke, kGone };
    [[nodiscard]] Event event() const noexcept;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] int doorbell(unsigned vector) const noexcept { return doorbells_[vector].get(); }
    [[nodiscard]] int memory() const noexcept { return memory_.get(); }
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
    std::vector<Fd> doorbells_;   // the host rings, we read
    std::vector<Fd> interrupts_;  // we write, the host's MSI-X
};

}  // namespace nupa::daemon
