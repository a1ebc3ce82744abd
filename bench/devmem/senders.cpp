// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <cerrno>

#include "buffer.hpp"
#include "queue.hpp"
#include "ways.hpp"

namespace nupa::bench {
namespace {

void fill(std::span<uint8_t> message) noexcept {
    for (size_t i = 0; i < message.size(); i++)
        message[i] = static_cast<uint8_t>((i + 1) % kPeriod);
}

class TcpSending final : public Sending {
public:
    explicit TcpSending(tcpqp::Fd socket) : socket_(std::move(socket)), message_(kMessageBytes) {
        fill(message_.bytes());
    }
    void send(uint64_t messages) override {
        for (; messages; messages--)
            for (size_t at = 0; at < kMessageBytes;) {
                const ssize_t n = ::send(socket_.get(), message_.bytes().data() + at,
                                         kMessageBytes - at, MSG_NOSIGNAL);
                if (n < 0 && errno != EINTR)
                    tcpqp::throw_errno("send");
                at += n > 0 ? static_cast<size_t>(n) : 0;
            }
    }

private:
    tcpqp::Fd socket_;
    Buffer message_;
};

class QpSending final : public Sending {
public:
    QpSending(tcpqp::Fd socket, const std::string& interface)
        : queue_(interface, kSlots),
          message_(kMessageBytes),
          region_(queue_.context(), message_.bytes().data(), kMessageBytes, 0) {
        if (!region_)
            tcpqp::throw_errno("register memory");
        fill(message_.bytes());
        queue_.attach(std::move(socket));
    }
    void send(uint64_t messages) override {
        const tcpqp::Work work{
            .address = message_.bytes().data(), .bytes = kMessageBytes, .lkey = region_.lkey()};
        for (uint64_t posted = 0, sent = 0; sent < messages;) {
            for (; posted < messages && posted - sent < kSlots; posted++)
                if (const int error = queue_.qp().post_sends({&work, 1}); error != 0)
                    tcpqp::throw_errno("post a send", error);
            sent += queue_.completions(false);
        }
    }

private:
    Queue queue_;
    Buffer message_;
    tcpqp::Mr region_;
};

}  // namespace

std::unique_ptr<Sending> make_sending(const std::string& way, tcpqp::Fd socket,
                                      const std::string& interface) {
    if (way == "qp")
        return std::make_unique<QpSending>(std::move(socket), interface);
    return std::make_unique<TcpSending>(std::move(socket));
}

}  // namespace nupa::bench
