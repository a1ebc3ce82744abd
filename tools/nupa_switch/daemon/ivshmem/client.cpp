// SPDX-License-Identifier: BSD-3-Clause
#include "ivshmem/client.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace nupa::daemon {
namespace {

constexpr int64_t kIvshmemVersion = 0;
constexpr int64_t kIvshmemSharedMemory = -1;

// One protocol message: eight bytes, little endian, with at most one descriptor.
void send_message(int socket, int64_t value, int fd = -1) {
    iovec iov{.iov_base = &value, .iov_len = sizeof(value)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    if (fd >= 0) {
        msg.msg_control = control.data();
        msg.msg_controllen = control.size();
        cmsghdr* head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    if (::sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(value))
        throw_errno("ivshmem handshake");
}

Fd make_eventfd() {
    Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd)
        throw_errno("eventfd");
    return fd;
}

}  // namespace

Fd sealed_memory(const char* name, size_t bytes) {
    Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        throw_errno("memfd_create");
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0)
        throw_errno(std::string("ftruncate ") + name);
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        throw_errno(std::string("seal ") + name);
    return fd;
}

uint64_t random_id() {
    uint64_t id = 0;
    while (id == 0)
        if (::getrandom(&id, sizeof(id), 0) != sizeof(id))
            throw_errno("getrandom");
    return id;
}

IvshmemClient::IvshmemClient(Fd socket, Fd memory, size_t bytes, unsigned vectors)
    : socket_(std::move(socket)), memory_(std::move(memory)), bar2_(memory_.get(), bytes, "BAR2") {
    for (unsigned v = 0; v < vectors; v++) {
        doorbells_.push_back(make_eventfd());
        interrupts_.push_back(make_eventfd());
    }
}

void IvshmemClient::handshake() {
    send_message(socket_.get(), kIvshmemVersion);
    send_message(socket_.get(), NUPA_PEER_HOST);
    send_message(socket_.get(), kIvshmemSharedMemory, memory_.get());
    for (const Fd& fd : doorbells_)
        send_message(socket_.get(), NUPA_PEER_SWITCH, fd.get());
    for (const Fd& fd : interrupts_)
        send_message(socket_.get(), NUPA_PEER_HOST, fd.get());
}

IvshmemClient::Event IvshmemClient::event() const noexcept {
    char byte = 0;
    const ssize_t n = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return Event::kNothing;
    return n > 0 ? Event::kSpoke : Event::kGone;
}

void IvshmemClient::interrupt(unsigned vector) noexcept {
    uint64_t one = 1;
    // A full counter means an interrupt is pending already.
    [[maybe_unused]] ssize_t n = ::write(interrupts_[vector].get(), &one, sizeof(one));
}

void IvshmemClient::acknowledge(unsigned vector) noexcept {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t n = ::read(doorbells_[vector].get(), &count, sizeof(count));
}

}  // namespace nupa::daemon
