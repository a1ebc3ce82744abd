// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/tx_queue.hpp"

#include <bit>

#include "engine/endian.hpp"

namespace nupa::daemon {

bool valid_ring_entries(uint32_t entries) noexcept {
    return std::has_single_bit(entries) && entries >= NUPA_RING_ENTRIES_MIN &&
           entries <= NUPA_RING_ENTRIES_MAX;
}

nupa_admin_status TxQueue::check(const HostMemory& memory, const nupa_cmd_queue& cmd,
                                 uint32_t flags) noexcept {
    if (!valid_ring_entries(cmd.entries) || cmd.flags & ~flags)
        return NUPA_E_INVALID;
    return memory.at(cmd.ring_addr, uint64_t{cmd.entries} * sizeof(nupa_tx_entry)) ? NUPA_OK
                                                                                   : NUPA_E_ADDRESS;
}

TxQueue::TxQueue(const HostMemory& memory, nupa_ring_ctl& ctl, const nupa_cmd_queue& cmd,
                 uint64_t watch_max_ns) noexcept
    : memory_(memory),
      entries_(memory.at(cmd.ring_addr, uint64_t{cmd.entries} * sizeof(nupa_tx_entry))),
      ring_(ctl, cmd.entries),
      watch_(watch_max_ns),
      may_be_watched_((cmd.flags & NUPA_TXQ_F_WATCH) != 0) {}

TxQueue::Next TxQueue::broken(const char* reason) noexcept {
    reason_ = reason;
    return Next::kBroken;
}

TxQueue::Next TxQueue::next() noexcept {
    const uint32_t pending = ring_.pending();
    if (!pending)
        return Next::kEmpty;
    if (ring_.broken())
        return broken("transmit producer index beyond the ring");
    context_ = copy_once<nupa_tx_entry>(entries_ + ring_.index(0) * sizeof(nupa_tx_entry)).ctx;
    const uint32_t bufs = context_.bufs;
    if (!bufs || bufs > NUPA_TX_FRAGS_MAX)
        return broken("transmit packet with too few or too many buffers");
    if (bufs + 1 > pending)
        return broken("transmit packet published in parts");
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < bufs; i++) {
        const auto buf =
            copy_once<nupa_tx_entry>(entries_ + ring_.index(1 + i) * sizeof(nupa_tx_entry)).buf;
        const std::byte* at = memory_.payload_at(buf.addr, buf.bytes);
        if (!at || buf.reserved)
            return broken("transmit buffer outside host memory");
        buffers_[i] = {at, buf.bytes};
        bytes += buf.bytes;
    }
    if (bytes != context_.bytes)
        return broken("transmit buffers do not sum up to the packet");
    ring_.take(1 + bufs);
    return Next::kPacket;
}

}  // namespace nupa::daemon
