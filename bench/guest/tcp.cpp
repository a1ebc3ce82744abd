// SPDX-License-Identifier: BSD-3-Clause
// Plain TCP: send() and recv().
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <stdexcept>

#include "clock.hpp"
#include "socket.hpp"

namespace nupa::bench {
namespace {

class Tcp : public Transport {
public:
    explicit Tcp(TransportArgs args)
        : spec_(args.spec),
          lengths_(spec_),
          flows_(std::move(args.sockets), args.spec.pingpong(),
                 args.spec.pingpong() && args.spec.poll),
          buffer_(std::max<size_t>(spec_.bytes, kReadMinBytes), spec_.scattered) {}

    void send(uint64_t messages) override {
        flows_.begin(spec_, lengths_, messages);
        while (!flows_.finished()) {
            bool moved = false;
            for (Flow& f : flows_.all())
                moved |= send_some(f);
            if (!moved)
                flows_.wait(POLLOUT);
        }
    }

    void receive(uint64_t messages) override {
        flows_.begin(spec_, lengths_, messages);
        while (!flows_.finished()) {
            bool moved = false;
            for (Flow& f : flows_.all())
                moved |= receive_some(f);
            if (!moved)
                flows_.wait(POLLIN);
        }
    }

    void ping(uint64_t messages, std::vector<uint64_t>& rtt) override {
        const int fd = flows_.all()[0].fd.get();
        for (uint64_t i = 0; i < messages; i++) {
            const uint64_t then = now_ns();
            send_all(fd, buffer_.bytes().data(), spec_.bytes);
            receive_all(fd, buffer_.bytes().data(), spec_.bytes);
            rtt.push_back(now_ns() - then);
        }
        copied_ += 2 * messages * spec_.bytes;
    }

    void pong(uint64_t messages) override {
        const int fd = flows_.all()[0].fd.get();
        for (uint64_t i = 0; i < messages; i++) {
            receive_all(fd, buffer_.bytes().data(), spec_.bytes);
            send_all(fd, buffer_.bytes().data(), spec_.bytes);
        }
        copied_ += 2 * messages * spec_.bytes;
    }

    [[nodiscard]] Copies copies() const override { return {copied_, 0}; }
    [[nodiscard]] Shares shares() const override { return flows_.shares(); }

private:
    // One message, or what of it fits.
    bool send_some(Flow& f) {
        if (!f.left)
            return false;
        const uint32_t bytes = lengths_.of(f.message);
        const ssize_t n =
            ::send(f.fd.get(), buffer_.bytes().data(), bytes - f.offset, MSG_NOSIGNAL);
        if (n > 0 && (f.offset += static_cast<uint32_t>(n)) == bytes)
            f.message++, f.offset = 0;
        return moved(f, n);
    }

    bool receive_some(Flow& f) {
        if (!f.left)
            return false;
        const size_t most = spec_.waitall ? spec_.bytes : kReadMaxBytes;
        const size_t room = std::min<uint64_t>({f.left, buffer_.bytes().size(), most});
        const int flags = spec_.waitall ? MSG_WAITALL : 0;
        return moved(f, ::recv(f.fd.get(), buffer_.bytes().data(), room, flags));
    }

    bool moved(Flow& f, ssize_t n) {
        if (n < 0 && (errno == EINTR || (errno == EAGAIN && flows_.several())))
            return false;
        if (n < 0)
            tcpqp::throw_errno("tcp");
        if (n == 0)
            throw std::runtime_error("tcp: the other end closed");
        flows_.advance(f, static_cast<uint64_t>(n));
        copied_ += static_cast<uint64_t>(n);
        return true;
    }

    Spec spec_;
    Lengths lengths_;
    Flows flows_;
    Buffer buffer_;
    uint64_t copied_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_tcp(TransportArgs args) {
    return std::make_unique<Tcp>(std::move(args));
}

}  // namespace nupa::bench
