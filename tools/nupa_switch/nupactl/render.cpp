// SPDX-License-Identifier: BSD-3-Clause
#include "render.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace nupa::ctl {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string text(const Json& value) {
    if (value.is_string())
        return value.get<std::string>();
    if (value.is_null())
        return "-";
    return value.dump();
}

std::string percent(const Json& rate) { return fmt::format("{:g}%", rate.get<double>() * 100); }

}  // namespace

std::string render_table(const Rows& rows) {
    std::vector<size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); i++)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); i++)
            line += fmt::format("{:<{}}  ", row[i], widths[i]);
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + "\n";
    }
    return out;
}

std::string render_ports(const Json& reply) {
    Rows rows{{"PORT", "KIND", "STATE", "LINK", "MAC", "QPS", "MRS", "AT"}};
    for (const Json& port : reply.at("ports")) {
        const bool vm = port.at("kind") == "vm";
        rows.push_back({text(port["name"]), text(port["kind"]), text(port["state"]),
                        port["link"] ? "up" : "down", vm ? text(port["mac"]) : "-",
                        vm ? text(port["qps"]) : "-", vm ? text(port["mrs"]) : "-",
                        vm ? text(port["socket"]) : text(port["ifname"])});
        if (!port["pcap"].is_null())
            rows.back().push_back("pcap " + text(port["pcap"]));
    }
    return render_table(rows);
}

std::string render_stats(const Json& reply, bool all) {
    std::string out;
    for (const auto& [port, counters] : reply.at("stats").items()) {
        Rows rows;
        for (const auto& [name, value] : counters.items())
            if (all || value != 0)
                rows.push_back({"  " + name, text(value)});
        out += port + "\n" + (rows.empty() ? "  nothing counted yet\n" : render_table(rows));
    }
    return out;
}

std::string render_qps(const Json& reply) {
    Rows rows{{"PORT", "QPN", "FLOW", "PLACED", "DELIVERED", "SENT"}};
    auto amount = [](const Json& qp, const std::string& what) {
        return text(qp[what + "_bytes"]) + " B / " + text(qp[what + "_segments"]);
    };
    for (const Json& qp : reply.at("qps"))
        rows.push_back({text(qp["port"]), text(qp["qpn"]), text(qp["flow"]), amount(qp, "placed"),
                        amount(qp, "delivered"), amount(qp, "tx")});
    return rows.size() == 1 ? "no QP contexts\n" : render_table(rows);
}

std::string render_pool(const Json& reply) {
    if (reply.at("mode") != "cxl")
        return "no pool: the switch is in mode pcie\n";
    std::string out = fmt::format("pool of {} bytes, {} free; {} bytes handed over in {} leases\n",
                                  text(reply.at("bytes")), text(reply.at("free_bytes")),
                                  text(reply.at("handover_bytes")), text(reply.at("handovers")));
    Rows rows{{"PORT", "LEASED", "SHARE", "RESIDENT", "LEASES"}},
        ranges{{"PORT", "AT", "BYTES", "STATE", "REGIONS"}};
    for (const Json& port : reply.at("ports")) {
        rows.push_back({text(port["name"]), text(port["leased_bytes"]), text(port["share_bytes"]),
                        text(port["resident_bytes"]), fmt::format("{}", port["leases"].size())});
        for (const Json& lease : port["leases"])
            ranges.push_back({text(port["name"]), fmt::format("{:#x}", lease["at"].get<uint64_t>()),
                              text(lease["bytes"]), text(lease["state"]), text(lease["regions"])});
    }
    out += render_table(rows);
    return ranges.size() == 1 ? out : out + "\n" + render_table(ranges);
}

std::string render_macs(const Json& reply) {
    Rows rows;
    for (const Json& entry : reply.at("macs"))
        rows.push_back({text(entry["mac"]), text(entry["port"])});
    std::sort(rows.begin(), rows.end());
    rows.insert(rows.begin(), {"MAC", "PORT"});
    return render_table(rows);
}

namespace {

void add_fault_rows(Rows& rows, const Json& f) {
    for (const char* rate : {"loss", "duplicate", "reorder", "corrupt", "truncate", "bleach",
                             "mangle", "copy", "delay"})
        if (f.at(rate) != 0)
            rows.push_back({rate, percent(f[rate])});
    if (f.at("reorder") != 0)
        rows.push_back({"reorder packets", "1-" + text(f["reorder_packets"])});
    if (f.at("delay") != 0)
        rows.push_back(
            {"delay", fmt::format("{}-{} us", text(f["delay_min_us"]), text(f["delay_max_us"]))});
    if (f.at("rate_mbps") != 0) {
        rows.push_back({"rate", text(f["rate_mbps"]) + " Mbit/s"});
        rows.push_back({"queue", text(f["queue_bytes"]) + " bytes"});
        if (f.at("ecn_bytes") != 0)
            rows.push_back({"ecn mark above", text(f["ecn_bytes"]) + " bytes"});
    }
    if (!rows.empty())
        rows.push_back({"seed", text(f["seed"])});
}

std::string flow_text(const Json& flow) {
    std::string out = "flow";
    for (const auto& [field, value] : flow.items())
        out += " " + field + " " + text(value);
    return out + ":\n";
}

}  // namespace

std::string render_faults(const Json& reply) {
    Rows rows;
    add_fault_rows(rows, reply.at("faults"));
    std::string out = rows.empty() ? "no faults\n" : render_table(rows);
    for (const Json& rule : reply.at("flows")) {
        rows.clear();
        add_fault_rows(rows, rule.at("faults"));
        out += flow_text(rule.at("flow")) + (rows.empty() ? "no faults\n" : render_table(rows));
    }
    return out;
}

}  // namespace nupa::ctl
