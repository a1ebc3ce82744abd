// SPDX-License-Identifier: BSD-3-Clause
// The last events of a schedule, printed when it ends badly.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>

namespace sim {

// @text with one of @numbers in the place of each {}.
std::string filled(const char* text, std::span<const std::uint64_t> numbers);

class EventLog {
public:
    // @text is a literal with one {} for each number; @word, if any, follows it.
    void add(std::uint64_t now_us, const char* text, std::initializer_list<std::uint64_t> numbers,
             const char* word = "") noexcept;
    void print(std::FILE* to) const;

private:
    static constexpr std::size_t kEvents = 200, kNumbers = 7;
    struct Event {
        std::uint64_t now_us;
        const char* text;
        const char* word;
        std::array<std::uint64_t, kNumbers> numbers;
    };
    std::array<Event, kEvents> events_;
    std::uint64_t count_ = 0;
};

}  // namespace sim
