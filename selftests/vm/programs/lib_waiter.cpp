// SPDX-License-Identifier: BSD-3-Clause
// Calls of libtcpqp's level 2 that only another thread of the same end can wake, and does.
//
//   lib_waiter --port PORT [--connect ADDR]
//
// The listener's end has one buffer for each direction.  Two waiters: one for the buffer to send,
// which is released unsent, and one for a message while the only view is held, until
// tcpqp_conn_cancel().  The connector sends one message, has one, and then hears of the end.
//
// Prints what its connection says of the engine; exit 0 only if all was right.
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <string>

#include "command.hpp"
#include "tcpqp.hpp"

namespace {

using namespace nupa::programs;
using tcpqp::v1::Connection;
using tcpqp::v1::View;

constexpr uint32_t kBytes = 100;
constexpr int kAsleepMs = 300;
constexpr int kLimitMs = 20000;

void must_be(int wanted, int error, const char* what) {
    if (error != wanted)
        throw std::runtime_error(std::string(what) + ": " + std::to_string(error));
}

tcpqp_conn_opts one_buffer() {
    tcpqp_conn_opts o{};
    o.buffers = 1;
    o.buffer_bytes = kBytes;
    return o;
}

// What @call says, which waits until @wake.
template <typename Call, typename Wake>
int woken(Call call, Wake wake) {
    auto waiter = std::async(std::launch::async, call);
    ::poll(nullptr, 0, kAsleepMs);
    wake();
    return waiter.get();
}

void listen(Connection& conn) {
    const std::array<std::byte, kBytes> message{};
    View in, none, out;
    must_be(0, conn.recv(in, kLimitMs), "its message");
    must_be(0, conn.buffer(out, kLimitMs), "the buffer");
    must_be(0, woken([&] { return conn.send(message, kLimitMs); }, [&] { out = View(); }),
            "the send that waits for the buffer");
    must_be(-ENOTCONN,
            woken([&] { return conn.recv(none, kLimitMs); },
                  [&] { must_be(0, conn.cancel(), "cancel"); }),
            "the receive that waits for the end");
}

void connect(Connection& conn) {
    const std::array<std::byte, kBytes> message{};
    View in, none;
    must_be(0, conn.send(message, kLimitMs), "our message");
    must_be(0, conn.recv(in, kLimitMs), "its message");
    in = View();
    must_be(-ENOTCONN, conn.recv(none, kLimitMs), "the end");
}

void run(const PeerOptions& peer) {
    const tcpqp::Fd fd = peer.socket();
    Connection conn(fd.get(), one_buffer());
    std::puts(tcpqp_engine_name(conn.info().engine));
    if (peer.listens())
        listen(conn);
    else
        connect(conn);
}

}  // namespace

int main(int argc, char** argv) {
    PeerOptions peer;
    return Command("lib_waiter", "Calls that another thread wakes")
        .address(peer)
        .run(argc, argv, [&] {
            run(peer);
            return 0;
        });
}
