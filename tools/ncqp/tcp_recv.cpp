// SPDX-License-Identifier: BSD-3-Clause
// Plain TCP at its best.  With a size given by -n: one copy, from the socket
// into the output file's page cache, mapped and filled beforehand.  Otherwise
// one buffer that stays in the processor's cache, and write(): measured faster
// than mapping pages that must first be cleared.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "stop.hpp"
#include "transfer.hpp"

namespace ncqp {
namespace {

class TcpReceiver {
public:
    TcpReceiver(Job& job, Output& output, Verifier& verifier) noexcept
        : job_(job), output_(output), verifier_(verifier), fd_(job.connection.fd.get()) {}

    Status run() {
        job_.meter.begin_setup();
        Status s = job_.options.bytes && output_.mappable() ? first_window() : Status();
        job_.meter.end_setup();
        if (s.ok())
            s = mapped_ ? receive_mapped() : receive_buffered();
        job_.meter.end();
        // what arrived stays, also after a failure: as every netcat does
        Status finished = output_.finish(job_.report.bytes);
        if (s.ok())
            s = finished;
        if (s.ok())
            s = expected_size();
        job_.report.copied_bytes = job_.report.delivered_bytes = job_.report.bytes;
        return s;
    }

private:
    Status first_window() {
        window_bytes_ = tcp_window_bytes(*job_.options.bytes);
        return next_window(0);
    }

    // A file that can be written but not mapped is written.
    Status next_window(uint64_t at) {
        if (Status s = output_.reserve(at + window_bytes_); !s.ok())
            return s;
        window_ = output_.map(at, window_bytes_);
        mapped_ = window_.data() != nullptr;
        window_at_ = at;
        if (!mapped_ && at != 0)
            return output_.explain_fault();
        return {};
    }

    Status receive_mapped() {
        job_.report.data_path = "mapping";
        uint64_t& at = job_.report.bytes;
        for (;;) {
            if (at == window_at_ + window_bytes_) {
                // more is coming?  Only then is there another window.
                bool end = false;
                if (Status s = wait_data(end); !s.ok() || end)
                    return s;
                if (at >= *job_.options.bytes)
                    return too_much();
                if (Status s = next_window(at); !s.ok())
                    return s;
            }
            const uint64_t room = window_at_ + window_bytes_ - at;
            size_t got = 0;
            bool end = false;
            Status s = receive(window_.data() + (at - window_at_),
                               std::min(room, job_.options.msg_bytes), got, end);
            if (!s.ok() || end)
                return s;
            if (Status v = verifier_.file(output_, at - got, got); !v.ok())
                return v;
        }
    }

    Status receive_buffered() {
        job_.report.data_path = "buffers";
        std::vector<std::byte> buffer(job_.options.msg_bytes);
        for (;;) {
            size_t got = 0;
            bool end = false;
            Status s = receive(buffer.data(), buffer.size(), got, end);
            if (!s.ok() || end)
                return s;
            if (Status v = verifier_.memory({buffer.data(), got}); !v.ok())
                return v;
            if (Status w = output_.write({buffer.data(), got}); !w.ok())
                return w;
        }
    }

    // One recv() that brought something, or the end.
    Status receive(std::byte* into, size_t room, size_t& got, bool& end) noexcept {
        for (;;) {
            if (stop_requested())
                return interrupted();
            const ssize_t n = ::recv(fd_, into, room, MSG_DONTWAIT);
            if (n > 0) {
                job_.meter.begin();
                got = static_cast<size_t>(n);
                job_.report.bytes += got;
                job_.report.messages++;
                job_.progress.update(job_.report.bytes, job_.options.bytes);
                if (job_.options.bytes && job_.report.bytes > *job_.options.bytes)
                    return too_much();
                return {};
            }
            if (n == 0) {
                end = true;
                return {};
            }
            if (errno == EFAULT)
                return output_.explain_fault();
            if (errno != EAGAIN && errno != EINTR)
                return broken();
            if (Status s = wait_fd(fd_, POLLIN, job_.options.timeout_ms(-1), "data"); !s.ok())
                return s;
        }
    }

    Status wait_data(bool& end) noexcept {
        std::byte one;
        for (;;) {
            const ssize_t n = ::recv(fd_, &one, 1, MSG_DONTWAIT | MSG_PEEK);
            end = n == 0;
            if (n >= 0)
                return {};
            if (errno != EAGAIN && errno != EINTR)
                return broken();
            if (Status s = wait_fd(fd_, POLLIN, job_.options.timeout_ms(-1), "data"); !s.ok())
                return s;
        }
    }

    Status broken() const {
        if (errno != ECONNRESET)
            return Status::failure(connection_error(errno));
        return Status::failure(fmt::format(
            "the sender failed: it reset the connection after {} bytes", job_.report.bytes));
    }

    Status too_much() const {
        return Status::failure(
            fmt::format("more than the {} bytes expected by -n arrived", *job_.options.bytes));
    }

    Status expected_size() const {
        if (!job_.options.bytes || job_.report.bytes == *job_.options.bytes)
            return {};
        return Status::failure(
            fmt::format("{} bytes arrived, -n expects {}", job_.report.bytes, *job_.options.bytes));
    }

    Job& job_;
    Output& output_;
    Verifier& verifier_;
    int fd_;
    FileWindow window_;
    bool mapped_ = false;
    uint64_t window_at_ = 0;
    uint64_t window_bytes_ = 0;
};

}  // namespace

uint64_t tcp_window_bytes(uint64_t total) noexcept {
    return std::clamp<uint64_t>(total, 1, kRegisterWholeMaxBytes);
}

Status tcp_receive(Job& job, Output& output, Verifier& verifier) {
    return TcpReceiver(job, output, verifier).run();
}

}  // namespace ncqp
