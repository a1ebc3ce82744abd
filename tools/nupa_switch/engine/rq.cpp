// SPDX-License-Identifier: BSD-3-Clause
#include "rq.hpp"

#include <rdma/rdma_user_rxe.h>
#include <algorithm>
#include <cstring>
#include <new>

#include "endian.hpp"

namespace nupa {

namespace {

constexpr std::size_t kElementsAt = offsetof(rxe_queue_buf, data);
constexpr std::size_t kProducerAt = offsetof(rxe_queue_buf, producer_index);
constexpr std::size_t kConsumerAt = offsetof(rxe_queue_buf, consumer_index);
constexpr std::size_t kNumSgeAt = offsetof(rxe_recv_wqe, dma) + offsetof(rxe_dma_info, num_sge);
// Not offsetof(rxe_dma_info, sge): the empty struct in its flexible array is a byte in C++, none in
// C.
constexpr std::size_t kWqeHeadBytes = 40;
static_assert(kElementsAt == 384 && kProducerAt == 128 && kConsumerAt == 256 && kNumSgeAt == 28);
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
    const std::size_t bytes = kElementsAt + (std::size_t{cmd.rq_mask} + 1) * element;
    return cmd.rq_pages <= NUPA_RQ_PAGES_MAX && bytes <= std::size_t{cmd.rq_pages} * kRqPageBytes;
}

}  // namespace

nupa_admin_status ReceiveQueue::init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept
    try {
    pages_.clear();
    if (cmd.flags & (NUPA_QP_F_NO_RQ | NUPA_QP_F_STREAM))
        return NUPA_OK;
    if (!sane(cmd) || cmd.shadow_addr % alignof(nupa_qp_shadow) != 0)
        return NUPA_E_INVALID;
    const std::byte* table =
        memory.at(cmd.rq_table_addr, std::uint64_t{cmd.rq_pages} * sizeof(std::uint64_t));
    shadow_ = memory.at(cmd.shadow_addr, sizeof(nupa_qp_shadow));
    if (!table || !shadow_)
        return NUPA_E_ADDRESS;
    std::vector<std::byte*> pages;
    pages.reserve(cmd.rq_pages);
    for (std::uint32_t i = 0; i < cmd.rq_pages; i++) {
        const auto page = copy_once<std::uint64_t>(table + i * sizeof(std::uint64_t));
        if (page % kRqPageBytes)
            return NUPA_E_INVALID;
        std::byte* at = memory.at(page, kRqPageBytes);
        if (!at)
            return NUPA_E_ADDRESS;
        pages.push_back(at);
    }
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
    const std::uint32_t producer = load_acquire32(pages_[0] + kProducerAt);
    const std::uint16_t ahead = static_cast<std::uint16_t>(msn - completed);
    return ahead < ((producer - base_ - completed) & mask_);
}

bool ReceiveQueue::read(std::uint16_t msn, RecvWqe& wqe) const noexcept {
    const std::size_t at =
        kElementsAt + (static_cast<std::size_t>((base_ + msn) & mask_) << log2_bytes_);
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
    copy(kElementsAt + (static_cast<std::size_t>((base_ + msn) & mask_) << log2_bytes_), &id,
         sizeof id);
    return id;
}

void ReceiveQueue::consumed(std::uint32_t completed) const noexcept {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(pages_[0] + kConsumerAt),
                     (base_ + completed) & mask_, __ATOMIC_RELEASE);
}

// An element may cross a page.
void ReceiveQueue::copy(std::size_t offset, void* to, std::size_t bytes) const noexcept {
    auto* out = static_cast<std::byte*>(to);
    while (bytes) {
        const std::size_t in_page = offset % kRqPageBytes;
        const std::size_t n = std::min(bytes, kRqPageBytes - in_page);
        std::memcpy(out, pages_[offset / kRqPageBytes] + in_page, n);
        out += n, offset += n, bytes -= n;
    }
    __asm__ volatile("" ::: "memory");  // never read again: the application may write it meanwhile
}

}  // namespace nupa
