// SPDX-License-Identifier: BSD-3-Clause
// Requests are {"cmd": NAME, ...}; replies {"ok": true, ...} or {"ok": false, "error": TEXT}.
#include "control/control_commands.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <array>

#include "control/fault_settings.hpp"
#include "control/flow_match_json.hpp"
#include "fabric/mac_address.hpp"

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

Json qp_json(const Port& port, const PortQp& qp) {
    Json json{{"port", port.name()}, {"qpn", qp.qpn}, {"flow", format_flow(qp.flow)}};
    if (qp.stats)
        for (size_t i = 0; i < NUPA_QP_STAT_COUNT; i++)
            json[qp_stat_name(i)] = qp.stats->values[i];
    return json;
}

Json link_json(const Link& link) {
    const Port& port = link.port();
    Json json{
        {"id", port.id()}, {"name", port.name()}, {"state", port.state()}, {"link", link.up()}};
    json["pcap"] = link.pcap() ? Json(link.pcap()->path()) : Json(nullptr);
    for (const PortFact& fact : port.facts())
        std::visit([&](const auto& value) { json[fact.name] = value; }, fact.value);
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
    if (cmd == "pool")
        return pool();
    if (cmd == "faults")
        return faults(request);
    if (cmd == "pcap")
        return pcap(request);
    if (cmd == "link")
        return link(request);
    throw BadRequest(
        fmt::format("unknown cmd '{}': ports, stats, qps, macs, pool, faults, pcap or link", cmd));
}

Link& ControlCommands::named_link(const Json& request) const {
    const std::string name = request.value("port", "");
    for (const auto& link : fabric_.links())
        if (link->port().name() == name)
            return *link;
    throw BadRequest(fmt::format("no port '{}': see `nupactl ports`", name));
}

// {"port": NAME}, or every port without.
std::vector<const Port*> ControlCommands::chosen_ports(const Json& request) const {
    if (request.contains("port"))
        return {&named_link(request).port()};
    std::vector<const Port*> all;
    for (const auto& link : fabric_.links())
        all.push_back(&link->port());
    return all;
}

// {"cmd": "ports"} -> {"ports": [{...}]}
Json ControlCommands::ports() const {
    Json list = Json::array();
    for (const auto& link : fabric_.links())
        list.push_back(link_json(*link));
    return {{"ports", list}};
}

// {"cmd": "stats", "port"?} -> {"stats": {NAME: {COUNTER: n}}}
Json ControlCommands::stats(const Json& request) const {
    Json all = Json::object();
    for (const Port* port : chosen_ports(request))
        all[port->name()] = stats_json(port->stats());
    return {{"stats", all}};
}

// {"cmd": "qps", "port"?} -> {"qps": [{...}]}
Json ControlCommands::qps(const Json& request) const {
    Json list = Json::array();
    for (const Port* port : chosen_ports(request))
        for (const PortQp& qp : port->qps())
            list.push_back(qp_json(*port, qp));
    return {{"qps", list}};
}

// {"cmd": "macs"} -> {"macs": [{"mac", "port"}]}
Json ControlCommands::macs() const {
    Json list = Json::array();
    for (const auto& [key, entry] : fabric_.macs().entries()) {
        std::array<uint8_t, 6> mac;
        for (size_t i = 0; i < mac.size(); i++)
            mac[i] = static_cast<uint8_t>(key >> (40 - 8 * i));
        list.push_back({{"mac", format_mac(mac.data())},
                        {"port", fabric_.links()[entry.port]->port().name()}});
    }
    return {{"macs", list}};
}

