// SPDX-License-Identifier: BSD-3-Clause
// What threads and processes of one user can do to a socket while it gets, has or loses a
// queue pair.  Connections run over loopback, both ends are ours.
//
//   attach_attacks --case NAME [--rounds N]
//   attach_attacks --case timestamps [--connect ADDR] --port PORT
//
// Prints one JSON object and exits with 0 if all ended as it should.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "command.hpp"
#include "completion.hpp"
#include "flood.hpp"
#include "memory.hpp"
#include "tcp.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDepth = 8;
constexpr uint32_t kMessageBytes = 64 << 10;
constexpr uint32_t kLargeBytes = 8 << 20;  // more than a small receive buffer and its peer's take
constexpr int kSmallBuffer = 32 << 10;
constexpr uint32_t kWaitMs = 20000;
constexpr int kLookMs = 10;

struct Options {
    PeerOptions peer;
    std::string which;
    uint32_t rounds = 100;
};

void require(bool holds, const std::string& what) {
    if (!holds)
        throw std::runtime_error(what);
}

std::string error_text(int error) { return error != 0 ? std::strerror(error) : "success"; }

// ---- connections ----

struct Link {
    tcpqp::Fd a, b;
};

void set_int(int fd, int level, int option, int value, const char* what) {
    if (setsockopt(fd, level, option, &value, sizeof value) != 0)
        tcpqp::throw_errno(what);
}

int get_int(int fd, int level, int option) {
    int value = 0;
    socklen_t bytes = sizeof value;
    if (getsockopt(fd, level, option, &value, &bytes) != 0)
        tcpqp::throw_errno("getsockopt");
    return value;
}

// @receive_buffer of b's; 0: the kernel's choice.
Link link_up(int receive_buffer = 0) {
    tcpqp::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    if (receive_buffer != 0)
        set_int(listener.get(), SOL_SOCKET, SO_RCVBUF, receive_buffer, "SO_RCVBUF");
    if (bind(listener.get(), address, sizeof at) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), address, &bytes) != 0)
        tcpqp::throw_errno("listen");
    Link link;
    link.a = tcpqp::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(link.a.get(), address, sizeof at) != 0)
        tcpqp::throw_errno("connect");
    link.b = accept_from(listener);
    return link;
}

// ---- queue pairs ----

class End {
public:
    explicit End(const tcpqp::Context& context, uint32_t bytes = kMessageBytes)
        : context_(context),
          pages_(bytes),
          cq_(context, 2 * kDepth),
          mr_(pages_.registered(context, IBV_ACCESS_LOCAL_WRITE)),
          qp_(context, cq_, {.sends = kDepth, .receives = kDepth}) {}

    tcpqp::Attached attach(int fd, uint32_t flags, uint32_t timeout_ms = kWaitMs) {
        const tcp_qp_attach_req request{.engine = TCP_QP_ENGINE_SOFTWARE,
                                        .flags = flags,
                                        .timeout_ms = timeout_ms,
                                        .reserved = 0};
        return tcpqp::attach(context_, qp_, fd, request);
    }

    void must_attach(int fd, uint32_t flags = TCP_QP_ATTACH_F_NOWAIT) {
        const tcpqp::Attached attached = attach(fd, flags);
        require(attached.error == 0, "attach: " + error_text(attached.error) + ", " +
                                         tcpqp::reason_name(attached.response.reason));
    }

    void receive(uint32_t bytes) {
        const tcpqp::Work work = of(bytes);
        if (const int error = qp_.post_receives({&work, 1}); error != 0)
            tcpqp::throw_errno("post a receive", error);
        (void)qp_.ring_doorbell();
    }

    void send(uint32_t bytes) {
        const tcpqp::Work work = of(bytes);
        if (const int error = qp_.post_sends({&work, 1}); error != 0)
            tcpqp::throw_errno("post a send", error);
    }

    ibv_wc wait() { return next_completion(cq_, static_cast<int>(kWaitMs)); }
    [[nodiscard]] std::span<uint8_t> bytes() const { return pages_.bytes(); }
    [[nodiscard]] tcp_qp_info info() const {
        tcp_qp_info info{};
        (void)tcpqp::query(context_, qp_, info);
        return info;
    }

private:
    [[nodiscard]] tcpqp::Work of(uint32_t bytes) const {
        return {.cookie = 1,
                .address = pages_.bytes().data(),
                .bytes = bytes,
                .lkey = mr_.lkey(),
                .without_imm = true};
    }

