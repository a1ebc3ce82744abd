// SPDX-License-Identifier: BSD-3-Clause
#include "ports/fields.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace nupa::daemon {

Fields::Fields(std::string option, std::string text)
    : option_(std::move(option)), text_(std::move(text)) {
    for (size_t at = 0; at <= text_.size();) {
        const size_t comma = std::min(text_.find(',', at), text_.size());
        const std::string field = text_.substr(at, comma - at);
        const size_t equals = field.find('=');
        if (equals == std::string::npos || equals == 0)
            throw error(fmt::format("'{}' is not KEY=VALUE", field));
        const std::string key = field.substr(0, equals);
        if (!values_.emplace(key, field.substr(equals + 1)).second)
            throw error(fmt::format("'{}' is given twice", key));
        at = comma + 1;
    }
}

std::string Fields::take(const std::string& key) {
    const auto at = values_.find(key);
    if (at == values_.end())
        return {};
    std::string value = std::move(at->second);
    values_.erase(at);
    return value;
}

std::string Fields::left() const { return values_.empty() ? "" : values_.begin()->first; }

OptionError Fields::error(const std::string& problem) const {
    return OptionError(fmt::format("{} '{}': {}", option_, text_, problem));
}

}  // namespace nupa::daemon
