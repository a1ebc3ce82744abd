// SPDX-License-Identifier: BSD-3-Clause
// Level 2 as a stream of bytes: messages whose cuts mean nothing.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "conn/conn.hpp"

// Without a word of the peer's that the stream has ended, it broke.
int tcpqp_conn::broken(int status) const noexcept {
    if (status != -ENOTCONN)
        return status;
    return canceled_ ? -ENOTCONN : -ECONNRESET;
}

int tcpqp_conn::write_status() const noexcept { return finished_ ? -EPIPE : broken(send_status_); }

// Level 2's other sends call it first, so that bytes stay in order.
int tcpqp_conn::send_partial() noexcept {
    if (!has_partial_)
        return 0;
    const int error = start_send(partial_);
    if (error == 0)
        has_partial_ = false;
    return error;
}

// Else bytes that fill no buffer wait for more.
bool tcpqp_conn::is_idle_enough() const noexcept { return sending_ < std::max(buffers_ / 2, 1U); }

void tcpqp_conn::after_send() noexcept {
    if (!is_idle_enough())
        return;
    if (const int error = send_partial(); error != 0)
        send_status_ = error;
}

int tcpqp_conn::open_partial(Lock& lock, int timeout_ms) noexcept {
    if (has_partial_)
        return 0;
    uint32_t slot = 0;
    if (const int error = take_free(lock, timeout_ms, slot); error != 0)
        return error;
    if (has_partial_) {  // another thread's, while this one slept
        give_back(slot);
        return 0;
    }
    partial_ = {at(slot), 0, 0, 0, slot};
    has_partial_ = true;
    return 0;
}

size_t tcpqp_conn::fill(const std::byte* data, size_t length) noexcept {
    const size_t n = std::min<size_t>(length, buffer_bytes_ - partial_.length);
    std::memcpy(at(partial_.slot) + partial_.length, data, n);
    partial_.length += static_cast<uint32_t>(n);
    if (partial_.length == buffer_bytes_)
        if (const int error = send_partial(); error != 0)
            send_status_ = error;
    return n;
}

ssize_t tcpqp_conn::write(const std::byte* data, size_t length, int timeout_ms) noexcept {
    const tcpqp::Deadline deadline(timeout_ms);
    Lock lock(lock_);
    size_t done = 0;
    int error = write_status();
    while (error == 0 && done < length) {
        error = open_partial(lock, done == 0 ? timeout_ms : deadline.left_ms());
        if (error == 0 && write_status() == 0)
            done += fill(data + done, length - done);
        if (error == 0)
            error = write_status();
    }
    if (has_partial_ && !is_idle_enough())
        pump_all();  // perhaps it is, by now
    if (error == 0)
        after_send();
    if (const int status = write_status(); status != 0) {
        lost_ = lost_ || status != -EPIPE;  // what it took
        return status;
    }
    return done != 0 ? static_cast<ssize_t>(done) : broken(error);
}

// Empty messages but the end have nothing to show.
bool tcpqp_conn::show_next() noexcept {
    while (shown_left_ == 0 && ready_count_ != 0 && !peer_finished_) {
        shown_ = ready_[ready_head_];
        pop_ready();
        shown_left_ = shown_.length;
        if (shown_left_ != 0)
            break;
        peer_finished_ = (shown_.flags & TCPQP_F_IMM) != 0 && shown_.imm == TCPQP_STREAM_END;
        give_back(shown_.slot);
    }
    return shown_left_ != 0;
}

// > 0: bytes; 0: the end.
int tcpqp_conn::wait_readable(Lock& lock, int timeout_ms) noexcept {
    const int error = wait_until(lock, timeout_ms, &tcpqp_conn::is_readable);
    if (error != 0)
        return error;
    if (shown_left_ != 0)
        return 1;
    return peer_finished_ ? 0 : broken(receive_status_);
}

void tcpqp_conn::consume_shown(size_t bytes) noexcept {
    shown_left_ -= bytes;
    if (shown_left_ == 0)
        give_back(shown_.slot);
}

