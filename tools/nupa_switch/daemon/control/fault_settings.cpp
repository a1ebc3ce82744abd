// SPDX-License-Identifier: BSD-3-Clause
#include "control/fault_settings.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "event/clock.hpp"

namespace nupa::daemon {
namespace {

using Json = nlohmann::json;

struct RateField {
    const char* name;
    uint32_t FaultConfig::*ppm;
};
constexpr std::array kRates{
    RateField{"loss", &FaultConfig::loss_ppm},
    RateField{"duplicate", &FaultConfig::duplicate_ppm},
    RateField{"reorder", &FaultConfig::reorder_ppm},
    RateField{"corrupt", &FaultConfig::corrupt_ppm},
    RateField{"truncate", &FaultConfig::truncate_ppm},
    RateField{"bleach", &FaultConfig::bleach_ppm},
    RateField{"mangle", &FaultConfig::mangle_ppm},
    RateField{"copy", &FaultConfig::copy_ppm},
    RateField{"delay", &FaultConfig::delay_ppm},
};

constexpr uint64_t kDelayMaxUs = 60'000'000;

uint32_t parse_rate(const Json& value, const char* name) {
    if (!value.is_number())
        throw std::runtime_error(fmt::format("{} is not a number", name));
    const double rate = value.get<double>();
    if (!(rate >= 0 && rate <= 1))
        throw std::runtime_error(fmt::format("{} is not between 0 and 1", name));
    return static_cast<uint32_t>(std::lround(rate * kPpm));
}

template <class T>
bool take_number(const Json& json, const char* name, T& to,
                 uint64_t max = std::numeric_limits<T>::max()) {
    if (!json.contains(name))
        return false;
    const Json& value = json[name];
    if (!value.is_number_unsigned() || value.get<uint64_t>() > max)
        throw std::runtime_error(fmt::format("{} is not a whole number from 0 to {}", name, max));
    to = static_cast<T>(value.get<uint64_t>());
    return true;
}

bool is_known(const std::string& key) {
    static constexpr std::array kNumbers{"seed",         "reorder_packets", "delay_min_us",
                                         "delay_max_us", "rate_mbps",       "queue_bytes",
                                         "ecn_bytes"};
    for (const RateField& rate : kRates)
        if (key == rate.name)
            return true;
    return std::find(kNumbers.begin(), kNumbers.end(), key) != kNumbers.end();
}

}  // namespace

void FaultSettings::merge(const Json& json) {
    if (!json.is_object())
        throw std::runtime_error("set is not an object");
    for (const auto& [key, value] : json.items())
        if (!is_known(key))
            throw std::runtime_error(fmt::format("unknown fault '{}'", key));
    for (const RateField& rate : kRates)
        if (json.contains(rate.name))
            faults.*rate.ppm = parse_rate(json[rate.name], rate.name);
    take_number(json, "seed", faults.seed);
    take_number(json, "reorder_packets", faults.reorder_packets_max);
    uint64_t us = 0;
    if (take_number(json, "delay_min_us", us, kDelayMaxUs)) {
        faults.delay_min_ns = us * kNsPerUs;
        faults.delay_max_ns = std::max(faults.delay_max_ns, faults.delay_min_ns);
    }
    if (take_number(json, "delay_max_us", us, kDelayMaxUs))
        faults.delay_max_ns = us * kNsPerUs;
    take_number(json, "rate_mbps", link.rate_mbps, LinkConfig::kRateMaxMbps);
    take_number(json, "queue_bytes", link.queue_bytes);
    take_number(json, "ecn_bytes", link.ecn_bytes);
    if (!faults.valid())
        throw std::runtime_error(
            "a range is empty: reorder_packets of at least 1, delay_min_us at most delay_max_us");
}

Json FaultSettings::to_json() const {
    Json json = Json::object();
    for (const RateField& rate : kRates)
        json[rate.name] = static_cast<double>(faults.*rate.ppm) / kPpm;
    json["seed"] = faults.seed;
    json["reorder_packets"] = faults.reorder_packets_max;
    json["delay_min_us"] = faults.delay_min_ns / kNsPerUs;
    json["delay_max_us"] = faults.delay_max_ns / kNsPerUs;
    json["rate_mbps"] = link.rate_mbps;
    json["queue_bytes"] = link.queue_bytes;
    json["ecn_bytes"] = link.ecn_bytes;
    return json;
}

}  // namespace nupa::daemon
