// SPDX-License-Identifier: BSD-3-Clause
// Two ends of a loopback connection, each with a stock queue pair.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "tcpqp.hpp"

namespace stock_test {

using tcpqp::Fd;
constexpr int kLimit_ms = 20000;

inline std::array<Fd, 2> tcp_pair() {
    Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(at);
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    Fd client(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    return {std::move(client), Fd(::accept(listener.get(), nullptr, nullptr))};
}

inline tcpqp_context_opts stock_opts() {
    tcpqp_context_opts o{};
    o.engine = TCPQP_ENGINE_STOCK;
    return o;
}

inline tcpqp_qp_opts nowait(tcpqp_qp_opts o = {}) {
    o.flags |= TCPQP_QP_F_NOWAIT;
    return o;
}

// One end with its own context and cq.
struct End {
    explicit End(int socket, tcpqp_qp_opts opts, tcpqp_cq_opts cq_opts = {})
        : cq(context, cq_opts), qp(cq, socket, opts) {}

    int send(uint64_t id, const void* at, size_t bytes) {
        const tcpqp_work w{id,     const_cast<void*>(at), static_cast<uint32_t>(bytes), 0, 0, 0,
                           nullptr};
        return qp.post_send({&w, 1});
    }
    int recv(uint64_t id, void* at, size_t bytes) {
        const tcpqp_work w{id, at, static_cast<uint32_t>(bytes), 0, 0, 0, nullptr};
        return qp.post_recv({&w, 1});
    }
    // The next completion; fails the test if there is none in time.
    tcpqp_completion next() {
        tcpqp_completion c{};
        for (;;) {
            const int n = cq.poll({&c, 1});
            if (n == 1)
                return c;
            const int error = n < 0 ? n : cq.wait(kLimit_ms);
            if (error != 0 && error != -EINTR) {
                ADD_FAILURE() << "no completion: " << error;
                return {};
            }
        }
    }

    tcpqp::v1::Context context{stock_opts()};
    tcpqp::v1::Completions cq;
    tcpqp::v1::Qp qp;
};

// Both hellos have passed.
struct Pair {
    explicit Pair(tcpqp_qp_opts opts = {}) : sockets(tcp_pair()) {
        auto other = std::async(std::launch::async,
                                [&] { end_b = std::make_unique<End>(sockets[1].get(), opts); });
        end_a = std::make_unique<End>(sockets[0].get(), opts);
        other.get();
    }
    std::array<Fd, 2> sockets;
    std::unique_ptr<End> end_a, end_b;
};

inline std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
    std::vector<std::byte> v(bytes);
    uint32_t x = seed * 2654435761u + 1;
    for (std::byte& b : v) {
        x = x * 1664525u + 1013904223u;
        b = static_cast<std::byte>(x >> 24);
    }
    return v;
}

}  // namespace stock_test
