// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/copy.hpp"
#include "frames.hpp"

namespace {

using namespace test;

TEST(CopyRising, EveryLengthAndAlignment) {
    const ByteVector from = pattern(1200);
    for (std::size_t to_at = 0; to_at < 33; to_at++)
        for (std::size_t from_at : {0u, 1u, 7u, 16u, 31u})
            for (std::size_t n = 0; n < 700; n = n < 300 ? n + 1 : n + 41) {
                ByteVector to(1024, std::byte{0xee});
                nupa::copy_rising(to.data() + to_at, from.data() + from_at, n);
                ASSERT_EQ(std::memcmp(to.data() + to_at, from.data() + from_at, n), 0)
                    << to_at << ' ' << n;
                for (std::size_t i = 0; i < to_at; i++)
                    ASSERT_EQ(to[i], std::byte{0xee});
                for (std::size_t i = to_at + n; i < to.size(); i++)
                    ASSERT_EQ(to[i], std::byte{0xee}) << to_at << ' ' << n;
            }
}

// Who sees the flag at the end of a 128-byte line must see the rest of the line.
TEST(CopyRising, LineEndsAppearLast) {
    constexpr std::size_t kLines = 64, kLine = 128, kLooks = 200000;
    alignas(128) static std::byte to[kLines * kLine];
    alignas(128) static std::byte from[kLines * kLine];
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
        nupa::copy_rising(to, from, sizeof to);
    }
    stop = true;
    reader.join();
    EXPECT_EQ(torn, 0u);
}

}  // namespace
