// SPDX-License-Identifier: BSD-3-Clause
// The commands of the control socket: docs in control_commands.cpp, one function each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "fabric/fabric.hpp"

namespace nupa::daemon {

class ControlCommands {
public:
    using Json = nlohmann::json;

    explicit ControlCommands(Fabric& fabric) : fabric_(fabric) {}
    // One request line to one reply line; never throws for what a client wrote.
    std::string handle(std::string_view line);

private:
    Json dispatch(const Json& request);
    Json ports() const;
    Json stats(const Json& request) const;
    Json qps(const Json& request) const;
    Json macs() const;
    Json pool() const;
    Json faults(const Json& request);
    void change_port_faults(Impairments& impairments, const Json& request);
    void change_flow_faults(Impairments& impairments, const Json& request);
    Json pcap(const Json& request);
    Json link(const Json& request);

    Link& named_link(const Json& request) const;
    std::vector<const Port*> chosen_ports(const Json& request) const;

    Fabric& fabric_;
};

}  // namespace nupa::daemon
