// SPDX-License-Identifier: BSD-3-Clause
// A pretended host: RAM in two regions as q35 splits it, memory regions, a
// receive queue in the rxe user ABI.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tcp_qp/nupa_hw.h>
#include "engine/host_memory.hpp"
#include "engine/rq.hpp"
#include "guest_ram.hpp"

namespace test {

inline constexpr std::uint64_t kHighRam = 1ull << 32;
inline constexpr std::uint64_t kPage = 4096;

class Guest {
public:
    explicit Guest(std::size_t low_bytes = 8 << 20, std::size_t high_bytes = 8 << 20)
        : low_(low_bytes), high_(high_bytes) {
        if (!memory.add(0, low_.bytes()) || !memory.add(kHighRam, high_.bytes()))
            throw std::logic_error("guest memory");
    }

    // Addresses in low (default) or high memory; never 0.
    std::uint64_t alloc(std::uint64_t bytes, std::uint64_t align = kPage, bool high = false) {
        std::uint64_t& next = high ? next_high_ : next_low_;
        next = (next + align - 1) / align * align;
        const std::uint64_t at = next;
        next += bytes;
        const std::uint64_t addr = high ? kHighRam + at : at;
        if (!memory.at(addr, bytes))
            throw std::logic_error("guest out of memory");
        return addr;
    }

    std::byte* ptr(std::uint64_t addr, std::uint64_t bytes = 1) {
        std::byte* p = memory.at(addr, bytes);
        if (!p)
            throw std::logic_error("guest address");
        return p;
    }

    template <class T>
    void put(std::uint64_t addr, T value) {
        std::memcpy(ptr(addr, sizeof value), &value, sizeof value);
    }

    // A table of page addresses; the pages are given.
    std::uint64_t table(const std::vector<std::uint64_t>& pages) {
        const std::uint64_t at = alloc(pages.size() * 8, 8);
        for (std::size_t i = 0; i < pages.size(); i++)
            put<std::uint64_t>(at + 8 * i, pages[i]);
        return at;
    }

    nupa::HostMemory memory;

private:
    GuestRam low_, high_;
    std::uint64_t next_low_ = kPage, next_high_ = 0;
};

// A memory region whose pages are scattered over both halves of RAM.
struct Region {
    std::uint64_t iova = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> pages;
    nupa_cmd_mr cmd{};

    Region() = default;
    Region(Guest& guest, std::uint64_t at, std::uint64_t size, std::uint32_t pd,
           std::uint32_t access = NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE)
        : iova(at), bytes(size) {
        const std::uint64_t first = at / kPage, last = (at + size - 1) / kPage;
        for (std::uint64_t i = first; i <= last; i++)
            pages.push_back(guest.alloc(kPage, kPage, (i & 1) != 0));
        cmd.iova = at;
        cmd.bytes = size;
        cmd.table_addr = guest.table(pages);
        cmd.pages = static_cast<std::uint32_t>(pages.size());
        cmd.pd = pd;
        cmd.access = access;
        cmd.page_shift = 12;
    }

    std::byte* at(Guest& guest, std::uint64_t addr) const {
        return guest.ptr(pages[addr / kPage - iova / kPage] + addr % kPage);
    }
    std::vector<std::byte> read(Guest& guest, std::uint64_t addr, std::uint64_t n) const {
        std::vector<std::byte> out(n);
        for (std::uint64_t done = 0, run; done < n; done += run) {
            run = std::min(n - done, kPage - (addr + done) % kPage);
            std::memcpy(out.data() + done, at(guest, addr + done), run);
        }
        return out;
    }
};

// The application's receive ring and the kernel's shadow of it.
class RecvRing {
public:
    static constexpr std::uint32_t kElementsAt = 384, kProducerAt = 128;

