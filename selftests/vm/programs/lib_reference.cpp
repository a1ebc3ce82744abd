// SPDX-License-Identifier: BSD-3-Clause
// Messages by reference through libtcpqp's level 2, every byte checked at the other end, and what
// comes back as well.  The engine is TCPQP_ENGINE's.
//
//   lib_reference --port PORT [--connect ADDR] [--messages N] [--bytes N] [--copy] [--echo]
//                 [--leave-after N] [--stay] [--late MS] [--limit MS] [--signals [--restarted]]
//
// Who connects sends.  Every fourth message is short.  --copy: without references.  --echo: the
// listener sends each view back.  --leave-after: the listener's end is _exit() in the middle.
// --stay: the sender does not end, but for a signal.  --late: the listener opens its end so much
// later, unless the connection ends first.  --limit: of the sender's open, which then must not
// succeed.  --signals: a timer's, all the time; --restarted: their handler has calls restarted.
//
// Prints one JSON object; exit 0 only if all was right.
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "command.hpp"
#include "pattern.hpp"
#include "tcpqp.hpp"

namespace {

using namespace nupa::programs;

constexpr uint32_t kBuffers = 4;
constexpr int kSilenceMs = 20000;
constexpr uint32_t kShortBytes = 100;
constexpr suseconds_t kBetweenSignalsUs = 5000;

struct Options {
    PeerOptions peer;
    uint32_t messages = 20;
    uint32_t bytes = 1 << 20;
    uint32_t leave_after = 0;
    uint32_t late_ms = 0;
    uint32_t limit_ms = 0;
    bool signals = false;
    bool restarted = false;
    bool copy = false;
    bool echo = false;
    bool stay = false;
};

void must(int error, const char* what) {
    if (error != 0)
        throw std::runtime_error(std::string(what) + ": " + std::to_string(error));
}

// Calls that a signal may end.
template <typename Call>
void must_again(Call call, const char* what) {
    int error = 0;
    do
        error = call();
    while (error == -EINTR);
    must(error, what);
}

void start_signals(bool restarted) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = restarted ? SA_RESTART : 0;
    const itimerval often{{0, kBetweenSignalsUs}, {0, kBetweenSignalsUs}};
    must(::sigaction(SIGALRM, &action, nullptr), "sigaction");
    must(::setitimer(ITIMER_REAL, &often, nullptr), "setitimer");
}

class End {
public:
    End(const Options& o, int socket) : o_(o), conn_(socket, opts(o)) {}

    void send_all() {
        for (uint32_t m = 0; m < o_.messages || o_.stay; m++) {
            tcpqp::View view;
            must_again([&] { return conn_.buffer(view, kSilenceMs); }, "buffer");
            view.resize(size(m));
            fill(bytes(view), key(m));
            must(conn_.send(view), "send");
            if (o_.echo)
                receive_one(m, key(m) + 1);
        }
    }
    void receive_all() {
        for (uint32_t m = 0; m < o_.messages; m++) {
            receive_one(m, key(m));
            if (m + 1 == o_.leave_after)
                _exit(0);
        }
    }
    void close_and_print() {
        const tcpqp_qp_info i = conn_.info();
        const int error = conn_.close(kSilenceMs);
        std::printf(
            "{\"engine\": \"%s\", \"tx_messages\": %llu, \"tx_bytes\": %llu, \"rx_bytes\": %llu, "
            "\"tx_reference_bytes\": %llu, \"rx_reference_bytes\": %llu}\n",
            tcpqp_engine_name(i.engine), ull(i.tx_messages), ull(i.tx_bytes), ull(i.rx_bytes),
            ull(i.tx_reference_bytes), ull(i.rx_reference_bytes));
        must(error, "close");
    }

private:
    static unsigned long long ull(uint64_t v) { return v; }
    static tcpqp_conn_opts opts(const Options& o) {
        tcpqp_conn_opts c{};
        c.buffer_bytes = o.bytes;
        c.buffers = kBuffers;
        c.flags = o.copy ? 0u : uint32_t{TCPQP_CONN_F_REFERENCES};
        return c;
    }
    static std::span<uint8_t> bytes(const tcpqp::View& view) {
        return {reinterpret_cast<uint8_t*>(view.bytes().data()), view.bytes().size()};
    }
    [[nodiscard]] static uint64_t key(uint32_t m) { return mix(uint64_t{m} * 2); }
    [[nodiscard]] uint32_t size(uint32_t m) const { return m % 4 == 3 ? kShortBytes : o_.bytes; }

    void receive_one(uint32_t m, uint64_t expected) {
        tcpqp::View view;
        must_again([&] { return conn_.recv(view, kSilenceMs); }, "recv");
        const auto in = bytes(view);
        if (in.size() != size(m))
            throw std::runtime_error("message " + std::to_string(m) + " has " +
                                     std::to_string(in.size()) + " bytes");
        const size_t wrong = first_wrong(in, expected);
        if (wrong != in.size())
            throw std::runtime_error("message " + std::to_string(m) + " is wrong at byte " +
                                     std::to_string(wrong));
        if (!o_.echo || !o_.peer.listens())
            return;
        fill(in, expected + 1);
        must(conn_.send(view), "send back");
    }

    const Options o_;
    tcpqp::Connection conn_;
};

using Clock = std::chrono::steady_clock;

// False: the connection has ended.
bool wait_late(int socket, uint32_t late_ms) {
    pollfd ended{socket, POLLRDHUP, 0};
    const auto until = Clock::now() + std::chrono::milliseconds(late_ms);
    int n = 0;
    while (n <= 0 && Clock::now() < until)
        n = ::poll(&ended, 1, 1);
    return n <= 0;
}

// Of a peer that does not open.
int open_in_vain(int socket, uint32_t limit_ms) {
    tcpqp_conn_opts o{};
    o.size = sizeof(o);
    o.timeout_ms = static_cast<int>(limit_ms);
    tcpqp_conn* conn = nullptr;
    const auto begin = Clock::now();
    const int error = tcpqp_open(socket, &o, &conn, nullptr);
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    std::printf("{\"error\": %d, \"took_ms\": %.0f}\n", error, took.count());
    return error == 0;
}

int run(const Options& o) {
    const tcpqp::Fd socket = o.peer.socket();
    if (o.signals)
        start_signals(o.restarted);
    if (o.peer.listens() && o.late_ms != 0 && !wait_late(socket.get(), o.late_ms))
        return 0;
    if (!o.peer.listens() && o.limit_ms != 0)
        return open_in_vain(socket.get(), o.limit_ms);
    End end(o, socket.get());
    if (o.peer.listens())
        end.receive_all();
    else
        end.send_all();
    end.close_and_print();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("lib_reference", "messages by reference through libtcpqp")
        .address(o.peer)
        .option("--messages", o.messages)
        .option("--bytes", o.bytes)
        .option("--leave-after", o.leave_after)
        .option("--late", o.late_ms)
        .option("--limit", o.limit_ms)
        .flag("--signals", o.signals)
        .flag("--restarted", o.restarted)
        .flag("--copy", o.copy)
        .flag("--echo", o.echo)
        .flag("--stay", o.stay)
        .run(argc, argv, [&] { return run(o); });
}
