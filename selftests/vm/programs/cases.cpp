// SPDX-License-Identifier: BSD-3-Clause
#include "cases.hpp"

#include <cstdio>
#include <stdexcept>

namespace nupa::programs {
namespace {

void run(const Cases& cases, const std::string& name, const tcpqp::Context& context) {
    try {
        cases.at(name)(context);
    } catch (const std::exception& e) {
        throw std::runtime_error(name + ": " + e.what());
    }
}

}  // namespace

void run_cases(const Cases& cases, const std::vector<std::string>& wanted,
               const std::string& interface) {
    const auto context = tcpqp::open_device(interface);
    std::vector<std::string> names = wanted;
    if (names.empty())
        for (const auto& [name, body] : cases)
            names.push_back(name);
    for (const std::string& name : names)
        run(cases, name, *context);
    std::printf("{\"cases\": %zu}\n", names.size());
}

}  // namespace nupa::programs
