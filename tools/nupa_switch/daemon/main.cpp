// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string_view>

#include "switch.hpp"

namespace {

using namespace nupa::daemon;

// A port takes two eventfds a vector and a few more; the usual soft limit ends at 24 ports.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void tell_ready(int fd) {
    constexpr std::string_view kReady = "nupa_switch: ready\n";
    fmt::print(stderr, "{}", kReady);
    if (fd < 0) return;
    Fd owned(fd);
    if (::write(fd, kReady.data(), kReady.size()) < 0) throw_errno("--ready-fd " + std::to_string(fd));
}

}  // namespace

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto options = parse_options(argc, argv, exit_code);
    if (!options) return exit_code;
    try {
        raise_descriptor_limit();
        Switch fabric_switch(*options);
        tell_ready(options->ready_fd);
        fabric_switch.run();
        return 0;
    } catch (const std::exception& e) {
        fmt::print(stderr, "nupa_switch: {}\n", e.what());
        return 1;
    }
}
