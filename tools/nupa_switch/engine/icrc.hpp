// SPDX-License-Identifier: BSD-3-Clause
// ICRC of a ver 0 segment: CRC-32 over the option, with icrc, timestamps and
// rtr bits as zero, and the payload.
#pragma once

#include <cstdint>

#include "packet.hpp"

namespace nupa {

// @option points at the kind byte of a ver 0 option of @option_bytes.
std::uint32_t icrc(const std::uint8_t* option, std::size_t option_bytes,
                   const Payload& payload) noexcept;

}  // namespace nupa
