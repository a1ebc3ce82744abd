// SPDX-License-Identifier: BSD-3-Clause
// A message with descriptors over AF_UNIX: how libraries talk to tcpqp-bpf.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

#include "base/fd.hpp"

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

class UnixMessage {
public:
    static constexpr size_t kFdsMax = 2;

    // @at, of @bytes, is sent, or received into.
    UnixMessage(void* at, size_t bytes) noexcept : where_{at, bytes} {
        header.msg_iov = &where_;
        header.msg_iovlen = 1;
        header.msg_control = control_.data();
        header.msg_controllen = control_.size();
    }
    UnixMessage(const UnixMessage&) = delete;
    UnixMessage& operator=(const UnixMessage&) = delete;

    // At most kFdsMax.
    void put(std::span<const int> fds) noexcept {
        if (fds.empty())
            return put_nothing();
        header.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* head = CMSG_FIRSTHDR(&header);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
    }
    void put(int fd) noexcept { put({&fd, 1}); }
    void put_nothing() noexcept {
        header.msg_control = nullptr;
        header.msg_controllen = 0;
    }
    // Those that were received, if they are as many as are wanted; else none stays open.
    template <size_t kWanted>
    [[nodiscard]] std::array<Fd, kWanted> take() noexcept {
        static_assert(kWanted <= kFdsMax);
        std::array<Fd, kWanted> taken;
        const cmsghdr* head = CMSG_FIRSTHDR(&header);
        if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            return taken;
        const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(fd), sizeof(fd));
            taken[i % kWanted] = Fd(fd);
        }
        return count == kWanted ? std::move(taken) : std::array<Fd, kWanted>();
    }
    [[nodiscard]] Fd take() noexcept { return std::move(take<1>()[0]); }

    msghdr header{};

private:
    iovec where_;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control_{};
};

}  // namespace tcpqp
