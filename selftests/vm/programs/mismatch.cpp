// SPDX-License-Identifier: BSD-3-Clause
#include "mismatch.hpp"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "pattern.hpp"

namespace nupa::programs {
namespace {

constexpr int kLaterMs = 200;

std::string hex(uint8_t byte) {
    char text[8];
    std::snprintf(text, sizeof text, "0x%02x", byte);
    return text;
}

std::string wrong_bytes(std::span<const uint8_t> in, uint64_t key) {
    std::vector<uint8_t> right(in.size());
    fill(right, key);
    size_t first = in.size(), last = 0, count = 0;
    for (size_t i = 0; i < in.size(); i++) {
        if (in[i] == right[i])
            continue;
        first = std::min(first, i);
        last = i;
        count++;
    }
    if (!count)
        return "all bytes right when looked at again";
    return std::to_string(count) + " wrong bytes, the first at " + std::to_string(first) + " is " +
           hex(in[first]) + ", not " + hex(right[first]) + ", the last at " + std::to_string(last);
}

}  // namespace

std::string mismatch(std::span<const uint8_t> buffer, uint32_t seen, uint32_t expected,
                     uint64_t key) {
    const auto in = buffer.first(std::min<size_t>(expected, buffer.size()));
    if (seen == expected && first_wrong(in, key) == in.size())
        return {};
    std::string text = std::to_string(seen) + " bytes came, not " + std::to_string(expected);
    if (seen == expected)
        text = std::to_string(seen) + " bytes came, as expected";
    text += "; " + wrong_bytes(in, key);
    poll(nullptr, 0, kLaterMs);
    return text + (first_wrong(in, key) == in.size() ? "; right " : "; still wrong ") +
           std::to_string(kLaterMs) + " ms later";
}

}  // namespace nupa::programs
