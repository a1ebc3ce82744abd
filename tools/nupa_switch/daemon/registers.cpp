// SPDX-License-Identifier: BSD-3-Clause
#include "registers.hpp"

#include <algorithm>

#include "shared_field.hpp"

namespace nupa::daemon {

void Registers::initialise(const PortOptions& options, uint16_t port_id, uint32_t qps_max,
                           uint32_t mrs_max, uint32_t status) noexcept {
    nupa_regs& r = regs();
    r.abi_major = NUPA_ABI_MAJOR;
    r.abi_minor = NUPA_ABI_MINOR;
    r.features = kFeatures;
    std::copy(options.mac.begin(), options.mac.end(), r.mac);
    r.queue_pairs = static_cast<uint16_t>(options.queue_pairs);
    r.link_mbps = kLinkMbps;
    r.mtu_max = NUPA_MTU_MAX;
    r.qps_max = qps_max;
    r.mrs_max = mrs_max;
    r.port_id = port_id;
    store_release(r.status, status);
    // Last: a host that sees the magic sees the rest.
    store_release(r.magic, static_cast<uint32_t>(NUPA_MAGIC));
}

ControlRequest Registers::control() const noexcept {
    // The host writes control first, then its generation.
    uint32_t generation = load_acquire(regs().control_gen);
    return {generation, (load_acquire(regs().control) & NUPA_CONTROL_ENABLE) != 0};
}

void Registers::acknowledge(uint32_t generation) noexcept {
    store_release(regs().reset_ack, generation);
}

void Registers::set_status(uint32_t status) noexcept {
    store_release(regs().status, status);
    store_release(regs().event_seq, ++event_seq_);
}

}  // namespace nupa::daemon
