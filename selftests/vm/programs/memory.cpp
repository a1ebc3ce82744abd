// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <utility>

#include "base/accelerator.hpp"
#include "base/pool.hpp"

namespace nupa::programs {
namespace {

constexpr size_t kHugeBytes = 2 << 20;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

tcpqp::Fd opened(const char* path, int flags) {
    tcpqp::Fd fd(open(path, flags | O_CLOEXEC));
    if (!fd)
        tcpqp::throw_errno(path);
    return fd;
}

tcpqp::Fd udmabuf(size_t bytes) {
    const tcpqp::Fd device = opened("/dev/udmabuf", O_RDWR);
    const tcpqp::Fd memfd(memfd_create("tcp_qp test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    if (!memfd || ftruncate(memfd.get(), static_cast<off_t>(bytes)) ||
        fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK))
        tcpqp::throw_errno("make a memfd");
    udmabuf_create request{};
    request.memfd = static_cast<uint32_t>(memfd.get());
    request.flags = UDMABUF_FLAGS_CLOEXEC;
    request.size = bytes;
    tcpqp::Fd buffer(ioctl(device.get(), UDMABUF_CREATE, &request));
    if (!buffer)
        tcpqp::throw_errno("UDMABUF_CREATE");
    return buffer;
}

tcpqp::Fd dma_heap(size_t bytes) {
    const tcpqp::Fd heap = opened("/dev/dma_heap/system", O_RDONLY);
    dma_heap_allocation_data request{};
    request.len = bytes;
    request.fd_flags = O_RDWR | O_CLOEXEC;
    if (ioctl(heap.get(), DMA_HEAP_IOCTL_ALLOC, &request))
        tcpqp::throw_errno("DMA_HEAP_IOCTL_ALLOC");
    return tcpqp::Fd(static_cast<int>(request.fd));
}

}  // namespace

Memory memory_of(const std::string& name) {
    static const std::map<std::string, Memory> names{
        {"pages", Memory::kPages},      {"huge", Memory::kHuge}, {"udmabuf", Memory::kUdmabuf},
        {"dma-heap", Memory::kDmaHeap}, {"hbm", Memory::kHbm},   {"pool", Memory::kPool}};
    const auto at = names.find(name);
    if (at == names.end())
        throw std::runtime_error("no such memory: " + name);
    return at->second;
}

Pages::Pages(size_t bytes, Memory kind) : bytes_(bytes) {
    switch (kind) {
        case Memory::kPages:
            map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
            return;
        case Memory::kHuge:
            map(rounded(bytes, kHugeBytes), MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
            return;
        case Memory::kUdmabuf:
            dmabuf_ = udmabuf(rounded(bytes, kPageBytes));
            break;
        case Memory::kDmaHeap:
            dmabuf_ = dma_heap(rounded(bytes, kPageBytes));
            break;
        case Memory::kHbm:
            dmabuf_ = tcpqp::Accelerator().allocate(bytes);
            break;
        case Memory::kPool:
            dmabuf_ = tcpqp::Pool().allocate(bytes);
            break;
    }
    map(rounded(bytes, kPageBytes), MAP_SHARED, dmabuf_.get());
}

Pages::Pages(Pages&& other) noexcept
    : bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      at_(std::exchange(other.at_, nullptr)),
      dmabuf_(std::move(other.dmabuf_)) {}

Pages::~Pages() {
    if (at_)
        munmap(at_, mapped_);
}

void Pages::map(size_t whole, int flags, int fd) {
    void* const at = mmap(nullptr, whole, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED)
        tcpqp::throw_errno("mmap");
    at_ = at;
    mapped_ = whole;
}

tcpqp::Mr Pages::registered(const tcpqp::Context& context, int access) const {
    tcpqp::Mr mr = dmabuf_ ? tcpqp::Mr(context, dmabuf_.get(), 0, bytes_,
                                       reinterpret_cast<uint64_t>(at_), access)
                           : tcpqp::Mr(context, at_, bytes_, access);
    if (!mr)
        tcpqp::throw_errno("register memory");
    return mr;
}

}  // namespace nupa::programs
