// SPDX-License-Identifier: BSD-3-Clause
#include "relay/program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "protocol/protocol.hpp"

extern char** environ;

namespace tcpqp::run {
namespace {

constexpr int kCannotRun = 126;  // as the shell's and env's
constexpr std::array kForwarded{SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
                                SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

volatile sig_atomic_t program_pid = 0;

// The terminal sends its own to the whole group.
void forward(int signal, siginfo_t* info, void*) {
    if (program_pid > 0 && info->si_code != SI_KERNEL)
        ::kill(program_pid, signal);
}

void forward_signals() noexcept {
    struct sigaction action {};
    action.sa_sigaction = forward;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (const int signal : kForwarded)
        ::sigaction(signal, &action, nullptr);
}

[[noreturn]] void end_as(int status) noexcept {
    if (WIFSIGNALED(status)) {
        const rlimit none{0, 0};  // the program has dumped its core
        ::setrlimit(RLIMIT_CORE, &none);
        ::signal(WTERMSIG(status), SIG_DFL);
        ::raise(WTERMSIG(status));
    }
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : kCannotRun);
}

// Reads the program's pid, then how it ended.
[[noreturn]] void be_front(const Fd& relay) noexcept {
    int word = 0;
    forward_signals();
    if (::read(relay.get(), &word, sizeof(word)) == sizeof(word))
        program_pid = word;
    if (program_pid != 0 && ::read(relay.get(), &word, sizeof(word)) == sizeof(word))
        end_as(word);
    if (program_pid != 0)
        std::fprintf(stderr, "tcpqp-run: the relay is gone; relayed connections were reset\n");
    ::_exit(kCannotRun);
}

void preload(const std::string& library) {
    const char* others = ::getenv("LD_PRELOAD");
    const std::string all = others == nullptr || *others == '\0' ? library : library + ":" + others;
    if (::setenv("LD_PRELOAD", all.c_str(), 1) != 0)
        throw_errno("LD_PRELOAD");
}

}  // namespace

Fd become_relay() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw_errno("socketpair");
    Fd relay(ends[0]), front(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0)
        throw_errno("fork");
    if (pid != 0) {
        front.reset();
        be_front(relay);
    }
    return front;
}

Program::Program(char** argv, const std::string& library, const std::string& socket, Fd front)
    : front_(std::move(front)) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that who of its is left is known
    preload(library);
    ::setenv(kSocketVariable, socket.c_str(), 1);
    const int error = ::posix_spawnp(&pid_, argv[0], nullptr, nullptr, argv, environ);
    if (error != 0)
        throw_errno(argv[0], error);
    // what the program was given is not kept open for it
    const Fd nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
    ::dup2(nowhere.get(), STDIN_FILENO);
    ::dup2(nowhere.get(), STDOUT_FILENO);
    rlimit files{};  // the program has its own
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    sigset_t child, others;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    others = child;
    for (const int signal : kForwarded)  // they are the program's
        sigaddset(&others, signal);
    sigaddset(&others, SIGPIPE);
    ::sigprocmask(SIG_BLOCK, &others, nullptr);
    children_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!children_)
        throw_errno("signalfd");
    if (::write(front_.get(), &pid_, sizeof(pid_)) != sizeof(pid_))
        throw_errno("tell the front");
}

void Program::reap() noexcept {
    signalfd_siginfo info{};
    while (::read(children_.get(), &info, sizeof(info)) > 0) {
    }
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            anyone_ = pid == 0;
            return;
        }
        if (pid == pid_) {
            ended_ = true;
            status_ = status;
        }
    }
}

void Program::tell_front() noexcept {
    if (front_ && ::send(front_.get(), &status_, sizeof(status_), MSG_NOSIGNAL) < 0)
        std::perror("tcpqp-run: tell the front");
    front_.reset();
}

}  // namespace tcpqp::run
