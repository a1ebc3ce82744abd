// SPDX-License-Identifier: BSD-3-Clause
// From a network interface to the tcp_qp device on it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "verbs/context.hpp"

namespace tcpqp {

// No tcp_qp device serves the interface; what() says what to run.
struct DeviceMissing : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The opened tcp_qp device whose netdev is @ifname.  Throws DeviceMissing or std::system_error.
[[nodiscard]] std::unique_ptr<Context> open_device(const std::string& ifname);

}  // namespace tcpqp
