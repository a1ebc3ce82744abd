// SPDX-License-Identifier: BSD-3-Clause
// recvmsg(MSG_SOCK_DEVMEM): payload stays where the port has put it, and control messages say
// where.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "devmem/memory.hpp"

namespace tcpqp::devmem {

struct Counts {
    uint64_t bytes = 0;       // in all
    uint64_t host_bytes = 0;  // of them, that the kernel copied to host memory
    uint64_t messages = 0;    // control messages
    uint64_t calls = 0;       // system calls
};

class Receiver {
public:
    Receiver(int socket, const Memory& memory, uint32_t dmabuf_id);

    // One recvmsg() of at most @room bytes; pieces() has what came, in the stream's order, until
    // give_back().  0: the peer has closed.  Throws std::system_error, std::runtime_error.
    size_t receive(size_t room);
    [[nodiscard]] const std::vector<std::span<const std::byte>>& pieces() const noexcept {
        return pieces_;
    }
    void give_back();
    [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

private:
    struct Tokens {  // struct dmabuf_token
        uint32_t first, count;
    };

    void take(msghdr& got);
    void take_one(const cmsghdr& message, size_t& host_at);

    int socket_;
    const Memory& memory_;
    uint32_t dmabuf_id_;
    std::vector<std::byte> host_;
    std::vector<std::byte> control_;
    std::vector<std::span<const std::byte>> pieces_;
    std::vector<Tokens> tokens_;
    Counts counts_;
};

}  // namespace tcpqp::devmem
