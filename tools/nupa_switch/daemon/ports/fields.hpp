// SPDX-License-Identifier: BSD-3-Clause
// A port on the command line: KEY=VALUE, separated by commas.
#pragma once

#include <exception>
#include <map>
#include <string>
#include <utility>

namespace nupa::daemon {

// Thrown for every mistake in the arguments; what() says what to do instead.
class OptionError : public std::exception {
public:
    explicit OptionError(std::string text) : text_(std::move(text)) {}
    [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

private:
    std::string text_;
};

class Fields {
public:
    // @text was given to @option.  Throws OptionError.
    Fields(std::string option, std::string text);
    // Empty when there is none; each can be taken once.
    std::string take(const std::string& key);
    // One that nobody took, or empty.
    [[nodiscard]] std::string left() const;
    // "OPTION 'TEXT': @problem"
    [[nodiscard]] OptionError error(const std::string& problem) const;

private:
    std::string option_;
    std::string text_;
    std::map<std::string, std::string> values_;
};

}  // namespace nupa::daemon
