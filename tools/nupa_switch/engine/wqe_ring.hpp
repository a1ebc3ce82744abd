// SPDX-License-Identifier: BSD-3-Clause
// A ring of receive WQEs that an application writes, read in place (rxe user ABI).
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_memory.hpp"
#include "limits.hpp"

namespace nupa {

struct RecvSge {
    std::uint64_t addr;
    std::uint32_t length;
    std::uint32_t lkey;
};
static_assert(sizeof(RecvSge) == 16);

// A receive WQE, copied once.
struct RecvWqe {
    std::uint32_t num_sge = 0;
    std::array<RecvSge, NUPA_SGE_MAX> sge;
};

class WqeRing {
public:
    struct Shape {
        std::uint64_t table_addr;
        std::uint32_t pages, mask;
        std::uint16_t sge_max;
        std::uint8_t log2_bytes;
    };
    // Copies and checks the page table.
    nupa_admin_status init(const HostMemory& memory, const Shape& shape) noexcept;
    bool empty() const noexcept { return pages_.empty(); }  // before init()

    std::uint32_t mask() const noexcept { return mask_; }
    // The application's; not masked, and not to be believed.
    std::uint32_t producer() const noexcept;
    // The WQE at @index.  False: its SGE count is out of range.
    bool read(std::uint32_t index, RecvWqe& wqe) const noexcept;
    // What the application calls it.
    std::uint64_t wr_id(std::uint32_t index) const noexcept;
    // Those before @index were used: their slots are the application's again.
    void consumed(std::uint32_t index) const noexcept;

private:
    std::size_t element(std::uint32_t index) const noexcept;  // where it is in the ring
    void copy(std::size_t offset, void* to, std::size_t bytes) const noexcept;

    std::vector<std::byte*> pages_;
    std::uint32_t mask_ = 0;
    std::uint16_t sge_max_ = 0;
    std::uint8_t log2_bytes_ = 0;
};

}  // namespace nupa
