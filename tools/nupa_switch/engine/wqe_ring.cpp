// SPDX-License-Identifier: BSD-3-Clause
#include "wqe_ring.hpp"

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

bool sane(const WqeRing::Shape& shape) noexcept {
    if (shape.mask == 0 || shape.mask > kRqMaskMax || (shape.mask & (shape.mask + 1)) != 0 ||
        shape.log2_bytes < kRqLog2Min || shape.log2_bytes > kRqLog2Max ||
        shape.sge_max > NUPA_SGE_MAX)
        return false;
    const std::size_t element = std::size_t{1} << shape.log2_bytes;
    if (kWqeHeadBytes + shape.sge_max * sizeof(RecvSge) > element)
        return false;
    const std::size_t bytes = kRingElementsAt + (std::size_t{shape.mask} + 1) * element;
    return shape.pages <= NUPA_RQ_PAGES_MAX && bytes <= std::size_t{shape.pages} * kRingPageBytes;
}

}  // namespace

nupa_admin_status WqeRing::init(const HostMemory& memory, const Shape& shape) noexcept try {
    pages_.clear();
    if (!sane(shape))
        return NUPA_E_INVALID;
    std::vector<std::byte*> pages;
    if (const auto status = ring_pages(memory, shape.table_addr, shape.pages, pages);
        status != NUPA_OK)
        return status;
    mask_ = shape.mask;
    sge_max_ = shape.sge_max;
    log2_bytes_ = shape.log2_bytes;
    pages_ = std::move(pages);
    return NUPA_OK;
} catch (const std::bad_alloc&) {
    return NUPA_E_NOSPACE;
}

std::uint32_t WqeRing::producer() const noexcept {
    return load_acquire32(pages_[0] + kRingProducerAt);
}

std::size_t WqeRing::element(std::uint32_t index) const noexcept {
    return kRingElementsAt + (std::size_t{index & mask_} << log2_bytes_);
}

bool WqeRing::read(std::uint32_t index, RecvWqe& wqe) const noexcept {
    const std::size_t at = element(index);
    std::uint32_t num_sge;
    copy(at + kNumSgeAt, &num_sge, sizeof num_sge);
    if (num_sge > sge_max_)
        return false;
    wqe.num_sge = num_sge;
    copy(at + kWqeHeadBytes, wqe.sge.data(), num_sge * sizeof(RecvSge));
    return true;
}

std::uint64_t WqeRing::wr_id(std::uint32_t index) const noexcept {
    std::uint64_t id;
    copy(element(index), &id, sizeof id);
    return id;
}

void WqeRing::consumed(std::uint32_t index) const noexcept {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(pages_[0] + kRingConsumerAt), index & mask_,
                     __ATOMIC_RELEASE);
}

// An element may cross a page.
void WqeRing::copy(std::size_t offset, void* to, std::size_t bytes) const noexcept {
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
