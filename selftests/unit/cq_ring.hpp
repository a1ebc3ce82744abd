// SPDX-License-Identifier: BSD-3-Clause
// A completion queue in the rxe user ABI, and what is in it.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <cstdint>
#include <cstring>
#include <vector>

#include "guest.hpp"

namespace test {

inline constexpr std::uint32_t kElementsAt = 384, kProducerAt = 128, kConsumerAt = 256;
inline constexpr std::uint32_t kWcRecv = 128, kWcRecvWriteImm = 129;

// Of the queue pairs whose receives the switch completes: what they receive is as long, and as far
// apart.
inline constexpr std::uint32_t kCq = 7, kEntries = 16, kLength = 64, kStride = 256;
inline constexpr std::uint32_t kPlaces = 1024;

// A completion queue as its application and its kernel see it.
struct CqRing {
    CqRing(Guest& g, std::uint32_t entries) : guest(g) {
        const std::uint64_t bytes = kElementsAt + std::uint64_t{entries} * NUPA_CQE_BYTES;
        for (std::uint64_t i = 0; i < (bytes + kPage - 1) / kPage; i++)
            pages.push_back(guest.alloc(kPage, kPage, (i & 1) != 0));
        cmd.ctl_addr = ctl = guest.alloc(sizeof(nupa_cq_ctl), 64);
        cmd.table_addr = guest.table(pages);
        cmd.pages = static_cast<std::uint32_t>(pages.size());
        cmd.mask = entries - 1;
    }
    template <class T>
    T get(std::uint64_t offset) {
        T value;
        std::memcpy(&value, guest.ptr(pages[offset / kPage] + offset % kPage), sizeof value);
        return value;
    }
    std::uint32_t prod() { return get<std::uint32_t>(kProducerAt); }
    void poll(std::uint32_t index) { guest.put<std::uint32_t>(pages[0] + kConsumerAt, index); }
    ib_uverbs_wc at(std::uint32_t index) {
        return get<ib_uverbs_wc>(kElementsAt + std::uint64_t{index & cmd.mask} * NUPA_CQE_BYTES);
    }
    std::uint32_t word(std::size_t field) {
        std::uint32_t value;
        std::memcpy(&value, guest.ptr(ctl + field, 4), 4);
        return value;
    }
    std::uint32_t owner() { return word(offsetof(nupa_cq_ctl, owner)); }
    std::uint32_t waiting() { return word(offsetof(nupa_cq_ctl, waiting)); }
    void wait() { guest.put<std::uint32_t>(ctl + offsetof(nupa_cq_ctl, waiting), 1); }

    Guest& guest;
    std::vector<std::uint64_t> pages;
    std::uint64_t ctl;
    nupa_cmd_cq cmd{};
};

}  // namespace test
