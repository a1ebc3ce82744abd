// SPDX-License-Identifier: BSD-3-Clause
// The fuzzer's bytes as a stream of choices; zeros when they are used up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace fuzz {

class Input {
public:
    Input(const std::uint8_t* data, std::size_t bytes) : at_(data), left_(bytes) {}

    bool empty() const { return left_ == 0; }
    template <class T>
    T get() {
        T v{};
        const std::size_t n = std::min(left_, sizeof v);
        if (n)
            std::memcpy(&v, at_, n);
        at_ += n, left_ -= n;
        return v;
    }
    std::uint8_t u8() { return get<std::uint8_t>(); }
    std::uint16_t u16() { return get<std::uint16_t>(); }
    std::uint32_t u32() { return get<std::uint32_t>(); }
    std::uint64_t u64() { return get<std::uint64_t>(); }
    std::uint32_t below(std::uint32_t bound) { return u8() % bound; }  // bound <= 256
    std::span<const std::uint8_t> bytes(std::size_t n) {
        const std::span<const std::uint8_t> s(at_, std::min(n, left_));
        at_ += s.size(), left_ -= s.size();
        return s;
    }

private:
    const std::uint8_t* at_;
    std::size_t left_;
};

// A property that does not hold: libFuzzer keeps the input.
inline void require(bool holds, const char* what) {
    if (holds)
        return;
    std::fprintf(stderr, "property violated: %s\n", what);
    std::abort();
}

}  // namespace fuzz
