// SPDX-License-Identifier: BSD-3-Clause
// The switch's pool through its driver: pool_check attacks | killed N | handed N | churn N | hold
// MIB | info. Exit 0 only if all was right; hold prints a line and sleeps until it is killed.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
    check(refused_map(pool.fd(), kPage, MAP_PRIVATE) == EINVAL, "a private lease");
    check(refused_map(pool.fd(), kPage, MAP_SHARED, kPage) == EINVAL, "a lease from an offset");
    check(refused_map(pool.fd(), window + kPage, MAP_SHARED) == ENOSPC, "a longer mapping");
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
        const tcpqp::Mr part(*context, first.bytes().data() + kPage, kPage, IBV_ACCESS_LOCAL_WRITE);
        check(static_cast<bool>(part), "a page of its mapping is not registered by address");
    }
    const uint64_t before = Pool().info().leased_bytes;
    { Pages gone(std::move(first)); }
    wait_leased(before - 8 * kPage);
    Pages next(16 * kPage, Memory::kPool);
    check(all_zero(next), "it has an earlier owner's bytes");
}

// mmap() of the device is a lease that the mapping alone has, and regions by address.
void mapped_alone() {
    const Pool pool;
    const uint64_t before = pool.info().leased_bytes;
    const auto context = tcpqp::open_device(kInterface);
    const auto map = [&](int rights) {
        void* const at = ::mmap(nullptr, 4 * kPage, rights, MAP_SHARED, pool.fd(), 0);
        check(at != MAP_FAILED, "mmap() of the device");
        return static_cast<uint8_t*>(at);
    };
    const auto registered = [&](uint8_t* at, size_t bytes, int access) {
        return static_cast<bool>(tcpqp::Mr(*context, at, bytes, access));
    };
    uint8_t* const at = map(PROT_READ | PROT_WRITE);
    check(pool.info().leased_bytes == before + 4 * kPage, "it is no lease");
    check(std::all_of(at, at + 4 * kPage, [](uint8_t byte) { return byte == 0; }), "not zero");
    check(registered(at, 4 * kPage, IBV_ACCESS_LOCAL_WRITE), "it is not registered by address");
    check(registered(at + kPage + 5, kPage, IBV_ACCESS_LOCAL_WRITE), "a part of it is not");
    check(!registered(at + kPage, 4 * kPage, IBV_ACCESS_LOCAL_WRITE), "a region beyond it");
    uint8_t* const read_only = map(PROT_READ);
    check(registered(read_only, kPage, 0), "a mapping to read from is not registered");
    check(!registered(read_only, kPage, IBV_ACCESS_LOCAL_WRITE), "what can't be written is");
    ::munmap(read_only, 4 * kPage);
    wait_leased(before + 4 * kPage);
    {
        const tcpqp::Mr mr(*context, at, 4 * kPage, IBV_ACCESS_LOCAL_WRITE);
        check(static_cast<bool>(mr), "register");
        ::munmap(at, 4 * kPage);
        check(pool.info().leased_bytes == before + 4 * kPage, "it went under a region");
        check(!registered(at, kPage, 0), "what is not mapped any more is registered");
    }
    wait_leased(before);
}

// ---- hand-over ----

int refused_offer(const Pool& pool, int fd, uint32_t reserved = 0, uint64_t token = 0) {
    nupa_pool_offer offer{.fd = fd, .reserved = reserved, .token = token};
    return answer(pool, NUPA_POOL_IOC_OFFER, &offer);
}

int refused_take(const Pool& pool, uint64_t token, uint64_t bytes) {
    nupa_pool_take take{.token = token, .bytes = bytes};
    return answer(pool, NUPA_POOL_IOC_TAKE, &take);
}

uint8_t* mapped(const Fd& lease, size_t bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, lease.get(), 0);
    check(at != MAP_FAILED, "map");
    return static_cast<uint8_t*>(at);
}