ssize_t tcpqp_conn::read(std::byte* data, size_t length, int timeout_ms) noexcept {
    if (length == 0)
        return 0;
    Lock lock(lock_);
    const int status = wait_readable(lock, timeout_ms);
    if (status <= 0)
        return status;
    size_t done = 0;
    while (done < length && show_next()) {
        const size_t n = std::min(length - done, shown_left_);
        std::memcpy(data + done, at(shown_.slot) + shown_.length - shown_left_, n);
        done += n;
        consume_shown(n);
        pump_all();
    }
    return static_cast<ssize_t>(done);
}

ssize_t tcpqp_conn::peek(tcpqp_view& view, int timeout_ms) noexcept {
    Lock lock(lock_);
    const int status = wait_readable(lock, timeout_ms);
    if (status <= 0)
        return status;
    view = shown_;
    view.data = at(shown_.slot) + shown_.length - shown_left_;
    view.length = static_cast<uint32_t>(shown_left_);
    return view.length;
}

int tcpqp_conn::consume(size_t bytes) noexcept {
    const Lock lock(lock_);
    if (bytes > shown_left_)
        return -EINVAL;
    if (bytes != 0)
        consume_shown(bytes);
    return 0;
}

int tcpqp_conn::flush(int timeout_ms) noexcept {
    Lock lock(lock_);
    int error = send_status_ != 0 ? send_status_ : send_partial();
    if (error == 0)
        error = wait_until(lock, timeout_ms, &tcpqp_conn::has_sent);
    if (sending_ == 0 && !has_partial_ && !lost_)
        return 0;  // all had completed when the connection ended
    return broken(error != 0 ? error : send_status_);
}

int tcpqp_conn::finish() noexcept {
    const Lock lock(lock_);
    int error = write_status();
    if (error == 0)
        error = send_partial();
    if (error == 0)
        error =
            post({2 * uint64_t{buffers_}, at(0), 0, TCPQP_STREAM_END, TCPQP_F_IMM, 0, mr_of(0)});
    finished_ |= error == 0;
    return broken(error);
}

int tcpqp_conn::ready() noexcept {
    const Lock lock(lock_);
    pump_all();
    notice_end();
    int bits = 0;
    if (shown_left_ != 0 || ready_count_ != 0 || peer_finished_ || receive_status_ != 0)
        bits |= TCPQP_READABLE;
    if (has_partial_ || !free_.empty() || sends_.may_grow() || write_status() != 0)
        bits |= TCPQP_WRITABLE;
    if (sending_ == 0 && !has_partial_)
        bits |= TCPQP_FLUSHED;
    if (send_status_ != 0)
        bits |= TCPQP_BROKEN;
    return bits;
}

namespace {

// Messages by reference have heads, which a stream would not see.
int check_stream(const tcpqp_conn* conn) noexcept {
    if (conn == nullptr)
        return -EINVAL;
    return conn->has_references() ? -EOPNOTSUPP : 0;
}

}  // namespace

extern "C" {

ssize_t tcpqp_write(tcpqp_conn* conn, const void* data, size_t length, int timeout_ms) {
    if (const int error = check_stream(conn); error != 0 || (data == nullptr && length != 0))
        return error != 0 ? error : -EINVAL;
    return conn->write(static_cast<const std::byte*>(data), length, timeout_ms);
}

ssize_t tcpqp_read(tcpqp_conn* conn, void* data, size_t length, int timeout_ms) {
    if (const int error = check_stream(conn); error != 0 || (data == nullptr && length != 0))
        return error != 0 ? error : -EINVAL;
    return conn->read(static_cast<std::byte*>(data), length, timeout_ms);
}

ssize_t tcpqp_peek(tcpqp_conn* conn, tcpqp_view* view, int timeout_ms) {
    if (const int error = check_stream(conn); error != 0 || view == nullptr)
        return error != 0 ? error : -EINVAL;
    return conn->peek(*view, timeout_ms);
}

int tcpqp_consume(tcpqp_conn* conn, size_t bytes) {
    const int error = check_stream(conn);
    return error != 0 ? error : conn->consume(bytes);
}

int tcpqp_flush(tcpqp_conn* conn, int timeout_ms) {
    const int error = check_stream(conn);
    return error != 0 ? error : conn->flush(timeout_ms);
}

int tcpqp_finish(tcpqp_conn* conn) {
    const int error = check_stream(conn);
    return error != 0 ? error : conn->finish();
}

int tcpqp_ready(tcpqp_conn* conn) {
    const int error = check_stream(conn);
    return error != 0 ? error : conn->ready();
}
}
