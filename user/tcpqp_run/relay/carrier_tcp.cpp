// SPDX-License-Identifier: BSD-3-Clause
// A link whose peer has no queue pair: its TCP socket, read and written as ever.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "base/reset.hpp"
#include "relay/carrier.hpp"
#include "relay/hello.hpp"
#include "relay/limits.hpp"

namespace tcpqp::run {
namespace {

// Bytes on their way from one descriptor to another.
class Pipe {
public:
    // kEnd only when all has been written.
    Step move(int from, int to, bool is_program) noexcept {
        if (head_ == tail_) {
            const ssize_t n = ::recv(from, bytes_.data(), bytes_.size(), MSG_DONTWAIT);
            if (n <= 0)
                return n == 0 ? Step::kEnd : stop();
            head_ = 0;
            tail_ = static_cast<size_t>(n);
        }
        if (is_program) {
            const Given given = give_program(to, bytes_.data() + head_, tail_ - head_);
            head_ += given.bytes;
            return given.blocked ? Step::kBlocked : Step::kMoved;
        }
        const ssize_t n =
            ::send(to, bytes_.data() + head_, tail_ - head_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return stop();
        head_ += static_cast<size_t>(n);
        return Step::kMoved;
    }
    [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }

private:
    static Step stop() noexcept {
        return errno == EAGAIN || errno == EINTR ? Step::kBlocked : Step::kReset;
    }
    std::vector<std::byte> bytes_ = std::vector<std::byte>(kPlainBytes);
    size_t head_ = 0, tail_ = 0;
};

class TcpCarrier final : public Carrier {
public:
    explicit TcpCarrier(int socket) : socket_(socket) {}

    Step up(int program) noexcept override { return up_.move(program, socket_, false); }
    Step down(int program) noexcept override {
        if (!looked_ && !look())
            return Step::kReset;
        return down_.move(socket_, program, true);
    }
    bool finish_up() noexcept override { return ::shutdown(socket_, SHUT_WR) == 0; }
    // The kernel sends what it has.
    bool has_sent_all() noexcept override { return up_.empty(); }
    bool has_unread() noexcept override {
        int bytes = 0;
        return !down_.empty() || (::ioctl(socket_, FIONREAD, &bytes) == 0 && bytes > 0);
    }
    void reset() noexcept override { reset_connection(socket_); }
    int fd() noexcept override { return socket_; }

private:
    // False: the peer has a queue pair, and took us for one.  Its hello is one segment.
    bool look() noexcept {
        std::array<std::byte, kHello.size()> first;
        const ssize_t n = ::recv(socket_, first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
        if (n > 0)
            looked_ = true;
        return n <= 0 || !is_hello({first.data(), static_cast<size_t>(n)});
    }

    const int socket_;
    bool looked_ = false;
    Pipe up_, down_;
};

}  // namespace

std::unique_ptr<Carrier> carry_by_tcp(int socket) { return std::make_unique<TcpCarrier>(socket); }

}  // namespace tcpqp::run
