// SPDX-License-Identifier: BSD-3-Clause
// TCP connections, and lines on the one that carries what both ends agree on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace perf {

class Socket {
public:
    Socket() = default;
    explicit Socket(int fd) noexcept : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Socket();
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_ = -1;
};

// All throw std::system_error; an end of the stream is ECONNRESET.
Socket listen_on(uint16_t port);
Socket accept_from(const Socket& listener);
Socket connect_to(const std::string& host, uint16_t port);
void send_all(const Socket& socket, const void* at, size_t bytes);
void receive_all(const Socket& socket, void* at, size_t bytes);
size_t receive_some(const Socket& socket, void* at, size_t bytes);
void send_line(const Socket& socket, const std::string& line);
std::string receive_line(const Socket& socket);
[[noreturn]] void fail(const char* what);

}  // namespace perf
