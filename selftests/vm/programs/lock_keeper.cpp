// SPDX-License-Identifier: BSD-3-Clause
#include "lock_keeper.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace nupa::programs {

namespace {

constexpr int kFaultMs = 20'000;

void must(bool done, const char* what) {
    if (!done)
        tcpqp::throw_errno(what);
}

}  // namespace

LockKeeper::LockKeeper(size_t most)
    : page_bytes_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
      bytes_(2 * most * page_bytes_),
      faults_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    must(bool(faults_), "userfaultfd");
    void* pages =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(pages != MAP_FAILED, "mmap");
    pages_ = static_cast<unsigned char*>(pages);
    must(!::madvise(pages_, bytes_, MADV_NOHUGEPAGE), "madvise");
    for (size_t i = 0; i < most; i++)
        pages_[2 * i * page_bytes_] = 0;  // the first of each two is there
    uffdio_api api{UFFD_API, 0, 0};
    must(!::ioctl(faults_.get(), UFFDIO_API, &api), "UFFDIO_API");
    uffdio_register all{
        {reinterpret_cast<uintptr_t>(pages_), bytes_}, UFFDIO_REGISTER_MODE_MISSING, 0};
    must(!::ioctl(faults_.get(), UFFDIO_REGISTER, &all), "UFFDIO_REGISTER");
}

LockKeeper::~LockKeeper() {
    let_go();
    ::munmap(pages_, bytes_);
}

// The kernel reads an option's first int without the lock, and all of it with the lock.
void LockKeeper::keep(const tcpqp::Fd& socket) {
    const auto* option = pages_ + (2 * threads_.size() + 1) * page_bytes_ - sizeof(int);
    threads_.emplace_back([fd = socket.get(), option] {
        (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, option, sizeof(linger));
    });
    pollfd fault{faults_.get(), POLLIN, 0};
    uffd_msg message{};
    must(::poll(&fault, 1, kFaultMs) == 1 &&
             ::read(faults_.get(), &message, sizeof message) == sizeof message,
         "keep a lock");
}

void LockKeeper::let_go() noexcept {
    for (size_t i = 0; i < threads_.size(); i++) {
        uffdio_zeropage page{
            {reinterpret_cast<uintptr_t>(pages_ + (2 * i + 1) * page_bytes_), page_bytes_}, 0, 0};
        (void)::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &page);
    }
    for (auto& thread : threads_)
        thread.join();
    threads_.clear();
}

}  // namespace nupa::programs
