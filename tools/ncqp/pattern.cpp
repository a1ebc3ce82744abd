// SPDX-License-Identifier: BSD-3-Clause
#include "pattern.hpp"

#include <algorithm>
#include <cstring>

namespace ncqp {

Pattern::Pattern(uint32_t period, size_t bytes) : period_(period), data_(bytes + period) {
    for (size_t i = 0; i < data_.size(); i++)
        data_[i] = static_cast<std::byte>((i + 1) % period);
}

std::optional<uint64_t> PatternCheck::check(std::span<const std::byte> data) noexcept {
    while (!data.empty()) {
        const size_t n = std::min(data.size(), kChunkBytes);
        const std::byte* want = reference_.at(offset_);
        if (std::memcmp(data.data(), want, n) != 0) {
            const auto [got, unused] = std::mismatch(data.begin(), data.begin() + n, want);
            return offset_ + static_cast<uint64_t>(got - data.begin());
        }
        offset_ += n;
        data = data.subspan(n);
    }
    return std::nullopt;
}

}  // namespace ncqp
