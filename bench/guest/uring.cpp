// SPDX-License-Identifier: BSD-3-Clause
// io_uring: chains of linked sends (or zero-copy sends), and receives.
#include <liburing.h>

#include <algorithm>
#include <stdexcept>

#include "clock.hpp"
#include "socket.hpp"

namespace nupa::bench {
namespace {

constexpr uint32_t kLinkedMax = 64;  // sends that share one system call

class Ring {
public:
    explicit Ring(unsigned entries) {
        if (const int error = io_uring_queue_init(entries, &ring_, 0); error < 0)
            tcpqp::throw_errno("io_uring", -error);
    }
    ~Ring() { io_uring_queue_exit(&ring_); }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    io_uring_sqe& entry() {
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        if (!sqe)
            throw std::logic_error("io_uring: more than its entries");
        return *sqe;
    }
    // Submits, and returns when there are completions; @take gets each.
    template <class Take>
    void run(Take take) {
        __kernel_timespec limit{kSilenceLimitMs / 1000, 0};
        io_uring_cqe* cqe = nullptr;
        const int error = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &limit, nullptr);
        if (error < 0)
            tcpqp::throw_errno("io_uring: wait", -error);
        unsigned head = 0, n = 0;
        io_uring_for_each_cqe(&ring_, head, cqe) {
            take(*cqe);
            n++;
        }
        io_uring_cq_advance(&ring_, n);
    }

private:
    io_uring ring_{};
};

class Uring : public Transport {
public:
    explicit Uring(TransportArgs args)
        : spec_(args.spec),
          lengths_(spec_),
          zero_copy_(spec_.transport == "uring_zc"),
          flows_(std::move(args.sockets), args.spec.pingpong()),
          ring_(4 * kLinkedMax),
          buffers_(lent_buffers(spec_.bytes)),
          memory_(std::max<size_t>(size_t{buffers_} * spec_.bytes, kReadMaxBytes),
                  spec_.scattered) {
        if (flows_.several())
            throw std::invalid_argument("io_uring has one flow");
    }

    void send(uint64_t messages) override {
        const uint64_t chain = std::min<uint64_t>(kLinkedMax, buffers_ / 2);
        uint64_t posted = 0;
        while (posted < messages) {
            while (held_ + chain > buffers_)
                wait();
            for (uint64_t n = std::min(chain, messages - posted); n; n--, posted++)
                post_send(slot(posted), lengths_.of(posted), n > 1);
            while (sending_)
                wait();
        }
        while (held_)
            wait();
    }

    void receive(uint64_t messages) override {
        uint64_t left = lengths_.total(messages);
        while (left)
            left -= receive_some(std::min<uint64_t>(left, kReadMaxBytes), 0);
    }

    void ping(uint64_t messages, std::vector<uint64_t>& rtt) override {
        for (uint64_t i = 0; i < messages; i++) {
            const uint64_t then = now_ns();
            send(1);
            receive_some(spec_.bytes, MSG_WAITALL);
            rtt.push_back(now_ns() - then);
        }
    }

    void pong(uint64_t messages) override {
        for (uint64_t i = 0; i < messages; i++) {
            receive_some(spec_.bytes, MSG_WAITALL);
            send(1);
        }
    }

    [[nodiscard]] Copies copies() const override { return copies_; }

private:
    enum : uint64_t { kSend = 1, kReceive = 2 };

    [[nodiscard]] int fd() { return flows_.all()[0].fd.get(); }
    uint8_t* slot(uint64_t n) { return memory_.bytes().data() + (n % buffers_) * spec_.bytes; }

    // Linked, so that the bytes of one never follow those of the next.
    void post_send(const uint8_t* data, uint32_t bytes, bool linked) {
        io_uring_sqe& sqe = ring_.entry();
        const int flags = MSG_NOSIGNAL | MSG_WAITALL;
        if (zero_copy_)
            io_uring_prep_send_zc(&sqe, fd(), data, bytes, flags, 0);
        else
            io_uring_prep_send(&sqe, fd(), data, bytes, flags);
        if (linked)
            sqe.flags |= IOSQE_IO_LINK;
        sqe.user_data = kSend | uint64_t{bytes} << 32;
        sending_++;
        held_++;
    }

    uint64_t receive_some(uint64_t bytes, int flags) {
        io_uring_sqe& sqe = ring_.entry();
        io_uring_prep_recv(&sqe, fd(), memory_.bytes().data(), bytes, flags);
        sqe.user_data = kReceive;
        received_ = 0;
        while (!received_)
            wait();
        return received_;
    }

    void wait() {
        ring_.run([this](const io_uring_cqe& cqe) { completed(cqe); });
    }

    void completed(const io_uring_cqe& cqe) {
        if (cqe.flags & IORING_CQE_F_NOTIF) {
            held_--;
            return;
        }
        if (cqe.res <= 0)
            tcpqp::throw_errno("io_uring", cqe.res ? -cqe.res : ECONNRESET);
        if (cqe.user_data == kReceive) {
            received_ = static_cast<uint64_t>(cqe.res);
            copies_.copied += received_;
            return;
        }
        if (static_cast<uint64_t>(cqe.res) != cqe.user_data >> 32)
            throw std::runtime_error("io_uring: a short send");
        sending_--;
        if (!(cqe.flags & IORING_CQE_F_MORE))
            held_--;
        (zero_copy_ ? copies_.avoided : copies_.copied) += static_cast<uint64_t>(cqe.res);
    }

    Spec spec_;
    Lengths lengths_;
    bool zero_copy_;
    Flows flows_;
    Ring ring_;
    uint32_t buffers_;
    Buffer memory_;
    uint64_t sending_ = 0;  // not yet taken by the socket
    uint64_t held_ = 0;     // buffers that the kernel may still read
    uint64_t received_ = 0;
    Copies copies_;
};

}  // namespace

std::unique_ptr<Transport> make_uring(TransportArgs args) {
    return std::make_unique<Uring>(std::move(args));
}

}  // namespace nupa::bench
