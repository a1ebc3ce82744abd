// SPDX-License-Identifier: BSD-3-Clause
// tcpqp-run: an unmodified program's TCP sockets get the module's ULP.  This process becomes the
// program.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/fd.hpp"
#include "launch/library.hpp"
#include "launch/options.hpp"
#include "supervise/reach.hpp"
#include "supervise/supervise.hpp"
#include "ulp/stats_place.hpp"
#include "ulp/ulp.hpp"

using namespace tcpqp;
using namespace tcpqp::run;

namespace {

constexpr int kNotFound = 127, kCannotRun = 126;  // as the shell's and env's
constexpr int kFirstPassed = 3;                   // sd_listen_fds(3)
constexpr long kPassedMax = 1024;

// By a socket of our own.
void require_module() {
    Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!probe)
        probe.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!probe)
        throw_errno("socket");
    const int error = set_stream_ulp(probe.get());
    if (error == ENOENT)
        throw std::runtime_error("the tcp_qp module is not loaded, or has no " +
                                 std::string(TCP_QP_STREAM_ULP_NAME));
    if (error != 0)
        throw_errno(TCP_QP_STREAM_ULP_NAME, error);
}

void set(const char* variable, const std::string& value) {
    if (::setenv(variable, value.c_str(), 1) != 0)
        throw_errno(variable);
}

void preload(const std::string& library) {
    const char* said = std::getenv("LD_PRELOAD");
    const std::string others = said == nullptr ? "" : said;
    if (others == library || others.starts_with(library + ":"))
        return;
    set("LD_PRELOAD", others.empty() ? library : library + ":" + others);
}

// Where a library of ours may write in the program.
void tell_place(const char* variable) {
    struct stat s {};
    if (::fstat(STDERR_FILENO, &s) == 0)
        set(variable, std::to_string(s.st_dev) + ":" + std::to_string(s.st_ino));
}

// Sockets that the program is born with: it calls neither connect() nor listen() for them.
void take_passed() noexcept {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        (void)set_stream_ulp(fd);  // most are no sockets
    const char* pid = std::getenv("LISTEN_PID");
    const char* count = std::getenv("LISTEN_FDS");
    if (pid == nullptr || count == nullptr || std::atol(pid) != ::getpid())
        return;
    const long end = kFirstPassed + std::min(std::atol(count), kPassedMax);
    for (int fd = kFirstPassed; fd < end; fd++)
        (void)set_stream_ulp(fd);
}

// Whether there is a device of ours is seen when the program opens one.
void prepare_verbs() {
    preload(find_library(kVerbsLibrary));
    tell_place(kVerbsVariable);
}

void prepare_sockets(const Options& o) {
    require_module();
    preload(find_library(kSocketsLibrary));
    if (o.stats)
        tell_place(kStatsVariable);
    take_passed();
    if (o.supervise || calls_by_itself(o.program[0]))
        supervise(o.program[0], o.stats);
}

void prepare(const Options& o) {
    if (o.verbs)
        prepare_verbs();
    else
        prepare_sockets(o);
}

std::string find_cgroup_program() {
    try {
        return find_beside(kCgroupProgram);
    } catch (const std::exception&) {
        throw std::runtime_error("tcpqp-run was built without libbpf: there is no tcpqp-cgroup");
    }
}

int change_cgroup(const Options& o) {
    try {
        if (!o.off)
            require_module();
        const std::string program = find_cgroup_program();
        ::execl(program.c_str(), kCgroupProgram, o.cgroup.c_str(), o.off ? "off" : "on", nullptr);
        throw_errno(program);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-run: %s: %s\n", o.cgroup.c_str(), e.what());
        return 1;
    }
}

}  // namespace

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto options = parse_options(argc, argv, exit_code);
    if (!options)
        return exit_code;
    if (!options->cgroup.empty())
        return change_cgroup(*options);
    char** program = options->program;
    try {
        prepare(*options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp-run: %s runs %s: %s\n", program[0],
                     options->verbs ? "as it is" : "on plain TCP", e.what());
    }
    ::execvp(program[0], program);
    const int error = errno;
    std::fprintf(stderr, "tcpqp-run: %s: %s\n", program[0], ::strerror(error));
    return error == ENOENT ? kNotFound : kCannotRun;
}
