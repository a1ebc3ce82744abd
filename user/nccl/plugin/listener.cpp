// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/listener.hpp"

#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

Endpoint endpoint_of(const sockaddr_storage& address) noexcept {
    Endpoint e{};
    if (address.ss_family == AF_INET) {
        e.address[10] = e.address[11] = 0xff;
        std::memcpy(&e.address[12], &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    } else {
        std::memcpy(e.address.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr,
                    16);
    }
    e.port = port_of(address);
    return e;
}

Fd listen_at(sockaddr_storage& address) {
    Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    socklen_t length = address_length(address);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    if (!fd || ::bind(fd.get(), at, length) != 0 || ::listen(fd.get(), kBacklog) != 0 ||
        ::getsockname(fd.get(), at, &length) != 0)
        throw_errno("listen");
    return fd;
}

// No early way out: the time that it takes says nothing about the nonce.
bool equal(const Nonce& a, const Nonce& b) noexcept {
    unsigned difference = 0;
    for (size_t i = 0; i < a.size(); i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

std::string peer_of(int socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    return ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0
               ? text_of(address)
               : "a peer that has gone";
}

Hello hello_of(const std::array<std::byte, sizeof(Hello)>& bytes) noexcept {
    Hello hello;
    std::memcpy(&hello, bytes.data(), sizeof(hello));
    return hello;
}

}  // namespace

Listener::Listener(const std::vector<const Interface*>& interfaces, int arrival_limit_ms)
    : arrival_limit_ms_(arrival_limit_ms) {
    handle_.magic = kMagic;
    handle_.version = kProtocolVersion;
    handle_.rails = static_cast<uint8_t>(interfaces.size());
    if (::getrandom(handle_.nonce.data(), handle_.nonce.size(), 0) !=
        static_cast<ssize_t>(handle_.nonce.size()))
        throw_errno("getrandom");
    for (size_t i = 0; i < interfaces.size(); i++) {
        sockaddr_storage address = interfaces[i]->address;
        doors_.push_back({listen_at(address), interfaces[i]->name});
        handle_.at[i] = endpoint_of(address);
    }
}

void Listener::drop(const char* why, const std::string& who) noexcept {
    if (dropped_++ == 0)
        warn("a connection from %s was dropped: %s (more of them: at INFO)", who.c_str(), why);
    else
        info("a connection from %s was dropped: %s", who.c_str(), why);
}

void Listener::take_strangers() {
    for (size_t door = 0; door < doors_.size(); door++)
        for (int i = 0; i < kAcceptsPerCallMax; i++) {
            Fd fd(::accept4(doors_[door].socket.get(), nullptr, nullptr,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (!fd)
                break;
            if (strangers_.size() == kStrangersMax) {
                drop("there are too many that say nothing",
                     peer_of(strangers_.front().socket.get()));
                strangers_.pop_front();
            }
            strangers_.push_back({std::move(fd),
                                  door,
                                  Clock::now() + std::chrono::milliseconds(kStrangerLimitMs),
                                  {},
                                  0});
        }
}

// What it said so far must be the beginning of a hello of ours.
Listener::Heard Listener::hear(Stranger& s) const noexcept {
    while (s.have < sizeof(Hello)) {
        const ssize_t n =
            ::recv(s.socket.get(), s.bytes.data() + s.have, sizeof(Hello) - s.have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0)
            return Heard::kDrop;
        s.have += static_cast<size_t>(n);
    }
    const Hello hello = hello_of(s.bytes);
    if (s.have >= sizeof(hello.magic) && hello.magic != kMagic)
        return Heard::kDrop;
    if (s.have < sizeof(Hello))
        return Clock::now() < s.until ? Heard::kWait : Heard::kDrop;
    return hello.version == kProtocolVersion && equal(hello.nonce, handle_.nonce) &&
                   hello.rails == handle_.rails && hello.rail == s.door
               ? Heard::kGood
               : Heard::kDrop;
}

void Listener::hear_strangers() {
    std::deque<Stranger> left;
    for (Stranger& stranger : strangers_) {
        const Heard heard = hear(stranger);
        if (heard == Heard::kWait)
            left.push_back(std::move(stranger));
        else if (heard == Heard::kGood)
            welcome(stranger);
        else
            drop("it is no connection of this communicator", peer_of(stranger.socket.get()));
    }
    strangers_ = std::move(left);
}

Listener::Arrival* Listener::arrival_of(const Hello& hello) {
    for (Arrival& arrival : arrivals_)
        if (arrival.comm == hello.comm)
            return &arrival;
    if (arrivals_.size() == kArrivalsMax)
        return nullptr;
    Arrival& arrival = arrivals_.emplace_back();
    arrival.comm = hello.comm;
    arrival.until = Clock::now() + std::chrono::milliseconds(arrival_limit_ms_);
    arrival.rails.resize(handle_.rails);
    return &arrival;
}

// Says which engines serve the rail, and opens our half.
bool Listener::answer(Rail& rail, const Hello& hello) {
    if (rail.probe() != 0)
        return false;
    const bool module = rail.can_module() && hello.can_module != 0;
    const bool refused = !module && (Rail::must_module() || hello.must_module != 0);
    const Reply reply{kMagic, kProtocolVersion, refused ? Answer::kNoEngine : Answer::kYes,
                      module ? Carrier::kModule : Carrier::kStock};
    const bool sent =
        ::send(rail.socket(), &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(reply);
    if (refused)
        warn(
            "%s: TCPQP_ENGINE asks for the module's engines, and one end has no tcp_qp device on "
            "the way; load the module there, or unset it",
            rail.text().c_str());
    return sent && !refused && rail.open(reply.carrier, ReceiveComm::depth(hello.rail)) == 0;
}

void Listener::welcome(Stranger& stranger) {
    const Hello hello = hello_of(stranger.bytes);
    const std::string who = peer_of(stranger.socket.get());
    Arrival* arrival = arrival_of(hello);
    if (arrival == nullptr || arrival->rails[hello.rail] != nullptr) {
        drop("its place is taken", who);
        return;
    }
    const int on = 1;
    ::setsockopt(stranger.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    auto rail = std::make_unique<Rail>(std::move(stranger.socket), doors_[stranger.door].interface);
    if (answer(*rail, hello))
        arrival->rails[hello.rail] = std::move(rail);
    else
        drop("it got no queue pair", who);
}

std::unique_ptr<ReceiveComm> Listener::complete() {
    for (auto at = arrivals_.begin(); at != arrivals_.end();) {
        const auto open = std::count_if(at->rails.begin(), at->rails.end(),
                                        [](const auto& rail) { return rail != nullptr; });
        if (open != handle_.rails) {
            const bool late = Clock::now() >= at->until;
            if (late)
                drop("not all rails of its communicator came in time", "a rank");
            at = late ? arrivals_.erase(at) : at + 1;
            continue;
        }
        std::vector<Rail> rails;
        for (auto& rail : at->rails)
            rails.push_back(std::move(*rail));
        arrivals_.erase(at);
        auto comm = std::make_unique<ReceiveComm>(std::move(rails));
        if (comm->start() == kSuccess)
            return comm;
        at = arrivals_.begin();
    }
    return nullptr;
}

std::unique_ptr<ReceiveComm> Listener::accept() {
    take_strangers();
    hear_strangers();
    return complete();
}

}  // namespace tcpqp::nccl
