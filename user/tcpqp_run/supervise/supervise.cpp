// SPDX-License-Identifier: BSD-3-Clause
#include "supervise/supervise.hpp"

#include <fcntl.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "base/fd.hpp"
#include "base/unix_message.hpp"
#include "supervise/notifications.hpp"
#include "ulp/taken.hpp"

namespace tcpqp::run {
namespace {

constexpr int kCannotGoOn = 126;

struct Release {
    void operator()(void* filter) const noexcept { ::seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, Release>;

void good(int result, const char* what) {
    if (result < 0)
        throw_errno(what, -result);
}

// All calls go on as they would; the kernel tells of two first.  Others' processors' calls do not
// count, and no mitigation is turned on that the program would not have.
Filter make_filter() {
    Filter filter(::seccomp_init(SCMP_ACT_ALLOW));
    if (!filter)
        throw std::bad_alloc();
    good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_API_SYSRAWRC, 1), "seccomp");
    good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW), "seccomp");
    good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_SSB, 1), "seccomp");
    for (const int call : {SCMP_SYS(connect), SCMP_SYS(listen)})
        good(::seccomp_rule_add(filter.get(), SCMP_ACT_NOTIFY, call, 0), "seccomp");
    return filter;
}

// Who is not privileged may filter only if none of its programs can become so.  Returns the
// descriptor, which closes when the program is executed.
int load_filter() {
    const Filter filter = make_filter();
    good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 0), "seccomp");
    int result = ::seccomp_load(filter.get());
    if (result == -EACCES || result == -EPERM) {
        good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 1), "seccomp");
        result = ::seccomp_load(filter.get());
    }
    if (result == -EBUSY)
        throw std::runtime_error("something else already supervises this process's system calls");
    good(result, "seccomp");
    const int notify = ::seccomp_notify_fd(filter.get());
    good(notify, "seccomp");
    return notify;
}

// Nothing of the program's may live longer because of us, and what ends it must not end us first:
// its calls would fail.
void let_go_of_everything(int keep, bool stats) noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    const Fd null(::open("/dev/null", O_RDWR));
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
    if (!stats)
        ::dup2(null.get(), STDERR_FILENO);
    ::dup2(keep, STDERR_FILENO + 1);
    ::close_range(STDERR_FILENO + 2, ~0U, 0);
    (void)!::chdir("/");
}

[[noreturn]] void be_supervisor(int wire, pid_t program_pid, const char* program, bool stats) {
    let_go_of_everything(wire, stats);
    wire = STDERR_FILENO + 1;
    pid_t self = ::getpid();
    if (::send(wire, &self, sizeof(self), MSG_NOSIGNAL) != sizeof(self))
        ::_exit(1);
    UnixMessage message(&self, sizeof(self));
    if (::recvmsg(wire, &message.header, MSG_CMSG_CLOEXEC) != sizeof(self))
        ::_exit(1);  // there is no filter
    const Fd notify = message.take();
    ::close(wire);
    answer_all(notify.get());
    if (stats)
        print_taken(program, program_pid);
    ::_exit(0);
}

// A grandchild, in a session of its own: no child of the program's, and its terminal's signals are
// not for it.
void start_supervisor(int wire, const char* program, bool stats) {
    const pid_t program_pid = ::getpid();
    const pid_t child = ::fork();
    if (child < 0)
        throw_errno("fork");
    if (child == 0) {
        ::setsid();
        const pid_t supervisor = ::fork();
        if (supervisor == 0)
            be_supervisor(wire, program_pid, program, stats);
        ::_exit(supervisor < 0);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0)
        throw std::runtime_error("no supervising process could be started");
}

}  // namespace

void supervise(const char* program, bool stats) {
    int wires[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) != 0)
        throw_errno("socketpair");
    const Fd here(wires[0]);
    Fd there(wires[1]);
    start_supervisor(there.get(), program, stats);
    there.reset();
    pid_t supervisor = 0;
    if (::recv(here.get(), &supervisor, sizeof(supervisor), 0) != sizeof(supervisor))
        throw std::runtime_error("the supervising process has died");
    // Where Yama lets only ancestors look at a process's descriptors.
    (void)::prctl(PR_SET_PTRACER, supervisor, 0, 0, 0);
    const int notify = load_filter();
    UnixMessage message(&supervisor, sizeof(supervisor));
    message.put(notify);
    if (::sendmsg(here.get(), &message.header, MSG_NOSIGNAL) < 0) {
        std::fputs("tcpqp-run: the supervising process has died\n", stderr);
        ::_exit(kCannotGoOn);  // nobody would answer the program's calls, and no filter is undone
    }
}

}  // namespace tcpqp::run
