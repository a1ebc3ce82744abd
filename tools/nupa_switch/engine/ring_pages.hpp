// SPDX-License-Identifier: BSD-3-Clause
// Rings of an application in the rxe user ABI: where their fields are, and their pages.
#pragma once

#include <rdma/rdma_user_rxe.h>
#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "endian.hpp"
#include "host_memory.hpp"

namespace nupa {

inline constexpr std::size_t kRingPageBytes = 4096;
inline constexpr std::size_t kRingElementsAt = offsetof(rxe_queue_buf, data);
inline constexpr std::size_t kRingProducerAt = offsetof(rxe_queue_buf, producer_index);
inline constexpr std::size_t kRingConsumerAt = offsetof(rxe_queue_buf, consumer_index);
static_assert(kRingElementsAt == 384 && kRingProducerAt == 128 && kRingConsumerAt == 256);

// The @count pages whose addresses are at @table_addr, each read once.  May throw std::bad_alloc.
inline nupa_admin_status ring_pages(const HostMemory& memory, std::uint64_t table_addr,
                                    std::uint32_t count, std::vector<std::byte*>& pages) {
    const std::byte* table = memory.at(table_addr, std::uint64_t{count} * sizeof(std::uint64_t));
    if (!table)
        return NUPA_E_ADDRESS;
    pages.reserve(count);
    for (std::uint32_t i = 0; i < count; i++) {
        const auto page = copy_once<std::uint64_t>(table + i * sizeof(std::uint64_t));
        if (page % kRingPageBytes)
            return NUPA_E_INVALID;
        std::byte* at = memory.at(page, kRingPageBytes);
        if (!at)
            return NUPA_E_ADDRESS;
        pages.push_back(at);
    }
    return NUPA_OK;
}

}  // namespace nupa
