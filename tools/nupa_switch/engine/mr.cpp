// SPDX-License-Identifier: BSD-3-Clause
#include "mr.hpp"

#include <algorithm>
#include <new>

#include "endian.hpp"

namespace nupa {

namespace {

constexpr std::size_t kRegionIndexBytes = 16;

constexpr std::uint32_t kAccessKnown = NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE |
                                       NUPA_ACCESS_REMOTE_READ | NUPA_ACCESS_REMOTE_ATOMIC;

// Every field that can be judged without looking at memory.
bool sane(const nupa_cmd_mr& cmd) noexcept {
    if (cmd.bytes == 0 || cmd.iova + (cmd.bytes - 1) < cmd.iova || cmd.access & ~kAccessKnown ||
        cmd.page_shift < kMrPageShiftMin || cmd.page_shift > kMrPageShiftMax || cmd.reserved[0] ||
        cmd.reserved[1] || cmd.reserved[2])
        return false;
    const std::uint64_t first = cmd.iova >> cmd.page_shift;
    const std::uint64_t last = (cmd.iova + (cmd.bytes - 1)) >> cmd.page_shift;
    return cmd.pages <= NUPA_MR_PAGES_MAX && last - first == std::uint64_t{cmd.pages} - 1;
}

}  // namespace

Reason Mr::check(std::uint32_t pd, std::uint64_t addr, std::uint64_t bytes,
                 std::uint32_t access) const noexcept {
    if (pd != pd_ || (access_ & access) != access)
        return Reason::kAccess;
    const std::uint64_t offset = addr - iova_;
    if (addr < iova_ || offset >= bytes_ || bytes > bytes_ - offset)
        return Reason::kBounds;
    return Reason::kPlaced;
}

std::span<std::byte> Mr::run(std::uint64_t addr, std::uint64_t bytes) const noexcept {
    const std::uint64_t page_bytes = std::uint64_t{1} << page_shift_;
    const std::uint64_t unused = iova_ & (page_bytes - 1);  // of the first page, before the region
    std::size_t page = static_cast<std::size_t>((addr >> page_shift_) - (iova_ >> page_shift_));
    const std::uint64_t in_page = (addr & (page_bytes - 1)) - (page == 0 ? unused : 0);
    std::byte* begin = pages_[page] + in_page;
    std::uint64_t page_end = page_bytes - (page == 0 ? unused : 0);
    std::uint64_t run = page_end - in_page;
    while (run < bytes && pages_[page + 1] == pages_[page] + page_end) {
        page++;
        page_end = page_bytes;
        run += page_bytes;
    }
    return {begin, static_cast<std::size_t>(std::min(run, bytes))};
}

nupa_admin_status Mr::init(std::uint32_t key, const nupa_cmd_mr& cmd) noexcept try {
    key_ = key;
    iova_ = cmd.iova;
    bytes_ = cmd.bytes;
    pd_ = cmd.pd;
    access_ = cmd.access;
    page_shift_ = cmd.page_shift;
    pages_.reserve(cmd.pages);
    return NUPA_OK;
} catch (const std::bad_alloc&) {
    return NUPA_E_NOSPACE;
}

// The next page; there is room for all.
nupa_admin_status Mr::add(const HostMemory& memory, std::uint64_t page) noexcept {
    const std::uint64_t page_bytes = std::uint64_t{1} << page_shift_;
    const std::uint64_t unused = iova_ & (page_bytes - 1);  // of the first page
    const std::uint64_t before = pages_.size() * page_bytes;
    const std::uint64_t begin = pages_.empty() ? unused : 0;
    const std::uint64_t end = std::min(page_bytes, unused + bytes_ - before);
    if (page & (page_bytes - 1))
        return NUPA_E_INVALID;
    // The unused rest of the first and last page need not be memory.
    std::byte* at = memory.at(page + begin, end - begin);
    if (!at)
        at = add_leased(memory, page + begin, end - begin);
    if (!at)
        return NUPA_E_ADDRESS;
    pages_.push_back(at);
    return NUPA_OK;
}

// A region keeps pointers, so its lease must stay: it is in one lease, which it pins once.
std::byte* Mr::add_leased(const HostMemory& memory, std::uint64_t addr,
                          std::uint64_t bytes) noexcept {
    const auto leased = memory.leased_at(addr, bytes);
    if (!leased || (window_ && lease_ != leased->lease))
        return nullptr;
    if (!window_)
        leased->window->pin(leased->lease);
    window_ = leased->window;
    lease_ = leased->lease;
    return leased->at;
}

void Mr::unpin() const noexcept {
    if (window_)
        window_->unpin(lease_);
}

// Of the switch's memory: what its table was made for, and its place in the index.
std::size_t Mr::footprint() const noexcept {
    return sizeof(Mr) + pages_.capacity() * sizeof(pages_[0]) + kRegionIndexBytes;
}

nupa_admin_status MrTable::reg(const HostMemory& memory, std::uint32_t key,
                               const nupa_cmd_mr& cmd) noexcept {
    if (const nupa_admin_status status = begin(memory, key, cmd); status != NUPA_OK)
        return status;
    return go_on(memory, cmd.pages).value_or(NUPA_E_INVALID);
}

nupa_admin_status MrTable::begin(const HostMemory& memory, std::uint32_t key,
                                 const nupa_cmd_mr& cmd) noexcept {
    if (!sane(cmd) || under_way_)
        return NUPA_E_INVALID;
    if (find(key))
        return NUPA_E_EXISTS;
    if (size() >= max_)
        return NUPA_E_NOSPACE;
    const std::byte* table =
        memory.at(cmd.table_addr, std::uint64_t{cmd.pages} * sizeof(std::uint64_t));
    if (!table)
        return NUPA_E_ADDRESS;
    const std::size_t footprint = sizeof(Mr) + cmd.pages * sizeof(std::byte*) + kRegionIndexBytes;
    if (!budget_.take(footprint))
        return NUPA_E_QUOTA;
    try {
        keys_.make_room();
        mrs_.reserve();
    } catch (const std::bad_alloc&) {
        budget_.give_back(footprint);
        return NUPA_E_NOSPACE;
    }
    const std::uint32_t n = mrs_.take();
    if (const nupa_admin_status status = mrs_[n].init(key, cmd); status != NUPA_OK) {
        mrs_.give_back(n);
        budget_.give_back(footprint);
        return status;
    }
    under_way_ = {n, table, cmd.pages, 0};
    return NUPA_OK;
}

std::optional<nupa_admin_status> MrTable::go_on(const HostMemory& memory,
                                                std::uint32_t pages_max) noexcept {
    Registration& r = *under_way_;
    Mr& mr = mrs_[r.number];
    const std::uint32_t end = r.done + std::min(pages_max, r.pages - r.done);
    for (; r.done < end; r.done++) {
        const auto page = copy_once<std::uint64_t>(r.table + r.done * sizeof(std::uint64_t));
        if (const nupa_admin_status status = mr.add(memory, page); status != NUPA_OK) {
            drop(r.number);
            under_way_.reset();
            return status;
        }
    }
    if (r.done < r.pages)
        return std::nullopt;
    keys_.insert(hash_number(mr.key_, seed_), r.number);
    under_way_.reset();
    return NUPA_OK;
}

void MrTable::drop(std::uint32_t number) noexcept {
    mrs_[number].unpin();
    budget_.give_back(mrs_[number].footprint());
    mrs_.give_back(number);
}

nupa_admin_status MrTable::dereg(std::uint32_t key) noexcept {
    const std::uint32_t n = number(key);
    if (n == HashIndex::kNone)
        return NUPA_E_NOENT;
    keys_.erase(hash_number(key, seed_), n);
    last_ = nullptr;
    drop(n);
    return NUPA_OK;
}

void MrTable::clear() noexcept {
    under_way_.reset();
    keys_.clear();
    mrs_.clear();
    last_ = nullptr;
}

}  // namespace nupa
