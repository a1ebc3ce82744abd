// SPDX-License-Identifier: BSD-3-Clause
// The socket itself: its options after a failed attach, its reset, its send buffer, its error
// queue.
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "attach_attacks.hpp"
#include "flood.hpp"

namespace nupa::programs::attach {
namespace {

constexpr uint32_t kLargeBytes = 8 << 20;  // more than a small receive buffer and its peer's take

struct Tuned {
    int send_buffer, no_delay, segment, low_water;
    // Segments may have grown with the peer's window meanwhile.
    [[nodiscard]] bool is_still(const Tuned& before) const {
        return send_buffer == before.send_buffer && no_delay == before.no_delay &&
               segment >= before.segment && low_water == before.low_water;
    }
};

Tuned tuned(int fd) {
    return {get_int(fd, SOL_SOCKET, SO_SNDBUF), get_int(fd, SOL_TCP, TCP_NODELAY),
            get_int(fd, SOL_TCP, TCP_MAXSEG), get_int(fd, SOL_SOCKET, SO_RCVLOWAT)};
}

std::string text(const Tuned& t) {
    return "SO_SNDBUF " + std::to_string(t.send_buffer) + ", TCP_NODELAY " +
           std::to_string(t.no_delay) + ", TCP_MAXSEG " + std::to_string(t.segment) +
           ", SO_RCVLOWAT " + std::to_string(t.low_water);
}

// This thread runs when nobody else wants to.
void seldom() {
    const sched_param none{};
    require(sched_setscheduler(0, SCHED_IDLE, &none) == 0, "SCHED_IDLE");
}

}  // namespace

// Attaches that fail leave the socket as it was, whoever uses it meanwhile: also those who are in
// the middle of a call when the processor is taken from them, for longer than a connection lives.
void reattach(const tcpqp::Context& context, const Options& o) {
    constexpr int kReaders = 3, kBusy = 2, kPauseMs = 10;
    static constexpr std::chrono::milliseconds kBusyFor{30};  // more than a grace period
    Link link = link_up();
    const int fd = link.a.get();
    set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 3, "SO_RCVLOWAT");
    const Tuned before = tuned(fd);
    std::vector<std::jthread> users;
    for (int i = 0; i < kBusy; i++)
        users.emplace_back([](const std::stop_token& stop) {
            for (; !stop.stop_requested(); poll(nullptr, 0, kPauseMs))
                for (const auto until = Clock::now() + kBusyFor; Clock::now() < until;)
                    ;
        });
    for (int i = 0; i < kReaders; i++)
        users.emplace_back([fd](const std::stop_token& stop) {
            seldom();
            for (char c = 0; !stop.stop_requested();)
                (void)recv(fd, &c, 1, MSG_DONTWAIT);
        });
    users.emplace_back([fd](const std::stop_token& stop) {
        seldom();
        while (!stop.stop_requested()) {
            tcp_info info{};
            socklen_t bytes = sizeof info;
            (void)getsockopt(fd, SOL_TCP, TCP_INFO, &info, &bytes);
            const int idle = 7;
            (void)setsockopt(fd, SOL_TCP, TCP_KEEPCNT, &idle, sizeof idle);
            pollfd ready{fd, POLLIN | POLLOUT, 0};
            (void)poll(&ready, 1, 0);
        }
    });
    users.emplace_back([fd = link.b.get()](const std::stop_token& stop) {
        for (; !stop.stop_requested(); poll(nullptr, 0, 1))
            (void)::send(fd, "plain", 5, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
    std::string changed;
    for (uint32_t round = 0; round < o.rounds; round++) {
        End a(context);
        const tcpqp::Attached attached =
            a.attach(fd, round % 2 != 0 ? TCP_QP_ATTACH_F_ICRC : 0, 1 + round % 3);
        require(attached.error == ETIMEDOUT,
                "attach without a peer: " + error_text(attached.error));
        if (const Tuned after = tuned(fd); changed.empty() && !after.is_still(before))
            changed = "before a failed attach " + text(before) + ", then " + text(after);
    }
    users.clear();
    require(changed.empty(), changed);
    for (const int end : {link.a.get(), link.b.get()})  // what is plain is read
        for (char bytes[4096]; recv(end, bytes, sizeof bytes, MSG_DONTWAIT) > 0;)
            ;
    End a(context), b(context);
    a.must_attach(fd);
    b.must_attach(link.b.get());
    exchange(a, b, 9);
}

// A queue pair goes before its first message, when both ends know of each other or just before, and
// another takes its place: it hears of the peer, which had told the first one, and the peer of it.
void another(const tcpqp::Context& context, const Options& o) {
    constexpr int kKnownMs = 50;
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End b(context);
        b.must_attach(link.b.get());
        {
            End gone(context);
            gone.must_attach(link.a.get(), 0);
            poll(nullptr, 0, round % 2 == 0 ? kKnownMs : 0);
        }
        End a(context);
        a.must_attach(link.a.get(), round % 4 < 2 ? 0 : TCP_QP_ATTACH_F_NOWAIT);
        exchange(a, b, static_cast<uint8_t>(round));
        exchange(b, a, static_cast<uint8_t>(round + 1));
    }
}

namespace {

// Whose queue pair goes with its receive posted, as soon as the peer may send.
bool followed(const tcpqp::Context& context, const Options& o, int fd, uint8_t seed) {
    {
        End gone(context, kLargeBytes);
        gone.receive(kLargeBytes);
        const tcpqp::Attached attached = gone.attach(fd, 0, kWaitMs, o.peer.engine_id());
        require(attached.error == 0, "attach: " + error_text(attached.error));
        poll(nullptr, 0, seed % 4);
    }
    End next(context, kLargeBytes);
    std::ranges::fill(next.bytes(), static_cast<uint8_t>(~seed));
    next.receive(kLargeBytes);
    const tcpqp::Attached attached = next.attach(fd, 0, kWaitMs, o.peer.engine_id());
    if (attached.error != 0)  // the first one had it
        return false;
    if (next.wait().status != IBV_WC_SUCCESS)
        return false;
    const auto right = [seed](uint8_t byte) { return byte == seed; };
    require(std::ranges::all_of(next.bytes(), right), "a message that is not in its receive");
    return true;
}

}  // namespace

// A message is on its way while its queue pair goes and another takes the socket: that one has it
// where its receive is, or nobody has it.
void successor(const tcpqp::Context& context, const Options& o) {
    const tcpqp::Fd listener = o.peer.listener();
    uint32_t whole = 0;
    for (uint32_t round = 0; round < o.rounds; round++) {
        const tcpqp::Fd fd = o.peer.next_socket(listener);
        const auto seed = static_cast<uint8_t>(round + 1);
        if (o.peer.listens()) {
            whole += followed(context, o, fd.get(), seed);
            continue;
        }
        End peer(context, kLargeBytes);
        std::ranges::fill(peer.bytes(), seed);
        if (peer.attach(fd.get(), 0, kWaitMs, o.peer.engine_id()).error != 0)
            continue;
        peer.send(kLargeBytes);
        (void)peer.wait();
    }
    std::printf("{\"whole\": %u}\n", whole);
}

// A message that the peer has not acknowledged did not succeed, however the socket goes.
void reset(const tcpqp::Context& context, const Options& o) {
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up(kSmallBuffer);
        End a(context, kLargeBytes), b(context);
        a.must_attach(link.a.get());
        b.must_attach(link.b.get());
        a.send(kLargeBytes);
        const auto limit = Clock::now() + std::chrono::milliseconds(kWaitMs);
        while (a.info().tx_bytes == 0 && Clock::now() < limit)  // no credit: after 200 ms
            poll(nullptr, 0, kLookMs);
        require(a.info().tx_bytes > 0, "nothing was sent");
        const linger now{.l_onoff = 1, .l_linger = 0};
        setsockopt(link.a.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        link.a.reset();
        const ibv_wc wc = a.wait();
        require(wc.status == IBV_WC_WR_FLUSH_ERR,
                std::string("an unacknowledged send ended with ") + ibv_wc_status_str(wc.status));
    }
}

void send_buffer(const tcpqp::Context& context, const Options&) {
    Link link = link_up();
    End a(context);
    a.must_attach(link.a.get());
    std::printf("{\"send_buffer\": %d}\n", get_int(link.a.get(), SOL_SOCKET, SO_SNDBUF));
}

// Holds one queue pair until standard input ends.
void hold(const tcpqp::Context& context, const Options&) {
    Link link = link_up();
    End a(context), b(context);
    a.must_attach(link.a.get());
    b.must_attach(link.b.get());
    exchange(a, b, 1);
    std::puts("attached");
    std::fflush(stdout);
    for (char c = 0; read(STDIN_FILENO, &c, 1) > 0;)
        ;
}

// Messages both ways while every packet leaves a timestamp in the error queue.
void timestamps(const tcpqp::Context& context, const Options& o) {
    constexpr int kFloods = 4;
    constexpr uint32_t kFloodBytes = 24 << 10;
    const tcpqp::Fd listener = o.peer.listener(kFloods);
    std::vector<std::jthread> threads;
    std::atomic<int> wrong = 0;
    for (int i = 0; i < kFloods; i++) {
        tcpqp::Fd fd = o.peer.next_socket(listener);
        set_int(fd.get(), SOL_SOCKET, SO_TIMESTAMPING,
                SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK |
                    SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY,
                "SO_TIMESTAMPING");
        threads.emplace_back([&, fd = std::move(fd)]() mutable {
            try {
                FloodOptions flood;
                flood.engine = o.peer.engine_id();
                flood.bytes = kFloodBytes;
                flood.messages_max = o.rounds;
                Flood run(context, std::move(fd), flood);
                const auto limit = Clock::now() + std::chrono::seconds(60);
                while (run.sent() < o.rounds || run.received() < o.rounds) {
                    char control[256];
                    msghdr msg{};
                    msg.msg_control = control;
                    msg.msg_controllen = sizeof control;
                    while (recvmsg(run.socket().get(), &msg, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
                        msg.msg_controllen = sizeof control;
                    require(
                        run.step(kLookMs) || (run.sent() >= o.rounds && run.received() >= o.rounds),
                        "a queue pair failed: " + run.json());
                    require(Clock::now() < limit, "silence: " + run.json());
                }
                poll(nullptr, 0, 200);  // the peer's last acknowledgements
            } catch (const std::exception& e) {
                std::fprintf(stderr, "timestamps: %s\n", e.what());
                wrong++;
            }
        });
    }
    threads.clear();
    require(wrong == 0, std::to_string(wrong) + " of the queue pairs went wrong");
}

}  // namespace nupa::programs::attach
