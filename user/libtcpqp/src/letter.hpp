// SPDX-License-Identifier: BSD-3-Clause
// A message with one descriptor over AF_UNIX: how libraries talk to tcpqp-bpf and tcpqp-run.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "verbs/fd.hpp"

namespace tcpqp {

// False: no path of such a length.
inline bool unix_address(std::string_view path, sockaddr_un& address) noexcept {
    address = {};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path))
        return false;
    path.copy(address.sun_path, path.size());
    return true;
}

// Listens at @path, in place of what an earlier one left there, open to @mode.  Throws.
inline Fd listen_for_letters(const std::string& path, mode_t mode, int backlog) {
    sockaddr_un address{};
    if (!unix_address(path, address))
        throw_errno(path, ENAMETOOLONG);
    ::unlink(path.c_str());
    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        ::chmod(path.c_str(), mode) != 0 || ::listen(fd.get(), backlog) != 0)
        throw_errno("listen at " + path);
    return fd;
}

class Letter {
public:
    // @at, of @bytes, is sent, or received into.
    Letter(void* at, size_t bytes) noexcept : where_{at, bytes} {
        message.msg_iov = &where_;
        message.msg_iovlen = 1;
        message.msg_control = control_.data();
        message.msg_controllen = control_.size();
    }
    Letter(const Letter&) = delete;
    Letter& operator=(const Letter&) = delete;

    void put(int fd) noexcept {
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(fd));
        std::memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    void put_nothing() noexcept {
        message.msg_control = nullptr;
        message.msg_controllen = 0;
    }
    // The one that was received; of several, which padding has room for, none stays open.
    [[nodiscard]] Fd take() noexcept {
        const cmsghdr* head = CMSG_FIRSTHDR(&message);
        if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            return {};
        const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        Fd taken;
        for (size_t i = 0; i < count; i++) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(fd), sizeof(fd));
            taken = Fd(fd);
        }
        return count == 1 ? std::move(taken) : Fd();
    }

    msghdr message{};

private:
    iovec where_;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control_{};
};

}  // namespace tcpqp
