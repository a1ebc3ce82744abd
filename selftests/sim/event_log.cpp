// SPDX-License-Identifier: BSD-3-Clause
#include "event_log.hpp"

#include <algorithm>

namespace sim {

void EventLog::add(std::uint64_t now_us, const char* text,
                   std::initializer_list<std::uint64_t> numbers, const char* word) noexcept {
    Event& e = events_[count_++ % kEvents];
    e.now_us = now_us, e.text = text, e.word = word;
    std::copy_n(numbers.begin(), std::min(numbers.size(), kNumbers), e.numbers.begin());
}

void EventLog::print(std::FILE* to) const {
    for (std::uint64_t i = count_ > kEvents ? count_ - kEvents : 0; i < count_; i++) {
        const Event& e = events_[i % kEvents];
        std::fprintf(to, "%8llu us  ", static_cast<unsigned long long>(e.now_us));
        std::size_t number = 0;
        for (const char* c = e.text; *c; c++) {
            if (c[0] == '{' && c[1] == '}' && number < kNumbers) {
                std::fprintf(to, "%llu", static_cast<unsigned long long>(e.numbers[number++]));
                c++;
            } else {
                std::fputc(*c, to);
            }
        }
        std::fprintf(to, " %s\n", e.word);
    }
}

}  // namespace sim
