// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <set>

namespace nupa::daemon {
namespace {

bool is_name(const std::string& name) {
    if (name.empty() || name.size() > kNameMaxBytes)
        return false;
    return name.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
           std::string::npos;
}

std::unique_ptr<PortPlan> parse_port(const PortType& type, const std::string& text) {
    Fields fields(type.option(), text);
    std::string name = fields.take("name");
    if (!is_name(name))
        throw fields.error(fmt::format("name= needs 1 to {} letters, digits, '_', '.' or '-': {}",
                                       kNameMaxBytes, type.form()));
    std::unique_ptr<PortPlan> plan = type.plan(std::move(name), fields);
    if (const std::string key = fields.left(); !key.empty())
        throw fields.error(fmt::format("unknown key '{}'; the form is {}", key, type.form()));
    return plan;
}

void check_unique(const std::vector<std::unique_ptr<PortPlan>>& ports) {
    std::set<std::string> names;
    std::set<std::pair<std::string, std::string>> claims;
    for (const auto& port : ports) {
        if (!names.insert(port->name()).second)
            throw OptionError(fmt::format("two ports are named '{}'", port->name()));
        for (const PortPlan::Claim& claim : port->claims())
            if (!claims.insert({claim.kind, claim.value}).second)
                throw OptionError(
                    fmt::format("two ports have the {} '{}'", claim.kind, claim.value));
    }
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
    CLI::App app{"NUPA CXL switch: emulated fabric with tcp_qp placement"};
    Options options;
    const auto types = port_types();
    std::vector<std::vector<std::string>> texts(types.size());
    app.add_option("--control", options.control, "UNIX socket for nupactl")->required();
    for (size_t i = 0; i < types.size(); i++)
        app.add_option(types[i]->option(), texts[i],
                       fmt::format("{}: {}", types[i]->about(), types[i]->form()));
    for (const auto& type : types)
        type->add_options(app);
    app.add_option("--ready-fd", options.ready_fd, "write one line there once every port listens")
        ->check(CLI::NonNegativeNumber);
    try {
        app.parse(argc, argv);
        for (size_t i = 0; i < types.size(); i++)
            for (const std::string& text : texts[i])
                options.ports.push_back(parse_port(*types[i], text));
        if (options.ports.empty())
            throw OptionError("no port: give --port or --tap at least once");
        if (options.ports.size() > kPortsMax)
            throw OptionError(fmt::format("{} ports, at most {}", options.ports.size(), kPortsMax));
        check_unique(options.ports);
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
