// SPDX-License-Identifier: BSD-3-Clause
// What of a flow's sequence space was passed up already.
//
// E, the in-order mark, and at most kBlocksMax blocks above it cover every byte
// passed up (placed or delivered) since attach, and at least what TCP has
// received.  Arithmetic is modulo 2^32; all marks lie within 2^31 of E.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "limits.hpp"

namespace nupa {

inline bool seq_before(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>(a - b) < 0;
}
inline bool seq_after(std::uint32_t a, std::uint32_t b) noexcept { return seq_before(b, a); }

class Disorder {
public:
    struct Block {
        std::uint32_t begin, end;
    };

    explicit Disorder(std::uint32_t next = 0) noexcept : next_(next), resync_(next) {}

    std::uint32_t next() const noexcept { return next_; }  // E
    // Does [seq, seq + bytes) touch anything passed up before?
    bool seen(std::uint32_t seq, std::uint32_t bytes) const noexcept;
    // Delivering only, until E reaches the highest byte that had been passed up when no block was
    // free, the last time that this was so.
    bool resyncing() const noexcept { return resyncing_; }
    // Record a range passed up.  True: the blocks overflowed just now.
    bool record(std::uint32_t seq, std::uint32_t bytes) noexcept;
    // TCP has everything before @seq: the host's own ACK said so.
    void raise(std::uint32_t seq) noexcept;
    // Something of unknown length up to @seq may have passed unseen: deliver until E reaches it.
    void distrust(std::uint32_t seq) noexcept;

    std::size_t blocks() const noexcept { return count_; }
    Block block(std::size_t i) const noexcept { return blocks_[i]; }

private:
    bool insert(std::uint32_t begin, std::uint32_t end) noexcept;
    void absorb() noexcept;

    std::uint32_t next_;
    std::uint32_t resync_;
    bool resyncing_ = false;
    std::uint32_t count_ = 0;
    std::array<Block, kBlocksMax> blocks_;  // rising, apart from each other and from E
};

}  // namespace nupa
