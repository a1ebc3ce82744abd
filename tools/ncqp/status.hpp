// SPDX-License-Identifier: BSD-3-Clause
// What a step of a transfer returns: fine, or a sentence for the user.
#pragma once

#include <string>
#include <utility>

namespace ncqp {

class [[nodiscard]] Status {
public:
    Status() = default;
    static Status failure(std::string text) {
        Status s;
        s.text_ = std::move(text);
        return s;
    }
    [[nodiscard]] bool ok() const noexcept { return text_.empty(); }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
};

}  // namespace ncqp
