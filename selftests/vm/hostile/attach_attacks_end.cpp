// SPDX-License-Identifier: BSD-3-Clause
// A connection over loopback, and queue pairs for its ends.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <stdexcept>

#include "attach_attacks.hpp"

namespace nupa::programs::attach {

void require(bool holds, const std::string& what) {
    if (!holds)
        throw std::runtime_error(what);
}

std::string error_text(int error) { return error != 0 ? std::strerror(error) : "success"; }

void set_int(int fd, int level, int option, int value, const char* what) {
    if (setsockopt(fd, level, option, &value, sizeof value) != 0)
        tcpqp::throw_errno(what);
}

int get_int(int fd, int level, int option) {
    int value = 0;
    socklen_t bytes = sizeof value;
    if (getsockopt(fd, level, option, &value, &bytes) != 0)
        tcpqp::throw_errno("getsockopt");
    return value;
}

Link link_up(int receive_buffer) {
    tcpqp::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    if (receive_buffer != 0)
        set_int(listener.get(), SOL_SOCKET, SO_RCVBUF, receive_buffer, "SO_RCVBUF");
    if (bind(listener.get(), address, sizeof at) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), address, &bytes) != 0)
        tcpqp::throw_errno("listen");
    Link link;
    link.a = tcpqp::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(link.a.get(), address, sizeof at) != 0)
        tcpqp::throw_errno("connect");
    link.b = accept_from(listener);
    return link;
}

void exchange(End& from, End& to, uint8_t seed) {
    for (size_t i = 0; i < kMessageBytes; i++)
        from.bytes()[i] = static_cast<uint8_t>(seed + i * 7);
    to.receive(kMessageBytes);
    from.send(kMessageBytes);
    const ibv_wc got = to.wait(), sent = from.wait();
    require(got.status == IBV_WC_SUCCESS && sent.status == IBV_WC_SUCCESS,
            std::string("a message ended with ") + ibv_wc_status_str(got.status) + " and " +
                ibv_wc_status_str(sent.status));
    require(got.byte_len == kMessageBytes &&
                std::memcmp(from.bytes().data(), to.bytes().data(), kMessageBytes) == 0,
            "another message than was sent");
}

}  // namespace nupa::programs::attach
