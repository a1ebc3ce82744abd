// SPDX-License-Identifier: BSD-3-Clause
// The stream that ncdevmem validates: byte i is (i + 1) mod period.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ncqp {

// @bytes of pattern from its start, plus one period, so that at(i) is a view
// of the pattern at any stream offset, @bytes long.
class Pattern {
public:
    Pattern(uint32_t period, size_t bytes);

    [[nodiscard]] uint32_t period() const noexcept { return period_; }
    [[nodiscard]] const std::byte* at(uint64_t offset) const noexcept {
        return data_.data() + offset % period_;
    }
    [[nodiscard]] std::span<std::byte> memory() noexcept { return data_; }

private:
    uint32_t period_;
    std::vector<std::byte> data_;
};

// Checks a stream piece by piece, in order.
class PatternCheck {
public:
    explicit PatternCheck(uint32_t period) : reference_(period, kChunkBytes) {}

    [[nodiscard]] uint32_t period() const noexcept { return reference_.period(); }
    // Stream offset of the first wrong byte, if any.
    [[nodiscard]] std::optional<uint64_t> check(std::span<const std::byte> data) noexcept;

private:
    static constexpr size_t kChunkBytes = size_t{64} * 1024;
    Pattern reference_;
    uint64_t offset_ = 0;
};

}  // namespace ncqp
