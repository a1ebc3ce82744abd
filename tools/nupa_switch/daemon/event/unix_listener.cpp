// SPDX-License-Identifier: BSD-3-Clause
#include "event/unix_listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

namespace nupa::daemon {
namespace {

constexpr int kBacklog = 8;

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

}  // namespace nupa::daemon
