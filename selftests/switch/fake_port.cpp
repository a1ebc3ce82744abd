// SPDX-License-Identifier: BSD-3-Clause
#include "fake_port.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <system_error>

#include "ivshmem_peer.hpp"
#include "shared_memory.hpp"

namespace nupa::testing {
namespace {

// q35: of memory of kLowLimit and more, kLowBytes lie below 4 GiB.
constexpr uint64_t kLowLimit = 0xb0000000;
constexpr uint64_t kLowBytes = 0x80000000;
constexpr uint64_t kHighBase = 1ull << 32;

}  // namespace

FakePort::FakePort(const std::string& socket, const std::string& ram, uint64_t ram_bytes)
    : ram_path_(ram) {
    doorbells_.fill(-1);
    interrupts_.fill(-1);
    map_ram(ram, ram_bytes);
    handshake(socket);
}

FakePort::~FakePort() {
    disconnect();
    if (ram_)
        ::munmap(ram_, ram_bytes_);
    if (ram_fd_ >= 0)
        ::close(ram_fd_);
}

void FakePort::disconnect() {
    if (socket_ >= 0)
        ::close(socket_);
    socket_ = -1;
    if (bar2_)
        ::munmap(bar2_, NUPA_BAR2_BYTES);
    bar2_ = nullptr;
    for (int* fd : {doorbells_.data(), interrupts_.data()})
        for (int v = 0; v < NUPA_VECTORS; v++) {
            if (fd[v] >= 0)
                ::close(fd[v]);
            fd[v] = -1;
        }
}

void FakePort::map_ram(const std::string& ram, uint64_t bytes) {
    ram_bytes_ = bytes;
    ram_fd_ = ::open(ram.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (ram_fd_ < 0 || ::ftruncate(ram_fd_, static_cast<off_t>(bytes)) < 0)
        fail(ram);
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, ram_fd_, 0);
    if (at == MAP_FAILED)
        fail("mmap " + ram);
    ram_ = static_cast<uint8_t*>(at);
}

void FakePort::handshake(const std::string& path) {
    const IvshmemPeer peer = connect_ivshmem(path, doorbells_, interrupts_);
    socket_ = peer.socket;
    bar2_ = peer.bar2;
    if (peer.bytes != NUPA_BAR2_BYTES)
        throw std::runtime_error("BAR2 size");
}

uint64_t FakePort::alloc(uint64_t bytes, uint64_t align) {
    uint64_t gpa = (next_gpa_ + align - 1) & ~(align - 1);
    next_gpa_ = gpa + bytes;
    ram(gpa);
    ram(gpa + bytes - 1);
    return gpa;
}

uint8_t* FakePort::ram(uint64_t gpa) const {
    uint64_t offset = gpa;
    if (ram_bytes_ >= kLowLimit && gpa >= kHighBase)
        offset = gpa - kHighBase + kLowBytes;
    if (offset >= ram_bytes_)
        throw std::runtime_error("fake port: out of RAM");
    return ram_ + offset;
}

void FakePort::ring_doorbell(unsigned vector) {
    uint64_t one = 1;
    if (::write(doorbells_[vector], &one, sizeof(one)) != sizeof(one))
        fail("doorbell");
}

uint64_t FakePort::take_interrupts(unsigned vector) {
    pollfd p{.fd = interrupts_[vector], .events = POLLIN, .revents = 0};
    uint64_t count = 0;
    if (::poll(&p, 1, 0) == 1 && ::read(interrupts_[vector], &count, sizeof(count)) < 0)
        count = 0;
    return count;
}

// Waits on the vector's interrupt between two looks; an interrupt that should have
// come and did not is a failure, so nothing is polled blindly.
void FakePort::wait_until(const std::function<bool()>& done, unsigned vector, const char* what) {
    while (!done()) {
        pollfd p{.fd = interrupts_[vector], .events = POLLIN, .revents = 0};
        if (::poll(&p, 1, kWaitMs) != 1) {
            throw std::runtime_error(std::string("no interrupt while waiting for ") + what +
                                     (done() ? " (it happened, silently)" : ""));
        }
        take_interrupts(vector);
    }
}

uint32_t FakePort::status() const { return load(regs()->status); }

void FakePort::enable() {
    if (!admin_ring_) {
        admin_ring_ = alloc(sizeof(nupa_admin_cmd) * NUPA_ADMIN_ENTRIES);
        admin_comps_ = alloc(sizeof(nupa_admin_comp) * NUPA_ADMIN_ENTRIES);
    }
    admin_prod_ = 0;
    std::memset(admin_ctl(), 0, 64);
    admin_ctl()->ring_addr = admin_ring_;
    admin_ctl()->comp_addr = admin_comps_;
    uint32_t gen = regs()->control_gen + 1;
    store(regs()->control, static_cast<uint32_t>(NUPA_CONTROL_ENABLE));
    store(regs()->control_gen, gen);
    ring_doorbell(0);
    wait_until([&] { return load(regs()->reset_ack) == gen; }, 0, "enable");
}

void FakePort::disable() {
    uint32_t gen = regs()->control_gen + 1;
    store(regs()->control, 0u);
    store(regs()->control_gen, gen);
    ring_doorbell(0);
    wait_until([&] { return load(regs()->reset_ack) == gen; }, 0, "reset");
    tx_ = {};
    rx_ = {};
}

nupa_admin_comp FakePort::admin(const nupa_admin_cmd& cmd) {
    nupa_ring_ctl& ring = admin_ctl()->ring;
    uint32_t index = admin_prod_ % NUPA_ADMIN_ENTRIES;
    at<nupa_admin_cmd>(admin_ring_)[index] = cmd;
    uint32_t old = admin_prod_++;
    store(ring.irq_event, old);
    store(ring.prod, admin_prod_);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (nupa_need_event(load(ring.db_event), admin_prod_, old))
        ring_doorbell(0);
    wait_until([&] { return load(ring.cons) == admin_prod_; }, 0, "an admin completion");
    return at<nupa_admin_comp>(admin_comps_)[index];
}

nupa_admin_status FakePort::admin_status(const nupa_admin_cmd& cmd) {
    nupa_admin_comp comp = admin(cmd);
    if (comp.op != cmd.op || comp.id != cmd.id)
        throw std::runtime_error("admin completion mismatch");
    return static_cast<nupa_admin_status>(comp.status);
}

void FakePort::must(const nupa_admin_cmd& cmd) {
    if (nupa_admin_status status = admin_status(cmd); status != NUPA_OK)
        throw std::runtime_error("admin op " + std::to_string(cmd.op) + " failed with status " +
                                 std::to_string(status));
}

void FakePort::create_queues(unsigned q, const QueueShape& shape) {
    TxRing& tx = tx_[q];
    RxRing& rx = rx_[q];
    tx = {.ring = alloc(shape.tx_entries * sizeof(nupa_tx_entry)), .entries = shape.tx_entries};
    rx = {};
    rx.comp_entries = shape.comp_entries;
    rx.comps = alloc(shape.comp_entries * sizeof(nupa_rx_comp));
    rx.slots = alloc(static_cast<uint64_t>(shape.comp_entries) * NUPA_RX_SLOT_BYTES);
    rx.fill = make_fill(shape.fill_entries, shape.buf_bytes);
    if (shape.long_entries)
        rx.longs = make_fill(shape.long_entries, shape.long_buf_bytes);
    std::memset(txq(q), 0, 64);
    std::memset(rxq(q), 0, 64);

    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_TXQ_CREATE;
    cmd.id = q;
    cmd.queue.ring_addr = tx.ring;
    cmd.queue.entries = tx.entries;
    cmd.queue.flags = shape.tx_flags;
    must(cmd);
    cmd = {};
    cmd.op = NUPA_ADMIN_RXQ_CREATE;
    cmd.id = q;
    cmd.queue = {.ring_addr = rx.fill.ring,
                 .comp_addr = rx.comps,
                 .slot_addr = rx.slots,
                 .entries = rx.fill.entries,
                 .comp_entries = rx.comp_entries,
                 .buf_bytes = rx.fill.buf_bytes,
                 .flags = shape.flags,
                 .long_ring_addr = rx.longs.ring,
                 .long_entries = rx.longs.entries,
                 .long_buf_bytes = rx.longs.buf_bytes};
    must(cmd);
    refill(q, rx.fill.entries);
    refill_long(q, shape.longs ? shape.longs : rx.longs.entries);
}

FakePort::Fill FakePort::make_fill(uint32_t entries, uint32_t buf_bytes) {
    return {.ring = alloc(entries * sizeof(nupa_rx_fill)),
            .bufs = alloc(static_cast<uint64_t>(entries) * buf_bytes),
            .entries = entries,
            .buf_bytes = buf_bytes};
}

void FakePort::put_buffers(Fill& fill, uint32_t count, uint32_t& shown) {
    for (uint32_t i = 0; i < count; i++, fill.prod++) {
        uint32_t slot = fill.prod % fill.entries;
        at<nupa_rx_fill>(fill.ring)[slot].addr =
            fill.bufs + static_cast<uint64_t>(slot) * fill.buf_bytes;
    }
    store(shown, fill.prod);
}

void FakePort::refill(unsigned q, uint32_t count) {
    put_buffers(rx_[q].fill, count, rxq(q)->fill_prod);
}

void FakePort::refill_long(unsigned q, uint32_t count) {
    put_buffers(rx_[q].longs, count, rxq(q)->long_prod);
}

void FakePort::set_rx_mode(uint32_t flags, const std::array<uint8_t, 6>& mac, uint32_t mtu,
                           uint16_t hold_us, uint32_t run4_max_bytes) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_RX_MODE;
    cmd.rx_mode.flags = flags;
    cmd.rx_mode.mtu = mtu;
    cmd.rx_mode.hold_us = hold_us;
    cmd.rx_mode.run4_max_bytes = run4_max_bytes;
    std::memcpy(cmd.rx_mode.mac, mac.data(), mac.size());
    must(cmd);
}

std::vector<uint64_t> FakePort::stats(uint16_t op, uint32_t id, uint32_t count) {
    nupa_admin_cmd cmd{};
    cmd.op = op;
    cmd.id = id;
    cmd.stats.addr = alloc(count * 8, 64);
    cmd.stats.count = count;
    must(cmd);
    const auto* values = at<uint64_t>(cmd.stats.addr);
    return {values, values + count};
}

std::vector<uint64_t> FakePort::stats() { return stats(NUPA_ADMIN_STATS, 0, NUPA_STAT_COUNT); }

std::vector<uint64_t> FakePort::qp_stats(uint32_t qpn) {
    return stats(NUPA_ADMIN_QP_STATS, qpn, NUPA_QP_STAT_COUNT);
}

std::array<uint8_t, 6> FakePort::mac() const {
    std::array<uint8_t, 6> mac;
    std::memcpy(mac.data(), regs()->mac, mac.size());
    return mac;
}

}  // namespace nupa::testing
