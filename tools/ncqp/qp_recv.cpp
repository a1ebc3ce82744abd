// SPDX-License-Identifier: BSD-3-Clause
// Receiver over a queue pair: hello, post buffers, ready, data, end, verdict.
#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "device_memory.hpp"
#include "qp_session.hpp"
#include "qp_sink.hpp"
#include "stop.hpp"

namespace ncqp {
namespace {

Status protocol_error(const char* what) {
    return Status::failure(
        fmt::format("the peer broke the protocol: {}; is it ncqp of this version?", what));
}

class QpReceiver {
public:
    QpReceiver(Job& job, Output& output, Verifier& verifier)
        : job_(job), output_(output), verifier_(verifier), depth_(job.options.depth) {}

    Status run() {
        job_.meter.begin_setup();
        session_ = std::make_unique<QpSession>(job_, depth_);
        if (Status s = meet(); !s.ok())
            return s;
        Status s = prepare();
        job_.meter.end_setup();
        if (s.ok())
            s = transfer();
        if (s.ok())
            s = output_.finish(job_.report.bytes);
        job_.meter.end();
        give_verdict(s);
        session_->account();
        if (s.ok())
            return s;
        // receives may still be posted in the file: revoke them, then cut it
        session_->close_queue_pair();
        sink_.reset();
        std::ignore = output_.finish(job_.report.bytes);  // the first failure is the one to tell
        return s;
    }

private:
    Status meet() {
        if (Status s = session_->post_control_receives(1); !s.ok())
            return s;
        if (Status s = session_->attach(); !s.ok())
            return s;
        while (!hello_)
            if (Status s =
                    step(job_.options.timeout_ms(kAttachTimeoutDefault_ms), "the sender's hello");
                !s.ok())
                return s;
        return {};
    }

    Status check_hello() {
        const Options& o = job_.options;
        if (hello_->msg_bytes < kMessageMinBytes || hello_->msg_bytes > kMessageMaxBytes)
            return protocol_error("its message size is out of range");
        if (hello_->period != 0 && (hello_->period < kPeriodMin || hello_->period > kPeriodMax))
            return protocol_error("its pattern period is out of range");
        if (o.bytes && hello_->size_known && hello_->bytes != *o.bytes)
            return Status::failure(
                fmt::format("the sender has {} bytes, -n expects {}", hello_->bytes, *o.bytes));
        if (o.period != 0 && hello_->period != 0 && hello_->period != o.period)
            return Status::failure(fmt::format("the sender's pattern has period {}, -v says {}",
                                               hello_->period, o.period));
        if (o.period == 0 && hello_->period != 0)
            verifier_.expect(hello_->period);
        return {};
    }

    // Failures here still reach the sender, by the verdict.
    Status prepare() {
        if (Status s = check_hello(); !s.ok())
            return s;
        if (hello_->size_known)
            total_ = hello_->bytes;
        Status why;
        try {
            if (job_.options.device != DeviceKind::kHbm)
                sink_ = make_sink(session_->context(), output_, verifier_, total_,
                                  hello_->msg_bytes, job_.options.device, depth_, why);
            else if (total_)
                sink_ = make_hbm_sink(session_->context(), verifier_.period(), *total_,
                                      hello_->msg_bytes, depth_);
            else
                why = Status::failure("-d hbm needs a sender that knows its size (-n)");
        } catch (const std::exception& e) {
            return Status::failure(e.what());
        }
        if (!why.ok())
            return why;
        job_.report.msg_size = hello_->msg_bytes;
        job_.report.depth = depth_;
        job_.report.data_path = sink_->name();
        batch_.reserve(depth_);
        session_->mark_counters();
        if (Status s = refill(); !s.ok())
            return s;
        // of a sender that has all its data we may expect it from now on
        if (total_)
            job_.meter.begin();
        return send_control({.type = MessageType::kReady});
    }

    Status transfer() {
        while (!ended_) {
            if (Status s = step(job_.options.timeout_ms(-1), "data"); !s.ok())
                return s;
            if (ended_)
                break;
            if (Status s = refill(); !s.ok())
                return s;
        }
        return check_end();
    }

    Status check_end() const {
        const uint64_t bytes = job_.report.bytes;
        if (end_->failed)
            return Status::failure(fmt::format("the sender failed: {}", end_->text));
        if (end_->bytes != bytes || (total_ && *total_ != bytes))
            return Status::failure(
                fmt::format("{} bytes arrived, the sender says {}", bytes, end_->bytes));
        if (job_.options.bytes && *job_.options.bytes != bytes)
            return Status::failure(
                fmt::format("{} bytes arrived, -n expects {}", bytes, *job_.options.bytes));
        return {};
    }

