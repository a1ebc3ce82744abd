// SPDX-License-Identifier: BSD-3-Clause
#include "devmem/memory.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/accelerator.hpp"

namespace tcpqp::devmem {
namespace {

Fd make_udmabuf(size_t bytes) {
    const Fd pages(::memfd_create("devmem", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    if (pages.get() < 0 || ::ftruncate(pages.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(pages.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        throw_errno("memfd");
    const Fd maker(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
    if (maker.get() < 0)
        throw_errno("/dev/udmabuf");
    udmabuf_create what{};
    what.memfd = static_cast<__u32>(pages.get());
    what.flags = UDMABUF_FLAGS_CLOEXEC;
    what.size = bytes;
    Fd made(::ioctl(maker.get(), UDMABUF_CREATE, &what));
    if (made.get() < 0)
        throw_errno("UDMABUF_CREATE");
    return made;
}

void sync(int dma_buf, uint64_t flags) {
    dma_buf_sync what{.flags = flags};
    if (::ioctl(dma_buf, DMA_BUF_IOCTL_SYNC, &what) != 0)
        throw_errno("DMA_BUF_IOCTL_SYNC");
}

}  // namespace

Memory::Memory(MemoryKind kind, size_t bytes)
    : dma_buf_(kind == MemoryKind::kHbm ? Accelerator().allocate(bytes) : make_udmabuf(bytes)),
      bytes_(bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf_.get(), 0);
    if (at == MAP_FAILED)
        throw_errno("mmap of a dma-buf");
    at_ = static_cast<std::byte*>(at);
}

Memory::~Memory() { ::munmap(at_, bytes_); }

void Memory::begin_read() const { sync(dma_buf_.get(), DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ); }

void Memory::end_read() const { sync(dma_buf_.get(), DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ); }

void Memory::begin_write() const { sync(dma_buf_.get(), DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE); }

void Memory::end_write() const { sync(dma_buf_.get(), DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE); }

}  // namespace tcpqp::devmem