// Who touches memory that is another's by now is killed.
bool is_lost(volatile uint8_t* at) {
    const pid_t child = ::fork();
    check(child >= 0, "fork");
    if (child == 0) {
        at[0] = 1;
        _exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

// The offer stands.
int take_without_descriptors(const Pool& pool, uint64_t token, uint64_t bytes) {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{0, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const int error = refused_take(pool, token, bytes);
    ::setrlimit(RLIMIT_NOFILE, &before);
    return error;
}

void wrong_offers() {
    const Pool pool;
    const Fd lease = pool.allocate(2 * kPage);
    check(refused_offer(pool, -1) == EBADF, "no descriptor");
    check(refused_offer(pool, pool.fd()) == EINVAL, "no lease");
    check(refused_offer(pool, lease.get(), 1) == EINVAL, "reserved is not zero");
    check(refused_offer(pool, lease.get(), 0, 1) == EINVAL, "a token of its own");
    check(answer(pool, NUPA_POOL_IOC_OFFER, nullptr) == EFAULT, "an offer at address 0");
    check(answer(pool, NUPA_POOL_IOC_TAKE, nullptr) == EFAULT, "a request at address 0");
    check(refused_take(pool, 0, kPage) == EINVAL, "no token");
    check(refused_take(pool, 1, kPage + 1) == EINVAL, "a part of a page");
    check(refused_take(pool, 1, kPage) == ENOENT, "a token that nobody has");
    Pages registered(kPage, Memory::kPool);
    const auto context = tcpqp::open_device(kInterface);
    const tcpqp::Mr mr = registered.registered(*context, IBV_ACCESS_LOCAL_WRITE);
    check(refused_offer(pool, registered.dmabuf()) == EBUSY, "a region's");
    registered.bytes()[0] = 1;
}

void hand_over() {
    const Pool pool;
    const Fd lease = pool.allocate(2 * kPage);
    uint8_t* const at = mapped(lease, 2 * kPage);
    at[kPage] = 77;
    const uint64_t token = pool.offer(lease);
    check(is_lost(at), "what was offered is still mapped");
    check(refused_offer(pool, lease.get()) == ENODEV, "twice");
    check(refused_map(lease.get(), kPage, MAP_SHARED) == 0 && is_lost(at + kPage), "mapped anew");
    check(refused_take(pool, token, kPage) == ENOENT, "a part of it");
    check(take_without_descriptors(pool, token, 2 * kPage) == EMFILE, "no descriptor is free");
    {
        const Fd taken = pool.take(token, 2 * kPage);
        uint8_t* const there = mapped(taken, 2 * kPage);
        check(there[kPage] == 77 && there[0] == 0, "not what was in it");
        check(refused_take(pool, token, 2 * kPage) == ENOENT, "taken twice");
        // the old descriptor's end is not that of the lease
        const Fd next = pool.allocate(kPage);
        const uint64_t withdrawn = pool.offer(next);
        { const Fd gone(::dup(next.get())); }
        check(refused_take(pool, withdrawn + 1, kPage) == ENOENT, "another token");
        there[0] = 1;
        ::munmap(there, 2 * kPage);
    }
    ::munmap(at, 2 * kPage);
}

// Offers of processes that are killed: taken, or withdrawn, and never both.
void handed(unsigned times) {
    const Pool pool;
    for (unsigned i = 0; i < times; i++) {
        int tokens[2];
        check(::pipe(tokens) == 0, "pipe");
        const size_t bytes = (1 + i % 64) * kPage;
        const pid_t child = ::fork();
        check(child >= 0, "fork");
        if (child == 0) {
            for (;;) {
                Fd lease = pool.allocate(bytes);
                uint8_t* const at = mapped(lease, bytes);
                at[bytes - 1] = 0x77;
                const uint64_t token = pool.offer(lease);
                ::munmap(at, bytes);
                (void)lease.release();  // until the process's end
                (void)!::write(tokens[1], &token, sizeof(token));
            }
        }
        ::close(tokens[1]);
        uint64_t token = 0;
        for (unsigned n = 0; ::read(tokens[0], &token, sizeof(token)) == sizeof(token); n++) {
            if (n == i % 4)
                ::kill(child, SIGKILL);
            nupa_pool_take take{.token = token, .bytes = bytes};
            const Fd taken(::ioctl(pool.fd(), NUPA_POOL_IOC_TAKE, &take));
            check(taken || (n >= i % 4 && errno == ENOENT), "an offer that stands is not taken");
            if (!taken)
                continue;
            uint8_t* const at = mapped(taken, bytes);
            check(at[bytes - 1] == 0x77, "not what was in it");
            ::munmap(at, bytes);
        }
        ::waitpid(child, nullptr, 0);
        ::close(tokens[0]);
    }
    wait_leased(0);
}

void attacks() {
    wrong_requests();
    mapped_alone();
    wrong_mappings();
    lives();
    wrong_offers();
    hand_over();
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
    else if (what == "handed")
        handed(number);
    else if (what == "churn")
        churn(number);
    else if (what == "hold")
        hold(number);
    else if (what == "info")
        tell();
    else
        throw std::runtime_error(
            "pool_check attacks | killed N | handed N | churn N | hold MIB | info");
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "pool_check: %s\n", e.what());
    return 1;
}
