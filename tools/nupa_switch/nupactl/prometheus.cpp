// SPDX-License-Identifier: BSD-3-Clause
#include "prometheus.hpp"

#include <fmt/core.h>

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "counters.hpp"

namespace nupa::ctl {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

std::string escaped(std::string_view text, bool quotes) {
    std::string out;
    for (const char c : text) {
        if (c == '\n')
            out += "\\n";
        else if (c == '\\' || (c == '"' && quotes))
            out += {'\\', c};
        else
            out += c;
    }
    return out;
}

// The samples of one metric must stand together, below its HELP and TYPE.
class Metrics {
public:
    void add(const std::string& name, std::string_view help, std::string_view type,
             const Labels& labels, uint64_t value) {
        std::string& of = metrics_[name];
        if (of.empty())
            of =
                fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name, type);
        of += name;
        char before = '{';
        for (const auto& [label, text] : labels) {
            of += fmt::format("{}{}=\"{}\"", before, label, escaped(text, true));
            before = ',';
        }
        of += fmt::format("}} {}\n", value);
    }
    void add_counter(std::string_view prefix, std::string_view name, std::string_view help,
                     const Labels& labels, uint64_t value) {
        add(fmt::format("{}_{}_total", prefix, name), help.empty() ? "Not known here" : help,
            "counter", labels, value);
    }
    [[nodiscard]] std::string text() const {
        std::string all;
        for (const auto& [name, samples] : metrics_)
            all += samples;
        return all;
    }

private:
    std::map<std::string, std::string> metrics_;
};

void add_port(Metrics& metrics, const Json& port) {
    const Labels labels{{"port", port.at("name").get<std::string>()},
                        {"kind", port.at("kind").get<std::string>()}};
    metrics.add("nupa_port_link_up", "Whether the port's link is up", "gauge", labels,
                port.at("link").get<bool>());
    metrics.add("nupa_port_running", "Whether the port's host has enabled it", "gauge", labels,
                port.at("state") == "running");
    if (port.contains("qps")) {
        metrics.add("nupa_port_qps", "Queue pair contexts", "gauge", labels, port.at("qps"));
        metrics.add("nupa_port_mrs", "Memory regions", "gauge", labels, port.at("mrs"));
    }
}

void add_qp(Metrics& metrics, const Json& qp) {
    const Labels labels{{"port", qp.at("port").get<std::string>()},
                        {"qpn", std::to_string(qp.at("qpn").get<uint32_t>())},
                        {"flow", qp.at("flow").get<std::string>()}};
    for (const auto& [name, value] : qp.items())
        if (value.is_number_unsigned() && name != "qpn")
            metrics.add_counter("nupa_qp", name, qp_counter_help(name), labels, value);
}

}  // namespace

std::string render_prometheus(const Json& ports, const Json& stats, const Json& qps) {
    Metrics metrics;
    for (const Json& port : ports.at("ports"))
        add_port(metrics, port);
    for (const auto& [port, counters] : stats.at("stats").items())
        for (const auto& [name, value] : counters.items())
            metrics.add_counter("nupa_port", name, port_counter_help(name), {{"port", port}},
                                value);
    if (!qps.is_null())
        for (const Json& qp : qps.at("qps"))
            add_qp(metrics, qp);
    return metrics.text();
}

}  // namespace nupa::ctl
