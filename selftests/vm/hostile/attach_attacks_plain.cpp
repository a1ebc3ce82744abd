// SPDX-License-Identifier: BSD-3-Clause
// Plain send(), recv() and splice() beside an attach: of those who sleep, write or read meanwhile.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "attach_attacks.hpp"

namespace nupa::programs::attach {
namespace {

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

}  // namespace

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

}  // namespace nupa::programs::attach
