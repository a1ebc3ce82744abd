// SPDX-License-Identifier: BSD-3-Clause
#include "control.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace nupa::bench {
namespace {

constexpr size_t kLineMaxBytes = 1 << 20;
constexpr std::string_view kError = "error ";

}  // namespace

Control::Control(tcpqp::Fd socket) : socket_(std::move(socket)) {
    const int one = 1;
    const timeval limit{kStepLimitS, 0};
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void Control::send(const std::string& line) {
    const std::string text = line + "\n";
    if (::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(text.size()))
        tcpqp::throw_errno("tell the other end");
}

std::string Control::receive() {
    std::array<char, 4096> chunk;
    size_t end;
    while ((end = pending_.find('\n')) == std::string::npos) {
        const ssize_t n = ::recv(socket_.get(), chunk.data(), chunk.size(), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            tcpqp::throw_errno("hear from the other end");
        closed_ = n == 0;
        if (closed_ || pending_.size() > kLineMaxBytes)
            throw std::runtime_error("the other end is gone");
        pending_.append(chunk.data(), static_cast<size_t>(n));
    }
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
}

std::string Control::meet(const std::string& line) {
    send(line);
    std::string theirs = receive();
    if (theirs.starts_with(kError))
        throw std::runtime_error("other end: " + theirs.substr(kError.size()));
    return theirs;
}

void Control::send_error(const std::string& what) noexcept {
    try {
        std::string line = std::string(kError) + what;
        std::ranges::replace(line, '\n', ' ');
        send(line);
    } catch (const std::exception&) {
        closed_ = true;
    }
}

}  // namespace nupa::bench
