// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/registers.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ivshmem/shared_field.hpp"

namespace nupa::daemon {

void Registers::initialise(const VmOptions& options, uint16_t port_id, uint32_t qps_max,
                           uint32_t mrs_max, uint32_t status) noexcept {
    said_ = {};
    said_.magic = NUPA_MAGIC;
    said_.abi_major = NUPA_ABI_MAJOR;
    said_.abi_minor = NUPA_ABI_MINOR;
    said_.features = kFeatures;
    if (options.watch != Watch::kNever)
        said_.features |= NUPA_FEAT_WATCH;
    std::copy(options.mac.begin(), options.mac.end(), said_.mac);
    said_.queue_pairs = static_cast<uint16_t>(options.queue_pairs);
    said_.link_mbps = kLinkMbps;
    said_.mtu_max = NUPA_MTU_MAX;
    said_.qps_max = qps_max;
    said_.mrs_max = mrs_max;
    said_.port_id = port_id;
    said_.status = status;
    restore();
}

// By words, each whole.  Last the magic: a host that sees it sees the rest.
void Registers::restore() noexcept {
    constexpr size_t kWords = offsetof(nupa_regs, control) / sizeof(uint32_t);
    std::array<uint32_t, kWords> words;
    std::memcpy(words.data(), &said_, sizeof(words));
    for (size_t i = kWords; i-- > 0;)
        if (uint32_t& word = at<uint32_t>(0)[i]; load_relaxed(word) != words[i])
            store_release(word, words[i]);
}

void Registers::beat() noexcept {
    said_.beat++;
    restore();
}

ControlRequest Registers::control() const noexcept {
    // The host writes control first, then its generation.
    uint32_t generation = load_acquire(regs().control_gen);
    return {generation, (load_acquire(regs().control) & NUPA_CONTROL_ENABLE) != 0};
}

void Registers::acknowledge(uint32_t generation) noexcept {
    said_.reset_ack = generation;
    store_release(regs().reset_ack, generation);
}

void Registers::set_status(uint32_t status) noexcept {
    said_.status = status;
    store_release(regs().status, status);
    store_release(regs().event_seq, ++said_.event_seq);
}

}  // namespace nupa::daemon
