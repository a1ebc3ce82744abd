// SPDX-License-Identifier: BSD-3-Clause
// What a type of port says of itself.  A new one is a folder beside this file with
//   CMakeLists.txt      its sources,
//   a Port              what the fabric calls,
//   make_NAME_type()    its PortType,
// and its name in port_types, in the daemon's CMakeLists.txt.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "event/epoll.hpp"
#include "event/heartbeat.hpp"
#include "event/spare_time.hpp"
#include "fabric/fabric.hpp"
#include "ports/fields.hpp"

namespace CLI {
class App;
}

namespace nupa::daemon {

// What a port lives in.
struct PortContext {
    Epoll& epoll;
    Fabric& fabric;
    Heartbeat& heartbeat;
    const SpareTime& spare_time;  // for ports that watch
};

// One port as the command line asks for it, checked.
class PortPlan {
public:
    // Of what there is one only: no two ports may name the same.
    struct Claim {
        const char* kind;  // "socket"
        std::string value;
    };

    explicit PortPlan(std::string name) : name_(std::move(name)) {}
    virtual ~PortPlan() = default;
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] virtual std::vector<Claim> claims() const = 0;
    // That the port may have open.
    [[nodiscard]] virtual unsigned descriptors_max() const noexcept = 0;
    // The port can be used from outside when this returns; throws std::exception with what to do.
    [[nodiscard]] virtual std::unique_ptr<Port> open(const PortContext& context,
                                                     uint16_t id) const = 0;

private:
    std::string name_;
};

class PortType {
public:
    virtual ~PortType() = default;
    [[nodiscard]] virtual const char* option() const noexcept = 0;  // "--port"
    [[nodiscard]] virtual const char* about() const noexcept = 0;
    [[nodiscard]] virtual const char* form() const noexcept = 0;  // "name=NAME,socket=PATH"
    // Options that hold for all ports of the type; they are parsed before plan() is called.
    virtual void add_options(CLI::App& /*app*/) {}
    // Takes what it knows of @fields; throws OptionError.
    [[nodiscard]] virtual std::unique_ptr<PortPlan> plan(std::string name,
                                                         Fields& fields) const = 0;
};

// One of each, in the order of the registry.
std::vector<std::unique_ptr<PortType>> port_types();

}  // namespace nupa::daemon
