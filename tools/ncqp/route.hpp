// SPDX-License-Identifier: BSD-3-Clause
// The interface by which a connected socket's packets leave.
#pragma once

#include <string>

#include "status.hpp"

namespace ncqp {

Status route_interface(int socket, std::string& ifname);

}  // namespace ncqp
