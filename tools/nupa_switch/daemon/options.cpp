// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <fmt/core.h>
#include <net/if.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>
#include <set>

#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {
namespace {

constexpr const char* kPortForm =
    "name=NAME,socket=PATH,ram=PATH[,mac=XX:XX:XX:XX:XX:XX][,queues=N]";
constexpr const char* kTapForm = "name=NAME,ifname=IFNAME";

using Fields = std::map<std::string, std::string>;

Fields split_fields(const std::string& text, const std::string& option) {
    Fields fields;
    for (size_t at = 0; at <= text.size();) {
        size_t comma = std::min(text.find(',', at), text.size());
        std::string field = text.substr(at, comma - at);
        size_t equals = field.find('=');
        if (equals == std::string::npos || equals == 0)
            throw OptionError(fmt::format("{} '{}': '{}' is not KEY=VALUE", option, text, field));
        if (!fields.emplace(field.substr(0, equals), field.substr(equals + 1)).second)
            throw OptionError(
                fmt::format("{} '{}': '{}' is given twice", option, text, field.substr(0, equals)));
        at = comma + 1;
    }
    return fields;
}

std::string take(Fields& fields, const std::string& key) {
    auto it = fields.find(key);
    if (it == fields.end())
        return {};
    std::string value = std::move(it->second);
    fields.erase(it);
    return value;
}

bool is_name(const std::string& name) {
    if (name.empty() || name.size() > kNameMaxBytes)
        return false;
    return name.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
           std::string::npos;
}

unsigned parse_queues(const std::string& text, const std::string& whole) {
    unsigned value = 0;
    auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (err != std::errc{} || end != text.data() + text.size() || value < 1 ||
        value > NUPA_QUEUE_PAIRS_MAX)
        throw OptionError(fmt::format("--port '{}': queues must be 1 to {}", whole,
                                      static_cast<int>(NUPA_QUEUE_PAIRS_MAX)));
    return value;
}

void take_vm_fields(PortOptions& port, Fields& fields, const std::string& text) {
    port.socket = take(fields, "socket");
    port.ram = take(fields, "ram");
    if (port.socket.empty() || port.ram.empty())
        throw OptionError(
            fmt::format("--port '{}': socket= and ram= are both needed: {}", text, kPortForm));
    if (std::string mac = take(fields, "mac"); !mac.empty()) {
        auto parsed = parse_mac(mac);
        if (!parsed || (*parsed)[0] & 1)
            throw OptionError(
                fmt::format("--port '{}': mac '{}' is not a unicast address like 02:00:00:00:00:01",
                            text, mac));
        port.mac = *parsed;
    }
    if (std::string queues = take(fields, "queues"); !queues.empty())
        port.queue_pairs = parse_queues(queues, text);
}

void take_tap_fields(PortOptions& port, Fields& fields, const std::string& text) {
    port.ifname = take(fields, "ifname");
    if (port.ifname.empty() || port.ifname.size() >= IFNAMSIZ)
        throw OptionError(fmt::format("--tap '{}': ifname= needs 1 to {} bytes: {}", text,
                                      IFNAMSIZ - 1, kTapForm));
}

void check_unique(const std::vector<PortOptions>& ports) {
    std::set<std::string> seen;
    for (const PortOptions& port : ports) {
        if (!seen.insert("name=" + port.name).second)
            throw OptionError(fmt::format("two ports are named '{}'", port.name));
        if (!port.socket.empty() && !seen.insert("socket=" + port.socket).second)
            throw OptionError(fmt::format("two ports have the socket '{}'", port.socket));
        if (!port.ram.empty() && !seen.insert("ram=" + port.ram).second)
            throw OptionError(fmt::format("two ports have the memory file '{}'", port.ram));
        if (!port.ifname.empty() && !seen.insert("ifname=" + port.ifname).second)
            throw OptionError(fmt::format("two ports have the interface '{}'", port.ifname));
    }
}

}  // namespace

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

PortOptions parse_port(PortOptions::Kind kind, const std::string& text) {
    const bool vm = kind == PortOptions::Kind::kVm;
    const std::string option = vm ? "--port" : "--tap";
    Fields fields = split_fields(text, option);
    PortOptions port;
    port.kind = kind;
    port.name = take(fields, "name");
    if (!is_name(port.name))
        throw OptionError(
            fmt::format("{} '{}': name= needs 1 to {} letters, digits, '_', '.' or '-': {}", option,
                        text, kNameMaxBytes, vm ? kPortForm : kTapForm));
    if (vm)
        take_vm_fields(port, fields, text);
    else
        take_tap_fields(port, fields, text);
    if (!fields.empty())
        throw OptionError(fmt::format("{} '{}': unknown key '{}'; the form is {}", option, text,
                                      fields.begin()->first, vm ? kPortForm : kTapForm));
    return port;
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
    CLI::App app{"NUPA CXL switch: emulated fabric with tcp_qp placement"};
    Options options;
    std::vector<std::string> ports;
    std::vector<std::string> taps;
    app.add_option("--control", options.control, "UNIX socket for nupactl")->required();
    app.add_option("--port", ports, std::string("a virtual machine's port: ") + kPortForm);
    app.add_option("--tap", taps, std::string("uplink to the host's network: ") + kTapForm);
    PortEngine::Limits limits;
    size_t memory_mib = limits.memory_bytes >> 20;
    app.add_option("--port-memory-mib", memory_mib,
                   "of the switch, for the MRs and QPs of one virtual machine's port")
        ->capture_default_str()
        ->check(CLI::Range(size_t{1}, kPortMemoryMaxMib));
    app.add_option("--port-mrs", limits.mrs_max, "MRs of one port")
        ->capture_default_str()
        ->check(CLI::Range(size_t{0}, kPortObjectsMax));
    app.add_option("--port-qps", limits.qps_max, "QP contexts of one port")
        ->capture_default_str()
        ->check(CLI::Range(size_t{0}, kPortObjectsMax));
    app.add_option("--ready-fd", options.ready_fd, "write one line there once every port listens")
        ->check(CLI::NonNegativeNumber);
    try {
        app.parse(argc, argv);
        for (const std::string& text : ports)
            options.ports.push_back(parse_port(PortOptions::Kind::kVm, text));
        for (const std::string& text : taps)
            options.ports.push_back(parse_port(PortOptions::Kind::kTap, text));
        if (options.ports.empty())
            throw OptionError("no port: give --port or --tap at least once");
        if (options.ports.size() > kPortsMax)
            throw OptionError(fmt::format("{} ports, at most {}", options.ports.size(), kPortsMax));
        check_unique(options.ports);
        limits.memory_bytes = memory_mib << 20;
        for (PortOptions& port : options.ports)
            port.limits = limits;
        return options;
    } catch (const CLI::ParseError& e) {
        exit_code = app.exit(e);
    } catch (const OptionError& e) {
        fmt::print(stderr, "nupa_switch: {}\n", e.what());
        exit_code = 2;
    }
    return std::nullopt;
}

}  // namespace nupa::daemon
