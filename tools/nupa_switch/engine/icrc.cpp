// SPDX-License-Identifier: BSD-3-Clause
#include "icrc.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "crc32.hpp"

namespace nupa {

std::uint32_t icrc(const std::uint8_t* option, std::size_t option_bytes,
                   const Payload& payload) noexcept {
    std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> masked{};
    const std::size_t n = std::min(option_bytes, masked.size());
    std::memcpy(masked.data(), option, n);
    masked[offsetof(tcp_bth_head, flags)] &=
        static_cast<std::uint8_t>(~(TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK));
    std::memset(masked.data() + offsetof(tcp_bth_v0, icrc), 0,
                sizeof(tcp_bth_v0) - offsetof(tcp_bth_v0, icrc));
    std::uint32_t crc = crc32(0, {reinterpret_cast<const std::byte*>(masked.data()), n});
    for (const Bytes& piece : payload.pieces())
        crc = crc32(crc, piece);
    return crc;
}

}  // namespace nupa
