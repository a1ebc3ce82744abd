// SPDX-License-Identifier: BSD-3-Clause
// Is it a dma-buf, and is the region inside it?  The same answer for every engine.
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "provider/checks.hpp"

namespace tcpqp {
namespace {

// A dma-buf refuses to sync for no access; anything else knows no such request.
int require_dmabuf(int fd) noexcept {
    dma_buf_sync nothing{};
    if (::ioctl(fd, DMA_BUF_IOCTL_SYNC, &nothing) == 0 || errno == EINVAL)
        return 0;
    return errno == EBADF ? -EBADF : -EINVAL;
}

}  // namespace

int check_dmabuf(const DmabufRegion& region) noexcept {
    if (const int error = require_dmabuf(region.fd); error != 0)
        return error;
    const off_t end = ::lseek(region.fd, 0, SEEK_END);  // a dma-buf has no position to lose
    if (end < 0 || region.bytes == 0)
        return -EINVAL;
    const auto size = static_cast<uint64_t>(end);
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uint64_t>(region.address);
    const bool inside = region.offset <= size && region.bytes <= size - region.offset;
    return inside && region.offset % page == address % page ? 0 : -EINVAL;
}

}  // namespace tcpqp
