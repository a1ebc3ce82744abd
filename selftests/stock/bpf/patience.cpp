// SPDX-License-Identifier: BSD-3-Clause
// One end of a connection on which somebody must wait.
//
//   patience ROLE --port PORT [--connect ADDR] [--messages N] [--buffers BYTES] [--late] [--nowait]
//
//   waiter      posts N sends, and waits for their ends in tcpqp_wait()
//   left-alone  posts N sends, and calls nothing until a line comes: by then all have left
//   holder      receives, and checks, N messages once a line comes
//
// --late: gives the socket a queue pair only when bytes of the peer's are there.
// --nowait: ... and does not wait for the peer's.
// Says "posted" and "done", a line each; stays until its standard input ends.
#include <getopt.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "../../vm/programs/pattern.hpp"
#include "../../vm/programs/tcp.hpp"
#include "tcpqp.hpp"

namespace {

using namespace nupa::programs;
constexpr uint32_t kBytes = 64;
constexpr int kPeerMs = 60000;

struct Options {
    std::string_view role;
    std::string connect;
    uint16_t port = 0;
    uint32_t messages = 1;
    int buffer_bytes = 0;
    bool late = false;
    bool nowait = false;
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
          memory_(size_t{o.messages} * kBytes),
          context_(stock()),
          cq_(context_),
          qp_(cq_, socket, qp_opts(o)) {}

    void send(bool left_alone) {
        for (uint32_t i = 0; i < messages_; i++)
            fill(at(i), i);
        post(&tcpqp::v1::Qp::post_send);
        say("posted");
        if (left_alone && !next_line())
            throw std::runtime_error("nobody told us to go on");
        complete(left_alone);
    }
    void receive() {
        if (!next_line())
            throw std::runtime_error("nobody told us to go on");
        post(&tcpqp::v1::Qp::post_recv);
        complete(false);
        for (uint32_t i = 0; i < messages_; i++)
            if (first_wrong(at(i), i) != kBytes)
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
        return q;
    }
    std::span<uint8_t> at(uint32_t i) { return {&memory_[size_t{i} * kBytes], kBytes}; }

    // All, though more than the queue's depth; what has ended by then makes room.
    void post(int (tcpqp::v1::Qp::*call)(std::span<const tcpqp_work>) noexcept) {
        for (uint32_t posted = 0; posted < messages_;) {
            const tcpqp_work w{posted, at(posted).data(), kBytes, 0, 0, 0, nullptr};
            const int n = (qp_.*call)({&w, 1});
            if (n == 1)
                posted++;
            else if (n != -EAGAIN || !take())
                throw std::runtime_error("only " + std::to_string(posted) + " could be posted");
        }
    }
    // False: nothing has ended.
    bool take() {
        tcpqp_completion c{};
        if (cq_.poll({&c, 1}) != 1)
            return false;
        if (c.status != 0 || c.id != ended_++)
            throw std::runtime_error("completion " + std::to_string(c.id) + ", status " +
                                     std::to_string(c.status));
        return true;
    }
    // @at_once: they must have ended by now.
    void complete(bool at_once) {
        while (ended_ < messages_) {
            const int error = take() ? 0 : at_once ? -EAGAIN : cq_.wait(-1);
            if (error != 0 && error != -EINTR)
                throw std::runtime_error("only " + std::to_string(ended_) + " ended");
        }
    }

    uint32_t ended_ = 0;
    uint32_t messages_;
    std::vector<uint8_t> memory_;
    tcpqp::v1::Context context_;
    tcpqp::v1::Completions cq_;
    tcpqp::v1::Qp qp_;
};

bool parse(int argc, char** argv, Options& o) {
    const option known[] = {{"port", 1, nullptr, 'p'},
                            {"connect", 1, nullptr, 'c'},
                            {"messages", 1, nullptr, 'm'},
                            {"buffers", 1, nullptr, 'b'},
                            {"late", 0, nullptr, 'l'},
                            {"nowait", 0, nullptr, 'n'},
                            {}};
    for (int c = 0; (c = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        const int number = optarg != nullptr ? std::atoi(optarg) : 0;
        if (c == 'p')
            o.port = static_cast<uint16_t>(number);
        else if (c == 'c')
            o.connect = optarg;
        else if (c == 'm')
            o.messages = static_cast<uint32_t>(number);
        else if (c == 'b')
            o.buffer_bytes = number;
        else if (c == 'l')
            o.late = true;
        else if (c == 'n')
            o.nowait = true;
        else
            return false;
    }
    if (optind + 1 == argc)
        o.role = argv[optind];
    return o.port != 0 && o.messages != 0 &&
           (o.role == "waiter" || o.role == "left-alone" || o.role == "holder");
}

void run(const Options& o) {
    const tcpqp::Fd fd =
        o.connect.empty() ? accept_from(listen_on(o.port, 1)) : connect_to(o.connect, o.port);
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
    else
        end.send(o.role == "left-alone");
    say("done");
    while (next_line()) {
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    if (!parse(argc, argv, o))
        return 64;
    try {
        run(o);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "patience: %s: %s\n", o.role.data(), e.what());
        return 1;
    }
}
