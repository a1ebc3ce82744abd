// SPDX-License-Identifier: BSD-3-Clause
// VmPort: plugging, control, reset, failure.
#include "ports/vm/vm_port.hpp"

#include <algorithm>

#include "ports/vm/last_words.hpp"

namespace nupa::daemon {

VmPort::VmPort(const PortContext& context, const VmOptions& options, uint16_t id,
               uint64_t hash_seed)
    : Port(options.name, id, MacTable::Kind::kGuest),
      epoll_(context.epoll),
      fabric_(context.fabric),
      heartbeat_(context.heartbeat),
      spare_time_(context.spare_time),
      options_(options),
      listener_(options.socket),
      log_("nupa_switch: " + options.name),
      windows_(options.hbm, log_),
      engine_(memory_, stats(), hash_seed, options.limits),
      steering_(hash_seed) {
    if (mac_key(options_.mac.data()) == 0)
        options_.mac = {
            0x02, 'N', 'U', 'P', static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)};
    fabric_.macs().reserve(options_.mac.data(), id);
    if (options.shared) {
        pool_ = std::make_unique<PoolWindow>(
            epoll_, PoolWindow::Options{options.pool, options.shared, options.share_bytes}, id,
            name(), static_cast<PoolWindowOwner&>(*this));
        windows_.set_pool(pool_.get());
    }
    epoll_.add(listener_.fd(), *this, kListen);
}

VmPort::~VmPort() { last_words_of(id(), nullptr, -1); }

void VmPort::handle(uint32_t what, uint32_t /*events*/) {
    if (what == kListen) {
        accept_client();
        heartbeat_.start();
    } else if (what == kClient) {
        client_event();
    } else {
        doorbell(what - kDoorbell);
    }
}

bool VmPort::beat() noexcept {
    if (client_)
        registers_.beat();
    return client_.has_value();
}

void VmPort::shut_down() noexcept {
    if (!client_)
        return;
    reset();
    registers_.set_status(NUPA_STATUS_GONE);
    interrupt(0);
}

std::vector<PortFact> VmPort::facts() const {
    return {{"kind", "vm"},
            {"socket", options_.socket},
            {"ram", options_.ram},
            {"mac", format_mac(options_.mac.data())},
            {"queue_pairs", uint64_t{options_.queue_pairs}},
            {"qps", uint64_t{engine_.qps()}},
            {"mrs", uint64_t{engine_.mrs()}}};
}

std::vector<PortQp> VmPort::qps() const {
    std::vector<PortQp> all;
    for (const auto& [qpn, flow] : qp_flows_)
        all.push_back({qpn, flow, engine_.qp_stats(qpn)});
    return all;
}

std::optional<PortPool> VmPort::pool() const {
    static constexpr std::array kStates{"coming", "leased", "leaving", "offered"};
    if (!pool_)
        return std::nullopt;
    const SharedPool& shared = pool_->shared();
    const Leases& leases = shared.leases;
    PortPool all{.pool_bytes = leases.bytes(),
                 .free_bytes = leases.free_bytes(),
                 .handovers = shared.handovers,
                 .handover_bytes = shared.handover_bytes,
                 .share_bytes = leases.share(id()),
                 .resident_bytes = pool_->resident_bytes(),
                 .leases = {}};
    for (const auto& [at, lease] : leases.all())
        if (lease.owner == id())
            all.leases.push_back(
                {at, lease.bytes, kStates[static_cast<size_t>(lease.state)], lease.regions});
    return all;
}

const char* VmPort::state() const noexcept {
    if (!client_)
        return "unplugged";
    return failed_ ? "failed" : running_ ? "running" : "plugged";
}

void VmPort::accept_client() {
    while (Fd socket = listener_.accept()) {
        // The old client's end and the new one's start may be told in any order.
        if (client_)
            client_event();
        if (client_) {
            log_.line("a second client was turned away");
            continue;
        }
        try {
            plug(std::move(socket));
        } catch (const std::exception& e) {
            log_.line("{}", e.what());
            unplug(nullptr);
        }
    }
}

void VmPort::plug(Fd socket) {
    client_.emplace(std::move(socket), sealed_memory("nupa-bar2", NUPA_BAR2_BYTES), NUPA_BAR2_BYTES,
                    NUPA_VECTORS);
    stats() = {};
    control_gen_ = 0;
    registers_ = Registers(client_->bar2());
    registers_.initialise(options_, id(), options_.limits.qps_max, options_.limits.mrs_max,
                          status_bits());
    epoll_.add(client_->socket(), *this, kClient, EPOLLIN | EPOLLRDHUP);
    for (unsigned v = 0; v < NUPA_VECTORS; v++)  // edge triggered: nobody has to read them
        epoll_.add(client_->doorbell(v), *this, kDoorbell + v, EPOLLIN | EPOLLET);
    client_->handshake();
    last_words_of(id(), &reinterpret_cast<nupa_regs*>(client_->bar2())->status,
                  client_->interrupt_fd(0));
    log_.line("plugged");
}