    const tcpqp::Context& context_;
    Pages pages_;
    tcpqp::CompletionQueue cq_;
    tcpqp::Mr mr_;
    tcpqp::QueuePair qp_;
};

// One message, whole and right.
void exchange(End& from, End& to, uint8_t seed) {
    for (size_t i = 0; i < kMessageBytes; i++)
        from.bytes()[i] = static_cast<uint8_t>(seed + i * 7);
    to.receive(kMessageBytes);
    from.send(kMessageBytes);
    const ibv_wc got = to.wait(), sent = from.wait();
    require(got.status == IBV_WC_SUCCESS && sent.status == IBV_WC_SUCCESS,
            std::string("a message ended with ") + ibv_wc_status_str(got.status) + " and " +
                ibv_wc_status_str(sent.status));
    require(got.byte_len == kMessageBytes &&
                std::memcmp(from.bytes().data(), to.bytes().data(), kMessageBytes) == 0,
            "another message than was sent");
}

// ---- who else has the socket ----

// setsockopt(TCP_ULP) again and again, by another thread or process.
class Thief {
public:
    Thief(int fd, bool by_process)
        : wins_(static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>),
                                                    PROT_READ | PROT_WRITE,
                                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        if (!by_process) {
            thread_ = std::jthread([this, fd](const std::stop_token& stop) {
                while (!stop.stop_requested())
                    steal(fd);
            });
            return;
        }
        child_ = fork();
        while (child_ == 0)
            steal(fd);
    }
    Thief(const Thief&) = delete;
    Thief& operator=(const Thief&) = delete;
    ~Thief() { stop(); }

    // How often the socket was taken.
    int stop() {
        thread_ = std::jthread();
        if (child_ > 0) {
            kill(child_, SIGKILL);
            waitpid(child_, nullptr, 0);
            child_ = 0;
        }
        return wins_->load();
    }

private:
    void steal(int fd) const {
        static constexpr char kName[] = "tcp_qp";
        if (setsockopt(fd, SOL_TCP, TCP_ULP, kName, sizeof kName - 1) == 0)
            wins_->fetch_add(1);
    }

    std::atomic<int>* wins_;
    std::jthread thread_;
    pid_t child_ = 0;
};

// A conn in the middle of its attach is nobody else's to take.
void steal(const tcpqp::Context& context, const Options& o) {
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End a(context), b(context);
        Thief thief(link.a.get(), round % 2 != 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
        const tcpqp::Attached attached = a.attach(link.a.get(), TCP_QP_ATTACH_F_NOWAIT);
        const int wins = thief.stop();
        require(wins == 0, "a setsockopt took the socket in round " + std::to_string(round));
        require(attached.error == 0, "attach beside a thief: " + error_text(attached.error));
        b.must_attach(link.b.get());
        exchange(a, b, static_cast<uint8_t>(round));
    }
}

// Of two queue pairs at once one gets the socket, and works.
void same_socket(const tcpqp::Context& context, const Options& o) {
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End ends[2]{End(context), End(context)};
        End peer(context);
        int errors[2] = {};
        {
            std::barrier together(2);
            const auto attach = [&](int i) {
                together.arrive_and_wait();
                errors[i] = ends[i].attach(link.a.get(), TCP_QP_ATTACH_F_NOWAIT).error;
            };
            const std::jthread first(attach, 0), second(attach, 1);
        }
        require((errors[0] == 0) != (errors[1] == 0) && (errors[0] + errors[1]) == EBUSY,
                "two attaches: " + error_text(errors[0]) + " and " + error_text(errors[1]));
        peer.must_attach(link.b.get());
        exchange(ends[errors[0] == 0 ? 0 : 1], peer, static_cast<uint8_t>(round));
    }
}

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

