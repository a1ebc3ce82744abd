// SPDX-License-Identifier: BSD-3-Clause
// CRC-32 (IEEE 802.3, reflected, as the InfiniBand ICRC), by ISA-L: docs/benchmarks/libraries.md.
#pragma once

#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace nupa {

// Continues @crc (0 to begin) over @bytes; same values as zlib's crc32().
inline std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
    return ::crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()),
                             bytes.size());
}

}  // namespace nupa
