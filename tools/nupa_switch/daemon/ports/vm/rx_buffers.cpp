// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/rx_buffers.hpp"

#include <algorithm>
#include <cstring>

#include "engine/endian.hpp"
#include "ivshmem/shared_field.hpp"
#include "ports/vm/tx_queue.hpp"

namespace nupa::daemon {
namespace {

constexpr uint32_t kBufsMax = NUPA_RX_BUFS_PER_PACKET_MAX;

constexpr uint32_t buffers_for(uint32_t bytes, uint32_t buf_bytes) noexcept {
    return (bytes + buf_bytes - 1) / buf_bytes;
}

}  // namespace

FillRing::FillRing(const HostMemory& memory, const std::byte* ring, uint32_t entries,
                   uint32_t buf_bytes, uint32_t& prod, uint32_t& cons) noexcept
    : memory_(&memory),
      ring_(ring),
      host_prod_(&prod),
      shown_cons_(&cons),
      entries_(entries),
      buf_bytes_(buf_bytes) {
    store_release(*shown_cons_, 0u);
}

// A host that takes buffers back leaves those that are held in use: it harms itself alone.
uint32_t FillRing::unheld(uint32_t wanted) noexcept {
    if (!entries_)
        return 0;
    if (seen_ - cons_ < held_ + wanted) {
        seen_ = load_acquire(*host_prod_);
        broken_ = seen_ - cons_ > entries_;
    }
    return seen_ - cons_ > held_ ? seen_ - cons_ - held_ : 0;
}

std::byte* FillRing::next() noexcept {
    const auto fill =
        copy_once<nupa_rx_fill>(ring_ + (cons_ & (entries_ - 1)) * sizeof(nupa_rx_fill));
    cons_++;
    return memory_->at(fill.addr, buf_bytes_);
}

void FillRing::publish() noexcept {
    if (entries_)
        store_release(*shown_cons_, cons_);
}

nupa_admin_status RxBuffers::check(const HostMemory& memory, const nupa_cmd_queue& cmd) noexcept {
    if (!valid_ring_entries(cmd.entries) || cmd.buf_bytes < NUPA_RX_BUF_MIN_BYTES ||
        cmd.buf_bytes > NUPA_RX_BUF_MAX_BYTES)
        return NUPA_E_INVALID;
    if (cmd.long_entries
            ? !valid_ring_entries(cmd.long_entries) || cmd.long_buf_bytes <= cmd.buf_bytes ||
                  cmd.long_buf_bytes > NUPA_RX_BUF_MAX_BYTES
            : cmd.long_ring_addr || cmd.long_buf_bytes)
        return NUPA_E_INVALID;
    if (!memory.at(cmd.ring_addr, uint64_t{cmd.entries} * sizeof(nupa_rx_fill)) ||
        (cmd.long_entries &&
         !memory.at(cmd.long_ring_addr, uint64_t{cmd.long_entries} * sizeof(nupa_rx_fill))))
        return NUPA_E_ADDRESS;
    return NUPA_OK;
}

RxBuffers::RxBuffers(const HostMemory& memory, nupa_rxq_ctl& ctl,
                     const nupa_cmd_queue& cmd) noexcept
    : short_(memory, memory.at(cmd.ring_addr, uint64_t{cmd.entries} * sizeof(nupa_rx_fill)),
             cmd.entries, cmd.buf_bytes, ctl.fill_prod, ctl.fill_cons) {
    if (cmd.long_entries)
        long_ = FillRing(
            memory,
            memory.at(cmd.long_ring_addr, uint64_t{cmd.long_entries} * sizeof(nupa_rx_fill)),
            cmd.long_entries, cmd.long_buf_bytes, ctl.long_prod, ctl.long_cons);
}

uint32_t RxBuffers::buf_bytes() const noexcept {
    return std::max(short_.buf_bytes(), long_.buf_bytes());
}

// Where buffers run short as much is taken as there is room for: segment by segment.
uint32_t RxBuffers::span(uint32_t bytes, uint32_t span, uint32_t mss) noexcept {
    const auto shorts_there = [&](uint32_t of_runs) noexcept {
        const uint32_t bufs = (bytes / of_runs + 1) * kBufsMax;
        return short_.unheld(bufs) >= bufs;
    };
    if (const uint32_t long_bytes = long_.buf_bytes()) {
        const uint32_t bufs = bytes / long_bytes + bytes / span + 1;
        if (long_.unheld(bufs) >= bufs && shorts_there(span))
            return span;
        span = std::min(span, kBufsMax * short_.buf_bytes() / mss * mss);
    }
    return span && shorts_there(span) ? span : 0;
}

// What is best, or else as many long buffers as there are and short ones for the rest.
std::optional<BufferCount> RxBuffers::choose(uint32_t bytes) noexcept {
    BufferCount n = best_buffers(bytes, short_.buf_bytes(), long_.buf_bytes());
    if (const uint32_t longs = n.longs ? long_.unheld(n.longs) : 0; longs < n.longs) {
        n.longs = std::min(longs, bytes / long_.buf_bytes());
        n.shorts = buffers_for(bytes - n.longs * long_.buf_bytes(), short_.buf_bytes());
    }
    if (n.all() > kBufsMax || (n.shorts && short_.unheld(n.shorts) < n.shorts))
        return std::nullopt;
    return n;
}

RxBuffers::Room RxBuffers::hold(BufferCount& held, uint32_t bytes) noexcept {
    if (bytes <= held.longs * long_.buf_bytes() + held.shorts * short_.buf_bytes())
        return Room::kThere;
    BufferCount was = held;
    let_go(held);
    const std::optional<BufferCount> chosen = choose(bytes);
    held = chosen.value_or(was);
    long_.hold(held.longs);
    short_.hold(held.shorts);
    if (long_.broken() || short_.broken())
        return Room::kBroken;
    return chosen ? Room::kThere : Room::kNone;
}

void RxBuffers::let_go(BufferCount& held) noexcept {
    long_.let_go(held.longs);
    short_.let_go(held.shorts);
    held = {};
}

void RxBuffers::publish() noexcept {
    short_.publish();
    long_.publish();
}

bool RxBuffers::Writer::next() noexcept {
    FillRing& ring = left_.longs ? buffers_.long_ : buffers_.short_;
    (left_.longs ? left_.longs : left_.shorts)--;
    to_ = ring.next();
    room_ = ring.buf_bytes();
    return to_ != nullptr;
}

bool RxBuffers::Writer::write(Bytes piece) noexcept {
    while (!piece.empty()) {
        if (!room_ && !next())
            return false;
        const size_t n = std::min<size_t>(piece.size(), room_);
        std::memcpy(to_, piece.data(), n);
        to_ += n;
        room_ -= static_cast<uint32_t>(n);
        piece = piece.subspan(n);
    }
    return true;
}

}  // namespace nupa::daemon
