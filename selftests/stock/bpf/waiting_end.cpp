// SPDX-License-Identifier: BSD-3-Clause
// One end of a connection on which somebody must wait.
//
//   waiting_end [ROLE] --port PORT [--connect ADDR] [--messages N] [--bytes N] [--buffers BYTES]
//            [--zerocopy BYTES] [--late] [--nowait] [--leave]
//
//   waiter      posts N sends, and waits for their ends in tcpqp_wait()
//   left-alone  posts N sends, and calls nothing until a line comes: by then all have left
//   deaf        posts N sends, as there is room, and polls only for what has ended: so what the
//               peer says is not read
//   left        posts N sends; once a line comes it waits for their ends, of which the last must
//               be failures: the peer has gone
//   quitter     the same, and it is we who go
//   helped      once a line comes, posts and completes all sends but one ("posted"); another thread
//               waits, and once a line comes this one posts the last
//   holder      receives, and checks, N messages once a line comes
//
// --late: gives the socket a queue pair only when bytes of the peer's are there.
// --nowait: ... and does not wait for the peer's.
// Says "posted" and "done", a line each; stays until its standard input ends, without --leave.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../vm/programs/command.hpp"
#include "../../vm/programs/pattern.hpp"
#include "../../vm/programs/zerocopy_asked.hpp"
#include "tcpqp.hpp"

namespace {

using namespace nupa::programs;
constexpr int kPeerMs = 60000;
constexpr int kNapMs = 20;

struct Options {
    std::string role = "waiter";
    PeerOptions peer;
    uint32_t messages = 1;
    uint32_t bytes = 64;  // of each
    int buffer_bytes = 0;
    uint32_t zerocopy = 0;  // tcpqp_qp_opts.zerocopy_bytes
    bool late = false;
    bool nowait = false;
    bool leave = false;
};

// False: there is none any more.
bool next_line() {
    int c = 0;
    while ((c = std::getchar()) != EOF && c != '\n') {
    }
    return c != EOF;
}

void say(const char* word) {
    std::puts(word);
    std::fflush(stdout);
}

class End {
public:
    End(const Options& o, int socket)
        : messages_(o.messages),
          bytes_(o.bytes),
          zerocopy_(o.zerocopy != 0),
          memory_(size_t{o.messages} * o.bytes),
          context_(stock()),
          cq_(context_),
          qp_(cq_, socket, qp_opts(o)) {}

    void send(bool left_alone) {
        fill_all();
        post(&tcpqp::v1::Qp::post_send);
        say("posted");
        if (left_alone && !next_line())
            throw std::runtime_error("nobody told us to go on");
        complete(left_alone);
    }
    void send_last_for_a_waiter() {
        fill_all();
        const uint32_t last = std::exchange(messages_, messages_ - 1) - 1;
        say("open");
        if (!next_line())
            throw std::runtime_error("nobody told us to go on");
        post(&tcpqp::v1::Qp::post_send);
        complete(false);
        say("posted");
        std::thread waiter([this] { take_one(); });
        const tcpqp_work w{last, at(last).data(), bytes_, 0, 0, 0, nullptr};
        const bool posted = next_line() && qp_.post_send({&w, 1}) == 1;
        if (!posted)
            qp_.cancel();
        waiter.join();
        if (!posted)
            throw std::runtime_error("the last was not posted");
    }
    void send_in_vain(bool quits) {
        in_vain_ = true;
        fill_all();
        post(&tcpqp::v1::Qp::post_send);
        say("posted");
        if (!next_line())
            throw std::runtime_error("nobody told us to go on");
        if (quits && qp_.cancel() != 0)
            throw std::runtime_error("it can't be canceled");
        while (ended_ + failed_ < messages_)
            take_one();
        if (failed_ == 0)
            throw std::runtime_error("all were sent");
        if (zerocopy_ && zerocopy_asked() == 0)
            throw std::runtime_error("nothing went by SEND_ZC");
        std::fill(memory_.begin(), memory_.end(), uint8_t{0});  // they are ours again
    }
    void send_deaf() {
        fill_all();
        for (uint32_t posted = 0; ended_ < messages_;) {
            posted += post_some(posted);
            ::poll(nullptr, 0, kNapMs);  // they leave meanwhile
            while (ended_ < messages_ && take()) {
            }
        }
    }
    void receive() {
        if (!next_line())
            throw std::runtime_error("nobody told us to go on");
        post(&tcpqp::v1::Qp::post_recv, true);
        complete(false);
        for (uint32_t i = 0; i < messages_; i++)
            if (first_wrong(at(i), i) != bytes_)
                throw std::runtime_error("message " + std::to_string(i) + " has a wrong byte");
    }

private:
    static tcpqp_context_opts stock() {
        tcpqp_context_opts c{};
        c.engine = TCPQP_ENGINE_STOCK;
        return c;
    }
    static tcpqp_qp_opts qp_opts(const Options& o) {
        tcpqp_qp_opts q{};
        q.sends = q.receives = std::min<uint32_t>(o.messages, TCPQP_DEPTH_MAX);
        q.timeout_ms = kPeerMs;
        q.flags = o.nowait ? TCPQP_QP_F_NOWAIT : 0;
        q.zerocopy_bytes = o.zerocopy;
        return q;
    }
    std::span<uint8_t> at(uint32_t i) { return {&memory_[size_t{i} * bytes_], bytes_}; }
    void fill_all() {
        for (uint32_t i = 0; i < messages_; i++)
            fill(at(i), i);
    }

