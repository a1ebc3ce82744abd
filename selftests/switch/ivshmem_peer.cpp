// SPDX-License-Identifier: BSD-3-Clause
#include "ivshmem_peer.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "tcp_qp/nupa_hw.h"

namespace nupa::testing {

void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

int64_t receive_message(int socket, int& fd) {
    int64_t value = 0;
    iovec iov{.iov_base = &value, .iov_len = sizeof(value)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.data();
    msg.msg_controllen = control.size();
    fd = -1;
    ssize_t n;
    do  // a process that was stopped for a while goes on
        n = ::recvmsg(socket, &msg, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != sizeof(value))
        throw std::runtime_error("the switch closed the port's socket");
    if (cmsghdr* head = CMSG_FIRSTHDR(&msg))
        std::memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    return value;
}

namespace {

IvshmemPeer shake_hands(int socket, std::span<int> doorbells, std::span<int> interrupts) {
    int fd = -1;
    if (receive_message(socket, fd) != 0)
        throw std::runtime_error("ivshmem version");
    if (receive_message(socket, fd) != NUPA_PEER_HOST)
        throw std::runtime_error("ivshmem id");
    if (receive_message(socket, fd) != -1 || fd < 0)
        throw std::runtime_error("ivshmem memory");
    const auto bytes = static_cast<uint64_t>(::lseek(fd, 0, SEEK_END));
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED)
        fail("mmap BAR2");
    for (int& doorbell : doorbells)
        if (receive_message(socket, doorbell) != NUPA_PEER_SWITCH || doorbell < 0)
            throw std::runtime_error("ivshmem doorbell");
    for (int& interrupt : interrupts)
        if (receive_message(socket, interrupt) != NUPA_PEER_HOST || interrupt < 0)
            throw std::runtime_error("ivshmem interrupt");
    return {socket, static_cast<uint8_t*>(at), bytes};
}

}  // namespace

IvshmemPeer connect_ivshmem(const std::string& path, std::span<int> doorbells,
                            std::span<int> interrupts) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    try {
        if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0)
            fail(path);
        timeval limit{.tv_sec = kWaitMs / 1000, .tv_usec = 0};
        ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        return shake_hands(socket, doorbells, interrupts);
    } catch (...) {
        ::close(socket);
        throw;
    }
}

}  // namespace nupa::testing
