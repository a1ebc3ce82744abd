// SPDX-License-Identifier: BSD-3-Clause
// A netlink socket that dumps.
#pragma once

#include <libmnl/libmnl.h>

#include <array>
#include <functional>
#include <memory>
#include <string_view>

namespace tcpqp::stat {

class Netlink {
public:
    // @bus: NETLINK_RDMA or NETLINK_SOCK_DIAG.  Throws std::system_error.
    explicit Netlink(int bus);

    // An empty request for a dump; it is there until the next one.
    nlmsghdr* request(uint16_t type) noexcept;
    // Sends it, and calls @each with every message of the answer.  Throws std::system_error.
    void dump(nlmsghdr* request, const std::function<void(const nlmsghdr*)>& each);

private:
    struct Close {
        void operator()(mnl_socket* socket) const noexcept { ::mnl_socket_close(socket); }
    };
    std::unique_ptr<mnl_socket, Close> socket_;
    unsigned seq_ = 0;
    std::array<char, 1024> request_{};
};

// Call @each with every attribute: behind a header of @header_bytes, or inside of another one.
void each_attribute(const nlmsghdr* message, size_t header_bytes,
                    const std::function<void(const nlattr*)>& each);
void each_nested(const nlattr* nest, const std::function<void(const nlattr*)>& each);

// Of what a kernel may send shorter than is thought here: nothing.
uint32_t u32_of(const nlattr* attribute) noexcept;
uint64_t u64_of(const nlattr* attribute) noexcept;
std::string_view string_of(const nlattr* attribute) noexcept;

}  // namespace tcpqp::stat
