// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/ivshmem.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

namespace nupa::daemon {
namespace {

constexpr int64_t kIvshmemVersion = 0;
constexpr int64_t kIvshmemSharedMemory = -1;
constexpr int kBacklog = 8;

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

// Sealed: a client that shrank it would fault the switch at its next register access.
Fd make_bar2() {
    Fd fd(::memfd_create("nupa-bar2", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        throw_errno("memfd_create");
    if (::ftruncate(fd.get(), NUPA_BAR2_BYTES) < 0)
        throw_errno("ftruncate BAR2");
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        throw_errno("seal BAR2");
    return fd;
}

sockaddr_un make_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        throw_errno("socket path '" + path + "' (at most " +
                    std::to_string(sizeof(address.sun_path) - 1) + " bytes)");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

bool is_stale(const std::string& path, const sockaddr_un& address) {
    struct stat st {};
    if (::lstat(path.c_str(), &st) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) <
               0 &&
           errno == ECONNREFUSED;
}

}  // namespace

UnixListener::UnixListener(std::string path) : path_(std::move(path)) {
    sockaddr_un address = make_address(path_);
    if (is_stale(path_, address))
        ::unlink(path_.c_str());
    fd_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd_)
        throw_errno("socket");
    if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0) {
        fd_.reset();
        throw_errno(
            "listen at " + path_ +
            (errno == EADDRINUSE ? " (another program listens there, or it is not a socket)" : ""));
    }
    if (::listen(fd_.get(), kBacklog) < 0)
        throw_errno("listen at " + path_);
}

UnixListener::~UnixListener() {
    if (fd_)
        ::unlink(path_.c_str());
}

Fd UnixListener::accept() noexcept {
    return Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

IvshmemClient::IvshmemClient(Fd socket)
    : socket_(std::move(socket)),
      memory_(make_bar2()),
      bar2_(memory_.get(), NUPA_BAR2_BYTES, "BAR2") {
    for (Fd& fd : doorbells_)
        fd = make_eventfd();
    for (Fd& fd : interrupts_)
        fd = make_eventfd();
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
