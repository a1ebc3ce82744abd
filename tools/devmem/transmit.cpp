// SPDX-License-Identifier: BSD-3-Clause
#include "devmem/transmit.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <linux/errqueue.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "devmem/uapi.hpp"

namespace tcpqp::devmem {
namespace {

constexpr size_t kErrorBytes = 512;

}  // namespace

Transmitter::Transmitter(int socket, uint32_t dmabuf_id) : socket_(socket), dmabuf_id_(dmabuf_id) {
    const int on = 1;
    if (::setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
        throw_errno("SO_ZEROCOPY");
}

void Transmitter::send(uint64_t at, size_t bytes) {
    while (bytes) {
        const size_t n = send_some(at, std::min(bytes, kCallMaxBytes));
        at += n, bytes -= n;
        reap(false);
    }
}

// 0: the kernel has no memory for another notification before it gave some.
size_t Transmitter::send_some(uint64_t at, size_t bytes) {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(dmabuf_id_))> control{};
    // An offset in the dma-buf, and no address.
    iovec part{.iov_base = reinterpret_cast<void*>(at), .iov_len = bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const name = CMSG_FIRSTHDR(&message);
    name->cmsg_level = SOL_SOCKET;
    name->cmsg_type = kScmDmabuf;
    name->cmsg_len = CMSG_LEN(sizeof(dmabuf_id_));
    std::memcpy(CMSG_DATA(name), &dmabuf_id_, sizeof(dmabuf_id_));
    const ssize_t n = ::sendmsg(socket_, &message, MSG_ZEROCOPY | MSG_NOSIGNAL);
    if (n < 0 && errno == ENOBUFS && reaped_ < calls_) {
        reap(true);
        return 0;
    }
    if (n < 0 && errno != EINTR)
        throw_errno("sendmsg from a dma-buf");
    if (n < 0)
        return 0;
    calls_++;
    return static_cast<size_t>(n);
}

void Transmitter::finish() {
    while (reaped_ < calls_)
        reap(true);
}

void Transmitter::reap(bool wait) {
    pollfd error{.fd = socket_, .events = 0, .revents = 0};
    if (wait && ::poll(&error, 1, -1) < 0 && errno != EINTR)
        throw_errno("poll");
    while (reap_one())
        ;
    // A connection that has ended tells it by the same event, and has nothing in the queue.
    int status = 0;
    socklen_t bytes = sizeof(status);
    if (wait && ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &status, &bytes) == 0 && status)
        throw_errno("connection", status);
}

// False: the queue is empty.
bool Transmitter::reap_one() {
    alignas(cmsghdr) std::array<std::byte, kErrorBytes> control{};
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(socket_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return errno == EINTR;
        throw_errno("MSG_ERRQUEUE");
    }
    for (cmsghdr* m = CMSG_FIRSTHDR(&message); m; m = CMSG_NXTHDR(&message, m)) {
        const bool v4 = m->cmsg_level == SOL_IP && m->cmsg_type == IP_RECVERR;
        const bool v6 = m->cmsg_level == SOL_IPV6 && m->cmsg_type == IPV6_RECVERR;
        if (!v4 && !v6)
            continue;
        sock_extended_err e{};
        std::memcpy(&e, CMSG_DATA(m), sizeof(e));
        if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
            throw_errno("connection", static_cast<int>(e.ee_errno));
        reaped_ += e.ee_data - e.ee_info + 1;
    }
    return true;
}

}  // namespace tcpqp::devmem
