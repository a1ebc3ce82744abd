// SPDX-License-Identifier: BSD-3-Clause
// --port: the port of a virtual machine.
#include <fmt/core.h>
#include <sys/random.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "event/clock.hpp"
#include "ports/port_type.hpp"
#include "ports/vm/last_words.hpp"
#include "ports/vm/vm_port.hpp"

namespace nupa::daemon {
namespace {

constexpr size_t kMemoryMaxMib = 1 << 20;
constexpr size_t kObjectsMax = 1 << 24;
constexpr unsigned kDescriptorsMax = 2 * NUPA_VECTORS + 7;  // eventfds, sockets, BAR2, capture, hbm
constexpr unsigned kPoolDescriptorsMax =
    2 * NUPA_ACCEL_VECTORS + 4;  // eventfds, sockets, BAR2, another's that is taken from
constexpr uint64_t kPoolMibDefault = 256;
constexpr uint64_t kPoolMaxMib = 1 << 15;
constexpr uint64_t kWatchMaxUs = 1'000'000;
constexpr const char* kForm =
    "name=NAME,socket=PATH,ram=PATH[,mac=XX:XX:XX:XX:XX:XX][,queues=N][,hbm=PATH[:PATH]]"
    "[,pool=PATH[,share-mib=N]]";

uint64_t random_seed() {
    uint64_t seed = 0;
    if (::getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        throw_errno("getrandom");
    return seed;
}

class VmPlan final : public PortPlan {
public:
    explicit VmPlan(VmOptions options) : PortPlan(options.name), options_(std::move(options)) {}
    [[nodiscard]] std::vector<Claim> claims() const override {
        std::vector<Claim> all{{"socket", options_.socket}, {"memory file", options_.ram}};
        if (!options_.pool.empty())
            all.push_back({"socket", options_.pool});
        for (const std::string& path : options_.hbm)
            all.push_back({"memory file", path});
        return all;
    }
    [[nodiscard]] unsigned descriptors_max() const noexcept override {
        return kDescriptorsMax + (options_.pool.empty() ? 0 : kPoolDescriptorsMax);
    }
    [[nodiscard]] std::unique_ptr<Port> open(const PortContext& context,
                                             uint16_t id) const override {
        install_last_words();
        return std::make_unique<VmPort>(context, options_, id, random_seed());
    }

private:
    VmOptions options_;
};

unsigned parse_queues(const std::string& text, const Fields& fields) {
    unsigned value = 0;
    auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (err != std::errc{} || end != text.data() + text.size() || value < 1 ||
        value > NUPA_QUEUE_PAIRS_MAX)
        throw fields.error(
            fmt::format("queues must be 1 to {}", static_cast<int>(NUPA_QUEUE_PAIRS_MAX)));
    return value;
}

// In bytes.
uint64_t parse_share(const std::string& text, const Fields& fields) {
    uint64_t value = 0;
    auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (err != std::errc{} || end != text.data() + text.size() || value < 1 || value > kPoolMaxMib)
        throw fields.error(fmt::format("share-mib must be 1 to {}", kPoolMaxMib));
    return value << 20;
}

// "PATH:PATH"
std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> all;
    for (size_t at = 0; at < text.size();) {
        const size_t colon = std::min(text.find(':', at), text.size());
        if (colon > at)
            all.push_back(text.substr(at, colon - at));
        at = colon + 1;
    }
    return all;
}

class VmType final : public PortType {
public:
    [[nodiscard]] const char* option() const noexcept override { return "--port"; }
    [[nodiscard]] const char* about() const noexcept override { return "a virtual machine's port"; }
    [[nodiscard]] const char* form() const noexcept override { return kForm; }

