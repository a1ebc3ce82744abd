// SPDX-License-Identifier: BSD-3-Clause
#include "hostile_guest.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace nupa::testing {
namespace {

// Where the guest has what it may use again and again.
constexpr uint64_t kTableAt = 160 << 20;  // of NUPA_MR_PAGES_MAX pages
constexpr uint64_t kFramesAt = 180 << 20;
constexpr uint32_t kPages = NUPA_MR_PAGES_MAX;
constexpr unsigned kQueues = 4;
constexpr uint32_t kSmallestMss = 8;

double now_ms(clockid_t clock) {
    timespec at{};
    ::clock_gettime(clock, &at);
    return static_cast<double>(at.tv_sec) * 1e3 + static_cast<double>(at.tv_nsec) / 1e6;
}

}  // namespace

double late_max_ms() {
    const char* slowness = std::getenv("NUPA_SLOWNESS");
    return kLateMaxMs * std::max(1.0, slowness ? std::atof(slowness) : 1.0);
}

Lateness::Lateness(const DaemonProcess& daemon) {
    if (::clock_getcpuclockid(daemon.pid(), &clock_) != 0)
        throw std::runtime_error("no clock of the switch");
}

double Lateness::nop_ms(FakePort& port) {
    const double used = now_ms(clock_), began = now_ms(CLOCK_MONOTONIC);
    port.must(nupa_admin_cmd{});
    const double late = std::min(now_ms(clock_) - used, now_ms(CLOCK_MONOTONIC) - began);
    worst_ms_ = std::max(worst_ms_, late);
    return late;
}

HostileGuest::HostileGuest(FakePort& port, std::vector<Mac> others, uint64_t seed)
    : port_(port), others_(std::move(others)), dice_(seed) {
    // No page follows the one before: each is a run of its own.
    for (uint32_t i = 0; i < kPages; i++)
        port_.at<uint64_t>(kTableAt)[i] = uint64_t{(i * 7919) % 32768} * kPageBytes;
    start();
}

void HostileGuest::start() {
    port_.set_alloc_at(kPageBytes);
    queues_ = false;
    port_.disable();
    port_.enable();
    free_ = port_.alloc(kPageBytes);
}

template <class Make>
void HostileGuest::submit(unsigned count, Make&& make) {
    nupa_admin_ctl& ctl = *port_.admin_ctl();
    const uint64_t ring = ctl.ring_addr;
    uint32_t prod = ctl.ring.prod;
    const uint32_t cons = __atomic_load_n(&ctl.ring.cons, __ATOMIC_ACQUIRE);
    for (; count && prod - cons < NUPA_ADMIN_ENTRIES; count--, prod++) {
        nupa_admin_cmd cmd{};
        make(cmd);
        port_.at<nupa_admin_cmd>(ring)[prod % NUPA_ADMIN_ENTRIES] = cmd;
    }
    __atomic_store_n(&ctl.ring.prod, prod, __ATOMIC_RELEASE);
    port_.ring_doorbell(0);
}

