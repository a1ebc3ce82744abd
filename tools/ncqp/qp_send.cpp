// SPDX-License-Identifier: BSD-3-Clause
// Sender over a queue pair: hello, wait for ready, data, end, wait for the verdict.
#include <fmt/core.h>

#include <vector>

#include "qp_session.hpp"
#include "qp_source.hpp"
#include "stop.hpp"

namespace ncqp {
namespace {

class QpSender {
public:
    QpSender(Job& job, Input& input) : job_(job), input_(input), depth_(job.options.depth) {}

    Status run() {
        job_.meter.begin_setup();
        session_ = std::make_unique<QpSession>(job_, depth_);
        const Options& o = job_.options;
        source_ = make_source(session_->context(), input_, o.msg_bytes, o.device, depth_);
        batch_.reserve(depth_);
        job_.report.depth = depth_;
        job_.report.data_path = source_->name();
        Status s = shake_hands();
        job_.meter.end_setup();
        if (!s.ok())
            return s;
        session_->mark_counters();
        s = transfer();
        job_.meter.end();
        session_->account();
        return s;
    }

private:
    Status shake_hands() {
        if (Status s = session_->post_control_receives(2); !s.ok())
            return s;  // ready, verdict
        if (Status s = session_->attach(); !s.ok())
            return s;
        Control hello{.type = MessageType::kHello};
        hello.size_known = input_.total().has_value();
        hello.bytes = input_.total().value_or(0);
        hello.msg_bytes = static_cast<uint32_t>(job_.options.msg_bytes);
        hello.period = job_.options.period;
        if (Status s = session_->send_control(hello); !s.ok())
            return s;
        while (!ready_) {
            if (Status s = step(-1, "the receiver to get ready"); !s.ok())
                return s;
            if (verdict_)
                return finish();
        }
        return {};
    }

    Status transfer() {
        job_.meter.begin();
        while (!verdict_) {
            if (Status s = fill(); !s.ok())
                return s;
            const bool idle = in_flight_ == 0 && !end_sent_;
            if (Status s =
                    step(idle || in_flight_ < depth_ ? source_->wait_fd() : -1,
                         end_sent_ ? "the receiver's verdict" : "the receiver to take more data");
                !s.ok())
                return s;
        }
        return finish();
    }

    // Post what the depth allows, in one batch; the end message behind the last data.
    Status fill() {
        Status why;
        batch_.clear();
        while (!end_sent_ && in_flight_ + batch_.size() < depth_) {
            tcpqp::Work work;
            const Source::Next next = source_->next(work, why);
            if (next == Source::Next::kFailed)
                break;
            if (next == Source::Next::kWait)
                break;
            if (next == Source::Next::kEnd) {
                ended_ = true;
                break;
            }
            work.imm = immediate_of(MessageType::kData);
            bytes_posted_ += work.bytes;
            batch_.push_back(work);
        }
        if (!batch_.empty()) {
            if (Status s = session_->post_sends(batch_); !s.ok())
                return s;
            in_flight_ += static_cast<uint32_t>(batch_.size());
            for (const tcpqp::Work& w : batch_)
                sizes_.push_back(w.bytes);
        }
        if (why.ok() && ended_ && !end_sent_)
            why = input_.unchanged();
        if (!why.ok())
            return give_up(why);
        return ended_ && !end_sent_ ? send_end(why) : Status();
    }

    // The receiver must not take a broken input for a short one: tell it, then fail.
    Status give_up(const Status& why) {
        if (Status s = send_end(why); !s.ok())
            return why;
        while (!verdict_)
            if (!step(-1, "the receiver").ok())
                break;
        return why;
    }

    Status send_end(const Status& why) {
        Control end{.type = MessageType::kEnd};
        end.failed = !why.ok();
        end.text = why.text();
        end.bytes = bytes_posted_;
        end.messages = job_.report.messages + in_flight_;
        end_sent_ = true;
        return session_->send_control(end);
    }

    // Take all completions; with none, wait.
    Status step(int input_fd, const char* what) {
        std::span<const ibv_wc> done;
        if (Status s = session_->reap(done); !s.ok())
            return s;
        if (done.empty()) {
            const bool user = input_fd >= 0 && in_flight_ == 0;  // a silent user is no stall
            return session_->wait(input_fd, user ? -1 : job_.options.timeout_ms(-1), what);
        }
        for (const ibv_wc& wc : done) {
            if (Status s = handle(wc); !s.ok())
                return s;
            if (verdict_)
                break;  // the receiver may close now: what follows is no news
        }
        return stop_requested() ? interrupted() : Status();
    }

    Status handle(const ibv_wc& wc) {
        if (wc.status != IBV_WC_SUCCESS)
            return session_->failure_of(wc);
        if ((wc.wr_id & kCookieControlReceive) != 0)
            return handle_control(wc);
        if ((wc.wr_id & kCookieControlSend) != 0)
            return {};
        source_->sent();
        in_flight_--;
        job_.report.messages++;
        job_.report.bytes += sizes_[sizes_at_++];
        if (sizes_at_ == sizes_.size()) {
            sizes_.clear();
            sizes_at_ = 0;
        }
        job_.progress.update(job_.report.bytes, input_.total());
        return {};
    }

    Status handle_control(const ibv_wc& wc) {
        std::optional<Control> control = session_->control_of(wc);
        if (control && control->type == MessageType::kReady && !ready_) {
            ready_ = true;
            return {};
        }
        if (!control || control->type != MessageType::kVerdict)
            return Status::failure("the peer broke the protocol: is it ncqp of this version?");
        verdict_ = std::move(control);
        return {};
    }

    Status finish() const {
        if (verdict_->failed)
            return Status::failure(fmt::format("the receiver failed: {}", verdict_->text));
        if (verdict_->bytes == bytes_posted_ && end_sent_) {
            job_.report.bytes =
                bytes_posted_;  // the peer's word may be faster than our completions
            return {};
        }
        return Status::failure(fmt::format("the receiver counted {} bytes, {} were sent",
                                           verdict_->bytes, bytes_posted_));
    }

    Job& job_;
    Input& input_;
    uint32_t depth_;
    std::unique_ptr<QpSession> session_;
    std::unique_ptr<Source> source_;  // goes first: its MRs hang on the session's context
    std::vector<tcpqp::Work> batch_;
    std::vector<uint32_t> sizes_;  // of the messages in flight, from sizes_at_ on
    size_t sizes_at_ = 0;
    uint32_t in_flight_ = 0;
    uint64_t bytes_posted_ = 0;
    bool ready_ = false;
    bool ended_ = false;
    bool end_sent_ = false;
    std::optional<Control> verdict_;
};

}  // namespace

Status qp_send(Job& job, Input& input) { return QpSender(job, input).run(); }

}  // namespace ncqp