    void add_options(CLI::App& app) override {
        app.add_option("--port-memory-mib", memory_mib_,
                       "of the switch, for the MRs and QPs of one virtual machine's port")
            ->capture_default_str()
            ->check(CLI::Range(size_t{1}, kMemoryMaxMib));
        app.add_option("--port-mrs", limits_.mrs_max, "MRs of one port")
            ->capture_default_str()
            ->check(CLI::Range(size_t{0}, kObjectsMax));
        app.add_option("--mode", mode_,
                       "pcie, or cxl: a pool of memory of which each virtual machine has a window "
                       "(pool=PATH of its port)")
            ->capture_default_str()
            ->check(CLI::IsMember({"pcie", "cxl"}));
        app.add_option("--pool-mib", pool_mib_, "size of the pool, with --mode cxl")
            ->capture_default_str()
            ->check(CLI::Range(uint64_t{1}, kPoolMaxMib));
        app.add_option("--watch", watch_,
                       "look at transmit rings without doorbells, with --mode cxl: auto (while "
                       "there is a processor to spare), always, never")
            ->capture_default_str()
            ->check(CLI::IsMember({"auto", "always", "never"}));
        app.add_option("--watch-us", watch_us_, "how long at most with nothing new")
            ->capture_default_str()
            ->check(CLI::Range(IndexWatch::kMinNs / kNsPerUs, kWatchMaxUs));
        app.add_option("--port-qps", limits_.qps_max, "QP contexts of one port")
            ->capture_default_str()
            ->check(CLI::Range(size_t{0}, kObjectsMax));
    }

    [[nodiscard]] std::unique_ptr<PortPlan> plan(std::string name, Fields& fields) const override {
        VmOptions port;
        port.name = std::move(name);
        port.socket = fields.take("socket");
        port.ram = fields.take("ram");
        if (port.socket.empty() || port.ram.empty())
            throw fields.error(fmt::format("socket= and ram= are both needed: {}", kForm));
        if (const std::string mac = fields.take("mac"); !mac.empty()) {
            const auto parsed = parse_mac(mac);
            if (!parsed || is_multicast(parsed->data()))
                throw fields.error(
                    fmt::format("mac '{}' is not a unicast address like 02:00:00:00:00:01", mac));
            port.mac = *parsed;
        }
        if (const std::string queues = fields.take("queues"); !queues.empty())
            port.queue_pairs = parse_queues(queues, fields);
        port.hbm = split(fields.take("hbm"));
        if (port.hbm.size() > NUPA_WINDOWS_MAX)
            throw fields.error(
                fmt::format("at most {} hbm files", static_cast<int>(NUPA_WINDOWS_MAX)));
        port.pool = fields.take("pool");
        if (port.pool.empty() == (mode_ == "cxl"))
            throw fields.error("pool= and --mode cxl go together");
        if (const std::string share = fields.take("share-mib"); !share.empty())
            port.share_bytes = parse_share(share, fields);
        if (port.share_bytes && port.pool.empty())
            throw fields.error("share-mib= is of pool=");
        if (mode_ == "cxl") {
            port.shared = shared();
            port.watch = watch_ == "auto"     ? Watch::kAuto
                         : watch_ == "always" ? Watch::kAlways
                                              : Watch::kNever;
            port.watch_max_ns = watch_us_ * kNsPerUs;
        }
        port.limits = limits_;
        port.limits.memory_bytes = memory_mib_ << 20;
        return std::make_unique<VmPlan>(std::move(port));
    }

private:
    // One for all ports.
    [[nodiscard]] std::shared_ptr<SharedPool> shared() const {
        if (!shared_)
            shared_ = std::make_shared<SharedPool>(pool_mib_ << 20, random_id());
        return shared_;
    }

    std::string mode_ = "pcie";
    std::string watch_ = "auto";
    uint64_t watch_us_ = IndexWatch::kMaxNs / kNsPerUs;
    uint64_t pool_mib_ = kPoolMibDefault;
    mutable std::shared_ptr<SharedPool> shared_;
    PortEngine::Limits limits_;
    size_t memory_mib_ = limits_.memory_bytes >> 20;
};

}  // namespace

std::unique_ptr<PortType> make_vm_type() { return std::make_unique<VmType>(); }

}  // namespace nupa::daemon
