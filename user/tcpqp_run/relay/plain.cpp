// SPDX-License-Identifier: BSD-3-Clause
#include "relay/plain.hpp"

#include <array>

namespace tcpqp::run {

const char* plain_name(Plain why) noexcept {
    static constexpr std::array<const char*, static_cast<size_t>(Plain::kEnd)> kNames{
        "NONE",  "NO_MODULE", "NO_DEVICE", "LOOPBACK",   "PEER_PLAIN", "PEER_SPOKE",
        "LIMIT", "IN_EPOLL",  "OPTIONS",   "NO_PEER_QP", "FAILED"};
    const auto i = static_cast<size_t>(why);
    return i < kNames.size() ? kNames[i] : "UNKNOWN";
}

}  // namespace tcpqp::run
