// SPDX-License-Identifier: BSD-3-Clause
// nupactl: looks at and disturbs a running nupa_switch.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>

#include "client.hpp"
#include "prometheus.hpp"
#include "render.hpp"
#include "top.hpp"

namespace {

using nupa::ctl::Json;

// "1%" or "0.01"
double parse_rate(const std::string& text) {
    size_t used = 0;
    double value = 0;
    try {
        value = std::stod(text, &used);
    } catch (const std::exception&) {
        used = 0;
    }
    const bool percent = used && used + 1 == text.size() && text[used] == '%';
    if (percent)
        value /= 100;
    if (!used || (used != text.size() && !percent) || !(value >= 0 && value <= 1))
        throw CLI::ValidationError("rate", "'" + text + "' is not a rate like 1% or 0.01");
    return value;
}

// Json's constructor of null is noexcept; the one that it calls throws for other types only.
// NOLINTNEXTLINE(bugprone-exception-escape)
struct Command {
    Json request;
    std::function<std::string(const Json&)> render;
    std::function<void()> act = nullptr;  // instead of one request
};

class Arguments {
public:
    Arguments() {
        app_.add_option("--control", control_, "the switch's control socket")->required();
        app_.add_flag("--json", json_, "print the reply as JSON");
        app_.require_subcommand(1);
        add_looking();
        add_pool();
        add_top();
        add_faults();
        add_acting();
    }
    CLI::App& app() { return app_; }
    [[nodiscard]] const std::string& control() const { return control_; }
    [[nodiscard]] bool json() const { return json_; }
    Command& command() { return command_; }

private:
    CLI::App* add(const char* name, const char* help) {
        CLI::App* sub = app_.add_subcommand(name, help);
        sub->fallthrough();
        return sub;
    }
    void add_port_option(CLI::App* sub, bool required) {
        sub->add_option("port", port_, "port name")->required(required);
    }
    Json request(const char* cmd) const {
        Json r{{"cmd", cmd}};
        if (!port_.empty())
            r["port"] = port_;
        return r;
    }

    void add_looking() {
        add("ports", "all ports")->callback([this] {
            command_ = {request("ports"), nupa::ctl::render_ports};
        });
        CLI::App* stats = add("stats", "counters that moved, of one port or all");
        add_port_option(stats, false);
        stats->add_flag("--all", all_, "zero counters too");
        auto* prometheus =
            stats->add_flag("--prometheus", prometheus_, "for Prometheus to scrape (text 0.0.4)");
        stats->add_flag("--flows", flows_, "each QP context's counters, too")->needs(prometheus);
        stats->callback([this] {
            if (prometheus_) {
                command_.act = [this] { print_prometheus(); };
                return;
            }
            command_ = {request("stats"),
                        [this](const Json& j) { return nupa::ctl::render_stats(j, all_); }};
        });
        CLI::App* qps = add("qps", "QP contexts, of one port or all");
        add_port_option(qps, false);
        qps->callback([this] { command_ = {request("qps"), nupa::ctl::render_qps}; });
        add("macs", "learnt addresses")->callback([this] {
            command_ = {request("macs"), nupa::ctl::render_macs};
        });
    }

    void add_pool() {
        add("pool", "the pool of memory: who has what of it (mode cxl)")->callback([this] {
            command_ = {request("pool"), nupa::ctl::render_pool};
        });
    }

    void print_prometheus() const {
        Json ports = nupa::ctl::request(control_, {{"cmd", "ports"}});
        if (!port_.empty())
            std::erase_if(ports["ports"].get_ref<Json::array_t&>(),
                          [this](const Json& p) { return p.at("name") != port_; });
        const Json stats = nupa::ctl::request(control_, request("stats"));
        const Json qps = flows_ ? nupa::ctl::request(control_, request("qps")) : Json();
        fmt::print("{}", nupa::ctl::render_prometheus(ports, stats, qps));
    }

    void add_top() {
        CLI::App* top = add("top", "what passes now: ports and flows, by second");
        top->add_flag("--once", top_.once, "one interval's rates, and end");
        top->add_option("--interval", top_.interval_s, "seconds between two looks (1)")
            ->check(CLI::Range(0.1, 3600.0));
        std::map<std::string, nupa::ctl::TopOrder> orders;
        for (size_t i = 0; i < std::size(nupa::ctl::kTopOrders); i++)
            orders[nupa::ctl::kTopOrders[i]] = static_cast<nupa::ctl::TopOrder>(i);
        top->add_option("--sort", top_.order, "placed, copied, sent, drops or name")
            ->transform(CLI::CheckedTransformer(orders));
        top->callback([this] {
            command_.act = [this] {
                top_.control = control_;
                nupa::ctl::run_top(top_);
            };
        });
    }