    RecvRing() = default;
    RecvRing(Guest& guest, std::uint32_t entries, std::uint32_t sge_max, std::uint32_t base = 0)
        : guest_(&guest), mask_(entries - 1), base_(base) {
        while ((1u << log2_) < 40 + 16 * sge_max)
            log2_++;
        const std::uint64_t bytes = kElementsAt + (std::uint64_t{entries} << log2_);
        for (std::uint64_t i = 0; i < (bytes + kPage - 1) / kPage; i++)
            pages_.push_back(guest.alloc(kPage, kPage, (i & 1) != 0));
        shadow_ = guest.alloc(sizeof(nupa_qp_shadow), 64);
        set_producer(base & mask_);
        cmd.rq_log2_bytes = static_cast<std::uint8_t>(log2_);
        cmd.rq_sge_max = static_cast<std::uint16_t>(sge_max);
        cmd.rq_mask = mask_;
        cmd.rq_base = base;
        cmd.rq_pages = static_cast<std::uint32_t>(pages_.size());
        cmd.rq_table_addr = guest.table(pages_);
        cmd.shadow_addr = shadow_;
    }

    std::byte* at(std::uint64_t offset) {
        return guest_->ptr(pages_[offset / kPage] + offset % kPage);
    }
    void put32(std::uint64_t offset, std::uint32_t v) {
        for (unsigned i = 0; i < 4; i++)
            *at(offset + i) = static_cast<std::byte>(v >> (8 * i));
    }

    // A WQE for @msn, whether posted or not.
    void write(std::uint16_t msn, const std::vector<nupa::RecvSge>& sges) {
        const std::uint64_t e = kElementsAt + (std::uint64_t{(base_ + msn) & mask_} << log2_);
        put32(e + 28, static_cast<std::uint32_t>(sges.size()));
        for (std::size_t i = 0; i < sges.size(); i++) {
            put32(e + 40 + 16 * i, static_cast<std::uint32_t>(sges[i].addr));
            put32(e + 44 + 16 * i, static_cast<std::uint32_t>(sges[i].addr >> 32));
            put32(e + 48 + 16 * i, sges[i].length);
            put32(e + 52 + 16 * i, sges[i].lkey);
        }
    }
    void set_num_sge(std::uint16_t msn, std::uint32_t n) {
        put32(kElementsAt + (std::uint64_t{(base_ + msn) & mask_} << log2_) + 28, n);
    }
    // The next receive in order.
    std::uint16_t post(const std::vector<nupa::RecvSge>& sges) {
        write(next_msn_, sges);
        set_producer((producer_ + 1) & mask_);
        return next_msn_++;
    }
    void start_at(std::uint16_t msn) {  // as if all before had been posted and completed
        next_msn_ = msn;
        complete(msn);
        set_producer((base_ + msn) & mask_);
    }
    void complete(std::uint32_t count) {
        completed_ = count;
        guest_->put<std::uint32_t>(shadow_, count);
    }
    std::uint32_t completed() const { return completed_; }
    // The host asked for [va, va + length) of its memory to be filled by response @msn.
    void want_read(std::uint16_t msn, std::uint64_t va, std::uint32_t key, std::uint32_t length) {
        put_read(msn, {va, key, length, NUPA_READ_VALID | std::uint32_t{msn}, {}});
    }
    void end_read(std::uint16_t msn) { put_read(msn, {}); }
    // The host has copied all it was given before @seq.
    void consume(std::uint32_t seq) {
        guest_->put<std::uint32_t>(shadow_ + offsetof(nupa_qp_shadow, consumed), seq);
    }
    void set_producer(std::uint32_t index) {
        producer_ = index;
        put32(kProducerAt, index);
    }
    void put_read(std::uint16_t msn, const nupa_qp_read& read) {
        if (!reads_) {
            reads_ = guest_->alloc(sizeof(nupa_qp_reads), 64);
            set_reads_addr(reads_);
        }
        guest_->put(reads_ + msn % NUPA_READS_MAX * sizeof(nupa_qp_read), read);
    }
    void set_reads_addr(std::uint64_t addr) {
        guest_->put<std::uint64_t>(shadow_ + offsetof(nupa_qp_shadow, reads_addr), addr);
    }
    std::uint32_t mask() const { return mask_; }

    nupa_cmd_qp cmd{};  // the rq_* fields and shadow_addr

private:
    Guest* guest_ = nullptr;
    std::uint32_t mask_ = 0, base_ = 0, log2_ = 6;
    std::uint32_t producer_ = 0, completed_ = 0;
    std::uint16_t next_msn_ = 0;
    std::uint64_t shadow_ = 0, reads_ = 0;
    std::vector<std::uint64_t> pages_;
};

}  // namespace test
