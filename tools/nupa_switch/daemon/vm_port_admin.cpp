// SPDX-License-Identifier: BSD-3-Clause
// VmPort: the admin ring.  Each command has taken full effect before its completion is visible.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/endian.hpp"
#include "vm_port.hpp"

namespace nupa::daemon {
namespace {

constexpr uint32_t kRxModesAll =
    NUPA_RX_MODE_PROMISC | NUPA_RX_MODE_ALLMULTI | NUPA_RX_MODE_GRO | NUPA_RX_MODE_CSUM;

uint64_t hold_ns(const nupa_cmd_rx_mode& mode) noexcept { return mode.hold_us * uint64_t{1000}; }

// Page table entries for a run of guest memory in one go.  Left to page faults, the first
// transfer into a new MR would cost more than its copy; failing only means that.
void populate(std::byte* at, size_t bytes) noexcept {
    if (bytes)
        ::madvise(at, bytes, MADV_POPULATE_WRITE);
}

}  // namespace

void VmPort::admin() noexcept {
    flush_held();
    if (!running_)
        return;
    ConsumedRing& ring = *admin_ring_;
    // At most one ring's worth a turn; whoever fills it as fast waits for the next.
    for (unsigned i = 0; i < NUPA_ADMIN_ENTRIES && ring.pending(); i++) {
        if (ring.broken()) {
            fail("admin producer index beyond the ring");
            return;
        }
        const size_t index = ring.index(0);
        const auto cmd = copy_once<nupa_admin_cmd>(admin_cmds_ + index * sizeof(nupa_admin_cmd));
        const Outcome outcome = execute(cmd);
        const nupa_admin_comp comp{.status = static_cast<uint16_t>(outcome.status),
                                   .op = cmd.op,
                                   .id = cmd.id,
                                   .value = outcome.value};
        std::memcpy(admin_comps_ + index * sizeof(comp), &comp, sizeof(comp));
        ring.take(1);
    }
    if (ring.publish())
        interrupt(0);
    if (ring.rearm())
        schedule(0);
}

VmPort::Outcome VmPort::execute(const nupa_admin_cmd& cmd) noexcept {
    if (cmd.reserved)
        return {NUPA_E_INVALID};
    switch (cmd.op) {
        case NUPA_ADMIN_NOP:
            return {NUPA_OK};
        case NUPA_ADMIN_TXQ_CREATE:
            return {create_txq(cmd.id, cmd.queue)};
        case NUPA_ADMIN_TXQ_DESTROY:
            return {destroy_txq(cmd.id)};
        case NUPA_ADMIN_RXQ_CREATE:
            return {create_rxq(cmd.id, cmd.queue)};
        case NUPA_ADMIN_RXQ_DESTROY:
            return {destroy_rxq(cmd.id)};
        case NUPA_ADMIN_RX_MODE:
            return {set_rx_mode(cmd.rx_mode)};
        case NUPA_ADMIN_RSS:
            return {set_rss(cmd.rss)};
        case NUPA_ADMIN_STEER_ADD:
            return {steering_.add(cmd.id, cmd.steer, options_.queue_pairs)};
        case NUPA_ADMIN_STEER_DEL:
            return {steering_.remove(cmd.id)};
        case NUPA_ADMIN_STATS:
            return write_stats(cmd.stats, stats.values.data(), NUPA_STAT_COUNT);
        case NUPA_ADMIN_MR_REG:
            return {register_mr(cmd.id, cmd.mr)};
        case NUPA_ADMIN_MR_DEREG:
            return {engine_.mr_dereg(cmd.id)};
        case NUPA_ADMIN_QP_CREATE:
            return {create_qp(cmd.id, cmd.qp)};
        case NUPA_ADMIN_QP_DESTROY:
            return {destroy_qp(cmd.id)};
        case NUPA_ADMIN_QP_STATS: {
            const QpStats* qp = engine_.qp_stats(cmd.id);
            return qp ? write_stats(cmd.stats, qp->values.data(), NUPA_QP_STAT_COUNT)
                      : Outcome{NUPA_E_NOENT};
        }
        default:
            return {NUPA_E_OPCODE};
    }
}

nupa_admin_status VmPort::create_txq(uint32_t queue, const nupa_cmd_queue& cmd) noexcept {
    if (queue >= options_.queue_pairs)
        return NUPA_E_INVALID;
    if (tx_[queue])
        return NUPA_E_EXISTS;
    if (nupa_admin_status status = TxQueue::check(memory_, cmd); status != NUPA_OK)
        return status;
    tx_[queue].emplace(memory_, registers_.txq(queue), cmd);
    schedule(1 + queue);  // its host may have produced before it existed
    return NUPA_OK;
}

nupa_admin_status VmPort::destroy_txq(uint32_t queue) noexcept {
    if (queue >= options_.queue_pairs || !tx_[queue])
        return NUPA_E_NOENT;
    tx_[queue].reset();
    return NUPA_OK;
}

nupa_admin_status VmPort::create_rxq(uint32_t queue, const nupa_cmd_queue& cmd) noexcept {
    if (queue >= options_.queue_pairs)
        return NUPA_E_INVALID;
    if (rx_[queue])
        return NUPA_E_EXISTS;
    if (nupa_admin_status status = RxQueue::check(memory_, cmd); status != NUPA_OK)
        return status;
    try {
        rx_[queue] = std::make_unique<RxQueue>(memory_, registers_.rxq(queue), cmd, stats);
    } catch (const std::bad_alloc&) {
        return NUPA_E_NOSPACE;
    }
    rx_[queue]->set_mode(rx_mode_.flags, hold_ns(rx_mode_));
    return NUPA_OK;
}

// Nothing of it is in flight: admin() has flushed what was held.
nupa_admin_status VmPort::destroy_rxq(uint32_t queue) noexcept {
    if (queue >= options_.queue_pairs || !rx_[queue])
        return NUPA_E_NOENT;
    rx_[queue].reset();
    return NUPA_OK;
}

nupa_admin_status VmPort::set_rx_mode(const nupa_cmd_rx_mode& cmd) noexcept {
    if (cmd.hold_us > NUPA_RX_HOLD_MAX_US || cmd.flags & ~kRxModesAll || cmd.mtu < NUPA_MTU_MIN ||
        cmd.mtu > NUPA_MTU_MAX || is_multicast(cmd.mac) || mac_key(cmd.mac) == 0)
        return NUPA_E_INVALID;
    rx_mode_ = cmd;
    for (auto& rx : rx_)
        if (rx)
            rx->set_mode(cmd.flags, hold_ns(cmd));
    fabric_.macs().learn(cmd.mac, id());  // so that the first packet to it need not be flooded
    return NUPA_OK;
}

nupa_admin_status VmPort::set_rss(const nupa_cmd_rss& cmd) noexcept {
    const std::byte* at = memory_.at(cmd.table_addr, NUPA_RSS_TABLE_ENTRIES);
    if (!at)
        return NUPA_E_ADDRESS;
    const auto table = copy_once<std::array<uint8_t, NUPA_RSS_TABLE_ENTRIES>>(at);
    if (std::any_of(table.begin(), table.end(),
                    [this](uint8_t q) { return q >= options_.queue_pairs; }))
        return NUPA_E_INVALID;
    steering_.rss().set_key(cmd.key);
    steering_.rss().set_table(table);
    return NUPA_OK;
}

// Registering is what pins and maps memory for a device, so it is the time to map it here, too.
nupa_admin_status VmPort::register_mr(uint32_t key, const nupa_cmd_mr& cmd) noexcept {
    const nupa_admin_status status = engine_.mr_reg(key, cmd);
    const std::byte* table = memory_.at(cmd.table_addr, uint64_t{cmd.pages} * sizeof(uint64_t));
    if (status != NUPA_OK || !table)
        return status;
    const uint64_t page_bytes = uint64_t{1} << cmd.page_shift;
    std::byte* run = nullptr;
    size_t run_bytes = 0;
    for (uint32_t i = 0; i < cmd.pages; i++) {
        std::byte* page = memory_.at(copy_once<uint64_t>(table + i * sizeof(uint64_t)), page_bytes);
        if (page && page == run + run_bytes) {
            run_bytes += page_bytes;
            continue;
        }
        populate(run, run_bytes);
        run = page;
        run_bytes = page ? page_bytes : 0;
    }
    populate(run, run_bytes);
    return status;
}

nupa_admin_status VmPort::create_qp(uint32_t qpn, const nupa_cmd_qp& cmd) noexcept {
    const nupa_admin_status status = engine_.qp_create(qpn, cmd);
    if (status != NUPA_OK)
        return status;
    try {
        qp_flows_[qpn] = cmd.flow;
    } catch (const std::bad_alloc&) {
        engine_.qp_destroy(qpn);
        return NUPA_E_NOSPACE;
    }
    return NUPA_OK;
}

nupa_admin_status VmPort::destroy_qp(uint32_t qpn) noexcept {
    const nupa_admin_status status = engine_.qp_destroy(qpn);
    if (status == NUPA_OK)
        qp_flows_.erase(qpn);
    return status;
}

VmPort::Outcome VmPort::write_stats(const nupa_cmd_stats& cmd, const uint64_t* values,
                                    uint32_t count) noexcept {
    if (cmd.reserved || !cmd.count || cmd.count > count)
        return {NUPA_E_INVALID};
    std::byte* at = memory_.at(cmd.addr, uint64_t{cmd.count} * sizeof(uint64_t));
    if (!at)
        return {NUPA_E_ADDRESS};
    std::memcpy(at, values, cmd.count * sizeof(uint64_t));
    return {NUPA_OK, cmd.count};
}

}  // namespace nupa::daemon
