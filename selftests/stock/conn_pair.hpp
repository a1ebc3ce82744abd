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

// A connection whose peer is a bare queue pair, which may send what no connection does.
struct OddPair {
    explicit OddPair(tcpqp_conn_opts opts)
        : sockets(tcp_pair()), peer(sockets[1].get(), nowait()), c(sockets[0].get(), stock(opts)) {}

    static tcpqp_conn_opts stock(tcpqp_conn_opts opts) {
        opts.engine = TCPQP_ENGINE_STOCK;
        return opts;
    }
    std::array<Fd, 2> sockets;
    End peer;
    Connection c;
};

}  // namespace stock_test
