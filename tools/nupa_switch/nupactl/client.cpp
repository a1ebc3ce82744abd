// SPDX-License-Identifier: BSD-3-Clause
#include "client.hpp"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace nupa::ctl {
namespace {

constexpr int kTimeoutSeconds = 10;

class Socket {
public:
    explicit Socket(const std::string& path)
        : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.size() >= sizeof(address.sun_path))
            throw RequestError("control path is too long: " + path);
        std::memcpy(address.sun_path, path.data(), path.size());
        if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0)
            throw RequestError(
                fmt::format("no switch at {}: {} (is nupa_switch running with --control {}?)", path,
                            std::strerror(errno), path));
        timeval limit{.tv_sec = kTimeoutSeconds, .tv_usec = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { ::close(fd_); }

    void send(const std::string& text) const {
        for (size_t at = 0; at < text.size();) {
            ssize_t n = ::send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
            if (n < 0)
                throw RequestError(fmt::format("send: {}", std::strerror(errno)));
            at += static_cast<size_t>(n);
        }
    }

    [[nodiscard]] std::string receive_line() const {
        std::string line;
        std::array<char, 4096> chunk;
        while (line.empty() || line.back() != '\n') {
            ssize_t n = ::recv(fd_, chunk.data(), chunk.size(), 0);
            if (n == 0)
                throw RequestError("the switch closed the connection");
            if (n < 0)
                throw RequestError(fmt::format("no reply: {}", std::strerror(errno)));
            line.append(chunk.data(), static_cast<size_t>(n));
        }
        return line;
    }

private:
    int fd_;
};

}  // namespace

Json request(const std::string& path, const Json& request) {
    Socket socket(path);
    socket.send(request.dump() + "\n");
    Json reply = Json::parse(socket.receive_line(), nullptr, false);
    if (!reply.is_object() || !reply.contains("ok"))
        throw RequestError("the switch's reply is not one of ours");
    if (!reply["ok"].get<bool>())
        throw RequestError(reply.value("error", "refused without a reason"));
    reply.erase("ok");
    return reply;
}

}  // namespace nupa::ctl
