// SPDX-License-Identifier: BSD-3-Clause
#include "relay/relay.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/unix_message.hpp"
#include "relay/family.hpp"
#include "relay/limits.hpp"

namespace tcpqp::run {
namespace {

constexpr uint64_t kKinds = 8;
constexpr mode_t kAskerMode = 0666;  // who may ask is checked: the program may change its user

bool is_tcp(int socket) noexcept {
    int protocol = 0;
    socklen_t bytes = sizeof(protocol);
    return ::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) == 0 &&
           protocol == IPPROTO_TCP;
}

bool send_reply(int asker, Reply reply, int fd) noexcept {
    reply.magic = kMagic;
    UnixMessage message(&reply, sizeof(reply));
    fd >= 0 ? message.put(fd) : message.put_nothing();
    return ::sendmsg(asker, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(reply);
}

// Half of the descriptors are the links'; the rest is for askers and what is on its way.
size_t links_max() noexcept {
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0)
        return 1;
    return std::min<size_t>(kLinksMax, files.rlim_cur / 2 / kLinkDescriptors);
}

}  // namespace

Relay::Relay(uint32_t engine, const std::string& path)
    : engine_(engine),
      choice_(engine),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listener_(listen_for_unix_messages(path, kAskerMode, kBacklog)),
      opener_(engine) {
    if (!epoll_)
        throw_errno("epoll");
    watch(listener_.get(), Of::kListener, 0, EPOLLIN);
    watch(opener_.fd(), Of::kOpener, 0, EPOLLIN);
}

void Relay::watch(int fd, Of of, uint64_t id, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id * kKinds + static_cast<uint64_t>(of);
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        throw_errno("epoll");
}

void Relay::run(Program& program, bool print_stats) {
    watch(program.fd(), Of::kChildren, 0, EPOLLIN);
    links_max_ = links_max();
    bool told = false;
    for (;;) {
        program.reap();
        const bool over = program.has_ended() && !program.anyone_left() && links_.empty();
        if (over && print_stats)
            stats_.print(stderr);
        if (!told && program.has_ended() && (over || !is_anything_leaving())) {
            program.tell_front();
            told = true;
        }
        if (over)
            return;
        step(wait_limit_ms());
    }
}

int Relay::wait_limit_ms() const noexcept {
    if (!again_.empty())
        return 0;
    return lingering_.empty() ? -1 : static_cast<int>(kLingerStep.count());
}

void Relay::step(int timeout_ms) {
    std::array<epoll_event, kEventsMax> events;
    const int n = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, timeout_ms);
    for (int i = 0; i < n; i++) {
        const uint64_t number = events[static_cast<size_t>(i)].data.u64;
        on(static_cast<Of>(number % kKinds), number / kKinds);
    }
    for (const uint64_t id : std::exchange(again_, {}))
        pump(id);
    for (const uint64_t id : std::exchange(lingering_, {}))
        pump(id);
}

void Relay::on(Of of, uint64_t id) {
    const auto link = links_.find(id);
    switch (of) {
        case Of::kListener:
            return accept_askers();
        case Of::kAsker:
            return on_asker(id);
        case Of::kOpener:
            for (const Opened& opened : opener_.take())
                on_opened(opened);
            return;
        case Of::kTcp:
            if (link != links_.end() && link->second.state() == Link::State::kConnecting)
                return on_connected(id, link->second);
            return pump(id);
        case Of::kProgram:
            if (link != links_.end() && link->second.state() == Link::State::kConnecting)
                return give_up(id);
            return pump(id);
        case Of::kCarrier:
            return pump(id);
        case Of::kChildren:  // run() reaps
        case Of::kEnd:
            return;
    }
}

void Relay::accept_askers() {
    for (;;) {
        Fd asker(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!asker)
            return;
        if (!may_ask(asker.get()))
            continue;
        if (askers_.size() >= std::min(kAskersMax, links_max_))
            askers_.erase(askers_.begin());  // who was silent for longest
        const uint64_t id = next_id_++;
        try {
            watch(asker.get(), Of::kAsker, id, EPOLLIN);
            askers_.emplace(id, std::move(asker));
        } catch (const std::exception& e) {
            std::fprintf(stderr, "tcpqp-run: %s\n", e.what());
        }
    }
}

// The request's one packet is here, or never comes.
void Relay::on_asker(uint64_t id) {
    const auto at = askers_.find(id);
    if (at == askers_.end())
        return;
    const Fd asker = std::move(at->second);
    askers_.erase(at);
    try {
        answer(asker);
    } catch (const std::exception& e) {  // no answer: the program's socket stays as it is
        std::fprintf(stderr, "tcpqp-run: %s\n", e.what());
    }
}

