// SPDX-License-Identifier: BSD-3-Clause
// Registers memory that its exporter moves while it is pinned (modules/moving_buffer), again and
// again.
//
//   moved_region
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/ioctl.h>

#include <cstdio>
#include <exception>

#include "base/fd.hpp"
#include "verbs/context.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"

namespace {

constexpr int kTurns = 50;
constexpr uint64_t kBytes = 1 << 16;
constexpr unsigned long kGet = _IO('u', 16);  // MOVING_BUFFER_GET

void register_moved() {
    const auto context = tcpqp::open_device("nupa0");
    const tcpqp::Fd device(open("/dev/moving_buffer", O_RDWR | O_CLOEXEC));
    if (!device)
        tcpqp::throw_errno("open the exporter");
    for (int turn = 0; turn < kTurns; turn++) {
        const tcpqp::Fd buffer(ioctl(device.get(), kGet));
        if (!buffer)
            tcpqp::throw_errno("get a buffer");
        const tcpqp::Mr mr(*context, buffer.get(), 0, kBytes, 0,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (!mr)
            tcpqp::throw_errno("register memory that moves");
    }
}

}  // namespace

int main() {
    try {
        register_moved();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "moved_region: FAILED: %s\n", e.what());
        return 1;
    }
}
