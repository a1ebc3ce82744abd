// SPDX-License-Identifier: BSD-3-Clause
#include "rq.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "endian.hpp"
#include "ring_pages.hpp"

namespace nupa {

namespace {

constexpr std::size_t kNumSgeAt = offsetof(rxe_recv_wqe, dma) + offsetof(rxe_dma_info, num_sge);
// Not offsetof(rxe_dma_info, sge): the empty struct in its flexible array is a byte in C++, none in
// C.
constexpr std::size_t kWqeHeadBytes = 40;
static_assert(kNumSgeAt == 28);
static_assert(offsetof(rxe_recv_wqe, dma) + offsetof(rxe_dma_info, reserved) + sizeof(__u32) ==
              kWqeHeadBytes);
static_assert(offsetof(rxe_recv_wqe, wr_id) == 0);
static_assert(sizeof(rxe_sge) == sizeof(RecvSge));

bool sane(const nupa_cmd_qp& cmd) noexcept {
    if (cmd.rq_mask == 0 || cmd.rq_mask > kRqMaskMax || (cmd.rq_mask & (cmd.rq_mask + 1)) != 0 ||
        cmd.rq_log2_bytes < kRqLog2Min || cmd.rq_log2_bytes > kRqLog2Max ||
        cmd.rq_sge_max > NUPA_SGE_MAX)
        return false;
    const std::size_t element = std::size_t{1} << cmd.rq_log2_bytes;
    if (kWqeHeadBytes + cmd.rq_sge_max * sizeof(RecvSge) > element)
        return false;
    const std::size_t bytes = kRingElementsAt + (std::size_t{cmd.rq_mask} + 1) * element;
    return cmd.rq_pages <= NUPA_RQ_PAGES_MAX && bytes <= std::size_t{cmd.rq_pages} * kRingPageBytes;
}

}  // namespace

nupa_admin_status ReceiveQueue::init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept
    try {
    pages_.clear();
    if (cmd.flags & (NUPA_QP_F_NO_RQ | NUPA_QP_F_STREAM))
        return NUPA_OK;
    if (!sane(cmd) || cmd.shadow_addr % alignof(nupa_qp_shadow) != 0)
        return NUPA_E_INVALID;
    shadow_ = memory.at(cmd.shadow_addr, sizeof(nupa_qp_shadow));
    if (!shadow_)
        return NUPA_E_ADDRESS;
    std::vector<std::byte*> pages;
    if (const auto status = ring_pages(memory, cmd.rq_table_addr, cmd.rq_pages, pages);
        status != NUPA_OK)
        return status;
    mask_ = cmd.rq_mask;
    base_ = cmd.rq_base;
    sge_max_ = cmd.rq_sge_max;
    log2_bytes_ = cmd.rq_log2_bytes;
    pages_ = std::move(pages);
    return NUPA_OK;
} catch (const std::bad_alloc&) {
    return NUPA_E_NOSPACE;
}

bool ReceiveQueue::posted(std::uint16_t msn) const noexcept {
    if (pages_.empty())
        return false;
    const std::uint32_t completed = load_acquire32(shadow_);  // before the producer index
    const std::uint32_t producer = load_acquire32(pages_[0] + kRingProducerAt);
    const std::uint16_t ahead = static_cast<std::uint16_t>(msn - completed);
    return ahead < ((producer - base_ - completed) & mask_);
}

std::size_t ReceiveQueue::element(std::uint16_t msn) const noexcept {
    return kRingElementsAt + (static_cast<std::size_t>((base_ + msn) & mask_) << log2_bytes_);
}

bool ReceiveQueue::read(std::uint16_t msn, RecvWqe& wqe) const noexcept {
    const std::size_t at = element(msn);
    std::uint32_t num_sge;
    copy(at + kNumSgeAt, &num_sge, sizeof num_sge);
    if (num_sge > sge_max_)
        return false;
    wqe.num_sge = num_sge;
    copy(at + kWqeHeadBytes, wqe.sge.data(), num_sge * sizeof(RecvSge));
    return true;
}

std::uint64_t ReceiveQueue::wr_id(std::uint16_t msn) const noexcept {
    std::uint64_t id;
    copy(element(msn), &id, sizeof id);
    return id;
}

void ReceiveQueue::consumed(std::uint32_t completed) const noexcept {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(pages_[0] + kRingConsumerAt),
                     (base_ + completed) & mask_, __ATOMIC_RELEASE);
}

// An element may cross a page.
void ReceiveQueue::copy(std::size_t offset, void* to, std::size_t bytes) const noexcept {
    auto* out = static_cast<std::byte*>(to);
    while (bytes) {
        const std::size_t in_page = offset % kRingPageBytes;
        const std::size_t n = std::min(bytes, kRingPageBytes - in_page);
        std::memcpy(out, pages_[offset / kRingPageBytes] + in_page, n);
        out += n, offset += n, bytes -= n;
    }
    __asm__ volatile("" ::: "memory");  // never read again: the application may write it meanwhile
}

}  // namespace nupa
