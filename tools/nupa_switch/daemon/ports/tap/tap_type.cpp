// SPDX-License-Identifier: BSD-3-Clause
// --tap: an uplink to the host's network.
#include <fmt/core.h>
#include <net/if.h>

#include "ports/port_type.hpp"
#include "ports/tap/tap_port.hpp"

namespace nupa::daemon {
namespace {

constexpr unsigned kDescriptorsMax = 4;  // the interface, its configuration, capture
constexpr const char* kForm = "name=NAME,ifname=IFNAME";

class TapPlan final : public PortPlan {
public:
    TapPlan(std::string name, std::string ifname)
        : PortPlan(std::move(name)), ifname_(std::move(ifname)) {}
    [[nodiscard]] std::vector<Claim> claims() const override { return {{"interface", ifname_}}; }
    [[nodiscard]] unsigned descriptors_max() const noexcept override { return kDescriptorsMax; }
    [[nodiscard]] std::unique_ptr<Port> open(const PortContext& context,
                                             uint16_t id) const override {
        return std::make_unique<TapPort>(context, name(), ifname_, id);
    }

private:
    std::string ifname_;
};

class TapType final : public PortType {
public:
    [[nodiscard]] const char* option() const noexcept override { return "--tap"; }
    [[nodiscard]] const char* about() const noexcept override {
        return "uplink to the host's network";
    }
    [[nodiscard]] const char* form() const noexcept override { return kForm; }
    [[nodiscard]] std::unique_ptr<PortPlan> plan(std::string name, Fields& fields) const override {
        std::string ifname = fields.take("ifname");
        if (ifname.empty() || ifname.size() >= IFNAMSIZ)
            throw fields.error(fmt::format("ifname= needs 1 to {} bytes: {}", IFNAMSIZ - 1, kForm));
        return std::make_unique<TapPlan>(std::move(name), std::move(ifname));
    }
};

}  // namespace

std::unique_ptr<PortType> make_tap_type() { return std::make_unique<TapType>(); }

}  // namespace nupa::daemon