// {"cmd": "pool"} -> {"mode": "pcie"}, or
//   {"mode": "cxl", "bytes", "free_bytes", "handovers", "handover_bytes",
//    "ports": [{"name", "leased_bytes", "share_bytes", "resident_bytes",
//    "leases": [{"at", "bytes", "state", "regions"}]}]}
Json ControlCommands::pool() const {
    Json reply = Json::object();
    reply["mode"] = "pcie";
    for (const auto& link : fabric_.links()) {
        const auto pool = link->port().pool();
        if (!pool)
            continue;
        Json leases = Json::array();
        uint64_t leased = 0;
        for (const PortPool::Lease& lease : pool->leases) {
            leases.push_back({{"at", lease.at},
                              {"bytes", lease.bytes},
                              {"state", lease.state},
                              {"regions", lease.regions}});
            leased += lease.bytes;
        }
        reply["mode"] = "cxl";
        reply["bytes"] = pool->pool_bytes;
        reply["free_bytes"] = pool->free_bytes;
        reply["handovers"] = pool->handovers;
        reply["handover_bytes"] = pool->handover_bytes;
        reply["ports"].push_back({{"name", link->port().name()},
                                  {"leased_bytes", leased},
                                  {"share_bytes", pool->share_bytes},
                                  {"resident_bytes", pool->resident_bytes},
                                  {"leases", leases}});
    }
    return reply;
}

// {"cmd": "faults", "port", "flow"?: {...}, "clear"?: true, "set"?: {...}}
//   -> {"faults": {...}, "flows": [{"flow": {...}, "faults": {...}}]}
// With a flow: of that rule alone.  Rules are tried in the order in which they were made; a flow
// that none matches has the port's own faults.  clear without a flow takes the rules away, too.
Json ControlCommands::faults(const Json& request) {
    Impairments& impairments = named_link(request).impairments();
    if (request.contains("flow"))
        change_flow_faults(impairments, request);
    else
        change_port_faults(impairments, request);
    Json flows = Json::array();
    for (const Impairments::Rule& rule : impairments.rules())
        flows.push_back({{"flow", flow_match_json(rule.match)},
                         {"faults", FaultSettings{rule.faults.config(), {}}.to_json()}});
    return {{"faults", FaultSettings{impairments.faults(), impairments.rate()}.to_json()},
            {"flows", flows}};
}

void ControlCommands::change_port_faults(Impairments& impairments, const Json& request) {
    const bool clear = request.value("clear", false);
    FaultSettings settings =
        clear ? FaultSettings{} : FaultSettings{impairments.faults(), impairments.rate()};
    if (request.contains("set"))
        settings.merge(request["set"]);
    if (clear)
        impairments.clear_rules();
    if (clear || request.contains("set"))
        impairments.configure(settings.faults, settings.link);
}

void ControlCommands::change_flow_faults(Impairments& impairments, const Json& request) {
    const FlowMatch match = parse_flow_match(request["flow"]);
    const Impairments::Rule* rule = impairments.find_rule(match);
    const bool clear = request.value("clear", false);
    FaultSettings settings;
    if (!clear && rule)
        settings.faults = rule->faults.config();
    if (request.contains("set"))
        settings.merge(request["set"]);
    if (!(settings.link == LinkConfig{}))
        throw BadRequest("rate_mbps, queue_bytes and ecn_bytes are the port's, not a flow's");
    if (!request.contains("set")) {
        if (clear)
            impairments.remove_rule(match);
        return;
    }
    if (!impairments.set_rule(match, settings.faults))
        throw BadRequest(fmt::format("a port has at most {} flow rules", Impairments::kRulesMax));
}

// {"cmd": "pcap", "port", "file": PATH or null} -> {"pcap": PATH or null}
Json ControlCommands::pcap(const Json& request) {
    Link& link = named_link(request);
    if (!request.contains("file"))
        throw BadRequest("pcap needs a file, or null to stop");
    if (request["file"].is_null()) {
        link.capture_to(nullptr);
        return {{"pcap", nullptr}};
    }
    const auto path = request["file"].get<std::string>();
    for (const auto& other : fabric_.links())
        if (other.get() != &link && other->pcap() && other->pcap()->is(path))
            throw BadRequest(fmt::format("port '{}' is captured there", other->port().name()));
    // What is written there now goes on if this fails; into the same file it writes no more.
    if (link.pcap())
        link.pcap()->flush();
    link.capture_to(std::make_unique<PcapWriter>(path));
    return {{"pcap", path}};
}

// {"cmd": "link", "port", "up": bool} -> {"link": bool}
Json ControlCommands::link(const Json& request) {
    Link& link = named_link(request);
    link.set_up(request.at("up").get<bool>());
    return {{"link", link.up()}};
}

}  // namespace nupa::daemon
