// SPDX-License-Identifier: BSD-3-Clause
// send() with MSG_ZEROCOPY: a buffer is sent again only after the kernel gave it back.
#include <ctime>

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>

#include "clock.hpp"
#include "socket.hpp"

namespace nupa::bench {
namespace {

class Zerocopy : public Transport {
public:
    explicit Zerocopy(TransportArgs args)
        : spec_(args.spec),
          lengths_(spec_),
          flows_(std::move(args.sockets), false),
          buffers_(lent_buffers(spec_.bytes)),
          memory_(args.sender ? size_t{buffers_} * spec_.bytes
                              : std::max<size_t>(spec_.bytes, kReadMinBytes),
                  spec_.scattered) {
        if (flows_.several())
            throw std::invalid_argument("zerocopy has one flow");
        const int one = 1;
        if (setsockopt(fd(), SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one))
            tcpqp::throw_errno("SO_ZEROCOPY");
    }

    void send(uint64_t messages) override {
        for (uint64_t i = 0; i < messages; i++) {
            while (calls_ - done_ >= buffers_)
                reap(true);
            send_one(memory_.bytes().data() + (i % buffers_) * spec_.bytes, lengths_.of(i));
            if (calls_ - done_ > buffers_ / 2)
                reap(false);
        }
        while (calls_ != done_)
            reap(true);
    }

    void receive(uint64_t messages) override {
        uint64_t left = lengths_.total(messages);
        while (left) {
            const size_t room = std::min<uint64_t>({left, memory_.bytes().size(), kReadMaxBytes});
            const ssize_t n = recv(fd(), memory_.bytes().data(), room, 0);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                tcpqp::throw_errno("receive");
            left -= static_cast<uint64_t>(n);
            copies_.copied += static_cast<uint64_t>(n);
        }
    }

    void ping(uint64_t, std::vector<uint64_t>&) override { pong(0); }
    void pong(uint64_t) override { throw std::invalid_argument("zerocopy has no round trips"); }
    [[nodiscard]] Copies copies() const override { return copies_; }

private:
    [[nodiscard]] int fd() { return flows_.all()[0].fd.get(); }

    // A call that takes a part only has a notification of its own: the message's last one counts.
    void send_one(const uint8_t* data, size_t left) {
        while (left) {
            const ssize_t n = ::send(fd(), data, left, MSG_ZEROCOPY | MSG_NOSIGNAL);
            if (n < 0 && errno == ENOBUFS) {  // too many notifications wait
                reap(true);
                continue;
            }
            if (n <= 0)
                tcpqp::throw_errno("send");
            calls_++;
            data += n;
            left -= static_cast<size_t>(n);
            (last_copied_ ? copies_.copied : copies_.avoided) += static_cast<uint64_t>(n);
        }
    }

    void reap(bool wait) {
        if (wait) {
            pollfd p{fd(), 0, 0};
            if (poll(&p, 1, kSilenceLimitMs) == 0)
                throw std::runtime_error("zerocopy: no notification");
        }
        for (;;) {
            char space[256];
            msghdr m{};
            m.msg_control = space, m.msg_controllen = sizeof space;
            if (recvmsg(fd(), &m, MSG_ERRQUEUE) < 0) {
                if (errno == EAGAIN)
                    return;
                tcpqp::throw_errno("error queue");
            }
            for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
                notified(*reinterpret_cast<sock_extended_err*>(CMSG_DATA(c)));
        }
    }

    void notified(const sock_extended_err& e) {
        if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY || e.ee_errno)
            throw std::runtime_error("zerocopy: an error, not a notification");
        done_ += e.ee_data - e.ee_info + 1;
        last_copied_ = e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED;
    }

    Spec spec_;
    Lengths lengths_;
    Flows flows_;
    uint32_t buffers_;
    Buffer memory_;
    uint64_t calls_ = 0, done_ = 0;
    bool last_copied_ = false;  // loopback copies after all
    Copies copies_;
};

}  // namespace

std::unique_ptr<Transport> make_zerocopy(TransportArgs args) {
    return std::make_unique<Zerocopy>(std::move(args));
}

}  // namespace nupa::bench
