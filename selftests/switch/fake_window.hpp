// SPDX-License-Identifier: BSD-3-Clause
// A host's window to the pool, as its driver would use it, or misuse it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tcp_qp/nupa_pool_hw.h"

namespace nupa::testing {

class FakeWindow {
public:
    // Connects to @socket; the window is not enabled yet.
    explicit FakeWindow(const std::string& socket);
    FakeWindow(const FakeWindow&) = delete;
    FakeWindow& operator=(const FakeWindow&) = delete;
    ~FakeWindow();

    [[nodiscard]] nupa_accel_regs* regs() const {
        return reinterpret_cast<nupa_accel_regs*>(bar2_);
    }
    [[nodiscard]] nupa_ring_ctl* ring() const {
        return reinterpret_cast<nupa_ring_ctl*>(bar2_ + NUPA_ACCEL_RING_AT);
    }
    [[nodiscard]] uint8_t* memory(uint64_t at = 0) const {
        return bar2_ + NUPA_ACCEL_CONTROL_BYTES + at;
    }
    [[nodiscard]] uint64_t bytes() const { return bytes_ - NUPA_ACCEL_CONTROL_BYTES; }
    void ring_doorbell() const;
    // Returns when the switch has acknowledged it.
    void set_control(uint32_t control);
    // One command, to its end.
    nupa_accel_comp command(const nupa_accel_cmd& cmd) {
        start(cmd);
        return finish();
    }
    void start(const nupa_accel_cmd& cmd);
    nupa_accel_comp finish();
    uint32_t status(const nupa_accel_cmd& cmd) { return command(cmd).status; }
    // Where a new lease lies; throws unless the switch gives it.
    uint64_t lease(uint64_t bytes);
    // The token of a lease that is offered; throws unless the switch takes the offer.
    uint64_t offer(uint64_t at);
    // Closes the socket, as a virtual machine that dies; what was mapped stays mapped.
    void disconnect();

    static nupa_accel_cmd lease_cmd(uint64_t bytes);
    static nupa_accel_cmd release_cmd(uint64_t at, uint64_t token = 0);
    static nupa_accel_cmd offer_cmd(uint64_t at);
    static nupa_accel_cmd take_cmd(uint64_t token, uint64_t bytes);

private:
    int socket_ = -1;
    uint8_t* bar2_ = nullptr;
    uint64_t bytes_ = 0;
    std::array<int, NUPA_ACCEL_VECTORS> doorbells_{-1, -1}, interrupts_{-1, -1};
    uint32_t prod_ = 0;
};

}  // namespace nupa::testing
