// SPDX-License-Identifier: BSD-3-Clause
// Requests are {"cmd": NAME, ...}; replies {"ok": true, ...} or {"ok": false, "error": TEXT}.
#include "control/control_commands.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "control/fault_settings.hpp"
#include "control/flow_match_json.hpp"
#include "ports/vm/vm_port.hpp"

namespace nupa::daemon {
namespace {

using Json = ControlCommands::Json;

// What the client did wrong, for the client.
struct BadRequest : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::string format_endpoint(uint8_t family, const uint8_t* address, uint16_t port_be) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(family == 4 ? AF_INET : AF_INET6, address, text.data(), text.size());
    if (family == 4)
        return fmt::format("{}:{}", text.data(), ntohs(port_be));
    return fmt::format("[{}]:{}", text.data(), ntohs(port_be));
}

std::string format_flow(const nupa_flow& flow) {
    return format_endpoint(flow.family, flow.saddr, flow.sport) + " -> " +
           format_endpoint(flow.family, flow.daddr, flow.dport);
}

Json stats_json(const PortStats& stats) {
    Json json = Json::object();
    for (size_t i = 0; i < NUPA_STAT_COUNT; i++)
        json[stat_name(i)] = stats.values[i];
    return json;
}

Json qp_json(const VmPort& port, uint32_t qpn, const nupa_flow& flow) {
    Json json{{"port", port.name()}, {"qpn", qpn}, {"flow", format_flow(flow)}};
    if (const QpStats* stats = port.engine().qp_stats(qpn))
        for (size_t i = 0; i < NUPA_QP_STAT_COUNT; i++)
            json[qp_stat_name(i)] = stats->values[i];
    return json;
}

Json port_json(const Port& port) {
    const PortOptions& o = port.options();
    Json json{{"id", port.id()},
              {"name", port.name()},
              {"state", port.state()},
              {"link", port.link_up()}};
    json["pcap"] = port.pcap ? Json(port.pcap->path()) : Json(nullptr);
    if (const auto* vm = dynamic_cast<const VmPort*>(&port)) {
        json.update({{"kind", "vm"},
                     {"socket", o.socket},
                     {"ram", o.ram},
                     {"mac", format_mac(o.mac.data())},
                     {"queue_pairs", o.queue_pairs},
                     {"qps", vm->engine().qps()},
                     {"mrs", vm->engine().mrs()}});
    } else {
        json.update({{"kind", "tap"}, {"ifname", o.ifname}});
    }
    return json;
}

}  // namespace

