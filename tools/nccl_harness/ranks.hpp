// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a run and the way they tell each other handles: what NCCL's bootstrap is.  A star
// of plain TCP connections to rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace tcpqp::harness {

using Bytes = std::vector<std::byte>;

class Ranks {
public:
    // Rank 0 accepts the others at @listener; they connect to @address.
    static Ranks lead(Fd listener, int size);
    static Ranks join(const std::string& address, uint16_t port, int rank, int size);

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    // Everybody's bytes, by rank.  All ranks call it, in the same order.
    std::vector<Bytes> all_gather(std::span<const std::byte> ours);
    void barrier() { static_cast<void>(all_gather({})); }

    template <typename T>
    std::vector<T> all_gather_values(const T& ours) {
        std::vector<T> out;
        for (const Bytes& b : all_gather(std::as_bytes(std::span(&ours, 1))))
            out.push_back(*reinterpret_cast<const T*>(b.data()));
        return out;
    }

private:
    Ranks(int rank, int size) : rank_(rank), size_(size) {}

    int rank_, size_;
    std::vector<Fd> peers_;  // rank 0: of each other; others: one, rank 0
};

Fd listen_on(uint16_t& port);  // 0: any, and says which

}  // namespace tcpqp::harness
