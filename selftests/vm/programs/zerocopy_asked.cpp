// SPDX-License-Identifier: BSD-3-Clause
#include "zerocopy_asked.hpp"

#include <dlfcn.h>
#include <liburing.h>

#include <atomic>

namespace {

std::atomic<uint64_t> asked{0};

}  // namespace

// In the way of libtcpqp's calls.
extern "C" int io_uring_submit(io_uring* ring) {
    using Submit = int (*)(io_uring*);
    static const auto next = reinterpret_cast<Submit>(::dlsym(RTLD_NEXT, "io_uring_submit"));
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++)
        asked += ring->sq.sqes[i & ring->sq.ring_mask].opcode == IORING_OP_SENDMSG_ZC ? 1 : 0;
    return next(ring);
}

namespace nupa::programs {

uint64_t zerocopy_asked() noexcept { return asked; }

}  // namespace nupa::programs