    void add_faults() {
        CLI::App* faults = add("faults", "show or set what impairs the way towards a port");
        add_port_option(faults, true);
        faults->add_option("action", clear_, "'clear' takes every fault away first")
            ->check(CLI::IsMember({"clear"}));
        for (const char* rate : {"loss", "duplicate", "reorder", "corrupt", "truncate", "bleach",
                                 "mangle", "copy", "delay"})
            faults->add_option_function<std::string>(
                std::string("--") + rate,
                [this, rate](const std::string& text) { set_[rate] = parse_rate(text); },
                "share of segments, 1% or 0.01");
        struct Number {
            const char* option;
            const char* key;
            const char* help;
        };
        static constexpr Number kNumbers[] = {
            {"--reorder-packets", "reorder_packets", "a reordered one lets 1 to this many pass"},
            {"--delay-min-us", "delay_min_us", "microseconds"},
            {"--delay-max-us", "delay_max_us", "microseconds"},
            {"--rate-mbps", "rate_mbps", "lane rate, 0: no limit"},
            {"--queue-bytes", "queue_bytes", "tail drop beyond, with --rate-mbps"},
            {"--ecn-bytes", "ecn_bytes", "mark congestion above this much queue, 0: never"},
            {"--seed", "seed", "the same seed and packets give the same faults"},
        };
        for (const Number& n : kNumbers)
            faults->add_option_function<uint64_t>(
                n.option, [this, n](uint64_t value) { set_[n.key] = value; }, n.help);
        for (const char* address : {"src", "dst"})
            faults->add_option_function<std::string>(
                std::string("--") + address,
                [this, address](const std::string& text) { flow_[address] = text; },
                "only flows with this address");
        for (const char* number : {"sport", "dport"})
            faults->add_option_function<uint16_t>(
                std::string("--") + number,
                [this, number](uint16_t value) { flow_[number] = value; },
                "only flows with this port");
        faults->callback([this] {
            Json r = request("faults");
            if (!flow_.empty())
                r["flow"] = flow_;
            if (!clear_.empty())
                r["clear"] = true;
            if (!set_.empty())
                r["set"] = set_;
            command_ = {r, nupa::ctl::render_faults};
        });
    }

    void add_acting() {
        CLI::App* pcap = add("pcap", "capture a port's segments to a file, or stop");
        add_port_option(pcap, true);
        pcap->add_option("file", file_, "capture file, or 'off'")->required();
        pcap->callback([this] {
            Json r = request("pcap");
            const bool off = file_ == "off";
            // The switch may run in another directory.
            r["file"] = off ? Json(nullptr) : Json(std::filesystem::absolute(file_).string());
            command_ = {r, [off](const Json& j) {
                            return off ? std::string("capture stopped\n")
                                       : fmt::format("capturing to {}\n",
                                                     j.at("pcap").get<std::string>());
                        }};
        });
        CLI::App* link = add("link", "take a port's link up or down");
        add_port_option(link, true);
        link->add_option("state", file_, "up or down")
            ->required()
            ->check(CLI::IsMember({"up", "down"}));
        link->callback([this] {
            Json r = request("link");
            r["up"] = file_ == "up";
            command_ = {r, [this](const Json& j) {
                            return fmt::format("{} link {}\n", port_,
                                               j.at("link").get<bool>() ? "up" : "down");
                        }};
        });
    }

    CLI::App app_{"control a running nupa_switch"};
    std::string control_;
    std::string port_;
    std::string file_;
    std::string clear_;
    bool json_ = false;
    bool all_ = false;
    bool prometheus_ = false;
    bool flows_ = false;
    nupa::ctl::TopOptions top_;
    Json set_ = Json::object();
    Json flow_ = Json::object();
    Command command_;
};

}  // namespace

int main(int argc, char** argv) {
    try {
        Arguments arguments;
        CLI11_PARSE(arguments.app(), argc, argv);
        if (arguments.command().act) {
            arguments.command().act();
            return 0;
        }
        const Json reply = nupa::ctl::request(arguments.control(), arguments.command().request);
        fmt::print("{}",
                   arguments.json() ? reply.dump(2) + "\n" : arguments.command().render(reply));
        return 0;
    } catch (const std::exception& e) {
        fmt::print(stderr, "nupactl: {}\n", e.what());
        return 1;
    }
}
