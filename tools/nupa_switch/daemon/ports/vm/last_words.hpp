// SPDX-License-Identifier: BSD-3-Clause
// What hosts are told by a switch that crashes: NUPA_STATUS_GONE, and an interrupt.
#pragma once

#include <cstdint>

namespace nupa::daemon {

// Signals that would end the process tell every port first, and then do.
void install_last_words();
// Where to tell the host at @port: its status register, and the eventfd of vector 0.  Null: nobody.
void last_words_of(uint16_t port, uint32_t* status, int interrupt) noexcept;

}  // namespace nupa::daemon
