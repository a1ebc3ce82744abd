// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "engine/copy.hpp"
#include "frames.hpp"

namespace {

using namespace test;

// What has to be copied to @to_at of a line, and nothing else.
void check(const nupa::CopyWay& way, const ByteVector& from, std::size_t from_at, std::size_t to_at,
           std::size_t n) {
    alignas(64) std::array<std::byte, 1536> to;
    to.fill(std::byte{0xee});
    way.copy(to.data() + to_at, from.data() + from_at, n);
    ASSERT_EQ(std::memcmp(to.data() + to_at, from.data() + from_at, n), 0)
        << way.name << ' ' << to_at << ' ' << n;
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    ASSERT_TRUE(std::all_of(to.begin(), to.begin() + to_at, untouched)) << way.name << ' ' << n;
    ASSERT_TRUE(std::all_of(to.begin() + to_at + n, to.end(), untouched)) << way.name << ' ' << n;
}

// Lengths go beyond the head, two strides, single vectors and the rest of each way.
TEST(CopyRising, EveryLengthAndAlignment) {
    const ByteVector from = pattern(1300);
    for (const nupa::CopyWay& way : nupa::copy_ways())
        for (std::size_t to_at = 0; to_at < 66; to_at++)
            for (std::size_t from_at : {0u, 1u, 7u, 16u, 31u, 63u})
                for (std::size_t n = 0; n < 1100; n = n < 330 ? n + 1 : n + 41)
                    check(way, from, from_at, to_at, n);
}

// The byte behind the end of either side is on a page that is not there.
TEST(CopyRising, EndsAtTheEndOfMemory) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto before_a_hole = [&] {
        void* at =
            ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(at, MAP_FAILED);
        ::munmap(static_cast<std::byte*>(at) + page, page);
        return static_cast<std::byte*>(at) + page;
    };
    std::byte* to_end = before_a_hole();
    std::byte* from_end = before_a_hole();
    for (std::size_t i = 0; i < page; i++)
        from_end[-1 - static_cast<long>(i)] = static_cast<std::byte>(i * 7);
    for (const nupa::CopyWay& way : nupa::copy_ways())
        for (std::size_t n = 0; n < 600; n++) {
            way.copy(to_end - n, from_end - n, n);
            ASSERT_EQ(std::memcmp(to_end - n, from_end - n, n), 0) << way.name << ' ' << n;
        }
    ::munmap(to_end - page, page);
    ::munmap(from_end - page, page);
}

// Who sees the flag at the end of a 128-byte line must see the rest of the line.
void line_ends_appear_last(const nupa::CopyWay& way) {
    constexpr std::size_t kLines = 64, kLine = 128, kLooks = 200000;
    alignas(128) static std::byte to[kLines * kLine];
    alignas(128) static std::byte from[kLines * kLine];
    std::memset(to, 0, sizeof to);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> looks{0};
    std::uint64_t torn = 0;
    const auto word = [](std::byte* base, std::size_t line, std::size_t i) {
        return __atomic_load_n(reinterpret_cast<std::uint64_t*>(base + line * kLine + i * 8),
                               __ATOMIC_ACQUIRE);
    };
    std::thread reader([&] {
        while (!stop)
            for (std::size_t line = 0; line < kLines; line++, looks++) {
                const std::uint64_t flag = word(to, line, 15);
                for (std::size_t i = 0; i < 15; i++)
                    torn += word(to, line, i) < flag;
            }
    });
    for (std::uint64_t r = 1; looks < kLooks; r++) {
        for (std::size_t i = 0; i < sizeof from; i += 8)
            std::memcpy(from + i, &r, 8);
        way.copy(to, from, sizeof to);
    }
    stop = true;
    reader.join();
    EXPECT_EQ(torn, 0u) << way.name;
}

TEST(CopyRising, LineEndsAppearLast) {
    for (const nupa::CopyWay& way : nupa::copy_ways())
        line_ends_appear_last(way);
}

TEST(CopyRising, UsesWhatThereIs) {
    const ByteVector from = pattern(1000);
    ByteVector to(from.size());
    nupa::copy_rising(to.data(), from.data(), from.size());
    EXPECT_EQ(to, from);
    const char* wanted = std::getenv(nupa::kCopyVariable);
    EXPECT_STREQ(nupa::copy_way(), wanted && *wanted ? wanted : nupa::copy_ways().back().name);
}

}  // namespace
