// SPDX-License-Identifier: BSD-3-Clause
#include "top.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>

#include "render.hpp"

namespace nupa::ctl {
namespace {

// What one port or queue pair did, by second.
struct Row {
    std::string name;
    double placed, copied, sent, drops;  // bytes, and packets
    std::vector<std::string> cells;
};

uint64_t number(const Json& object, const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

uint64_t sum(const Json& counters, std::initializer_list<const char*> names) {
    uint64_t total = 0;
    for (const char* name : names)
        total += number(counters, name);
    return total;
}

// A counter that is smaller now began anew.
double rate(uint64_t before, uint64_t now, double seconds) {
    return static_cast<double>(now >= before ? now - before : now) / seconds;
}

std::string amount(double n) {
    static constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    for (; n >= 1000 && unit + 1 < std::size(kUnits); unit++)
        n /= 1000;
    return unit == 0 ? fmt::format("{:.0f}", n) : fmt::format("{:.1f}{}", n, kUnits[unit]);
}

std::string bits(double bytes) { return amount(bytes * 8) + "b/s"; }

std::string share(double placed, double copied) {
    return placed + copied > 0 ? fmt::format("{:.0f}%", 100 * placed / (placed + copied)) : "-";
}

// Not what floods to everybody and is filtered there.
uint64_t drops(const Json& counters) {
    return sum(counters,
               {"rx_drop_no_buffer", "rx_drop_no_queue", "tx_drop_invalid", "tx_drop_unknown",
                "tx_drop_source", "drop_overtaken", "queue_drop", "fault_loss"});
}

Row port_row(const Json& port, const Json& before, const Json& now, double seconds) {
    auto moved = [&](const char* name) {
        return rate(number(before, name), number(now, name), seconds);
    };
    Row row{port.at("name").get<std::string>(),
            moved("placed_bytes"),
            moved("qp_delivered_bytes"),
            moved("tx_bytes"),
            rate(drops(before), drops(now), seconds),
            {}};
    row.cells = {row.name,
                 port.at("link").get<bool>() ? port.at("state").get<std::string>() : "link down",
                 bits(row.sent),
                 bits(moved("rx_bytes")),
                 bits(row.placed),
                 bits(row.copied),
                 share(row.placed, row.copied),
                 amount(moved("ecn_marked")),
                 amount(row.drops),
                 std::to_string(drops(now))};
    return row;
}

std::string key_of(const Json& qp) {
    return fmt::format("{} {} {}", qp.at("port").get<std::string>(), number(qp, "qpn"),
                       qp.at("flow").get<std::string>());
}

Row qp_row(const Json& qp, const Json& before, double seconds) {
    auto moved = [&](const char* name) {
        return rate(number(before, name), number(qp, name), seconds);
    };
    Row row{key_of(qp),        moved("placed_bytes"), moved("delivered_bytes"),
            moved("tx_bytes"), moved("refused"),      {}};
    row.cells = {qp.at("port").get<std::string>(),
                 std::to_string(number(qp, "qpn")),
                 qp.at("flow").get<std::string>(),
                 bits(row.sent),
                 bits(row.placed),
                 bits(row.copied),
                 share(row.placed, row.copied),
                 amount(row.drops)};
    return row;
}

void sort(std::vector<Row>& rows, TopOrder order) {
    auto key = [order](const Row& r) {
        switch (order) {
            case TopOrder::kPlaced:
                return r.placed;
            case TopOrder::kCopied:
                return r.copied;
            case TopOrder::kSent:
                return r.sent;
            case TopOrder::kDrops:
                return r.drops;
            default:
                return 0.0;
        }
    };
    std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
        return key(a) != key(b) ? key(a) > key(b) : a.name < b.name;
    });
}

void append(std::vector<std::string>& lines, std::vector<std::string> head, std::vector<Row>& rows,
            TopOrder order) {
    sort(rows, order);
    std::vector<std::vector<std::string>> table{std::move(head)};
    for (Row& row : rows)
        table.push_back(std::move(row.cells));
    const std::string text = render_table(table);
    for (size_t from = 0, end; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
        lines.push_back(text.substr(from, end - from));
}

}  // namespace

std::vector<std::string> render_top(const Look& before, const Look& now, TopOrder order) {
    const double seconds = std::max(now.at_s - before.at_s, 1e-3);
    const Json none = Json::object();
    std::vector<Row> ports, qps;
    const Json& stats = before.stats.is_object() ? before.stats.at("stats") : none;
    for (const Json& port : now.ports.at("ports")) {
        const std::string name = port.at("name").get<std::string>();
        const Json& counters = now.stats.at("stats");
        if (counters.contains(name))  // it may have come between two requests
            ports.push_back(port_row(port, stats.contains(name) ? stats.at(name) : none,
                                     counters.at(name), seconds));
    }
    std::map<std::string, const Json*> earlier;
    if (before.qps.is_object())
        for (const Json& qp : before.qps.at("qps"))
            earlier[key_of(qp)] = &qp;
    for (const Json& qp : now.qps.at("qps")) {
        const auto at = earlier.find(key_of(qp));
        qps.push_back(qp_row(qp, at != earlier.end() ? *at->second : none, seconds));
    }
    std::vector<std::string> lines;
    append(lines,
           {"PORT", "STATE", "SENT", "RECEIVED", "PLACED", "COPIED", "SHARE", "MARKS/s", "DROPS/s",
            "DROPS"},
           ports, order);
    lines.emplace_back();
    if (qps.empty())
        lines.emplace_back("no QP contexts");
    else
        append(lines, {"PORT", "QPN", "FLOW", "SENT", "PLACED", "COPIED", "SHARE", "REFUSED/s"},
               qps, order);
    return lines;
}

}  // namespace nupa::ctl
