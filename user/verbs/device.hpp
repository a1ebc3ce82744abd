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

// Throws DeviceMissing if the kernel module is not there at all; @ifname is for the advice.
void require_module(const std::string& ifname);

// The opened tcp_qp device whose netdev is @ifname.  Throws DeviceMissing or std::system_error.
[[nodiscard]] std::unique_ptr<Context> open_device(const std::string& ifname);

}  // namespace tcpqp
