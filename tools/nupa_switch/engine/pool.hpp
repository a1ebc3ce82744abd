// SPDX-License-Identifier: BSD-3-Clause
// Objects that stay where they are, by small numbers, in chunks of kChunkBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "large_array.hpp"

namespace nupa {

template <class T, std::size_t kChunkBytes>
class Pool {
public:
    // The next take() finds one.  May throw std::bad_alloc; nothing has changed then.
    void reserve() {
        if (!free_.empty())
            return;
        const std::size_t made = chunks_.size() * kPerChunk;
        free_.reserve(made + kPerChunk);  // give_back() never fails
        chunks_.emplace_back(kPerChunk);
        for (std::size_t n = made + kPerChunk; n-- > made;)
            free_.push_back(static_cast<std::uint32_t>(n));
    }
    // The number of one that is as T() is.  reserve() went before.
    std::uint32_t take() noexcept {
        const std::uint32_t number = free_.back();
        free_.pop_back();
        return number;
    }
    void give_back(std::uint32_t number) noexcept {
        (*this)[number] = T();
        free_.push_back(number);
    }
    void clear() noexcept {
        chunks_.clear();
        free_.clear();
    }

    T& operator[](std::uint32_t number) noexcept {
        return chunks_[number / kPerChunk][number % kPerChunk];
    }
    const T& operator[](std::uint32_t number) const noexcept {
        return chunks_[number / kPerChunk][number % kPerChunk];
    }

private:
    static constexpr std::size_t kPerChunk = kChunkBytes / sizeof(T);

    std::vector<LargeArray<T>> chunks_;
    std::vector<std::uint32_t> free_;
};

}  // namespace nupa
