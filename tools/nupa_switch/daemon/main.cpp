// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "event/log.hpp"
#include "switch.hpp"

namespace {

using namespace nupa::daemon;

constexpr rlim_t kDescriptorsElse = 32 + kControlClientsMax;

// Running out later would leave a listening socket ready that can't be served.
void raise_descriptor_limit(const Options& options) {
    rlim_t need = kDescriptorsElse;
    for (const auto& port : options.ports)
        need += port->descriptors_max();
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0)
        throw_errno("getrlimit");
    if (limit.rlim_max < need)
        throw OptionError(fmt::format(
            "{} ports need {} open files and the hard limit is {}: raise it (ulimit -Hn)",
            options.ports.size(), need, limit.rlim_max));
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) < 0)
        throw_errno("setrlimit");
}

void tell_ready(int fd) {
    constexpr std::string_view kReady = "nupa_switch: ready\n";
    log_line("{}", kReady.substr(0, kReady.size() - 1));
    if (fd < 0)
        return;
    Fd owned(fd);
    if (::write(fd, kReady.data(), kReady.size()) < 0)
        throw_errno("--ready-fd " + std::to_string(fd));
}

}  // namespace

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto options = parse_options(argc, argv, exit_code);
    if (!options)
        return exit_code;
    try {
        std::signal(SIGPIPE, SIG_IGN);
        raise_descriptor_limit(*options);
        Switch fabric_switch(*options);
        tell_ready(options->ready_fd);
        fabric_switch.run();
        return 0;
    } catch (const std::exception& e) {
        log_line("nupa_switch: {}", e.what());
        return 1;
    }
}
