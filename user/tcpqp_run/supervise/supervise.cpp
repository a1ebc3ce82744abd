// SPDX-License-Identifier: BSD-3-Clause
#include "supervise/supervise.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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
constexpr size_t kInstructionsMax = 64;  // of the filter: it has a dozen

struct Release {
    void operator()(void* filter) const noexcept { ::seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, Release>;

void good(int result, const char* what) {
    if (result < 0)
        throw_errno(what, -result);
}

// All calls go on as they would; the kernel tells of two first.  Others' processors' calls do not
// count.
Filter make_filter() {
    Filter filter(::seccomp_init(SCMP_ACT_ALLOW));
    if (!filter)
        throw std::bad_alloc();
    good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_API_SYSRAWRC, 1), "seccomp");
    good(::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW), "seccomp");
    for (const int call : {SCMP_SYS(connect), SCMP_SYS(listen)})
        good(::seccomp_rule_add(filter.get(), SCMP_ACT_NOTIFY, call, 0), "seccomp");
    return filter;
}

// The filter as the kernel takes it.
class Program {
public:
    explicit Program(const Filter& filter) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0)
            throw_errno("pipe");
        const Fd out(ends[0]);
        Fd into(ends[1]);
        good(::seccomp_export_bpf(filter.get(), into.get()), "seccomp");
        into.reset();
        const ssize_t bytes = ::read(out.get(), code_.data(), sizeof(code_));
        if (bytes <= 0 || static_cast<size_t>(bytes) == sizeof(code_))
            throw std::runtime_error("seccomp: no filter, or a large one");
        count_ = static_cast<size_t>(bytes) / sizeof(sock_filter);
    }

    // Returns the filter's descriptor, or -errno.  libseccomp does not know of the last flag
    // (Linux 5.19), by which a signal does not end a call that the supervisor has in hand: listen()
    // is ended by none, and connect() by one that comes once it runs.  No mitigation is turned on
    // that the program would not have.
    [[nodiscard]] int load() noexcept {
        const sock_fprog program{static_cast<unsigned short>(count_), code_.data()};
        constexpr unsigned long kFlags =
            SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        long result = -1;
        for (const unsigned long flags :
             {kFlags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, kFlags}) {
            result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
            if (result >= 0 || errno != EINVAL)
                break;
        }
        return result >= 0 ? static_cast<int>(result) : -errno;
    }

private:
    std::array<sock_filter, kInstructionsMax> code_{};
    size_t count_ = 0;
};

// A child that wait() does not know of, since its end sends no signal.
pid_t fork_unwaited() noexcept {
    return static_cast<pid_t>(::syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr));
}

int load_without_new_privileges(Program& program) noexcept {
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? program.load() : -errno;
}

// The same in a child: 0, or -errno.  No process gets its right to new privileges back.
int try_without_new_privileges(Program& program) noexcept {
    const pid_t child = fork_unwaited();
    if (child == 0)
        ::_exit(-std::min(load_without_new_privileges(program), 0));
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, __WALL) != child)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

// Who is not privileged may filter only if none of its programs can become so.  Returns the
// descriptor, which closes when the program is executed.
int load_filter() {
    Program program(make_filter());
    int result = program.load();
    if (result == -EACCES || result == -EPERM) {
        result = try_without_new_privileges(program);
        if (result == 0)
            result = load_without_new_privileges(program);
    }
    if (result == -EBUSY)
        throw std::runtime_error("something else already supervises this process's system calls");
    good(result, "seccomp");
    return result;
}

// Nothing of the program's may live longer because of us, and what ends it must not end us first:
// its calls would fail.
void let_go_of_everything(int keep, bool stats) noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    int null = -1;
    do  // a standard stream that is closed stays silent
        null = ::open("/dev/null", O_RDWR);
    while (null >= 0 && null <= STDERR_FILENO);
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    if (!stats)
        ::dup2(null, STDERR_FILENO);
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

// Does what ends below us become our child?  A container's first process, for one.
bool takes_orphans() noexcept {
    int takes = 0;
    return ::getpid() == 1 || (::prctl(PR_GET_CHILD_SUBREAPER, &takes, 0, 0, 0) == 0 && takes != 0);
}

void start_grandchild(int wire, const char* program, bool stats) {
    const pid_t program_pid = ::getpid();
    // Whoever started us may ignore SIGCHLD, or block it: then a child that sends it would leave no
    // status, or the program a signal.
    const pid_t child = fork_unwaited();
    if (child < 0)
        throw_errno("clone");
    if (child == 0) {
        ::setsid();
        const pid_t supervisor = ::fork();
        if (supervisor == 0)
            be_supervisor(wire, program_pid, program, stats);
        ::_exit(supervisor < 0);
    }
    int status = 0;
    if (::waitpid(child, &status, __WALL) != child || status != 0)
        throw std::runtime_error("no supervising process could be started");
}

// In a session of its own, since its terminal's signals are not for it, and no child that the
// program could wait for: that would be for ever.  Returns a child that is ours, or 0.
pid_t start_supervisor(int wire, const char* program, bool stats) {
    const pid_t program_pid = ::getpid();
    if (!takes_orphans()) {
        start_grandchild(wire, program, stats);
        return 0;
    }
    const pid_t supervisor = fork_unwaited();
    if (supervisor < 0)
        throw_errno("clone");
    if (supervisor == 0) {
        ::setsid();
        be_supervisor(wire, program_pid, program, stats);
    }
    return supervisor;
}

// Where standard streams are closed a new descriptor has the number of one, and the supervising
// process puts others there.
Fd above_standard(const Fd& fd) {
    Fd above(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!above)
        throw_errno("descriptors");
    return above;
}

void filter_and_hand_over(int wire) {
    pid_t supervisor = 0;
    if (::recv(wire, &supervisor, sizeof(supervisor), 0) != sizeof(supervisor))
        throw std::runtime_error("the supervising process has died");
    // Where Yama lets only ancestors look at a process's descriptors.
    (void)::prctl(PR_SET_PTRACER, supervisor, 0, 0, 0);
    const int notify = load_filter();
    UnixMessage message(&supervisor, sizeof(supervisor));
    message.put(notify);
    if (::sendmsg(wire, &message.header, MSG_NOSIGNAL) < 0) {
        std::fputs("tcpqp-run: the supervising process has died\n", stderr);
        ::_exit(kCannotGoOn);  // nobody would answer the program's calls, and no filter is undone
    }
}

}  // namespace

void supervise(const char* program, bool stats) {
    int wires[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) != 0)
        throw_errno("socketpair");
    Fd here = above_standard(Fd(wires[0]));
    Fd there = above_standard(Fd(wires[1]));
    const pid_t child = start_supervisor(there.get(), program, stats);
    there.reset();
    try {
        filter_and_hand_over(here.get());
    } catch (...) {
        here.reset();  // by which it ends
        if (child != 0)
            ::waitpid(child, nullptr, __WALL);
        throw;
    }
}

}  // namespace tcpqp::run