    // All, though more than the queue's depth; what has ended by then makes room, or is @waited
    // for.
    void post(int (tcpqp::v1::Qp::*call)(std::span<const tcpqp_work>) noexcept,
              bool waited = false) {
        for (uint32_t posted = 0; posted < messages_;) {
            const tcpqp_work w{posted, at(posted).data(), bytes_, 0, 0, 0, nullptr};
            const int n = (qp_.*call)({&w, 1});
            if (n == 1)
                posted++;
            else if (n == -EAGAIN && waited)
                take_one();
            else if (n != -EAGAIN || !take())
                throw std::runtime_error("only " + std::to_string(posted) + " could be posted");
        }
    }
    uint32_t post_some(uint32_t from) {
        uint32_t n = 0;
        for (; from + n < messages_; n++) {
            const tcpqp_work w{from + n, at(from + n).data(), bytes_, 0, 0, 0, nullptr};
            if (const int posted = qp_.post_send({&w, 1}); posted == -EAGAIN)
                break;
            else if (posted != 1)
                throw std::runtime_error("only " + std::to_string(from + n) + " could be posted");
        }
        return n;
    }
    // False: nothing has ended.
    bool take() {
        tcpqp_completion c{};
        if (cq_.poll({&c, 1}) != 1)
            return false;
        if (in_vain_ && c.status == -ECANCELED && c.id == ended_ + failed_) {
            failed_++;
            return true;
        }
        if (failed_ != 0)
            throw std::runtime_error("completion " + std::to_string(c.id) + " after a failed one");
        if (c.status != 0 || c.id != ended_++)
            throw std::runtime_error("completion " + std::to_string(c.id) + ", status " +
                                     std::to_string(c.status));
        return true;
    }
    void take_one() {
        while (!take())
            if (const int error = cq_.wait(-1); error != 0 && error != -EINTR)
                throw std::runtime_error("waited in vain");
    }
    // @at_once: they must have ended by now.
    void complete(bool at_once) {
        while (ended_ < messages_) {
            const int error = take() ? 0 : at_once ? -EAGAIN : cq_.wait(-1);
            if (error != 0 && error != -EINTR)
                throw std::runtime_error("only " + std::to_string(ended_) + " ended");
        }
    }

    bool in_vain_ = false;
    uint32_t ended_ = 0;
    uint32_t failed_ = 0;  // behind these
    uint32_t messages_;
    uint32_t bytes_;
    bool zerocopy_;
    std::vector<uint8_t> memory_;
    tcpqp::v1::Context context_;
    tcpqp::v1::Completions cq_;
    tcpqp::v1::Qp qp_;
};

void run(const Options& o) {
    const tcpqp::Fd fd = o.peer.socket();
    for (const int which : {SO_SNDBUFFORCE, SO_RCVBUFFORCE})
        if (o.buffer_bytes != 0 &&
            ::setsockopt(fd.get(), SOL_SOCKET, which, &o.buffer_bytes, sizeof(o.buffer_bytes)) != 0)
            tcpqp::throw_errno("the socket's buffers");
    pollfd hello{fd.get(), POLLIN, 0};
    if (o.late && ::poll(&hello, 1, kPeerMs) != 1)
        throw std::runtime_error("the peer says nothing");
    End end(o, fd.get());
    if (o.role == "holder")
        end.receive();
    else if (o.role == "deaf")
        end.send_deaf();
    else if (o.role == "helped")
        end.send_last_for_a_waiter();
    else if (o.role == "left" || o.role == "quitter")
        end.send_in_vain(o.role == "quitter");
    else
        end.send(o.role == "left-alone");
    say("done");
    while (!o.leave && next_line()) {
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("waiting_end", "One end of a connection on which somebody must wait")
        .choice("role", o.role,
                {"waiter", "left-alone", "deaf", "left", "quitter", "helped", "holder"})
        .address(o.peer)
        .option("--messages", o.messages, {1, UINT32_MAX})
        .option("--bytes", o.bytes, {1, UINT32_MAX})
        .option("--buffers", o.buffer_bytes)
        .option("--zerocopy", o.zerocopy)
        .flag("--late", o.late)
        .flag("--nowait", o.nowait)
        .flag("--leave", o.leave)
        .run(argc, argv, [&] {
            run(o);
            return 0;
        });
}
