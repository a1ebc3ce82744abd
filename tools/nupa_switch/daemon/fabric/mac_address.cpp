// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/mac_address.hpp"

#include <fmt/core.h>

#include <charconv>

namespace nupa::daemon {

std::optional<MacAddress> parse_mac(const std::string& text) {
    MacAddress mac{};
    if (text.size() != 17)
        return std::nullopt;
    for (size_t i = 0; i < mac.size(); i++) {
        const char* at = text.data() + i * 3;
        auto [end, err] = std::from_chars(at, at + 2, mac[i], 16);
        if (err != std::errc{} || end != at + 2 || (i < 5 && at[2] != ':'))
            return std::nullopt;
    }
    return mac;
}

std::string format_mac(const uint8_t* mac) {
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3],
                       mac[4], mac[5]);
}

}  // namespace nupa::daemon
