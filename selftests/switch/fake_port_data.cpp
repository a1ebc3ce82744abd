// SPDX-License-Identifier: BSD-3-Clause
// FakePort: transmit and receive rings.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fake_port.hpp"
#include "shared_memory.hpp"

namespace nupa::testing {
namespace {

// Where each buffer of a frame begins and how long it is.
std::vector<std::pair<size_t, size_t>> split(size_t bytes, const TxOptions& options) {
    std::vector<std::pair<size_t, size_t>> parts;
    size_t head = options.split_at ? std::min(options.split_at, bytes) : bytes;
    parts.emplace_back(0, head);
    for (size_t at = head; at < bytes;) {
        size_t n = options.buf_bytes ? std::min(options.buf_bytes, bytes - at) : bytes - at;
        parts.emplace_back(at, n);
        at += n;
    }
    return parts;
}

}  // namespace

void FakePort::stage(unsigned q, const Bytes& frame, const TxOptions& options) {
    TxRing& tx = tx_[q];
    auto parts = split(frame.size(), options);
    if (tx.prod + 1 + parts.size() - load(txq(q)->cons) > tx.entries)
        throw std::runtime_error("fake port: transmit ring full");
    auto* ring = at<nupa_tx_entry>(tx.ring);
    nupa_tx_entry& ctx = ring[tx.prod++ % tx.entries];
    ctx = {};
    ctx.ctx.flags = options.flags;
    ctx.ctx.bufs = static_cast<uint16_t>(parts.size());
    ctx.ctx.bytes = static_cast<uint32_t>(frame.size());
    ctx.ctx.mss = options.mss;
    ctx.ctx.header_bytes = options.header_bytes;
    ctx.ctx.csum_start = options.csum_start;
    ctx.ctx.csum_offset = options.csum_offset;
    for (auto [at, bytes] : parts) {
        uint64_t gpa = alloc(bytes, 64);
        std::memcpy(ram(gpa), frame.data() + at, bytes);
        nupa_tx_entry& buf = ring[tx.prod++ % tx.entries];
        buf = {};
        buf.buf.addr = gpa;
        buf.buf.bytes = static_cast<uint32_t>(bytes);
    }
}

void FakePort::publish(unsigned q) {
    TxRing& tx = tx_[q];
    store(txq(q)->irq_event, tx.prod - 1);
    store(txq(q)->prod, tx.prod);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (nupa_need_event(load(txq(q)->db_event), tx.prod, tx.published))
        ring_doorbell(1 + q);
    tx.published = tx.prod;
}

void FakePort::send(unsigned q, const Bytes& frame, const TxOptions& options) {
    stage(q, frame, options);
    publish(q);
}

void FakePort::wait_sent(unsigned q) {
    wait_until([&] { return load(txq(q)->cons) == tx_[q].published; }, 1 + q,
               "a transmit completion");
}

void FakePort::take_buffers(Fill& fill, uint32_t count, size_t& left, Bytes& payload) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t gpa = at<nupa_rx_fill>(fill.ring)[fill.next++ % fill.entries].addr;
        size_t n = std::min<size_t>(left, fill.buf_bytes);
        payload.insert(payload.end(), ram(gpa), ram(gpa) + n);
        left -= n;
    }
}

std::optional<RxPacket> FakePort::try_receive(unsigned q) {
    RxRing& rx = rx_[q];
    if (load(rxq(q)->comp_prod) == rx.comp_cons)
        return std::nullopt;
    uint32_t slot = rx.comp_cons % rx.comp_entries;
    RxPacket packet;
    packet.comp = at<nupa_rx_comp>(rx.comps)[slot];
    const uint8_t* header = ram(rx.slots + static_cast<uint64_t>(slot) * NUPA_RX_SLOT_BYTES);
    packet.header.assign(header, header + packet.comp.header_bytes);
    size_t left = packet.comp.flags & NUPA_RX_F_PLACED ? 0 : packet.comp.payload_bytes;
    if (!nupa_rx_bufs_right(static_cast<uint32_t>(left), packet.comp.long_bufs, rx.longs.buf_bytes,
                            packet.comp.bufs, rx.fill.buf_bytes))
        throw std::runtime_error("fake port: completion names other buffers than its payload's");
    take_buffers(rx.longs, packet.comp.long_bufs, left, packet.payload);
    take_buffers(rx.fill, packet.comp.bufs, left, packet.payload);
    rx.comp_cons++;
    refill(q, packet.comp.bufs);
    refill_long(q, packet.comp.long_bufs);
    store(rxq(q)->comp_cons, rx.comp_cons);
    return packet;
}

RxPacket FakePort::receive(unsigned q) {
    std::optional<RxPacket> packet;
    auto look = [&] {
        if ((packet = try_receive(q)))
            return true;
        store(rxq(q)->irq_event, rx_[q].comp_cons);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return static_cast<bool>(packet = try_receive(q));
    };
    wait_until(look, 1 + q, "a received packet");
    return *packet;
}

}  // namespace nupa::testing
