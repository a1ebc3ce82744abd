// SPDX-License-Identifier: BSD-3-Clause
// What devmem TCP asks of a network interface: split headers, bound receive queues, memory to send
// from, steered flows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devmem/genetlink.hpp"
#include "devmem/memory.hpp"

namespace tcpqp::devmem {

// ethtool -G @interface tcp-data-split on|off, which Debian 12's ethtool can't say.
void set_data_split(const std::string& interface, bool on);

// Receive queues whose payload goes to a dma-buf; the kernel takes them back with the socket.
class Binding {
public:
    Binding(const std::string& interface, const std::vector<uint32_t>& queues, int dma_buf);
    [[nodiscard]] uint32_t id() const noexcept { return id_; }

private:
    Genetlink netdev_;
    uint32_t id_;
};

// Memory that any connection over the interface may be sent from, which needs no privilege; gone
// with this.  Since Linux 6.16.
class TransmitBinding {
public:
    TransmitBinding(const std::string& interface, int dma_buf);
    [[nodiscard]] uint32_t id() const noexcept { return id_; }

private:
    Genetlink netdev_;
    uint32_t id_;
};

// ethtool -N: what this connected socket receives goes to @queue, until @this ends.
class Steering {
public:
    Steering(const std::string& interface, int socket, uint32_t queue);
    Steering(const Steering&) = delete;
    Steering& operator=(const Steering&) = delete;
    ~Steering();

private:
    std::string interface_;
    uint32_t location_;
};

}  // namespace tcpqp::devmem
