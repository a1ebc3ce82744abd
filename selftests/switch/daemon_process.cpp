// SPDX-License-Identifier: BSD-3-Clause
#include "daemon_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

namespace nupa::testing {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& argv) {
    std::vector<char*> p;
    for (const std::string& arg : argv)
        p.push_back(const_cast<char*>(arg.c_str()));
    p.push_back(nullptr);
    return p;
}

pid_t start(const std::vector<std::string>& argv, int out_fd, int err_fd) {
    std::vector<char*> args = pointers(argv);
    pid_t pid = ::fork();
    if (pid < 0)
        throw std::system_error(errno, std::generic_category(), "fork");
    if (pid)
        return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves nothing behind
    if (out_fd >= 0)
        ::dup2(out_fd, STDOUT_FILENO);
    if (err_fd >= 0)
        ::dup2(err_fd, STDERR_FILENO);
    ::execv(args[0], args.data());
    ::_exit(127);
}

bool readable(int fd) {
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, kWaitMs) == 1;
}

int wait_exit(pid_t pid) {
    int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    bool ended = pidfd >= 0 && readable(pidfd);
    ::close(pidfd);
    int status = 0;
    if (!ended)
        return -1;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string make_directory() {
    std::string name = "/tmp/nupa_switch_test.XXXXXX";
    if (!::mkdtemp(name.data()))
        throw std::system_error(errno, std::generic_category(), "mkdtemp");
    return name;
}

DaemonProcess::DaemonProcess(unsigned ports, std::vector<std::string> extra)
    : directory_(make_directory()) {
    int ready[2];
    if (::pipe(ready) < 0)
        throw std::system_error(errno, std::generic_category(), "pipe");
    std::vector<std::string> argv{NUPA_SWITCH_PROGRAM, "--control", path("control"), "--ready-fd",
                                  std::to_string(ready[1])};
    for (unsigned i = 0; i < ports; i++) {
        std::string n = std::to_string(i);
        argv.insert(argv.end(), {"--port", "name=n" + n + ",socket=" + path("n" + n + ".sock") +
                                               ",ram=" + path("n" + n + ".ram")});
    }
    argv.insert(argv.end(), extra.begin(), extra.end());
    pid_ = start(argv, -1, -1);
    ::close(ready[1]);
    char line[32];
    bool ok = readable(ready[0]) && ::read(ready[0], line, sizeof(line)) > 0;
    ::close(ready[0]);
    if (!ok)
        throw std::runtime_error("nupa_switch did not become ready");
}

DaemonProcess::~DaemonProcess() {
    if (pid_ > 0 && stop(SIGTERM) < 0)
        stop(SIGKILL);
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
}

int DaemonProcess::stop(int signal) {
    ::kill(pid_, signal);
    int status = wait_exit(pid_);
    if (status >= 0)
        pid_ = -1;
    return status;
}

std::unique_ptr<FakePort> DaemonProcess::plug(unsigned port, uint64_t ram_bytes) {
    std::string name = "n" + std::to_string(port);
    return std::make_unique<FakePort>(path(name + ".sock"), path(name + ".ram"), ram_bytes);
}

nlohmann::json DaemonProcess::control(const nlohmann::json& request) {
    int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string where = path("control");
    std::strncpy(address.sun_path, where.c_str(), sizeof(address.sun_path) - 1);
    std::string line = request.dump() + "\n";
    std::string reply;
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
        ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
        char chunk[4096];
        while ((reply.empty() || reply.back() != '\n') && readable(fd)) {
            ssize_t n = ::read(fd, chunk, sizeof(chunk));
            if (n <= 0)
                break;
            reply.append(chunk, static_cast<size_t>(n));
        }
    }
    ::close(fd);
    return nlohmann::json::parse(reply);
}

double DaemonProcess::cpu_seconds() const {
    // schedstat counts nanoseconds on the CPU; stat only ticks.
    std::ifstream file("/proc/" + std::to_string(pid_) + "/schedstat");
    double ns = 0;
    file >> ns;
    if (!file)
        throw std::runtime_error("no schedstat");
    return ns / 1e9;
}

CommandResult run(const std::vector<std::string>& argv) {
    int out[2];
    if (::pipe(out) < 0)
        throw std::system_error(errno, std::generic_category(), "pipe");
    pid_t pid = start(argv, out[1], out[1]);
    ::close(out[1]);
    CommandResult result;
    char chunk[4096];
    while (readable(out[0])) {
        ssize_t n = ::read(out[0], chunk, sizeof(chunk));
        if (n <= 0)
            break;
        result.out.append(chunk, static_cast<size_t>(n));
    }
    ::close(out[0]);
    result.status = wait_exit(pid);
    if (result.status < 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    return result;
}

CommandResult nupactl(const DaemonProcess& daemon, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {NUPACTL_PROGRAM, "--control", daemon.path("control")});
    return run(arguments);
}

}  // namespace nupa::testing