void Relay::answer(const Fd& asker) {
    Request request{};
    UnixMessage message(&request, sizeof(request));
    const ssize_t n = ::recvmsg(asker.get(), &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    Fd tcp = n < 0 ? Fd() : message.take();
    if (n != sizeof(request) || request.magic != kMagic || request.reserved != 0)
        return;
    if (request.ask == Ask::kLeft) {
        stats_.left(request.left);
        send_reply(asker.get(), {}, -1);
    } else if (request.ask == Ask::kFind) {
        const Reply reply = find(tcp);
        send_reply(asker.get(), reply, tcp.get());
    } else if (request.ask >= Ask::kAccepted && request.ask <= Ask::kConnecting) {
        const Reply reply = relay(request, std::move(tcp), asker.get());
        if (reply.plain != Plain::kNone) {
            stats_.left(reply.plain);
            send_reply(asker.get(), reply, -1);
        }
    }
}

// The socket is touched only when its owner has let go of it, and that is when it has the answer.
Reply Relay::relay(const Request& request, Fd tcp, int asker) {
    Reply reply{};
    reply.plain = Plain::kFailed;
    const bool connecting = request.ask == Ask::kConnecting;
    if (!tcp || !is_tcp(tcp.get()))
        return reply;
    reply.plain = choice_.judge(tcp.get(), connecting ? &request.peer : nullptr,
                                request.ask == Ask::kAccepted);
    if (reply.plain == Plain::kNone &&
        (links_.size() >= links_max_ || opener_.under_way() >= kOpeningMax))
        reply.plain = Plain::kLimit;
    if (reply.plain != Plain::kNone)
        return reply;
    try {
        Link link(std::move(tcp), request.ask);
        const uint64_t id = link.id();
        const Fd program_end = link.take_program_end();
        if (send_reply(asker, reply, program_end.get()))
            start(id, links_.emplace(id, std::move(link)).first->second, connecting);
    } catch (const std::system_error&) {
        reply.plain = Plain::kFailed;
    }
    return reply;
}

// Who shows us a descriptor of a link's has the link.
Reply Relay::find(Fd& shown) {
    const Fd program_end = std::move(shown);
    Reply reply{};
    reply.error = ENOENT;
    if (!program_end || !is_of_our_making(program_end.get()))
        return reply;
    reply.error = ENOTCONN;
    const uint64_t id = cookie_of(program_end.get());
    if (const auto refused = refused_.find(id); refused != refused_.end()) {
        reply.so_error = refused->second;
        refused_.erase(refused);
    }
    const auto link = links_.find(id);
    if (link == links_.end())
        return reply;
    shown = Fd(::fcntl(link->second.tcp(), F_DUPFD_CLOEXEC, 0));
    reply.error = shown ? 0 : errno;
    return reply;
}

void Relay::start(uint64_t id, Link& link, bool connecting) {
    if (!connecting)
        return open(id, link);
    watch(link.tcp(), Of::kTcp, id, EPOLLOUT | EPOLLET);
    watch(link.program(), Of::kProgram, id, EPOLLET);  // only that it is closed
}

// The program closed a socket that was not connected yet.
void Relay::give_up(uint64_t id) {
    if (const auto at = links_.find(id); at->second.is_leaving())
        links_.erase(at);
}

void Relay::open(uint64_t id, Link& link) {
    link.opening();
    if (!opener_.start(id, link.tcp()))
        on_opened({id, nullptr, -EAGAIN, TCPQP_REASON_NONE});
}

void Relay::on_connected(uint64_t id, Link& link) {
    pollfd p{link.tcp(), POLLOUT, 0};
    if (::poll(&p, 1, 0) != 1)
        return;
    if (const int error = link.connected(); error != 0)
        return refuse(id, error);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.tcp(), nullptr);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.program(), nullptr);
    open(id, link);
}

// What is still in the pair makes the program's end say that something is wrong; what, it asks.
void Relay::refuse(uint64_t id, int error) {
    if (refused_.size() >= kRefusedMax)
        refused_.erase(refused_.begin());
    refused_[id] = error;
    links_.erase(id);
}

// A link that opens stays until it has the answer.
void Relay::on_opened(const Opened& opened) {
    Link& link = links_.at(opened.link);
    try {
        if (opened.error != 0)
            without_queue_pair(opened.link, link, opened);
        else
            carry(opened.link, link, carry_by_queue_pair(opened.conn, stats_), EPOLLIN);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-run: connection reset: %s\n", e.what());
        link.break_off();
        links_.erase(opened.link);
    }
}

// A kernel engine that failed has left the socket as it was; stock has written to it.
void Relay::without_queue_pair(uint64_t id, Link& link, const Opened& opened) {
    if (engine_ == TCPQP_ENGINE_STOCK) {
        std::fprintf(stderr, "tcpqp-run: connection reset: the peer speaks no stock frames: %s\n",
                     tcpqp_reason_text(opened.reason));
        link.break_off();
        links_.erase(id);
        return;
    }
    const bool no_peer = opened.error == -ETIMEDOUT;
    if (no_peer)
        choice_.remember_plain(link.tcp(), link.was_accepted());
    stats_.left(no_peer ? Plain::kNoPeerQp : Plain::kFailed);
    carry(id, link, carry_by_tcp(link.tcp()), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

void Relay::carry(uint64_t id, Link& link, std::unique_ptr<Carrier> carrier, uint32_t events) {
    link.carry(std::move(carrier));
    watch(link.carrier_fd(), Of::kCarrier, id, events);
    watch(link.program(), Of::kProgram, id, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    pump(id);
}

void Relay::pump(uint64_t id) {
    const auto at = links_.find(id);
    if (at == links_.end() || at->second.state() != Link::State::kCarrying)
        return;
    if (at->second.pump())
        again_.insert(id);
    if (at->second.state() == Link::State::kOver)
        links_.erase(at);
    else if (at->second.lingers())
        lingering_.insert(id);
}

bool Relay::is_anything_leaving() noexcept {
    return std::any_of(links_.begin(), links_.end(), [](auto& l) { return l.second.is_leaving(); });
}

}  // namespace tcpqp::run