    // Post what the depth allows.  The doorbell tells the sender of new credits;
    // a quarter of the depth at a time keeps it running and is cheap.
    Status refill() {
        Status why;
        batch_.clear();
        while (posted_ + batch_.size() < depth_) {
            std::optional<tcpqp::Work> work = sink_->next(why);
            if (!work)
                break;
            batch_.push_back(*work);
        }
        if (!why.ok())
            return why;
        if (Status s = session_->post_receives(batch_); !s.ok())
            return s;
        posted_ += static_cast<uint32_t>(batch_.size());
        unrung_ += static_cast<uint32_t>(batch_.size());
        const bool last = sink_->exhausted() && !end_posted_;
        if (last) {
            if (Status s = session_->post_control_receives(1); !s.ok())
                return s;
            end_posted_ = true;
        }
        if (unrung_ < std::max(1u, depth_ / 4) && !last)
            return {};
        unrung_ = 0;
        return session_->ring_doorbell();
    }

    Status step(int timeout_ms, const char* what) {
        std::span<const ibv_wc> done;
        if (Status s = session_->reap(done); !s.ok())
            return s;
        if (done.empty())
            return session_->wait(-1, timeout_ms, what);
        for (const ibv_wc& wc : done)
            if (Status s = handle(wc); !s.ok())
                return s;
        return stop_requested() ? interrupted() : Status();
    }

    Status handle(const ibv_wc& wc) {
        if (wc.status != IBV_WC_SUCCESS)
            return session_->failure_of(wc);
        if ((wc.wr_id & kCookieControlSend) != 0) {
            sends_done_++;
            return {};
        }
        const auto type = (wc.wc_flags & IBV_WC_WITH_IMM) != 0
                              ? type_of_immediate(ntohl(wc.imm_data))
                              : std::nullopt;
        if (!type)
            return protocol_error("a message without its immediate");
        if ((wc.wr_id & kCookieControlReceive) != 0)
            return handle_control(session_->control_of(wc));
        posted_--;
        if (*type == MessageType::kData)
            return handle_data(wc.byte_len);
        std::array<std::byte, kControlBytes> message{};
        if (wc.byte_len != message.size() || !sink_->read_oldest(message))
            return protocol_error("a control message of the wrong size");
        return handle_control(decode(message));
    }

    Status handle_data(uint32_t bytes) {
        if (ended_ || bytes > hello_->msg_bytes)
            return protocol_error("data out of place");
        job_.meter.begin();
        if (Status s = sink_->landed(bytes); !s.ok())
            return s;
        job_.report.bytes += bytes;
        job_.report.messages++;
        job_.progress.update(job_.report.bytes, total_);
        return {};
    }

    Status handle_control(std::optional<Control> control) {
        if (!control)
            return protocol_error("a malformed control message");
        if (control->type == MessageType::kHello && !hello_) {
            hello_ = std::move(control);
        } else if (control->type == MessageType::kEnd && sink_ && !ended_) {
            end_ = std::move(control);
            ended_ = true;
        } else {
            return protocol_error("a control message out of place");
        }
        return {};
    }

    Status send_control(const Control& control) {
        sends_posted_++;
        return session_->send_control(control);
    }

    // The sender's exit status depends on it, so see it acknowledged.  A sender
    // that has it may close at once, which flushes the rest: no failure of ours.
    void give_verdict(const Status& s) {
        Control verdict{.type = MessageType::kVerdict};
        verdict.failed = !s.ok();
        verdict.text = s.text();
        verdict.bytes = job_.report.bytes;
        verdict.messages = job_.report.messages;
        if (!send_control(verdict).ok())
            return;
        while (sends_done_ < sends_posted_) {
            std::span<const ibv_wc> done;
            if (!session_->reap(done).ok())
                return;
            if (done.empty() &&
                !session_->wait(-1, job_.options.timeout_ms(kAttachTimeoutDefault_ms), "the sender")
                     .ok())
                return;
            for (const ibv_wc& wc : done) {
                if (wc.status != IBV_WC_SUCCESS)
                    return;
                if ((wc.wr_id & kCookieControlSend) != 0)
                    sends_done_++;
            }
        }
    }

    Job& job_;
    Output& output_;
    Verifier& verifier_;
    uint32_t depth_;
    std::unique_ptr<QpSession> session_;
    std::unique_ptr<Sink> sink_;  // goes first: its MRs hang on the session's context
    std::vector<tcpqp::Work> batch_;
    std::optional<Control> hello_;
    std::optional<Control> end_;
    std::optional<uint64_t> total_;
    uint32_t posted_ = 0;
    uint32_t unrung_ = 0;
    uint32_t sends_posted_ = 0;
    uint32_t sends_done_ = 0;
    bool end_posted_ = false;
    bool ended_ = false;
};

}  // namespace

Status qp_receive(Job& job, Output& output, Verifier& verifier) {
    return QpReceiver(job, output, verifier).run();
}

}  // namespace ncqp