// Bursts of the smallest segments there are, and the largest frames, from all queues.
void HostileGuest::send(bool flood) {
    if (!queues_) {
        start();
        port_.set_alloc_at(free_);
        for (unsigned q = 0; q < kQueues; q++)
            port_.create_queues(q);
        port_.set_rx_mode(kModeAll | NUPA_RX_MODE_PROMISC, port_.mac(), 9000, 1);
        queues_ = true;
    }
    TcpFrame f;
    f.src = port_.mac();
    f.dst = others_[below(static_cast<uint32_t>(others_.size()))];
    if (flood)
        f.dst = below(2) ? kBroadcast : Mac{0x02, 0xee, 0, 0, 0, 1};
    f.payload.resize(below(2) ? 500'000 : 8000);
    const bool tso = f.payload.size() > 8000;
    const Bytes bytes = build_tcp(f, false);
    for (unsigned q = 0; q < kQueues; q++) {
        port_.set_alloc_at(kFramesAt + (uint64_t{q} << 20));
        const FakePort::TxRing& tx = port_.tx(q);
        for (unsigned i = 0; i < (tso ? 2 : 64); i++) {
            if (tx.prod + 1 + NUPA_TX_FRAGS_MAX -
                    __atomic_load_n(&port_.txq(q)->cons, __ATOMIC_ACQUIRE) >
                tx.entries)
                break;
            port_.set_alloc_at(kFramesAt + (uint64_t{q} << 20));  // the same bytes
            port_.stage(q, bytes, offload(f, tso ? kSmallestMss : 0));
        }
        port_.publish(q);
    }
}

void HostileGuest::register_memory(bool much) {
    submit(NUPA_ADMIN_ENTRIES, [&](nupa_admin_cmd& cmd) {
        cmd.op = much || below(4) ? NUPA_ADMIN_MR_REG : NUPA_ADMIN_MR_DEREG;
        cmd.id = much ? any() : any() % 1024;
        cmd.mr.pages = much ? kPages : 1;
        cmd.mr.bytes = uint64_t{cmd.mr.pages} * kPageBytes;
        cmd.mr.table_addr = kTableAt;
        cmd.mr.page_shift = 12;
    });
}

void HostileGuest::create_queue_pairs() {
    submit(NUPA_ADMIN_ENTRIES, [&](nupa_admin_cmd& cmd) {
        cmd.op = NUPA_ADMIN_QP_CREATE;
        cmd.id = any();
        cmd.qp.flow.family = 4;
        cmd.qp.flow.sport = static_cast<uint16_t>(any());
        cmd.qp.flow.dport = static_cast<uint16_t>(any());
        cmd.qp.rq_log2_bytes = 12;
        cmd.qp.rq_sge_max = 32;
        cmd.qp.rq_mask = 4095;
        cmd.qp.rq_pages = 4096;
        cmd.qp.rq_table_addr = kTableAt;
        cmd.qp.shadow_addr = kFramesAt;
    });
}

void HostileGuest::create_and_destroy_queues() {
    queues_ = false;
    submit(NUPA_ADMIN_ENTRIES, [&](nupa_admin_cmd& cmd) {
        cmd.op = static_cast<uint16_t>(NUPA_ADMIN_TXQ_CREATE + below(4));
        const bool tx = cmd.op == NUPA_ADMIN_TXQ_CREATE;
        cmd.id = below(kQueues);
        cmd.queue = {.ring_addr = kFramesAt,
                     .comp_addr = kFramesAt,
                     .slot_addr = kFramesAt,
                     .entries = 16384,
                     .comp_entries = tx ? 0u : 16384u,
                     .buf_bytes = 32768,
                     .flags = 0,
                     .long_ring_addr = tx ? 0u : kFramesAt,
                     .long_entries = tx ? 0u : 16384u,
                     .long_buf_bytes = tx ? 0u : 65536u};
    });
}

void HostileGuest::add_steering_rules() {
    submit(NUPA_ADMIN_ENTRIES, [&](nupa_admin_cmd& cmd) {
        cmd.op = NUPA_ADMIN_STEER_ADD;
        cmd.id = any();
        cmd.steer.flow.family = 4;
        cmd.steer.flow.dport = static_cast<uint16_t>(any());
        cmd.steer.wildcards = NUPA_STEER_ANY_SPORT | NUPA_STEER_ANY_SADDR;
    });
}

void HostileGuest::change_modes() {
    submit(NUPA_ADMIN_ENTRIES, [&](nupa_admin_cmd& cmd) {
        cmd.op = below(2) ? NUPA_ADMIN_RSS : NUPA_ADMIN_RX_MODE;
        if (cmd.op == NUPA_ADMIN_RSS) {
            cmd.rss.table_addr = kFramesAt;
            return;
        }
        cmd.rx_mode.flags = below(16);
        cmd.rx_mode.mtu = 9000;
        cmd.rx_mode.hold_us = static_cast<uint16_t>(below(64));
        cmd.rx_mode.mac[0] = 2;
        cmd.rx_mode.mac[5] = static_cast<uint8_t>(1 + below(200));
    });
}

void HostileGuest::scribble_on_registers() {
    uint8_t* bar2 = reinterpret_cast<uint8_t*>(port_.regs());
    for (unsigned i = 0; i < 64; i++)
        bar2[below(NUPA_BAR2_BYTES)] = static_cast<uint8_t>(any());
    ring_doorbells(NUPA_VECTORS);
    start();
}

void HostileGuest::ring_doorbells(unsigned times) {
    for (unsigned i = 0; i < times; i++)
        port_.ring_doorbell(i % NUPA_VECTORS);
}

void HostileGuest::attack(Attack attack) {
    switch (attack) {
        case kLongRegistrations:
        case kShortRegistrations:
            return register_memory(attack == kLongRegistrations);
        case kNops:
            return submit(NUPA_ADMIN_ENTRIES, [](nupa_admin_cmd&) {});
        case kQueuePairs:
            return create_queue_pairs();
        case kQueueCommands:
            return create_and_destroy_queues();
        case kSteering:
            return add_steering_rules();
        case kModes:
            return change_modes();
        case kResets:
            for (unsigned i = 0; i < 16; i++)
                start();
            return;
        case kBursts:
        case kFloods:
            return send(attack == kFloods);
        case kDoorbells:
            return ring_doorbells(1000);
        case kScribbles:
            return scribble_on_registers();
        case kAttacks:
            return;
    }
}

}  // namespace nupa::testing