std::string ControlCommands::handle(std::string_view line) {
    Json reply;
    try {
        const Json request = Json::parse(line, nullptr, false);
        if (!request.is_object())
            throw BadRequest("a request is one JSON object on one line");
        reply = dispatch(request);
        reply["ok"] = true;
    } catch (const std::exception& e) {
        reply = {{"ok", false}, {"error", e.what()}};
    }
    return reply.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ControlCommands::dispatch(const Json& request) {
    const std::string cmd = request.value("cmd", "");
    if (cmd == "ports")
        return ports();
    if (cmd == "stats")
        return stats(request);
    if (cmd == "qps")
        return qps(request);
    if (cmd == "macs")
        return macs();
    if (cmd == "faults")
        return faults(request);
    if (cmd == "pcap")
        return pcap(request);
    if (cmd == "link")
        return link(request);
    throw BadRequest(
        fmt::format("unknown cmd '{}': ports, stats, qps, macs, faults, pcap or link", cmd));
}

Port& ControlCommands::named_port(const Json& request) const {
    const std::string name = request.value("port", "");
    for (Port* port : fabric_.ports())
        if (port->name() == name)
            return *port;
    throw BadRequest(fmt::format("no port '{}': see `nupactl ports`", name));
}

// {"port": NAME}, or every port without.
std::vector<Port*> ControlCommands::chosen_ports(const Json& request) const {
    if (!request.contains("port"))
        return fabric_.ports();
    return {&named_port(request)};
}

// {"cmd": "ports"} -> {"ports": [{...}]}
Json ControlCommands::ports() const {
    Json list = Json::array();
    for (const Port* port : fabric_.ports())
        list.push_back(port_json(*port));
    return {{"ports", list}};
}

// {"cmd": "stats", "port"?} -> {"stats": {NAME: {COUNTER: n}}}
Json ControlCommands::stats(const Json& request) const {
    Json all = Json::object();
    for (const Port* port : chosen_ports(request))
        all[port->name()] = stats_json(port->stats);
    return {{"stats", all}};
}

// {"cmd": "qps", "port"?} -> {"qps": [{...}]}
Json ControlCommands::qps(const Json& request) const {
    Json list = Json::array();
    for (const Port* port : chosen_ports(request))
        if (const auto* vm = dynamic_cast<const VmPort*>(port))
            for (const auto& [qpn, flow] : vm->qp_flows())
                list.push_back(qp_json(*vm, qpn, flow));
    return {{"qps", list}};
}

// {"cmd": "macs"} -> {"macs": [{"mac", "port"}]}
Json ControlCommands::macs() const {
    Json list = Json::array();
    for (const auto& [key, port] : fabric_.macs().entries()) {
        std::array<uint8_t, 6> mac;
        for (size_t i = 0; i < mac.size(); i++)
            mac[i] = static_cast<uint8_t>(key >> (40 - 8 * i));
        list.push_back({{"mac", format_mac(mac.data())}, {"port", fabric_.ports()[port]->name()}});
    }
    return {{"macs", list}};
}

// {"cmd": "faults", "port", "flow"?: {...}, "clear"?: true, "set"?: {...}}
//   -> {"faults": {...}, "flows": [{"flow": {...}, "faults": {...}}]}
// With a flow: of that rule alone.  Rules are tried in the order in which they were made; a flow
// that none matches has the port's own faults.  clear without a flow takes the rules away, too.
Json ControlCommands::faults(const Json& request) {
    Port& port = named_port(request);
    if (request.contains("flow"))
        change_flow_faults(port, request);
    else
        change_port_faults(port, request);
    Json flows = Json::array();
    for (const Port::FlowFaults& rule : port.flow_faults)
        flows.push_back({{"flow", flow_match_json(rule.match)},
                         {"faults", FaultSettings{rule.faults.config(), {}}.to_json()}});
    return {{"faults", FaultSettings{port.faults.config(), port.link.config()}.to_json()},
            {"flows", flows}};
}

void ControlCommands::change_port_faults(Port& port, const Json& request) {
    const bool clear = request.value("clear", false);
    FaultSettings settings =
        clear ? FaultSettings{} : FaultSettings{port.faults.config(), port.link.config()};
    if (request.contains("set"))
        settings.merge(request["set"]);
    if (clear)
        port.flow_faults.clear();
    if (!clear && !request.contains("set"))
        return;
    port.faults = Faults(settings.faults);
    port.link.configure(settings.link);
    port.options_seen = OptionMemory();
}

void ControlCommands::change_flow_faults(Port& port, const Json& request) {
    const FlowMatch match = parse_flow_match(request["flow"]);
    auto& rules = port.flow_faults;
    auto rule = std::find_if(rules.begin(), rules.end(),
                             [&](const Port::FlowFaults& r) { return r.match == match; });
    const bool clear = request.value("clear", false);
    FaultSettings settings;
    if (!clear && rule != rules.end())
        settings.faults = rule->faults.config();
    if (request.contains("set"))
        settings.merge(request["set"]);
    if (!(settings.link == LinkConfig{}))
        throw BadRequest("rate_mbps, queue_bytes and ecn_bytes are the port's, not a flow's");
    if (!request.contains("set")) {
        if (clear && rule != rules.end())
            rules.erase(rule);
        return;
    }
    if (rule == rules.end() && rules.size() >= kFlowFaultsMax)
        throw BadRequest(fmt::format("a port has at most {} flow rules", kFlowFaultsMax));
    if (rule == rules.end())
        rule = rules.insert(rules.end(), {match, {}});
    rule->faults = Faults(settings.faults);
}

// {"cmd": "pcap", "port", "file": PATH or null} -> {"pcap": PATH or null}
Json ControlCommands::pcap(const Json& request) {
    Port& port = named_port(request);
    if (!request.contains("file"))
        throw BadRequest("pcap needs a file, or null to stop");
    port.pcap.reset();
    if (!request["file"].is_null())
        port.pcap = std::make_unique<PcapWriter>(request["file"].get<std::string>());
    return {{"pcap", request["file"]}};
}

// {"cmd": "link", "port", "up": bool} -> {"link": bool}
Json ControlCommands::link(const Json& request) {
    Port& port = named_port(request);
    port.set_link(request.at("up").get<bool>());
    return {{"link", port.link_up()}};
}

}  // namespace nupa::daemon
