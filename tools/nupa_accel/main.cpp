// SPDX-License-Identifier: BSD-3-Clause
// nupa_accel: an accelerator for one virtual machine, with memory that the switch maps, too.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <csignal>

#include "nupa_accel/accelerator.hpp"

namespace {

constexpr uint64_t kMib = 1 << 20;
constexpr uint64_t kMibDefault = 256;

void tell_ready(int fd) {
    constexpr std::string_view kReady = "nupa_accel: ready\n";
    if (fd < 0)
        return;
    const tcpqp::Fd owned(fd);
    if (::write(fd, kReady.data(), kReady.size()) < 0)
        tcpqp::throw_errno("--ready-fd " + std::to_string(fd));
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"nupa_accel: an accelerator to test with, for one virtual machine"};
    nupa::accel::Options options;
    uint64_t mib = kMibDefault;
    int ready_fd = -1;
    app.add_option("--socket", options.socket,
                   "UNIX socket for QEMU's ivshmem-doorbell device (vectors=2)")
        ->required();
    app.add_option("--memory", options.memory,
                   "file that its BAR2 is; its contents are lost.  The switch's --port hbm= names "
                   "it, too")
        ->required();
    app.add_option("--mib", mib, "size of BAR2 in MiB, a power of two; the first 2 are registers")
        ->capture_default_str()
        ->check(CLI::Range(static_cast<uint64_t>(NUPA_ACCEL_BAR2_BYTES_MIN) / kMib,
                           static_cast<uint64_t>(NUPA_ACCEL_BAR2_BYTES_MAX) / kMib));
    app.add_option("--ready-fd", ready_fd, "write one line there once it listens")
        ->check(CLI::NonNegativeNumber);
    CLI11_PARSE(app, argc, argv);
    if (!std::has_single_bit(mib)) {
        fmt::print(stderr, "nupa_accel: --mib {} is not a power of two\n", mib);
        return 2;
    }
    options.bytes = mib * kMib;
    try {
        std::signal(SIGPIPE, SIG_IGN);
        nupa::accel::Accelerator accelerator(options);
        tell_ready(ready_fd);
        accelerator.run();
        return 0;
    } catch (const std::exception& e) {
        fmt::print(stderr, "nupa_accel: {}\n", e.what());
        return 1;
    }
}
