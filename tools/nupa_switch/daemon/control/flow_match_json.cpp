// SPDX-License-Identifier: BSD-3-Clause
#include "control/flow_match_json.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <stdexcept>

namespace nupa::daemon {
namespace {

using Json = nlohmann::json;

FlowMatch::Address parse_address(const std::string& text, uint8_t& family) {
    FlowMatch::Address address{};
    const uint8_t found = text.find(':') == std::string::npos ? 4 : 6;
    if (::inet_pton(found == 4 ? AF_INET : AF_INET6, text.c_str(), address.data()) != 1)
        throw std::runtime_error(fmt::format("'{}' is no address", text));
    if (family && family != found)
        throw std::runtime_error("src and dst are of different families");
    family = found;
    return address;
}

std::string format_address(const FlowMatch::Address& address, uint8_t family) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(family == 4 ? AF_INET : AF_INET6, address.data(), text.data(), text.size());
    return text.data();
}

uint16_t parse_port_number(const Json& value) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > UINT16_MAX)
        throw std::runtime_error("sport and dport are numbers from 0 to 65535");
    return value.get<uint16_t>();
}

}  // namespace

FlowMatch parse_flow_match(const Json& json) {
    if (!json.is_object())
        throw std::runtime_error("flow is not an object");
    FlowMatch match;
    for (const auto& [key, value] : json.items()) {
        if (key == "src")
            match.saddr = parse_address(value.get<std::string>(), match.family);
        else if (key == "dst")
            match.daddr = parse_address(value.get<std::string>(), match.family);
        else if (key == "sport")
            match.sport = parse_port_number(value);
        else if (key == "dport")
            match.dport = parse_port_number(value);
        else
            throw std::runtime_error(
                fmt::format("a flow has src, dst, sport and dport, not '{}'", key));
    }
    return match;
}

Json flow_match_json(const FlowMatch& match) {
    Json json = Json::object();
    if (match.saddr)
        json["src"] = format_address(*match.saddr, match.family);
    if (match.daddr)
        json["dst"] = format_address(*match.daddr, match.family);
    if (match.sport)
        json["sport"] = *match.sport;
    if (match.dport)
        json["dport"] = *match.dport;
    return json;
}

}  // namespace nupa::daemon
