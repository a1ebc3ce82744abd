// SPDX-License-Identifier: BSD-3-Clause
// A link's queue pair.  The program's bytes are received into the buffer that is sent, and the
// peer's are sent to the program from where they were placed.
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "relay/carrier.hpp"
#include "relay/hello.hpp"

namespace tcpqp::run {
namespace {

class QpCarrier final : public Carrier {
public:
    QpCarrier(tcpqp_conn* conn, Stats& stats) noexcept : conn_(conn), stats_(stats) { greet(); }
    ~QpCarrier() override {
        tcpqp_qp_info info{};
        info.size = sizeof(info);
        if (tcpqp_conn_query(conn_, &info) == 0)
            stats_.ended(info);
        tcpqp_close(conn_, 0);
    }

    Step up(int program) noexcept override {
        if (drained_)
            return Step::kBlocked;
        if (const int error = take_buffer(); error != 0)
            return error == -EAGAIN ? Step::kBlocked : Step::kReset;
        const ssize_t n = ::recv(program, buffer_.data, room(), MSG_DONTWAIT);
        if (n <= 0)
            return n == 0 ? Step::kEnd : stop(errno);
        buffer_.length = static_cast<uint32_t>(n);
        has_buffer_ = false;
        return tcpqp_send_view(conn_, &buffer_) == 0 ? Step::kMoved : Step::kReset;
    }

    // To ask in vain costs a kernel engine four system calls, so only after an event.
    Step down(int program) noexcept override {
        if (!maybe_more_)
            return Step::kBlocked;
        if (!greeted_ && !take_hello())
            return broken_ ? Step::kReset : Step::kBlocked;
        tcpqp_view view{};
        const ssize_t n = tcpqp_peek(conn_, &view, 0);
        maybe_more_ = n != -EAGAIN;
        if (n == -EAGAIN)  // it may have taken what up() waits for
            return starved_ && is_writable() ? Step::kMoved : Step::kBlocked;
        if (n <= 0)
            return n == 0 ? Step::kEnd : Step::kReset;
        const Given given = give_program(program, view.data, view.length);
        if (given.blocked)
            return Step::kBlocked;
        tcpqp_consume(conn_, given.bytes);
        return Step::kMoved;
    }

    void refresh() noexcept override {
        drained_ = false;
        (void)is_writable();
    }
    bool finish_up() noexcept override { return tcpqp_finish(conn_) == 0; }
    bool ends_in_stream() const noexcept override { return true; }
    bool has_sent_all() noexcept override {
        const int can = tcpqp_ready(conn_);
        maybe_more_ |= (can & TCPQP_READABLE) != 0;
        if ((can & TCPQP_BROKEN) != 0)
            return true;
        // a hello that lay unread would make the close a reset, and TCP forget what it has
        return (can & TCPQP_FLUSHED) != 0 && (greeted_ || take_hello() || broken_);
    }
    // The hello is nobody's data: it may come just as the program closes.
    bool has_unread() noexcept override {
        if (!greeted_ && !take_hello())
            return false;
        tcpqp_view view{};
        return tcpqp_peek(conn_, &view, 0) > 0;
    }
    void reset() noexcept override { tcpqp_conn_cancel(conn_); }
    int fd() noexcept override { return tcpqp_conn_fd(conn_); }

private:
    [[nodiscard]] size_t room() const noexcept { return buffer_.length; }
    // Its next bytes make an event, and not before is it asked again.
    Step stop(int error) noexcept {
        drained_ = error == EAGAIN;
        return error == EAGAIN || error == EINTR ? Step::kBlocked : Step::kReset;
    }
    // Takes all events, so that the descriptor is not readable any more.
    bool is_writable() noexcept {
        const int can = tcpqp_ready(conn_);
        maybe_more_ |= (can & (TCPQP_READABLE | TCPQP_BROKEN)) != 0;
        return (can & TCPQP_WRITABLE) != 0;
    }
    int take_buffer() noexcept {
        int error = has_buffer_ ? 0 : tcpqp_buffer(conn_, &buffer_, 0);
        while (error == -EAGAIN && is_writable())
            error = tcpqp_buffer(conn_, &buffer_, 0);
        starved_ = error == -EAGAIN;
        has_buffer_ = error == 0;
        return error;
    }
    // Nobody has used a buffer yet.
    void greet() noexcept {
        tcpqp_view view{};
        broken_ = tcpqp_buffer(conn_, &view, 0) != 0;
        if (broken_)
            return;
        std::memcpy(view.data, kHello.data(), kHello.size());
        view.length = kHello.size();
        view.imm = kHelloImm;
        view.flags = TCPQP_F_IMM;
        broken_ = tcpqp_send_view(conn_, &view) != 0;
    }
    bool take_hello() noexcept {
        tcpqp_view view{};
        const int error = broken_ ? -ENOTCONN : tcpqp_recv(conn_, &view, 0);
        if (error == 0) {
            greeted_ = is_hello({static_cast<const std::byte*>(view.data), view.length}) &&
                       view.imm == kHelloImm;
            tcpqp_release(conn_, &view);
        }
        broken_ = !greeted_ && error != -EAGAIN;
        maybe_more_ = error != -EAGAIN;
        return greeted_;
    }

    tcpqp_conn* const conn_;
    Stats& stats_;
    tcpqp_view buffer_{};  // the next to be sent, if has_buffer_
    bool has_buffer_ = false;
    bool starved_ = false;    // no buffer was to be had
    bool drained_ = false;    // the program had no bytes when it was asked
    bool maybe_more_ = true;  // of the peer's, not looked at yet
    bool greeted_ = false;
    bool broken_ = false;
};

}  // namespace

std::unique_ptr<Carrier> carry_by_queue_pair(tcpqp_conn* conn, Stats& stats) {
    return std::make_unique<QpCarrier>(conn, stats);
}

Given give_program(int program, const void* data, size_t bytes) noexcept {
    const ssize_t n = ::send(program, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0)
        return {static_cast<size_t>(n), false};
    if (errno == EAGAIN || errno == EINTR)
        return {0, true};
    return {bytes, false};
}

}  // namespace tcpqp::run
