// SPDX-License-Identifier: BSD-3-Clause
// ncqp: netcat for queue pairs.  See docs/ncqp.md.
#include <fmt/core.h>

#include <exception>

#include "options.hpp"
#include "stop.hpp"
#include "transfer.hpp"

int main(int argc, char** argv) {
    int exit_code = ncqp::kExitOk;
    try {
        const auto options = ncqp::parse_options(argc, argv, exit_code);
        if (!options)
            return exit_code;
        ncqp::stop_install();
        return ncqp::run(*options);
    } catch (const std::exception& e) {
        fmt::print(stderr, "ncqp: {}\n", e.what());
        return ncqp::kExitFailure;
    }
}
