// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/option/slot.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/fd.hpp"
#include "base/unix_message.hpp"
#include "provider/deadline.hpp"
#include "tcpqp.h"

namespace tcpqp::stock {
namespace {

constexpr int kHelperLimit_s = 2;    // of a call
constexpr int kPositionTries = 200;  // of kPositionMs each: bytes may be on their way
constexpr int kPositionMs = 1;

// io_uring's task work interrupts what a signal would.  A call that begins anew has its limit anew.
template <typename Call>
ssize_t repeat(Call call) noexcept {
    const Deadline deadline(1000 * kHelperLimit_s);
    ssize_t n = 0;
    do
        n = call();
    while (n < 0 && errno == EINTR && !deadline.over());
    return n;
}

// It is given our connection, and we believe its memory: root's, or our own.  The environment may
// name any path, unless a more privileged program's caller wrote it.
bool is_trusted(int helper) noexcept {
    ucred who{};
    socklen_t bytes = sizeof(who);
    return ::getsockopt(helper, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
           (who.uid == 0 || who.uid == ::geteuid());
}

bool set_limits(int helper) noexcept {
    const timeval most{kHelperLimit_s, 0};
    for (const int limit : {SO_SNDTIMEO, SO_RCVTIMEO})  // connect() waits as long as a send
        if (::setsockopt(helper, SOL_SOCKET, limit, &most, sizeof(most)) != 0)
            return false;
    return true;
}

Fd connect_helper() noexcept {
    const char* word = ::secure_getenv("TCPQP_BPF_SOCKET");
    const std::string_view path = word != nullptr ? word : TCPQP_BPF_SOCKET_PATH;
    sockaddr_un address{};
    if (!unix_address(path, address))
        return {};
    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!fd || !set_limits(fd.get()) ||
        repeat([&] {
            return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                             sizeof(address));
        }) != 0 ||
        !is_trusted(fd.get()))
        return {};
    return fd;
}

// The slot's map and its ring, or nothing.
std::array<Fd, 2> ask(int helper, int socket) noexcept {
    tcpqp_bpf_request request{TCPQP_BPF_ABI, 0};
    UnixMessage question(&request, sizeof(request));
    question.put(socket);
    if (repeat([&] { return ::sendmsg(helper, &question.header, MSG_NOSIGNAL); }) !=
        sizeof(request))
        return {};
    tcpqp_bpf_reply reply{};
    UnixMessage answer(&reply, sizeof(reply));
    if (repeat([&] { return ::recvmsg(helper, &answer.header, MSG_CMSG_CLOEXEC); }) !=
        sizeof(reply))
        return {};
    std::array<Fd, 2> fds = answer.take<2>();
    if (reply.abi != TCPQP_BPF_ABI || reply.error != 0)
        return {};
    return fds;
}

uint32_t queued(int socket, unsigned long what) noexcept {
    int bytes = 0;
    return ::ioctl(socket, what, &bytes) == 0 ? static_cast<uint32_t>(bytes) : 0;
}

}  // namespace

Slot::Slot(int socket, void* at, Wakeup wakeup) noexcept
    : socket_(socket), shared_(static_cast<tcpqp_bpf_slot*>(at)), wakeup_(std::move(wakeup)) {}

Slot::~Slot() { ::munmap(shared_, sizeof(*shared_)); }

std::unique_ptr<Slot> Slot::open(int socket, uint32_t& reason) {
    reason = TCPQP_REASON_NO_BPF_HELPER;
    const Fd helper = connect_helper();
    if (!helper)
        return nullptr;
    reason = TCPQP_REASON_BPF_REFUSED;
    auto [map, ring] = ask(helper.get(), socket);
    std::optional<Wakeup> wakeup = Wakeup::open(std::move(ring));
    if (!map || !wakeup)
        return nullptr;
    void* at =
        ::mmap(nullptr, sizeof(tcpqp_bpf_slot), PROT_READ | PROT_WRITE, MAP_SHARED, map.get(), 0);
    if (at == MAP_FAILED)
        return nullptr;
    std::unique_ptr<Slot> slot(new (std::nothrow) Slot(socket, at, std::move(*wakeup)));
    if (!slot)
        ::munmap(at, sizeof(tcpqp_bpf_slot));
    if (!slot || !slot->start())
        return nullptr;
    reason = TCPQP_REASON_NONE;
    return slot;
}

void Slot::stop() const noexcept {
    const int none = 0;
    ::setsockopt(socket_, TCPQP_BPF_SOCKOPT, TCPQP_BPF_STOP, &none, sizeof(none));
}

// What the program saw under the socket's lock holds only if nothing moved meanwhile.
bool Slot::read_positions() noexcept {
    const int none = 0;
    const uint32_t unread = queued(socket_, SIOCINQ), unsent = queued(socket_, SIOCOUTQNSD);
    if (::setsockopt(socket_, TCPQP_BPF_SOCKOPT, TCPQP_BPF_START, &none, sizeof(none)) != 0)
        return false;
    tx_seq_ = shared_->snd_nxt;
    rx_seq_ = shared_->rcv_nxt - unread;
    __atomic_store_n(&shared_->rx_seq, rx_seq_, __ATOMIC_RELEASE);
    return unsent == 0 && queued(socket_, SIOCINQ) == unread;
}

bool Slot::start() noexcept {
    for (int i = 0; i < kPositionTries; i++) {
        if (read_positions())
            return true;
        ::poll(nullptr, 0, kPositionMs);
    }
    stop();
    return false;
}

}  // namespace tcpqp::stock
