// SPDX-License-Identifier: BSD-3-Clause
// Memory for tables that are looked into at random: in huge pages where there is enough of it, so
// that a look costs a cache miss and not a walk of page tables, too.
#pragma once

#include <sys/mman.h>
#include <cstddef>
#include <new>
#include <vector>

namespace nupa {

template <class T>
struct LargeAllocator {
    using value_type = T;
    static constexpr std::size_t kHugePageBytes = 2 << 20;

    LargeAllocator() = default;
    template <class U>
    explicit LargeAllocator(const LargeAllocator<U>&) noexcept {}

    T* allocate(std::size_t n) {
        const std::size_t align = alignment(n);
        const std::size_t bytes = (n * sizeof(T) + align - 1) / align * align;
        T* at = static_cast<T*>(::operator new (bytes, std::align_val_t{align}));
        if (align == kHugePageBytes)
            ::madvise(at, bytes, MADV_HUGEPAGE);  // without it only slower
        return at;
    }
    void deallocate(T* at, std::size_t n) noexcept {
        ::operator delete (at, std::align_val_t{alignment(n)});
    }
    bool operator==(const LargeAllocator&) const = default;

private:
    static constexpr std::size_t kLineBytes = 64;
    static constexpr std::size_t alignment(std::size_t n) noexcept {
        return n * sizeof(T) < kHugePageBytes / 2 ? kLineBytes : kHugePageBytes;
    }
};

template <class T>
using LargeArray = std::vector<T, LargeAllocator<T>>;

}  // namespace nupa
