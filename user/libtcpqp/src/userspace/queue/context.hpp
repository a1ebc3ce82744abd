// SPDX-License-Identifier: BSD-3-Clause
// The stock engine: no module.
#pragma once

#include "provider/provider.hpp"

namespace tcpqp {

Made<tcpqp_context> make_stock();

}  // namespace tcpqp
