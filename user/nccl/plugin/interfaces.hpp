// SPDX-License-Identifier: BSD-3-Clause
// The network interfaces that the plugin offers, and the devices made of them.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nccl/contract/net.hpp"

namespace tcpqp::nccl {

struct Interface {
    std::string name;
    std::string pci_path;  // empty: virtual
    uint64_t guid = 0;
    int speed_mbps = 0;
    sockaddr_storage address{};  // port 0
};

// NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY as NCCL's own sockets take them: prefixes, `=` exact
// names, `^` all but these.  Without it all that are up, but for loopback and docker's.
std::vector<Interface> find_interfaces(const char* names, const char* family);

// Whether @name is chosen by @names (see above).
bool is_chosen(const std::string& name, const std::string& names) noexcept;

socklen_t address_length(const sockaddr_storage& address) noexcept;
uint16_t port_of(const sockaddr_storage& address) noexcept;
std::string text_of(const sockaddr_storage& address);  // ADDRESS:PORT

}  // namespace tcpqp::nccl