// Attaches that fail leave the socket as it was, whoever uses it meanwhile.
void reattach(const tcpqp::Context& context, const Options& o) {
    Link link = link_up();
    const int fd = link.a.get();
    set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 3, "SO_RCVLOWAT");
    const Tuned before = tuned(fd);
    std::vector<std::jthread> users;
    users.emplace_back([fd](const std::stop_token& stop) {
        for (char c = 0; !stop.stop_requested();)
            (void)recv(fd, &c, 1, MSG_DONTWAIT);
    });
    users.emplace_back([fd](const std::stop_token& stop) {
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
    for (uint32_t round = 0; round < o.rounds; round++) {
        End a(context);
        const tcpqp::Attached attached =
            a.attach(fd, round % 2 != 0 ? TCP_QP_ATTACH_F_ICRC : 0, 1 + round % 3);
        require(attached.error == ETIMEDOUT,
                "attach without a peer: " + error_text(attached.error));
        const Tuned after = tuned(fd);
        require(after.is_still(before),
                "before a failed attach " + text(before) + ", then " + text(after));
    }
    users.clear();
    for (const int end : {link.a.get(), link.b.get()})  // what is plain is read
        for (char bytes[4096]; recv(end, bytes, sizeof bytes, MSG_DONTWAIT) > 0;)
            ;
    End a(context), b(context);
    a.must_attach(fd);
    b.must_attach(link.b.get());
    exchange(a, b, 9);
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

// ---- those who were there before ----

bool asleep(pid_t thread) {
    const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
    char state = 0;
    if (FILE* file = std::fopen(path.c_str(), "r")) {
        (void)std::fscanf(file, "%*d (%*[^)]) %c", &state);
        std::fclose(file);
    }
    return state == 'S';
}

void wait_asleep(const std::atomic<pid_t>& thread) {
    const auto limit = Clock::now() + std::chrono::milliseconds(kWaitMs);
    for (int in_a_row = 0; in_a_row < 5; poll(nullptr, 0, kLookMs)) {
        in_a_row = thread != 0 && asleep(thread) ? in_a_row + 1 : 0;
        require(Clock::now() < limit, "a thread does not sleep");
    }
}

// Who sleeps in send() or recv() would go on behind the queue pair's back: refused till it is out.
void blocked(const tcpqp::Context& context, const Options&) {
    using Call = std::function<void(int)>;
    const std::map<std::string, Call> calls{
        {"send",
         [](int fd) {
             const std::vector<char> much(4 << 20);
             (void)::send(fd, much.data(), much.size(), MSG_NOSIGNAL);
         }},
        {"recv",
         [](int fd) {
             char c = 0;
             (void)recv(fd, &c, 1, 0);
         }},
        {"splice",
         [](int fd) {
             int ends[2];
             if (pipe(ends) != 0)
                 return;
             (void)splice(fd, nullptr, ends[1], nullptr, 4096, 0);
             close(ends[0]);
             close(ends[1]);
         }},
    };
    for (const auto& [name, call] : calls) {
        Link link = link_up(kSmallBuffer);
        set_int(link.a.get(), SOL_SOCKET, SO_SNDBUF, kSmallBuffer, "SO_SNDBUF");
        std::atomic<pid_t> id = 0;
        std::jthread sleeper([&, fd = link.a.get()] {
            id = gettid();
            call(fd);
        });
        wait_asleep(id);
        End refused(context);
        const tcpqp::Attached attached = refused.attach(link.a.get(), TCP_QP_ATTACH_F_NOWAIT);
        const bool read = name == "send";
        if (!read)
            (void)::send(link.b.get(), "x", 1, MSG_NOSIGNAL);
        size_t bytes = 0;
        std::vector<char> sink(1 << 20);
        for (ssize_t n = 1; read && bytes < 4 << 20 && n > 0; bytes += static_cast<size_t>(n))
            n = recv(link.b.get(), sink.data(), sink.size(), 0);
        if (attached.error == 0)
            shutdown(link.a.get(), SHUT_RDWR);
        sleeper.join();
        require(attached.error == EBUSY && attached.response.reason == TCP_QP_REASON_SOCKET_IN_USE,
                "attach beside a blocked " + name + ": " + error_text(attached.error) + ", " +
                    tcpqp::reason_name(attached.response.reason));
        require(!read || bytes == 4 << 20, "bytes of the blocked send were lost");
        End a(context), b(context);
        a.must_attach(link.a.get());
        b.must_attach(link.b.get());
        exchange(a, b, 3);
    }
}

// Bytes of a send() beside attach: before the first message, or never.
void slip(const tcpqp::Context& context, const Options& o) {
    uint32_t failed = 0, refused = 0;
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End a(context), b(context);
        b.must_attach(link.b.get());
        std::atomic<uint64_t> plain = 0;
        std::vector<std::jthread> senders;
        for (int i = 0; i < 3; i++)
            senders.emplace_back([&plain, fd = link.a.get()](const std::stop_token& stop) {
                while (!stop.stop_requested()) {
                    const ssize_t n = ::send(fd, "plain bytes", 11, MSG_NOSIGNAL);
                    if (n < 0 && errno == EOPNOTSUPP)
                        return;
                    if (n > 0)
                        plain += static_cast<uint64_t>(n);
                }
            });
        std::jthread reader([fd = link.b.get()](const std::stop_token& stop) {
            for (char bytes[4096]; !stop.stop_requested();)
                if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
                    poll(nullptr, 0, 1);
        });
        tcpqp::Attached attached;
        do {
            attached = a.attach(link.a.get(), TCP_QP_ATTACH_F_NOWAIT);
            refused += attached.error == EBUSY;
        } while (attached.error == EBUSY);
        require(attached.error == 0, "attach: " + error_text(attached.error));
        for (uint32_t i = 0; i < kMessageBytes; i++)
            a.bytes()[i] = static_cast<uint8_t>(i * 3 + round);
        b.receive(kMessageBytes);
        a.send(kMessageBytes);
        const ibv_wc got = b.wait(), sent = a.wait();
        if (got.status == IBV_WC_SUCCESS && sent.status == IBV_WC_SUCCESS) {
            require(got.byte_len == kMessageBytes &&
                        std::memcmp(a.bytes().data(), b.bytes().data(), kMessageBytes) == 0,
                    "plain bytes in a message");
        } else {
            failed++;
            require(a.info().reason == TCP_QP_REASON_SOCKET_IN_USE,
                    std::string("the queue pair ended for ") + tcpqp::reason_name(a.info().reason));
        }
        for (auto& sender : senders)
            sender.request_stop();
    }
    std::fprintf(stderr, "slip: %u refused, %u failed\n", refused, failed);
}

// Two that read what is plain take nothing else.
void readers(const tcpqp::Context& context, const Options& o) {
    constexpr size_t kPlain = 5000;
    for (uint32_t round = 0; round < o.rounds; round++) {
        Link link = link_up();
        End a(context), b(context);
        const std::vector<char> plain(kPlain, 'p');
        require(::send(link.b.get(), plain.data(), kPlain, 0) == kPlain, "send");
        a.must_attach(link.a.get());
        b.must_attach(link.b.get());
        for (uint32_t i = 0; i < kMessageBytes; i++)
            b.bytes()[i] = static_cast<uint8_t>(i * 5 + round);
        std::atomic<size_t> read = 0;
        {
            std::vector<std::jthread> both;
            for (int i = 0; i < 2; i++)
                both.emplace_back([&read, fd = link.a.get()] {
                    const auto limit = Clock::now() + std::chrono::milliseconds(kWaitMs);
                    for (char bytes[700]; read < kPlain && Clock::now() < limit;) {
                        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
                        if (n > 0)
                            read += static_cast<size_t>(n);
                    }
                });
            b.send(kMessageBytes);
        }
        require(read == kPlain, std::to_string(read) + " plain bytes were read");
        a.receive(kMessageBytes);
        const ibv_wc got = a.wait();
        require(got.status == IBV_WC_SUCCESS, std::string("the message ended with ") +
                                                  ibv_wc_status_str(got.status) + ", " +
                                                  tcpqp::reason_name(a.info().reason));
        require(std::memcmp(a.bytes().data(), b.bytes().data(), kMessageBytes) == 0,
                "another message than was sent");
    }
}

// ---- what an attached socket has ----

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

const std::map<std::string, void (*)(const tcpqp::Context&, const Options&)> kCases{
    {"steal", steal},           {"same_socket", same_socket}, {"reattach", reattach},
    {"reset", reset},           {"blocked", blocked},         {"slip", slip},
    {"readers", readers},       {"send_buffer", send_buffer}, {"hold", hold},
    {"timestamps", timestamps},
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    std::vector<std::string> names;
    for (const auto& [name, run] : kCases)
        names.push_back(name);
    return Command("attach_attacks", "Others use a socket while it gets or loses a queue pair")
        .peer(o.peer)
        .choice("--case", o.which, names)
        .option("--rounds", o.rounds)
        .run(argc, argv, [&] {
            const auto context = tcpqp::open_device(o.peer.interface);
            kCases.at(o.which)(*context, o);
            return 0;
        });
}
