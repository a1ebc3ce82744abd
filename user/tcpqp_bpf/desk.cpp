// SPDX-License-Identifier: BSD-3-Clause
#include "desk.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "base/unix_message.hpp"
#include "limits.hpp"

namespace tcpqp::bpf {
namespace {

// The request's socket, or nothing: whatever else it is.
Fd receive_socket(int client) noexcept {
    tcpqp_bpf_request request{};
    UnixMessage message(&request, sizeof(request));
    const ssize_t n = ::recvmsg(client, &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return {};
    Fd socket = message.take();
    if (n != sizeof(request) || request.abi != TCPQP_BPF_ABI || request.reserved != 0)
        return {};
    return socket;
}

void send_reply(int client, int error, std::span<const int> fds) noexcept {
    tcpqp_bpf_reply reply{TCPQP_BPF_ABI, error};
    UnixMessage message(&reply, sizeof(reply));
    message.put(fds);
    // a client that left needs none
    ::sendmsg(client, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Refusals cost a client nothing, so they must not fill the log.
void complain(uid_t uid, const char* why) noexcept {
    static std::atomic<int64_t> next{0};
    const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    int64_t due = next;
    const int64_t then = now + std::chrono::steady_clock::duration(kComplaintsApart).count();
    if (now >= due && next.compare_exchange_strong(due, then))
        std::fprintf(stderr, "tcpqp-bpf: refused uid %u: %s\n", uid, why);
}

}  // namespace

Desk::Desk(Admission& admission, uid_t uid)
    : admission_(admission), uid_(uid), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!bell_)
        throw_errno("eventfd");
}

Desk::Taken Desk::take(Fd& client) {
    const std::lock_guard guard(lock_);
    if (over_)
        return Taken::kOver;
    if (count_ >= kClientsPerDesk)
        return Taken::kFull;
    came_.push_back({std::move(client), Clock::now() + kClientLimit});
    count_++;
    ::eventfd_write(bell_.get(), 1);
    return Taken::kYes;
}

bool Desk::is_over() noexcept {
    const std::lock_guard guard(lock_);
    return over_;
}

// False, once: nothing of the desk's may be touched any more.
bool Desk::has_clients() {
    const std::lock_guard guard(lock_);
    clients_.insert(clients_.end(), std::make_move_iterator(came_.begin()),
                    std::make_move_iterator(came_.end()));
    came_.clear();
    count_ = clients_.size();
    if (clients_.empty())
        end();
    return !over_;
}

// With the lock.  Who comes next may come much later, and only then the rest goes.
void Desk::end() noexcept {
    over_ = true;
    bell_.reset();
}

// The first client with something to say, or whose time is up; -1: neither.
int Desk::wait() {
    std::array<pollfd, kClientsPerDesk + 1> events{};
    const size_t count = std::min(clients_.size(), kClientsPerDesk);
    events[count] = {bell_.get(), POLLIN, 0};
    for (size_t i = 0; i < count; i++)
        events[i] = {clients_[i].fd.get(), POLLIN, 0};
    // they come in order, and have the same time
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(clients_.front().until - Clock::now());
    ::poll(events.data(), count + 1, std::max(0, static_cast<int>(left.count())));
    eventfd_t rings = 0;
    ::eventfd_read(bell_.get(), &rings);
    for (size_t i = 0; i < count; i++)
        if (events[i].revents != 0)
            return static_cast<int>(i);
    return clients_.front().until <= Clock::now() ? 0 : -1;
}

void Desk::run() noexcept {
    try {
        while (has_clients()) {
            const int ready = wait();
            if (ready < 0)
                continue;
            const auto at = clients_.begin() + ready;
            const Client client = std::move(*at);
            clients_.erase(at);
            serve(client.fd.get());
        }
    } catch (const std::exception& e) {  // no memory: its clients go without
        std::fprintf(stderr, "tcpqp-bpf: uid %u: %s\n", uid_, e.what());
        clients_.clear();
        const std::lock_guard guard(lock_);
        came_.clear();
        end();
    }
}

void Desk::serve(int client) noexcept {
    const Fd socket = receive_socket(client);
    if (!socket)
        return send_reply(client, -EPROTO, {});
    try {
        Admission::Admitted admitted = admission_.admit(socket.get(), uid_);
        send_reply(client, 0, std::array{admitted.slot.map.get(), admitted.slot.wakeup.get()});
        admission_.finish(admitted);
    } catch (const std::system_error& e) {
        complain(uid_, e.what());
        send_reply(client, -e.code().value(), {});
    } catch (const std::bad_alloc&) {
        send_reply(client, -ENOMEM, {});
    }
}

}  // namespace tcpqp::bpf
