// SPDX-License-Identifier: BSD-3-Clause
#include "event_log.hpp"

#include <algorithm>

namespace sim {

std::string filled(const char* text, std::span<const std::uint64_t> numbers) {
    std::string out;
    auto number = numbers.begin();
    for (const char* c = text; *c; c++) {
        if (c[0] == '{' && c[1] == '}' && number != numbers.end()) {
            out += std::to_string(*number++);
            c++;
        } else {
            out += *c;
        }
    }
    return out;
}

void EventLog::add(std::uint64_t now_us, const char* text,
                   std::initializer_list<std::uint64_t> numbers, const char* word) noexcept {
    Event& e = events_[count_++ % kEvents];
    e.now_us = now_us, e.text = text, e.word = word;
    std::copy_n(numbers.begin(), std::min(numbers.size(), kNumbers), e.numbers.begin());
}

void EventLog::print(std::FILE* to) const {
    for (std::uint64_t i = count_ > kEvents ? count_ - kEvents : 0; i < count_; i++) {
        const Event& e = events_[i % kEvents];
        std::fprintf(to, "%8llu us  %s %s\n", static_cast<unsigned long long>(e.now_us),
                     filled(e.text, e.numbers).c_str(), e.word);
    }
}

}  // namespace sim
