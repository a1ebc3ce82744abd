// SPDX-License-Identifier: BSD-3-Clause
// Memory of the switch's pool: a lease, mapped.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <tcp_qp/nupa_pool.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "provider/opts.hpp"
#include "provider/pool.hpp"
#include "provider/provider.hpp"

namespace {

// The lease's descriptor, or a negative errno.
int lease(const char* path, size_t bytes) noexcept {
    const int device = ::open(path, O_RDWR | O_CLOEXEC);
    if (device < 0)
        return -errno;
    nupa_pool_alloc request{.bytes = bytes, .reserved = 0};
    const int fd = ::ioctl(device, NUPA_POOL_IOC_ALLOC, &request);
    const int error = errno;
    ::close(device);
    return fd < 0 ? -error : fd;
}

}  // namespace

int tcpqp_pool_alloc(size_t bytes, const tcpqp_pool_opts* opts, tcpqp_pool_memory* memory) {
    tcpqp_pool_opts o;
    if (bytes == 0 || memory == nullptr || !tcpqp::read_opts(opts, o))
        return -EINVAL;
    if (bytes > SIZE_MAX - NUPA_POOL_PAGE_BYTES)
        return -ENOSPC;
    const size_t whole = tcpqp::whole_pages(bytes);
    const int fd = lease(o.path != nullptr ? o.path : tcpqp::kPoolPath, whole);
    if (fd < 0)
        return fd;
    void* const at = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        const int error = errno;
        ::close(fd);
        return -error;
    }
    *memory = {at, whole, fd};
    return 0;
}

int tcpqp_pool_free(tcpqp_pool_memory* memory) {
    if (memory == nullptr || memory->addr == nullptr)
        return 0;
    ::munmap(memory->addr, memory->bytes);
    ::close(memory->dmabuf);
    *memory = {};
    return 0;
}
