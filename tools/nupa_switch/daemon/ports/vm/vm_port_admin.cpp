// SPDX-License-Identifier: BSD-3-Clause
// VmPort: the admin ring.  Each command has taken full effect before its completion is visible.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/endian.hpp"
#include "event/clock.hpp"
#include "ports/vm/vm_port.hpp"

namespace nupa::daemon {
namespace {

constexpr uintptr_t kHostPageBytes = 4096;
constexpr uint32_t kRxModesAll =
    NUPA_RX_MODE_PROMISC | NUPA_RX_MODE_ALLMULTI | NUPA_RX_MODE_GRO | NUPA_RX_MODE_CSUM;

// Page table entries for a run of guest memory in one go.  Left to page faults, the first
// transfer into a new MR would cost more than its copy; failing only means that.  Each page is
// looked at, too: in a virtual machine whose hypervisor shadows page tables that is when an entry
// comes to be, and takes some 10 us.
void populate(std::span<std::byte> run) noexcept {
    const uintptr_t unaligned = reinterpret_cast<uintptr_t>(run.data()) % kHostPageBytes;
    std::byte* const first = run.data() - unaligned;
    if (::madvise(first, run.size() + unaligned, MADV_POPULATE_WRITE) != 0)
        return;
    for (size_t at = 0; at < run.size() + unaligned; at += kHostPageBytes)
        (void)*static_cast<const volatile std::byte*>(first + at);
}

}  // namespace

// As many commands as there is time for; whoever has more waits for the port's next turn.
void VmPort::admin() noexcept {
    if (!slow_)
        flush_held();
    if (!running_)
        return;
    const uint64_t end = monotonic_ns() + kAdminTurnNs;
    for (unsigned i = 0; i < NUPA_ADMIN_ENTRIES && (slow_ || admin_ring_->pending()); i++) {
        if (admin_ring_->broken()) {
            fail("admin producer index beyond the ring");
            return;
        }
        const bool done = next_command(end).has_value();
        if (!running_)
            return;
        if (!done || monotonic_ns() >= end)
            break;
    }
    if (admin_ring_->publish())
        interrupt(0);
    if (slow_ || admin_ring_->rearm())
        schedule(0);
}

// Nothing: it goes on in the port's next turn.
std::optional<VmPort::Outcome> VmPort::next_command(uint64_t end_ns) noexcept {
    std::optional<Outcome> outcome;
    nupa_admin_cmd cmd;
    if (slow_) {
        cmd = slow_->cmd;
        outcome = go_on_registering(end_ns);
    } else {
        cmd =
            copy_once<nupa_admin_cmd>(admin_cmds_ + admin_ring_->index(0) * sizeof(nupa_admin_cmd));
        outcome = execute(cmd, end_ns);
    }
    if (outcome)
        complete(cmd, *outcome);
    return outcome;
}

void VmPort::complete(const nupa_admin_cmd& cmd, const Outcome& outcome) noexcept {
    const bool slow = slow_.has_value();
    slow_.reset();
    const nupa_admin_comp comp{.status = static_cast<uint16_t>(outcome.status),
                               .op = cmd.op,
                               .id = cmd.id,
                               .value = outcome.value};
    std::memcpy(admin_comps_ + admin_ring_->index(0) * sizeof(comp), &comp, sizeof(comp));
    admin_ring_->take(1);
    if (slow)  // what was received meanwhile, before the next command changes anything
        flush_held();
}

std::optional<VmPort::Outcome> VmPort::execute(const nupa_admin_cmd& cmd,
                                               uint64_t end_ns) noexcept {
    if (cmd.reserved)
        return Outcome{NUPA_E_INVALID};
    switch (cmd.op) {
        case NUPA_ADMIN_NOP:
            return Outcome{NUPA_OK};
        case NUPA_ADMIN_TXQ_CREATE:
            return Outcome{create_txq(cmd.id, cmd.queue)};
        case NUPA_ADMIN_TXQ_DESTROY:
            return Outcome{destroy_txq(cmd.id)};
        case NUPA_ADMIN_RXQ_CREATE:
            return Outcome{create_rxq(cmd.id, cmd.queue)};
        case NUPA_ADMIN_RXQ_DESTROY:
            return Outcome{destroy_rxq(cmd.id)};
        case NUPA_ADMIN_RX_MODE:
            return Outcome{set_rx_mode(cmd.rx_mode)};
        case NUPA_ADMIN_RSS:
            return Outcome{set_rss(cmd.rss)};
        case NUPA_ADMIN_STEER_ADD:
            return Outcome{steering_.add(cmd.id, cmd.steer, options_.queue_pairs)};
        case NUPA_ADMIN_STEER_DEL:
            return Outcome{steering_.remove(cmd.id)};
        case NUPA_ADMIN_STATS:
            return write_stats(cmd.stats, stats().values.data(), NUPA_STAT_COUNT);
        case NUPA_ADMIN_MR_REG:
            return register_mr(cmd, end_ns);
        case NUPA_ADMIN_MR_DEREG:
            return Outcome{engine_.mr_dereg(cmd.id)};
        case NUPA_ADMIN_QP_CREATE:
            return Outcome{create_qp(cmd.id, cmd.qp)};
        case NUPA_ADMIN_QP_DESTROY:
            return Outcome{destroy_qp(cmd.id)};
        case NUPA_ADMIN_QP_STATS: {
            const QpStats* qp = engine_.qp_stats(cmd.id);
            return qp ? write_stats(cmd.stats, qp->values.data(), NUPA_QP_STAT_COUNT)
                      : Outcome{NUPA_E_NOENT};
        }
        case NUPA_ADMIN_WINDOW_SET:
            return Outcome{windows_.set(memory_, cmd.id, cmd.window)};
        case NUPA_ADMIN_WINDOW_CLEAR:
            return Outcome{windows_.clear(memory_, cmd.id)};
        case NUPA_ADMIN_CQ_CREATE:
            return Outcome{engine_.cq_create(cmd.id, cmd.cq)};
        case NUPA_ADMIN_CQ_DESTROY:
            return Outcome{engine_.cq_destroy(cmd.id)};
        case NUPA_ADMIN_SRQ_CREATE:
            return Outcome{engine_.srq_create(cmd.id, cmd.srq)};
        case NUPA_ADMIN_SRQ_DESTROY:
            return Outcome{engine_.srq_destroy(cmd.id)};
        default:
            return Outcome{NUPA_E_OPCODE};
    }
}

nupa_admin_status VmPort::create_txq(uint32_t queue, const nupa_cmd_queue& cmd) noexcept {
    if (queue >= options_.queue_pairs)
        return NUPA_E_INVALID;
    if (tx_[queue])
        return NUPA_E_EXISTS;
    const uint32_t flags = options_.watch == Watch::kNever ? 0 : NUPA_TXQ_F_WATCH;
    if (nupa_admin_status status = TxQueue::check(memory_, cmd, flags); status != NUPA_OK)
        return status;
    tx_[queue].emplace(memory_, registers_.txq(queue), cmd, options_.watch_max_ns);
    schedule(1 + queue);  // its host may have produced before it existed
    return NUPA_OK;
}

nupa_admin_status VmPort::destroy_txq(uint32_t queue) noexcept {
    if (queue >= options_.queue_pairs || !tx_[queue])
        return NUPA_E_NOENT;
    watched_ &= ~(2u << queue);
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
        rx_[queue] = std::make_unique<RxQueue>(memory_, registers_.rxq(queue), cmd, stats());
    } catch (const std::bad_alloc&) {
        return NUPA_E_NOSPACE;
    }
    rx_[queue]->set_mode(rx_mode_);
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
    if (cmd.hold_us > NUPA_RX_HOLD_MAX_US || cmd.run4_max_bytes > NUPA_RX_RUN_MAX_BYTES ||
        cmd.flags & ~kRxModesAll || cmd.mtu < NUPA_MTU_MIN || cmd.mtu > NUPA_MTU_MAX ||
        is_multicast(cmd.mac) || mac_key(cmd.mac) == 0)
        return NUPA_E_INVALID;
    // It is known from now on, so that the first packet to it need not be flooded.
    if (!fabric_.macs().keep(cmd.mac, id(), kind()))
        return NUPA_E_EXISTS;
    if (std::memcmp(cmd.mac, rx_mode_.mac, sizeof(cmd.mac)) != 0)
        fabric_.macs().forget(rx_mode_.mac, id());
    rx_mode_ = cmd;
    for (auto& rx : rx_)
        if (rx)
            rx->set_mode(cmd);
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

std::optional<VmPort::Outcome> VmPort::register_mr(const nupa_admin_cmd& cmd,
                                                   uint64_t end_ns) noexcept {
    if (const nupa_admin_status status = engine_.mr_reg_begin(cmd.id, cmd.mr); status != NUPA_OK)
        return Outcome{status};
    slow_ = SlowCommand{.cmd = cmd, .begun_ns = monotonic_ns()};
    return go_on_registering(end_ns);
}

// Registering is what pins and maps memory for a device, so it is the time to map it here, too.
std::optional<VmPort::Outcome> VmPort::go_on_registering(uint64_t end_ns) noexcept {
    while (!slow_->registered) {
        const std::optional<nupa_admin_status> status = engine_.mr_reg_go_on(kMrPagesPerStep);
        if (status && *status != NUPA_OK)
            return Outcome{*status};
        slow_->registered = status.has_value();
        if (!status && monotonic_ns() >= end_ns)
            return std::nullopt;
    }
    const Mr& mr = *engine_.mr(slow_->cmd.id);
    while (slow_->populated < mr.bytes()) {
        const uint64_t now = monotonic_ns();
        if (now - slow_->begun_ns >= kMrPopulateMaxNs)
            break;
        if (now >= end_ns)
            return std::nullopt;
        const uint64_t left = mr.bytes() - slow_->populated;
        const std::span<std::byte> run =
            mr.run(mr.iova() + slow_->populated, std::min(left, kMrPopulateStepBytes));
        populate(run);
        slow_->populated += run.size();
    }
    return Outcome{NUPA_OK};
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
