// SPDX-License-Identifier: BSD-3-Clause
// What QEMU is to a port: memory, BAR2 and doorbells, in the fuzzer's own process.
#pragma once

#include <tcp_qp/nupa_hw.h>

#include <string>

#include "input.hpp"
#include "ports/vm/vm_port.hpp"

namespace fuzz {

inline constexpr std::uint64_t kPage = 4096;

// Guest memory as a file the switch can open.
class Ram {
public:
    Ram(const char* name, std::uint64_t pages);
    std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
    std::byte* at(std::uint64_t addr) const { return data_ + addr; }
    std::uint64_t bytes() const { return bytes_; }
    // Pages without access around every other mapping of this file.
    void guard_others() const;

private:
    std::string name_;
    std::uint64_t bytes_;
    int fd_;
    std::byte* data_;
};

class PortClient {
public:
    PortClient(const nupa::daemon::PortContext& context, const char* name, std::uint16_t id,
               unsigned queue_pairs, std::uint64_t ram_pages);

    // The host's side of BAR2; everything in it can be written, as by a real guest.
    template <class T>
    T& bar2(std::uint64_t at) const {
        return *reinterpret_cast<T*>(bar2_ + at);
    }
    nupa_regs& regs() const { return bar2<nupa_regs>(0); }
    nupa_admin_ctl& admin() const { return bar2<nupa_admin_ctl>(NUPA_BAR2_ADMIN_AT); }
    nupa_ring_ctl& tx(unsigned q) const {
        return bar2<nupa_ring_ctl>(NUPA_BAR2_TXQ_AT + q * sizeof(nupa_ring_ctl));
    }
    nupa_rxq_ctl& rx(unsigned q) const {
        return bar2<nupa_rxq_ctl>(NUPA_BAR2_RXQ_AT + q * sizeof(nupa_rxq_ctl));
    }
    // A new life: port disabled and enabled with its admin ring at @ring and @comps.  Memory is the
    // caller's to clear.
    void restart(std::uint64_t ring, std::uint64_t comps);
    // Puts a command in the admin ring and rings; the completion when the switch is at rest.
    nupa_admin_comp command(nupa_admin_cmd cmd);

    Ram ram;
    nupa::daemon::VmPort port;

private:
    void plug(const std::string& socket);

    std::byte* bar2_ = nullptr;
    std::uint32_t generation_ = 0;
    std::uint32_t produced_ = 0;
    std::uint64_t ring_ = 0, comps_ = 0;
    bool guarded_ = false;
};

// One event loop's worth of work of all ports; bounded as the daemon's is.
inline constexpr unsigned kTurnsMax = 64;

}  // namespace fuzz
