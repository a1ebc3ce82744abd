// SPDX-License-Identifier: BSD-3-Clause
#include "base/unix_listener.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "base/unix_message.hpp"

namespace tcpqp {
namespace {

Fd make_socket() noexcept {
    return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Whoever made it has ended.
bool is_stale(const std::string& path, const sockaddr_un& address) noexcept {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    const Fd probe = make_socket();
    return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
               0 &&
           errno == ECONNREFUSED;
}

}  // namespace

UnixListener::UnixListener(std::string path, mode_t mode, int backlog) : path_(std::move(path)) {
    sockaddr_un address{};
    if (!unix_address(path_, address))
        throw_errno(path_, ENAMETOOLONG);
    if (is_stale(path_, address))
        ::unlink(path_.c_str());
    fd_ = make_socket();
    if (!fd_)
        throw_errno("socket");
    if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        const int error = errno;
        throw_errno("listen at " + path_ +
                        (error == EADDRINUSE ? " (another program listens there: end it, or take "
                                               "another path; or it is not a socket)"
                                             : ""),
                    error);
    }
    if (::lstat(path_.c_str(), &bound_) != 0 || ::chmod(path_.c_str(), mode) != 0 ||
        ::listen(fd_.get(), backlog) != 0) {
        const int error = errno;
        remove_path();
        throw_errno("listen at " + path_, error);
    }
}

void UnixListener::remove_path() noexcept {
    struct stat now {};
    if (::lstat(path_.c_str(), &now) == 0 && now.st_dev == bound_.st_dev &&
        now.st_ino == bound_.st_ino)
        ::unlink(path_.c_str());
}

}  // namespace tcpqp
