// SPDX-License-Identifier: BSD-3-Clause
// The client side of QEMU's ivshmem-doorbell protocol, for fake hosts.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace nupa::testing {

inline constexpr int kWaitMs = 10000;

// Throws std::system_error of errno.
[[noreturn]] void fail(const std::string& what);

// One message, with the descriptor that came along, or -1.
int64_t receive_message(int socket, int& fd);

struct IvshmemPeer {
    int socket;
    uint8_t* bar2;  // mapped
    uint64_t bytes;
};

// The whole handshake at @path, with time limit kWaitMs.  All descriptors are the caller's; those
// that came before it failed, too, but for the socket.
IvshmemPeer connect_ivshmem(const std::string& path, std::span<int> doorbells,
                            std::span<int> interrupts);

}  // namespace nupa::testing
