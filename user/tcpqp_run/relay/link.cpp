// SPDX-License-Identifier: BSD-3-Clause
#include "relay/link.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "protocol/protocol.hpp"
#include "relay/limits.hpp"
#include "relay/program_end.hpp"

namespace tcpqp::run {
namespace {

constexpr std::array<std::byte, 4096> kFiller{};

// So that the program's end knows whose it may be.  Random: who knew it before could take it.
void name_end(int socket) {
    std::array<uint64_t, 2> dice{};
    if (::getrandom(dice.data(), sizeof(dice), 0) != sizeof(dice))
        throw_errno("random number");
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int n = std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "%s%016llx%016llx",
                                kNamePrefix, 0ULL + dice[0], 0ULL + dice[1]);
    const size_t bytes = offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n);
    if (::bind(socket, reinterpret_cast<const sockaddr*>(&name), static_cast<socklen_t>(bytes)) !=
        0)
        throw_errno("name a socket");
}

// The system's limit is for those who may not pass it.
void enlarge(int socket) noexcept {
    if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &kProgramBytes, sizeof(kProgramBytes)) !=
        0)
        ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kProgramBytes, sizeof(kProgramBytes));
}

size_t fill(int socket) noexcept {
    size_t total = 0;
    for (size_t piece = kFiller.size(); piece != 0;) {
        const ssize_t n = ::send(socket, kFiller.data(), piece, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            total += static_cast<size_t>(n);
        else
            piece = piece > 1 ? 1 : 0;
    }
    return total;
}

}  // namespace

uint64_t cookie_of(int socket) noexcept {
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    return ::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

bool is_of_our_making(int socket) noexcept {
    ucred who{};
    socklen_t bytes = sizeof(who);
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
           who.pid == ::getpid();
}

Link::Link(Fd tcp, Ask how)
    : how_(how),
      tcp_(std::move(tcp)),
      state_(how == Ask::kConnecting ? State::kConnecting : State::kOpening) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        throw_errno("socketpair");
    ours_ = Fd(pair[0]);
    theirs_ = Fd(pair[1]);
    id_ = cookie_of(theirs_.get());
    if (id_ == 0)
        throw_errno("a socket's cookie");
    name_end(ours_.get());
    enlarge(ours_.get());
    struct stat about {};
    if (::fstat(theirs_.get(), &about) == 0)
        their_inode_ = about.st_ino;
    if (how == Ask::kConnecting)
        filler_ = fill(theirs_.get());
}

int Link::connected() noexcept {
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (::getsockopt(tcp_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return errno;
    if (error == 0)
        drop_filler();
    return error;
}

void Link::drop_filler() noexcept {
    std::array<std::byte, 4096> nowhere;
    while (filler_ != 0) {
        const ssize_t n =
            ::recv(ours_.get(), nowhere.data(), std::min(nowhere.size(), filler_), MSG_DONTWAIT);
        if (n <= 0)
            return;
        filler_ -= static_cast<size_t>(n);
    }
}

void Link::carry(std::unique_ptr<Carrier> carrier) noexcept {
    carrier_ = std::move(carrier);
    state_ = State::kCarrying;
}

bool Link::step_up() noexcept {
    if (up_ended_)
        return false;
    switch (carrier_->up(ours_.get())) {
        case Step::kMoved:
            return true;
        case Step::kBlocked:
            return false;
        case Step::kEnd:
            up_ended_ = true;
            end_up();
            return state_ == State::kCarrying;
        case Step::kReset:
            break;
    }
    break_off();
    return false;
}

// A peer that ended before, and is gone, needs no word of ours.
void Link::end_up() noexcept {
    if (wants_reset())
        break_off();
    else if (!carrier_->finish_up())
        down_ended_ ? close() : break_off();
}

bool Link::step_down() noexcept {
    if (down_ended_ || state_ != State::kCarrying)
        return false;
    switch (carrier_->down(ours_.get())) {
        case Step::kMoved:
            return true;
        case Step::kBlocked:
            return false;
        case Step::kEnd:
            down_ended_ = true;
            ::shutdown(ours_.get(), SHUT_WR);
            return true;
        case Step::kReset:
            break;
    }
    break_off();
    return false;
}

bool Link::pump() noexcept {
    carrier_->refresh();
    for (int round = 0; state_ == State::kCarrying; round++) {
        if (round == kRoundsMax)
            return true;
        const bool up = step_up();
        const bool down = step_down();
        if (!up && !down)
            break;
    }
    if (state_ == State::kCarrying)
        look_for_close();
    return false;
}

bool Link::program_closed() const noexcept {
    pollfd p{ours_.get(), 0, 0};
    return ::poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0;
}

// close() with SO_LINGER of 0 is a reset.
bool Link::wants_reset() const noexcept {
    linger how{};
    socklen_t bytes = sizeof(how);
    return ::getsockopt(tcp_.get(), SOL_SOCKET, SO_LINGER, &how, &bytes) == 0 && how.l_onoff != 0 &&
           how.l_linger == 0 && program_closed();
}

// As TCP: what was sent still goes, but what comes then, or was not read, is answered by a reset.
// The peer's word that it ends, too, would be such an answer to a socket that is closed, and TCP
// forget what is under way: until that word was read the close waits for acknowledgements.
void Link::look_for_close() noexcept {
    if (!up_ended_ || !program_closed())
        return;
    if (wants_reset() || (!down_ended_ && carrier_->has_unread()))
        break_off();
    else if (carrier_->has_sent_all() && (down_ended_ || may_close()))
        close();
}

// No descriptor tells of acknowledgements: see lingers().
bool Link::may_close() noexcept {
    int bytes = 0;
    if (!carrier_->ends_in_stream() || ::ioctl(tcp_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0)
        return true;
    const auto now = std::chrono::steady_clock::now();
    if (!lingers_)
        linger_until_ = now + kLingerTime;
    lingers_ = true;
    return now >= linger_until_;
}

bool Link::is_leaving() noexcept { return state_ != State::kOver && program_closed(); }

void Link::break_off() noexcept {
    const linger at_once{1, 0};
    if (carrier_)
        carrier_->reset();
    ::setsockopt(tcp_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    reset_program(ours_.get(), their_inode_);
    close();
}

void Link::close() noexcept {
    carrier_.reset();
    ours_.reset();
    tcp_.reset();
    state_ = State::kOver;
}

}  // namespace tcpqp::run
