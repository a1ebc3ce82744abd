// SPDX-License-Identifier: BSD-3-Clause
#include "buffer.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace nupa::bench {
namespace {

constexpr size_t kHugeBytes = 2 << 20;

size_t whole(size_t bytes) { return (bytes + kHugeBytes - 1) / kHugeBytes * kHugeBytes; }

}  // namespace

Buffer::Buffer(size_t bytes) : pages_(whole(bytes) + kHugeBytes) {
    const auto at = reinterpret_cast<uintptr_t>(pages_.bytes().data());
    const std::span<uint8_t> aligned =
        pages_.bytes().subspan((kHugeBytes - at % kHugeBytes) % kHugeBytes, whole(bytes));
    (void)madvise(aligned.data(), aligned.size(), MADV_HUGEPAGE);  // a wish
    used_ = aligned.first(bytes);
    std::ranges::fill(used_, kFill);
}

}  // namespace nupa::bench
