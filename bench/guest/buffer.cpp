// SPDX-License-Identifier: BSD-3-Clause
#include "buffer.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace nupa::bench {
namespace {

constexpr size_t kHugeBytes = 2 << 20;

constexpr size_t kPageBytes = 4096;
constexpr size_t kPagesApart = 37;  // between two that are touched one after the other

size_t whole(size_t bytes) { return (bytes + kHugeBytes - 1) / kHugeBytes * kHugeBytes; }

// The kernel hands out neighbours to who touches pages one after the other.
void touch_apart(std::span<uint8_t> bytes) {
    for (size_t first = 0; first < kPagesApart; first++)
        for (size_t at = first * kPageBytes; at < bytes.size(); at += kPagesApart * kPageBytes)
            bytes[at] = Buffer::kFill;
}

}  // namespace

Buffer::Buffer(size_t bytes, bool scattered, bool pool)
    : pages_(pool ? programs::Pages(bytes, programs::Memory::kPool)
                  : programs::Pages(whole(bytes) + kHugeBytes)) {
    if (pool)
        used_ = pages_.bytes();
    else
        use(scattered, bytes);
    std::ranges::fill(used_, kFill);
}

void Buffer::use(bool scattered, size_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(pages_.bytes().data());
    const std::span<uint8_t> aligned =
        pages_.bytes().subspan((kHugeBytes - at % kHugeBytes) % kHugeBytes, whole(bytes));
    (void)madvise(aligned.data(), aligned.size(),
                  scattered ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);  // a wish
    if (scattered)
        touch_apart(aligned);
    used_ = aligned.first(bytes);
}

tcpqp::Mr Buffer::registered(const tcpqp::Context& context, int access) const {
    const auto at = reinterpret_cast<uint64_t>(used_.data());
    return pages_.dmabuf() >= 0 ? tcpqp::Mr(context, pages_.dmabuf(), 0, used_.size(), at, access)
                                : tcpqp::Mr(context, used_.data(), used_.size(), access);
}

}  // namespace nupa::bench
