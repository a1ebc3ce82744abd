// SPDX-License-Identifier: BSD-3-Clause
#include "fake_pool.hpp"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tcp_qp/nupa_pool.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/fd.hpp"

namespace stock_test {
namespace {

constexpr std::string_view kDevice = "/dev/nupa_pool0";
constexpr const char* kName = "fake_lease";
constexpr uint64_t kPoolId = 77;

struct FakePoolDevice {
    std::mutex lock;
    bool there = false;
    uint64_t last_token = 0;
    std::map<uint64_t, tcpqp::Fd> offers;  // by token
    int take_error = 0;
    unsigned takes_to_fail = 0;
    int offer_error = 0;  // of the next
    unsigned maps_to_fail = 0;
};
FakePoolDevice pool;

int failed(int error) noexcept {
    errno = error;
    return -1;
}

uint64_t bytes_of(int fd) noexcept {
    struct stat s {};
    return ::fstat(fd, &s) == 0 ? static_cast<uint64_t>(s.st_size) : 0;
}

int make(uint64_t bytes) noexcept {
    const int fd = ::memfd_create(kName, MFD_CLOEXEC);
    return fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? fd : -1;
}

int offer(nupa_pool_offer& request) {
    const uint64_t bytes = bytes_of(request.fd);
    if (bytes == 0)
        return failed(ENODEV);
    if (const int error = std::exchange(pool.offer_error, 0); error != 0) {
        if (error != EBUSY && ::ftruncate(request.fd, 0) != 0)
            return -1;
        return failed(error);
    }
    tcpqp::Fd copy(make(bytes));
    off_t from = 0;
    for (auto left = static_cast<ssize_t>(bytes); left > 0;) {
        const ssize_t n =
            ::copy_file_range(request.fd, &from, copy.get(), nullptr, static_cast<size_t>(left), 0);
        if (n <= 0)
            return failed(EIO);
        left -= n;
    }
    if (::ftruncate(request.fd, 0) != 0)  // who has it mapped is ended by SIGBUS
        return -1;
    request.token = ++pool.last_token;
    pool.offers.emplace(request.token, std::move(copy));
    return 0;
}

int take(const nupa_pool_take& request) {
    if (pool.takes_to_fail != 0) {
        pool.takes_to_fail--;
        return failed(pool.take_error);
    }
    const auto at = pool.offers.find(request.token);
    if (at == pool.offers.end() || bytes_of(at->second.get()) != request.bytes)
        return failed(ENOENT);
    const int fd = at->second.release();
    pool.offers.erase(at);
    return fd;
}

int call(unsigned long request, void* argument) {
    const std::lock_guard guard(pool.lock);
    switch (request) {
        case NUPA_POOL_IOC_INFO:
            static_cast<nupa_pool_info*>(argument)->pool = kPoolId;
            return 0;
        case NUPA_POOL_IOC_ALLOC:
            return make(static_cast<nupa_pool_alloc*>(argument)->bytes);
        case NUPA_POOL_IOC_OFFER:
            return offer(*static_cast<nupa_pool_offer*>(argument));
        case NUPA_POOL_IOC_TAKE:
            return take(*static_cast<nupa_pool_take*>(argument));
        default:
            return failed(ENOTTY);
    }
}

bool is_ours(unsigned long request) noexcept {
    const std::lock_guard guard(pool.lock);
    if (!pool.there)
        return false;
    return request == NUPA_POOL_IOC_INFO || request == NUPA_POOL_IOC_ALLOC ||
           request == NUPA_POOL_IOC_OFFER || request == NUPA_POOL_IOC_TAKE;
}

}  // namespace

FakePool::FakePool() {
    const std::lock_guard guard(pool.lock);
    pool.there = true;
}

FakePool::~FakePool() {
    const std::lock_guard guard(pool.lock);
    pool.there = false;
    pool.offers.clear();
    pool.takes_to_fail = 0;
    pool.offer_error = 0;
    pool.maps_to_fail = 0;
}

void FakePool::fail_takes(int error, unsigned count) noexcept {
    const std::lock_guard guard(pool.lock);
    pool.take_error = error;
    pool.takes_to_fail = count;
}

void FakePool::fail_offer(int error) noexcept {
    const std::lock_guard guard(pool.lock);
    pool.offer_error = error;
}

void FakePool::fail_maps(unsigned count) noexcept {
    const std::lock_guard guard(pool.lock);
    pool.maps_to_fail = count;
}

void FakePool::drop_offers() noexcept {
    const std::lock_guard guard(pool.lock);
    pool.offers.clear();
}

size_t FakePool::leases() {
    size_t n = 0;
    std::error_code gone;  // the descriptor by which they are listed
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd"))
        n +=
            std::filesystem::read_symlink(fd.path(), gone).string().find(kName) != std::string::npos
                ? 1
                : 0;
    return n;
}

// What --wrap makes of the names.
int real_open(const char* path, int flags, unsigned mode) asm("__real_open");
int real_ioctl(int fd, unsigned long request, void* argument) asm("__real_ioctl");
void* real_mmap(void* at, size_t bytes, int rights, int flags, int fd,
                off_t from) asm("__real_mmap");
int wrapped_open(const char* path, int flags, unsigned mode) asm("__wrap_open");
int wrapped_ioctl(int fd, unsigned long request, void* argument) asm("__wrap_ioctl");
void* wrapped_mmap(void* at, size_t bytes, int rights, int flags, int fd,
                   off_t from) asm("__wrap_mmap");

int wrapped_open(const char* path, int flags, unsigned mode) {
    const std::lock_guard guard(pool.lock);
    return path == kDevice && pool.there ? real_open("/dev/null", flags, mode)
                                         : real_open(path, flags, mode);
}

int wrapped_ioctl(int fd, unsigned long request, void* argument) {
    return is_ours(request) ? call(request, argument) : real_ioctl(fd, request, argument);
}

void* wrapped_mmap(void* at, size_t bytes, int rights, int flags, int fd, off_t from) {
    const std::lock_guard guard(pool.lock);
    if (fd < 0 || pool.maps_to_fail == 0)
        return real_mmap(at, bytes, rights, flags, fd, from);
    pool.maps_to_fail--;
    errno = ENOMEM;
    return MAP_FAILED;
}

}  // namespace stock_test