void VmPort::client_event() noexcept {
    if (!client_)
        return;
    const IvshmemClient::Event event = client_->event();
    if (event != IvshmemClient::Event::kNothing)
        unplug(event == IvshmemClient::Event::kSpoke
                   ? "the client spoke, which ivshmem clients never do"
                   : "unplugged");
}

void VmPort::unplug(const char* why) noexcept {
    if (!client_)
        return;
    reset();
    fabric_.unplugged(*this);
    // Copies of these descriptors live on in the client: closing ours would not end their events.
    epoll_.remove(client_->socket());
    for (unsigned v = 0; v < NUPA_VECTORS; v++)
        epoll_.remove(client_->doorbell(v));
    last_words_of(id(), nullptr, -1);
    client_.reset();
    memory_.clear();
    ram_ = GuestRam();
    pending_ = 0;
    failed_ = false;
    if (why)
        log_.line("{}", why);
}

// Every queue, MR and QP is gone when this returns.
void VmPort::reset() noexcept {
    running_ = false;
    set_due_ns(kNever);
    for (auto& tx : tx_)
        tx.reset();
    for (auto& rx : rx_)
        rx.reset();
    admin_ring_.reset();
    slow_.reset();
    engine_.reset();
    if (pool_)
        pool_->regions_gone();
    windows_.reset(memory_);
    qp_flows_.clear();
    steering_.reset();
    fabric_.macs().release(rx_mode_.mac, id());  // no other guest's at once: this may be recovery
    rx_mode_ = {.flags = 0, .mtu = NUPA_MTU_MAX, .mac = {}, .hold_us = 0, .run4_max_bytes = 0};
    std::copy(options_.mac.begin(), options_.mac.end(), rx_mode_.mac);
    pending_ &= 1;
    watched_ = 0;
}

void VmPort::control() noexcept {
    const ControlRequest request = registers_.control();
    if (request.generation == control_gen_)
        return;
    control_gen_ = request.generation;
    reset();
    failed_ = false;
    if (request.enable)
        enable();
    registers_.restore();
    // The acknowledgement is the last thing to change before the interrupt.
    registers_.set_status(status_bits());
    registers_.acknowledge(request.generation);
    interrupt(0);
}

void VmPort::enable() noexcept {
    try {
        // QEMU has created the file by the time its guest runs; not earlier.
        if (!ram_) {
            ram_ = GuestRam(options_.ram);
            ram_.describe(memory_);
        }
    } catch (const std::exception& e) {
        log_.line("{}", e.what());
        fail("guest memory can't be mapped");
        return;
    }
    const nupa_admin_ctl& ctl = registers_.admin();
    admin_cmds_ = memory_.at(ctl.ring_addr, sizeof(nupa_admin_cmd) * NUPA_ADMIN_ENTRIES);
    admin_comps_ = memory_.at(ctl.comp_addr, sizeof(nupa_admin_comp) * NUPA_ADMIN_ENTRIES);
    if (!admin_cmds_ || !admin_comps_) {
        fail("admin ring outside host memory");
        return;
    }
    admin_ring_.emplace(registers_.admin().ring, NUPA_ADMIN_ENTRIES);
    running_ = true;
}

// The host broke the ABI: it is stopped, everybody else goes on.
void VmPort::fail(const char* reason) noexcept {
    log_.line("stopped: {}", reason);
    stats().add(NUPA_STAT_abi_errors);
    reset();
    failed_ = true;
    show_status();
}

// A driver deregisters first: then there is nothing to stop.
void VmPort::window_ends() noexcept {
    if (pool_->shared().leases.pinned(id()))
        fail("its window to the pool was reset under its regions");
    windows_.clear_pool(memory_);
}

uint32_t VmPort::status_bits() const noexcept {
    uint32_t bits = 0;
    if (running_)
        bits |= NUPA_STATUS_READY;
    if (link_up_)
        bits |= NUPA_STATUS_LINK_UP;
    if (failed_)
        bits |= NUPA_STATUS_FAILED;
    return bits;
}

void VmPort::show_status() noexcept {
    if (!client_)
        return;
    registers_.set_status(status_bits());
    interrupt(0);
}

void VmPort::link_changed(bool up) noexcept {
    if (up == link_up_)
        return;
    link_up_ = up;
    show_status();
}

void VmPort::interrupt(unsigned vector) noexcept { client_->interrupt(vector); }

bool VmPort::work() noexcept {
    if (!client_)
        pending_ = 0;
    if (pending_ & 1) {
        pending_ &= ~1u;
        control();
        if (running_)
            admin();
    }
    if (running_ && watched_)
        look();
    if (running_)
        bursts();
    if (!running_)
        pending_ &= 1;
    const bool more = pool_ && pool_->work();
    return more || pending_ != 0;
}

}  // namespace nupa::daemon
