// SPDX-License-Identifier: BSD-3-Clause
#include "server.hpp"

#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <thread>

#include "base/blocked_signals.hpp"
#include "limits.hpp"

namespace tcpqp::bpf {
namespace {

void ring(int) {}

// What lies unread in a client's socket is closed with it, and a TCP socket among that may linger:
// signals end that.
class CloseAlarm {
public:
    CloseAlarm() noexcept {
        const itimerval again{kCloseLimit, kCloseLimit};
        ::setitimer(ITIMER_REAL, &again, nullptr);
    }
    ~CloseAlarm() {
        const itimerval none{};
        ::setitimer(ITIMER_REAL, &none, nullptr);
    }
    CloseAlarm(const CloseAlarm&) = delete;
    CloseAlarm& operator=(const CloseAlarm&) = delete;
};

void send_away(Fd client) noexcept {
    const CloseAlarm alarm;
    client.reset();
}

// Signals are the first thread's.
void start(const std::shared_ptr<Desk>& desk) {
    const BlockedSignals blocked;
    std::thread([desk] { desk->run(); }).detach();
}

}  // namespace

Server::Server(Admission& admission, Fd listener)
    : admission_(admission), listener_(std::move(listener)) {
    struct sigaction action {};
    action.sa_handler = ring;
    ::sigaction(SIGALRM, &action, nullptr);
}

// To its user's desk, if there is room.
void Server::receive(Fd& client) {
    ucred who{};
    socklen_t bytes = sizeof(who);
    if (::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        return;
    if (const auto at = desks_.find(who.uid);
        at != desks_.end() && at->second->take(client) != Desk::Taken::kOver)
        return;
    std::erase_if(desks_, [](const auto& d) { return d.second->is_over(); });
    if (desks_.size() < kDesksMax)
        open_desk(who.uid, client);
}

void Server::open_desk(uid_t uid, Fd& client) {
    const auto desk = std::make_shared<Desk>(admission_, uid);
    if (desk->take(client) != Desk::Taken::kYes)
        return;
    desks_[uid] = desk;
    try {
        start(desk);
    } catch (...) {
        desks_.erase(uid);
        throw;
    }
}

void Server::accept() {
    Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            ::poll(nullptr, 0, kShortPauseMs);  // or we would be told again at once
        return;
    }
    try {
        receive(client);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-bpf: %s\n", e.what());
    }
    if (client)
        send_away(std::move(client));
}

void Server::run(int stop) {
    std::array<pollfd, 2> events{{{listener_.get(), POLLIN, 0}, {stop, POLLIN, 0}}};
    while (events[1].revents == 0) {
        if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR)
            throw_errno("poll");
        if (events[0].revents != 0)
            accept();
    }
}

}  // namespace tcpqp::bpf
