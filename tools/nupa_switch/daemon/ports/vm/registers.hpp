// SPDX-License-Identifier: BSD-3-Clause
// BAR2 of one port: the register block and where the control blocks lie.
#pragma once

#include <cstdint>

#include "ports/vm/vm_options.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

inline constexpr uint32_t kLinkMbps = 400'000;
inline constexpr uint32_t kFeatures =
    NUPA_FEAT_CSUM | NUPA_FEAT_TSO4 | NUPA_FEAT_TSO6 | NUPA_FEAT_GRO_HW | NUPA_FEAT_RSS |
    NUPA_FEAT_STEER | NUPA_FEAT_HDR_SPLIT | NUPA_FEAT_QP | NUPA_FEAT_BTH_V0 | NUPA_FEAT_BIG_TCP |
    NUPA_FEAT_RX_HOLD | NUPA_FEAT_BEAT | NUPA_FEAT_RX_LONG | NUPA_FEAT_WINDOW | NUPA_FEAT_STREAM |
    NUPA_FEAT_COMPLETE | NUPA_FEAT_QUIET | NUPA_FEAT_SRQ | NUPA_FEAT_SENDS | NUPA_FEAT_LATER;

struct ControlRequest {
    uint32_t generation;
    bool enable;
};

class Registers {
public:
    Registers() = default;
    explicit Registers(std::byte* bar2) noexcept : bar2_(bar2) {}

    // Everything the host may read before it enables the port.
    void initialise(const VmOptions& options, uint16_t port_id, uint32_t qps_max, uint32_t mrs_max,
                    uint32_t status) noexcept;
    [[nodiscard]] ControlRequest control() const noexcept;
    void acknowledge(uint32_t generation) noexcept;
    void set_status(uint32_t status) noexcept;  // also advances event_seq
    // The switch lives; and what the host may have written over what we say is put right.
    void beat() noexcept;
    void restore() noexcept;

    [[nodiscard]] nupa_admin_ctl& admin() const noexcept {
        return *at<nupa_admin_ctl>(NUPA_BAR2_ADMIN_AT);
    }
    [[nodiscard]] nupa_ring_ctl& txq(unsigned q) const noexcept {
        return at<nupa_ring_ctl>(NUPA_BAR2_TXQ_AT)[q];
    }
    [[nodiscard]] nupa_rxq_ctl& rxq(unsigned q) const noexcept {
        return at<nupa_rxq_ctl>(NUPA_BAR2_RXQ_AT)[q];
    }

private:
    template <class T>
    [[nodiscard]] T* at(size_t offset) const noexcept {
        return reinterpret_cast<T*>(bar2_ + offset);
    }
    [[nodiscard]] nupa_regs& regs() const noexcept { return *at<nupa_regs>(0); }

    std::byte* bar2_ = nullptr;
    nupa_regs said_{};  // the switch's part
};

static_assert(NUPA_BAR2_ADMIN_AT + sizeof(nupa_admin_ctl) <= NUPA_BAR2_TXQ_AT);
static_assert(NUPA_BAR2_TXQ_AT + sizeof(nupa_ring_ctl) * NUPA_QUEUE_PAIRS_MAX <= NUPA_BAR2_RXQ_AT);
static_assert(NUPA_BAR2_RXQ_AT + sizeof(nupa_rxq_ctl) * NUPA_QUEUE_PAIRS_MAX <= NUPA_BAR2_BYTES);

}  // namespace nupa::daemon
