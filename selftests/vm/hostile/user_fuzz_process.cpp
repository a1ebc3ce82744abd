// SPDX-License-Identifier: BSD-3-Clause
// fork, exec, signals, descriptors that travel to other processes, and network namespaces.
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "user_fuzz_netlink.hpp"
#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

constexpr uint32_t kChildCallsMax = 200;
constexpr int kDuelCalls = 60;
constexpr unsigned kChildLifeS = 3;
constexpr uint32_t kParkedUs = 20'000'000;  // that a packet waits in a queue of our own

enum class Parcel : uint8_t { kContext, kSocket, kCqDescriptor };

void be_child() {
    signal(SIGALRM, SIG_DFL);
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    alarm(kChildLifeS);
}

// Runs @life in a child with a dice of its own; it does not return.  A child has none.
template <class Life>
int in_child(Player& p, Life&& life) {
    if (p.child)
        return kNothing;
    const uint64_t seed = p.dice.next();
    const pid_t child = fork();
    if (child)
        return result(child);
    be_child();
    p.world.layout.clear();  // its holder is not here
    Player self{p.world, Dice(seed), p.track, true};
    life(self);
    _exit(0);
}

// Its copies of all descriptors work on the same objects.
int op_fork(Player& p) {
    return in_child(p, [](Player& self) {
        const Menu& menu = menu_of(self.world.o);
        for (uint32_t i = 0, n = self.dice.below(kChildCallsMax); i < n; i++)
            self.play(menu.choose(self.dice));
    });
}

int op_exec(Player& p) {
    if (p.child)
        return kNothing;
    const pid_t child = fork();
    if (child)
        return result(child);
    be_child();
    char name[] = "sleep", time[] = "0.2";
    char* argv[] = {name, time, nullptr};
    execv("/bin/sleep", argv);
    _exit(1);
}

// vfork, too, while rings are mapped
int op_spawn(Player& p) {
    if (p.child)
        return kNothing;
    // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): what it does to us is the point
    const pid_t child = vfork();
    if (!child)
        _exit(0);
    return result(child);
}

int op_reap(Player&) {
    const pid_t got = waitpid(-1, nullptr, WNOHANG);
    return got > 0 ? 0 : got ? errno : kNothing;
}

int op_signal(Player& p) {
    static constexpr int kSignals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGURG};
    return result(kill(getpid(), p.dice.of(kSignals)));
}

int op_mail(Player& p) {
    const Parcel kind = static_cast<Parcel>(p.dice.below(3));
    std::optional<int> fd;
    if (kind == Parcel::kSocket)
        fd = p.pick(p.world.sockets);
    else if (kind == Parcel::kContext) {
        if (const auto c = p.pick(p.world.contexts))
            fd = c->fd;
    } else if (const auto cq = p.pick(p.world.cq_fds))
        fd = cq->fd;
    if (!fd)
        return kNothing;
    uint8_t word = static_cast<uint8_t>(kind);
    iovec part{&word, 1};
    alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(int))> control{};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    m.msg_control = control.data(), m.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &*fd, sizeof *fd);
    p.note(static_cast<int64_t>(kind), *fd);
    return result(sendmsg(p.world.mail, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
}

int op_open_mail(Player& p) {
    uint8_t word = 0;
    iovec part{&word, 1};
    alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(int))> control{};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    m.msg_control = control.data(), m.msg_controllen = control.size();
    if (recvmsg(p.world.mail, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
        return errno;
    const cmsghdr* c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_type != SCM_RIGHTS)
        return kNothing;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    p.note(word, fd);
    switch (static_cast<Parcel>(word)) {
        case Parcel::kContext:
            // of another user: write() is refused, the rest is not
            if (!p.dice.one_in(4)) {
                close(fd);
                return 0;
            }
            if (const auto old = p.world.contexts.put(p.dice, {fd, -1})) {
                close(old->fd);
                close(old->events);
                p.world.forget_context(old->fd);
            }
            return 0;
        case Parcel::kSocket:
            keep_socket(p, fd);
            return 0;
        default:
            if (const auto old = p.world.cq_fds.put(p.dice, {fd}))
                close(old->fd);
            return 0;
    }
}

void sysctl(const char* path, std::string_view value) {
    const tcpqp::Fd file(open(path, O_WRONLY | O_CLOEXEC));
    if (!file || write(file.get(), value.data(), value.size()) < 0)
        _exit(1);
}

// A namespace of one's own, where packets wait as long as one likes; what the device says of it,
// and how long the process then takes to die.
int op_namespace(Player& p) {
    return in_child(p, [](Player& self) {
        if (unshare((getuid() ? CLONE_NEWUSER : 0) | CLONE_NEWNET))
            _exit(1);
        // An orphan there would hold the module for 102 s, of which nobody could say that it ends.
        sysctl("/proc/sys/net/ipv4/tcp_orphan_retries", "2");
        sysctl("/proc/sys/net/ipv4/tcp_fin_timeout", "5");
        (void)netlink::link_up(1, true);
        if (self.dice.one_in(2))
            (void)netlink::delay(1, self.dice.one_in(2) ? kParkedUs : 1000);
        // write() on a context wants the credentials that opened it
        for (size_t i = 0; i < self.world.contexts.size(); i++)
            (void)open_context(self);
        const Menu& menu = menu_of(self.world.o);
        for (uint32_t i = 0, n = self.dice.below(kChildCallsMax); i < n; i++) {
            if (self.dice.one_in(8))
                if (const auto pair = connected_pair(self.dice.one_in(2) ? "127.0.0.1" : "::1")) {
                    keep_socket(self, pair->first);
                    keep_socket(self, pair->second);
                }
            self.play(menu.choose(self.dice));
        }
    });
}

int op_duel(Player& p) { return p.child ? kNothing : begin_duel(p); }

constexpr Op kOps[] = {
    {"duel_begin", 12, op_duel},
    {"process_fork", 1, op_fork},
    {"process_exec", 1, op_exec},
    {"process_vfork", 1, op_spawn},
    {"process_reap", 2, op_reap},
    {"process_signal", 2, op_signal},
    {"process_send_fd", 2, op_mail},
    {"process_take_fd", 2, op_open_mail},
    {"process_namespace", 1, op_namespace},
};

}  // namespace

int begin_duel(Player& p) {
    const auto qp = fresh_qp(p);
    const auto pair = connected_pair(p.dice.one_in(2) ? p.world.o.local : "127.0.0.1");
    if (!qp || !pair)
        return pair ? (close(pair->first), close(pair->second), kNothing) : errno;
    const uint64_t hot = p.dice.next();
    if (const auto old = p.world.sockets.put(hot, pair->first))
        close(*old);
    if (const auto old = p.world.sockets.put(hot + 1, pair->second))
        close(*old);
    p.world.qps.put(hot, *qp);
    p.world.hot.store(hot);
    p.world.duel.store(kDuelCalls);
    p.note(qp->handle, pair->first, pair->second);
    return 0;
}

std::span<const Op> process_ops() { return kOps; }

}  // namespace nupa::fuzz
