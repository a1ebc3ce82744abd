// SPDX-License-Identifier: BSD-3-Clause
// Two level 2 connections to each other, over loopback.
#pragma once

#include "pair.hpp"

namespace stock_test {

using tcpqp::v1::Connection;
using tcpqp::v1::View;

struct ConnPair {
    explicit ConnPair(tcpqp_conn_opts opts = {}) : sockets(tcp_pair()) {
        opts.engine = TCPQP_ENGINE_STOCK;
        auto other = std::async(std::launch::async,
                                [&] { b = std::make_unique<Connection>(sockets[1].get(), opts); });
        a = std::make_unique<Connection>(sockets[0].get(), opts);
        other.get();
    }
    std::array<Fd, 2> sockets;
    std::unique_ptr<Connection> a, b;
};

inline tcpqp_conn_opts small(uint32_t buffers, uint32_t bytes) {
    tcpqp_conn_opts o{};
    o.buffers = buffers;
    o.buffer_bytes = bytes;
    return o;
}

}  // namespace stock_test
