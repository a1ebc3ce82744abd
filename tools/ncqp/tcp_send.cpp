// SPDX-License-Identifier: BSD-3-Clause
// Plain TCP at its best: from a file by sendfile(), without a copy, or by
// send() from its mapping, one copy.  There is no handshake, so any netcat may
// be the peer; the receiver says "I have everything" by closing, and anything
// else by a reset.
#include <fmt/core.h>
#include <sys/sendfile.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "stop.hpp"
#include "transfer.hpp"

namespace ncqp {
namespace {

class TcpSender {
public:
    TcpSender(Job& job, Input& input) noexcept
        : job_(job),
          input_(input),
          fd_(job.connection.fd.get()),
          timeout_ms_(job.options.timeout_ms(-1)) {}

    Status run() {
        Status s = send_input();
        if (s.ok())
            s = input_.unchanged();
        if (!s.ok())
            return s;
        if (::shutdown(fd_, SHUT_WR) != 0)
            return Status::failure(connection_error(errno));
        return wait_for_peer();
    }

private:
    Status send_input() {
        switch (input_.kind()) {
            case Input::Kind::kGenerated:
                return send_generated();
            case Input::Kind::kFile:
                return send_file();
            case Input::Kind::kStream:
                break;
        }
        return send_stream();
    }

    Status send_generated() noexcept {
        job_.report.data_path = "generated";
        const uint64_t total = *input_.total();
        for (uint64_t at = 0; at < total;) {
            const uint64_t n = std::min(job_.options.msg_bytes, total - at);
            if (Status s = send_all({input_.generated(at), n}); !s.ok())
                return s;
            at += n;
        }
        return {};
    }

    Status send_file() {
        if (job_.options.tcp_send == TcpSend::kSendfile)
            return send_by_sendfile();
        return send_mapped();
    }

    Status send_mapped() {
        if (input_.mapped().empty() && *input_.total() > 0)
            return send_stream();
        job_.report.data_path = "mapping";
        std::span<const std::byte> left = input_.mapped();
        while (!left.empty()) {
            const size_t n = std::min<uint64_t>(job_.options.msg_bytes, left.size());
            if (Status s = send_all(left.first(n)); !s.ok())
                return s;
            left = left.subspan(n);
        }
        return {};
    }

    Status send_by_sendfile() noexcept {
        job_.report.data_path = "sendfile";
        auto at = static_cast<off_t>(input_.file_offset());
        const auto end = static_cast<off_t>(input_.file_offset() + *input_.total());
        while (at < end) {
            const auto n = static_cast<size_t>(
                std::min<off_t>(end - at, static_cast<off_t>(job_.options.msg_bytes)));
            job_.meter.begin();
            const ssize_t sent = ::sendfile(fd_, input_.fd(), &at, n);
            if (sent == 0)
                return input_.unchanged();
            if (sent < 0 && errno == EINVAL && job_.report.bytes == 0)
                return send_mapped();  // a file system without it
            if (Status s = account(sent); !s.ok())
                return s;
        }
        job_.report.messages =
            (job_.report.bytes + job_.options.msg_bytes - 1) / job_.options.msg_bytes;
        return {};
    }

    Status send_stream() {
        job_.report.data_path = "buffers";
        std::vector<std::byte> buffer(job_.options.msg_bytes);
        for (;;) {
            if (Status s = wait_input(); !s.ok())
                return s;
            size_t got = 0;
            if (Status s = input_.read(buffer, got); !s.ok())
                return s;
            if (got == 0)
                return {};
            if (Status s = send_all({buffer.data(), got}); !s.ok())
                return s;
        }
    }

    // A stream may stay silent as long as it likes; a peer that goes is noticed meanwhile.
    Status wait_input() noexcept {
        if (input_.kind() != Input::Kind::kStream)
            return {};
        for (;;) {
            std::array<pollfd, 2> fds{{{input_.fd(), POLLIN, 0}, {fd_, POLLIN, 0}}};
            if (Status s = wait_for(fds, -1, "standard input"); !s.ok())
                return s;
            bool closed = false;
            if (fds[1].revents != 0)
                if (Status s = drain(closed); !s.ok())
                    return s;
            if (closed)
                return Status::failure("the peer closed the connection before the end of input");
            if (fds[0].revents != 0)
                return {};
        }
    }

    Status send_all(std::span<const std::byte> data) noexcept {
        job_.report.copied_bytes += data.size();
        job_.meter.begin();
        job_.report.messages++;
        while (!data.empty()) {
            const ssize_t n = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
            if (Status s = account(n); !s.ok())
                return s;
            if (n > 0)
                data = data.subspan(static_cast<size_t>(n));
        }
        return {};
    }

    // Count what a call sent, or wait until it may be tried again.
    Status account(ssize_t n) noexcept {
        if (n >= 0) {
            job_.report.bytes += static_cast<uint64_t>(n);
            job_.progress.update(job_.report.bytes, input_.total());
            return stop_requested() ? interrupted() : Status();
        }
        switch (errno) {
            case EINTR:
                return stop_requested() ? interrupted() : Status();
            case EAGAIN:
                return wait_fd(fd_, POLLOUT, timeout_ms_, "the peer to take more data");
            case EFAULT: {
                Status s = input_.unchanged();
                return s.ok() ? Status::failure("the input file can't be read any more") : s;
            }
            default:
                return Status::failure(connection_error(errno));
        }
    }

    // What a netcat at the other end sends is not ours to print.
    Status drain(bool& closed) noexcept {
        std::array<std::byte, 4096> unwanted;
        for (;;) {
            const ssize_t n = ::recv(fd_, unwanted.data(), unwanted.size(), MSG_DONTWAIT);
            if (n > 0 && !warned_) {
                fmt::print(stderr, "ncqp: ignoring what the peer sends; this end only sends\n");
                warned_ = true;
            }
            closed = n == 0;
            if (n == 0 || (n < 0 && errno == EAGAIN))
                return {};
            if (n < 0 && errno != EINTR)
                return Status::failure(connection_error(errno));
        }
    }

    Status wait_for_peer() noexcept {
        for (;;) {
            bool closed = false;
            if (Status s = drain(closed); !s.ok())
                return s;
            if (closed) {
                job_.meter.end();
                return {};
            }
            Status s = wait_fd(fd_, POLLIN, timeout_ms_, "the peer to close");
            if (s.ok())
                continue;
            if (stop_requested() || !fin_acknowledged(fd_))
                return s;
            return Status::failure(
                "the peer's TCP has all data, but the peer did not close in time");
        }
    }

    Job& job_;
    Input& input_;
    int fd_;
    int timeout_ms_;
    bool warned_ = false;
};

}  // namespace

Status tcp_send(Job& job, Input& input) { return TcpSender(job, input).run(); }

}  // namespace ncqp
