// SPDX-License-Identifier: BSD-3-Clause
// The switch's pool through its driver: pool_check attacks | killed N | churn N | hold MIB | info.
// Exit 0 only if all was right; hold prints a line and sleeps until it is killed.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/pool.hpp"
#include "memory.hpp"
#include "tcp_qp/nupa_accel.h"
#include "verbs/device.hpp"

namespace {

using nupa::programs::Memory;
using nupa::programs::Pages;
using tcpqp::Fd;
using tcpqp::Pool;

constexpr size_t kPage = 4096;
constexpr std::chrono::seconds kSettle{20};
constexpr const char* kInterface = "nupa0";

void check(bool right, const char* what) {
    if (!right)
        throw std::runtime_error(what);
}

// What a request of a program's own making is answered.
int answer(const Pool& pool, unsigned long request, void* arg) {
    return ::ioctl(pool.fd(), request, arg) < 0 ? errno : 0;
}

int refused_alloc(const Pool& pool, uint64_t bytes, uint64_t reserved = 0) {
    nupa_pool_alloc alloc{.bytes = bytes, .reserved = reserved};
    return answer(pool, NUPA_POOL_IOC_ALLOC, &alloc);
}

int refused_map(int fd, size_t bytes, int flags, off_t offset = 0) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, offset);
    if (at == MAP_FAILED)
        return errno;
    ::munmap(at, bytes);
    return 0;
}

// A region that is destroyed lets its memory go soon, not at once.
void wait_leased(uint64_t bytes) {
    const auto end = std::chrono::steady_clock::now() + kSettle;
    while (Pool().info().leased_bytes != bytes) {
        check(std::chrono::steady_clock::now() < end, "it is still leased");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

bool all_zero(const Pages& pages) {
    return std::ranges::all_of(pages.bytes(), [](uint8_t byte) { return byte == 0; });
}

void wrong_requests() {
    const Pool pool;
    const uint64_t window = pool.info().window_bytes;
    check(refused_alloc(pool, 0) == EINVAL, "a lease of nothing");
    check(refused_alloc(pool, kPage, 1) == EINVAL, "reserved is not zero");
    check(refused_alloc(pool, window + 1) == ENOSPC, "more than the window");
    check(refused_alloc(pool, ~uint64_t{0}) == ENOSPC, "all there is");
    check(answer(pool, NUPA_POOL_IOC_ALLOC, nullptr) == EFAULT, "a request at address 0");
    check(answer(pool, NUPA_ACCEL_IOC_INFO, nullptr) == ENOTTY, "an accelerator's request");
    check(answer(pool, NUPA_ACCEL_IOC_SUBMIT, nullptr) == ENOTTY, "an accelerator's commands");
    check(refused_map(pool.fd(), kPage, MAP_SHARED) != 0, "the device itself is mapped");
}

// A mapping is of the lease, whole or in part, and of nothing beside it.
void wrong_mappings() {
    const Fd lease = Pool().allocate(2 * kPage);
    check(refused_map(lease.get(), 2 * kPage, MAP_SHARED) == 0, "the lease is not mapped");
    check(refused_map(lease.get(), kPage, MAP_SHARED, kPage) == 0, "its second page is not");
    check(refused_map(lease.get(), 3 * kPage, MAP_SHARED) == EINVAL, "a page behind it");
    check(refused_map(lease.get(), kPage, MAP_SHARED, 2 * kPage) == EINVAL, "the page behind it");
    check(refused_map(lease.get(), kPage, MAP_PRIVATE) == EINVAL, "a private mapping");
    void* const at = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, lease.get(), 0);
    check(at != MAP_FAILED, "map");
    check(::mremap(at, 2 * kPage, 4 * kPage, MREMAP_MAYMOVE) == MAP_FAILED, "it grew");
    ::munmap(at, 2 * kPage);
}

// The lease is its descriptor's, not its device's; what was in it is in no other one.
void lives() {
    Pages first(8 * kPage, Memory::kPool);
    check(all_zero(first), "a new lease is not zero");
    std::ranges::fill(first.bytes(), uint8_t{0x5a});
    const auto context = tcpqp::open_device(kInterface);
    {
        const tcpqp::Mr mr = first.registered(*context, IBV_ACCESS_LOCAL_WRITE);
        check(!tcpqp::Mr(*context, first.bytes().data(), kPage, IBV_ACCESS_LOCAL_WRITE),
              "its pages are pinned as if they were memory of the machine");
    }
    const uint64_t before = Pool().info().leased_bytes;
    { Pages gone(std::move(first)); }
    wait_leased(before - 8 * kPage);
    Pages next(16 * kPage, Memory::kPool);
    check(all_zero(next), "it has an earlier owner's bytes");
}

void attacks() {
    wrong_requests();
    wrong_mappings();
    lives();
}

// Processes that are killed while they take leases, hold them, and have them registered.
void killed(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        int ready[2];
        check(::pipe(ready) == 0, "pipe");
        const pid_t child = ::fork();
        check(child >= 0, "fork");
        if (child == 0) {
            for (;;) {
                Pages pages((1 + i % 64) * kPage, Memory::kPool);
                pages.bytes()[0] = 1;
                (void)!::write(ready[1], "", 1);
            }
        }
        char byte = 0;
        check(::read(ready[0], &byte, 1) == 1, "it does not begin");
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        ::close(ready[0]);
        ::close(ready[1]);
    }
}

void churn(unsigned times) {
    const auto context = tcpqp::open_device(kInterface);
    for (unsigned i = 0; i < times; i++) {
        Pages pages((1 + i % 300) * kPage, Memory::kPool);
        check(pages.bytes().front() == 0 && pages.bytes().back() == 0, "a new lease is not zero");
        pages.bytes().front() = pages.bytes().back() = 1;
        (void)pages.registered(*context, IBV_ACCESS_LOCAL_WRITE);
    }
}

void hold(unsigned mib) {
    Pages pages(size_t{mib} << 20, Memory::kPool);
    const auto context = tcpqp::open_device(kInterface);
    const tcpqp::Mr mr = pages.registered(*context, IBV_ACCESS_LOCAL_WRITE);
    check(mr.lkey() != 0, "no key");
    pages.bytes()[0] = 1;
    std::puts("held");
    std::fflush(stdout);
    for (;;)
        ::pause();
}

void tell() {
    const nupa_pool_info info = Pool().info();
    std::printf(
        "{\"window_bytes\":%llu,\"leased_bytes\":%llu,\"leases\":%llu,\"kernel_maps\":%llu}\n",
        info.window_bytes, info.leased_bytes, info.leases, info.kernel_maps);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = argc > 2 ? static_cast<unsigned>(std::stoul(argv[2])) : 1u;
    if (what == "attacks")
        attacks();
    else if (what == "killed")
        killed(number);
    else if (what == "churn")
        churn(number);
    else if (what == "hold")
        hold(number);
    else if (what == "info")
        tell();
    else
        throw std::runtime_error("pool_check attacks | killed N | churn N | hold MIB | info");
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "pool_check: %s\n", e.what());
    return 1;
}
