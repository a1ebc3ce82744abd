// SPDX-License-Identifier: BSD-3-Clause
// Objects that stay where they are, by small numbers.  Each chunk holds twice as many as the one
// before; memory of it is touched when it is used.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "large_array.hpp"

namespace nupa {

template <class T>
class Pool {
public:
    Pool() = default;
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() { clear(); }

    // The next take() finds one.  May throw std::bad_alloc; nothing has changed then.
    void reserve() {
        if (!free_.empty() || made_ < begin_of(chunks_.size()))
            return;
        free_.reserve(begin_of(chunks_.size() + 1));  // give_back() never fails
        chunks_.reserve(chunks_.size() + 1);
        chunks_.push_back(LargeAllocator<T>().allocate(kFirst << chunks_.size()));
    }
    // The number of one that is as T() is.  reserve() went before.
    std::uint32_t take() noexcept {
        if (free_.empty()) {
            std::construct_at(&(*this)[made_]);
            return made_++;
        }
        const std::uint32_t number = free_.back();
        free_.pop_back();
        return number;
    }
    void give_back(std::uint32_t number) noexcept {
        (*this)[number] = T();
        free_.push_back(number);
    }
    void clear() noexcept {
        for (std::uint32_t n = 0; n < made_; n++)
            std::destroy_at(&(*this)[n]);
        for (std::size_t i = 0; i < chunks_.size(); i++)
            LargeAllocator<T>().deallocate(chunks_[i], kFirst << i);
        chunks_.clear();
        free_.clear();
        made_ = 0;
    }

    T& operator[](std::uint32_t number) const noexcept {
        const std::size_t chunk = std::bit_width(number / kFirst + 1) - 1u;
        return chunks_[chunk][number - begin_of(chunk)];
    }

private:
    static constexpr std::size_t kFirst = 16;
    static constexpr std::size_t begin_of(std::size_t chunk) noexcept {
        return (kFirst << chunk) - kFirst;
    }

    std::vector<T*> chunks_;
    std::vector<std::uint32_t> free_;
    std::uint32_t made_ = 0;  // the objects there are
};

}  // namespace nupa
