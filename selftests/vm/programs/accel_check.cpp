// SPDX-License-Identifier: BSD-3-Clause
// An accelerator through its driver: accel_check engine | attacks | churn N | refused IF |
// revoked | revoke PID | info | hold MIB | stay_zero | race N [BUFFERS].
// Exit 0 only if all was right; hold prints a line and sleeps until it is killed.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/accelerator.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"

namespace {

using tcpqp::Accelerator;
using tcpqp::AccelPlace;
using tcpqp::Fd;

constexpr uint64_t kBytes = 1 << 20;
constexpr uint32_t kPeriod = 251;
constexpr unsigned kSettleMs = 5000;

void check(bool right, const char* what) {
    if (!right)
        throw std::runtime_error(what);
}

// ---- what the commands do ----

void engine_moves_and_compares(const Accelerator& accel) {
    const Fd a = accel.allocate(kBytes), b = accel.allocate(kBytes);
    check(accel.compare({a.get()}, {b.get()}, kBytes) == kBytes, "new buffers are not both zero");
    accel.pattern({a.get()}, kBytes, kPeriod, 0);
    check(accel.compare({a.get()}, {b.get()}, kBytes) == 0, "the pattern begins with a zero");
    accel.copy({b.get()}, {a.get()}, kBytes);
    check(accel.compare({a.get()}, {b.get()}, kBytes) == kBytes, "a copy differs");
    accel.fill({b.get(), 4096}, 4, 0xffffffff);
    check(accel.compare({a.get()}, {b.get()}, kBytes) == 4096, "a difference is not found");
}

void engine_waits_and_rings(const Accelerator& accel) {
    const Fd flag = accel.allocate(4096);
    const Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    check(accel.bell(3, event.get()) == 0, "no bell");
    // the first command waits for what the second program sets: here, a thread of ours by mmap
    std::array<nupa_accel_call, 2> calls{tcpqp::accel_call(NUPA_ACCEL_WAIT, 0, {flag.get()}),
                                         tcpqp::accel_call(NUPA_ACCEL_RING, 0, {})};
    calls[0].value = 77;
    calls[0].limit_ms = NUPA_ACCEL_WAIT_MAX_MS;
    calls[1].value = 3;
    const uint64_t mapped = accel.info().cpu_mapped_bytes;
    void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, flag.get(), 0);
    check(at != MAP_FAILED, "mmap");
    std::thread setter([at] { std::atomic_ref<uint32_t>(*static_cast<uint32_t*>(at)).store(77); });
    const int error = accel.submit(calls);
    setter.join();
    munmap(at, 4096);
    check(error == 0 && calls[0].status == NUPA_ACCEL_OK && calls[1].status == NUPA_ACCEL_OK,
          "WAIT or RING failed");
    pollfd rang{event.get(), POLLIN, 0};
    check(poll(&rang, 1, 5000) == 1, "the bell did not ring");
    check(accel.info().cpu_mapped_bytes == mapped + 4096,
          "a page that a program touched is not counted");
    calls[0].value = 78;
    calls[0].limit_ms = 5;
    check(accel.submit({calls.data(), 1}) == 0 && calls[0].status == NUPA_ACCEL_E_TIMEOUT,
          "WAIT has no limit");
}

// However many interrupts there were.
void each_ring_is_told(const Accelerator& accel) {
    constexpr uint32_t kRings = 100;
    const Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    check(accel.bell(5, event.get()) == 0, "no bell");
    std::vector<nupa_accel_call> calls(kRings, tcpqp::accel_call(NUPA_ACCEL_RING, 0, {}));
    for (nupa_accel_call& call : calls)
        call.value = 5;
    check(accel.submit(calls) == 0, "RING");
    uint64_t sum = 0, some = 0;
    for (pollfd rang{event.get(), POLLIN, 0}; sum < kRings; sum += some)
        check(poll(&rang, 1, 5000) == 1 && read(event.get(), &some, sizeof some) == sizeof some,
              "a ring was lost");
    check(sum == kRings, "rings that were not");
    check(accel.bell(5, -1) == 0, "bell off");
}

// ---- what a hostile program may try ----

void expect(int got, int want, const char* what) {
    if (got != want)
        throw std::runtime_error(std::string(what) + ": " + std::strerror(got) + ", not " +
                                 std::strerror(want));
}

void attack_commands(const Accelerator& accel) {
    const Fd mine = accel.allocate(8192);
    const Fd file(memfd_create("x", MFD_CLOEXEC));
    const auto one = [&](nupa_accel_call call) { return accel.submit({&call, 1}); };

    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 8196, {mine.get()})), ERANGE, "beyond the end");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {mine.get(), UINT64_MAX})), ERANGE, "a wrap");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, UINT64_MAX, {mine.get(), 1})), ERANGE, "a wrap");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {})), EINVAL, "no buffer");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {}, {mine.get()})), EINVAL, "the wrong place");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_COPY, 4, {mine.get()}, {mine.get()}, {mine.get()})),
           EINVAL, "a place too many");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {file.get()})), EINVAL, "no dma-buf");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {accel.fd()})), EINVAL, "the device itself");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {12345})), EBADF, "no descriptor");
    expect(one(tcpqp::accel_call(NUPA_ACCEL_OP_COUNT, 4, {mine.get()})), EINVAL, "no operation");
    nupa_accel_call call = tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {mine.get()});
    call.to.reserved = 1;
    expect(one(call), EINVAL, "reserved");
    call = tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {mine.get()});
    call.start = 1;
    expect(one(call), EINVAL, "a start of FILL");
    call = tcpqp::accel_call(NUPA_ACCEL_SUM, 8, {mine.get()}, {mine.get()}, {mine.get()});
    call.type = 9;
    expect(accel.submit({&call, 1}), 0, "refused by the device");
    check(call.status == NUPA_ACCEL_E_INVALID, "a type that there is not");
    std::vector<nupa_accel_call> many(NUPA_ACCEL_BATCH_MAX + 1);
    expect(accel.submit(many), EINVAL, "too many");
    expect(accel.submit({many.data(), 0}), EINVAL, "none");
    nupa_accel_submit submit{.calls = 1, .count = 1, .reserved = 0};
    expect(ioctl(accel.fd(), NUPA_ACCEL_IOC_SUBMIT, &submit) ? errno : 0, EFAULT, "no memory");
    expect(accel.bell(NUPA_ACCEL_BELLS, -1), EINVAL, "no bell");
    expect(accel.bell(0, file.get()), EINVAL, "no eventfd");
    const Accelerator other;
    const Fd event(eventfd(0, EFD_CLOEXEC));
    expect(accel.bell(0, event.get()), 0, "a bell");
    expect(other.bell(0, event.get()), EBUSY, "somebody else's bell");
    expect(accel.bell(0, -1), 0, "none any more");
    expect(other.bell(0, event.get()), 0, "free again");
}

void attack_memory(const Accelerator& accel) {
    const uint64_t whole = accel.info().memory_bytes;
    for (uint64_t bytes : {uint64_t{0}, whole + 1, UINT64_MAX}) {
        nupa_accel_alloc alloc{.bytes = bytes, .reserved = 0};
        expect(ioctl(accel.fd(), NUPA_ACCEL_IOC_ALLOC, &alloc) < 0 ? errno : 0,
               bytes ? ENOSPC : EINVAL, "a size");
    }
    {
        std::vector<Fd> all;  // what another owner wrote is not there any more
        all.push_back(accel.allocate(whole));
        accel.fill({all[0].get()}, whole, 0x12345678);
        nupa_accel_alloc alloc{.bytes = 1, .reserved = 0};
        expect(ioctl(accel.fd(), NUPA_ACCEL_IOC_ALLOC, &alloc) < 0 ? errno : 0, ENOSPC, "full");
    }
    const Fd half = accel.allocate(whole / 2), rest = accel.allocate(whole / 4);
    check(accel.compare({half.get()}, {half.get(), whole / 4}, whole / 4) == whole / 4 &&
              accel.compare({half.get()}, {rest.get()}, whole / 4) == whole / 4,
          "an earlier owner's bytes");
    check(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, half.get(), 0) == MAP_FAILED,
          "a private mapping of a device");
    check(accel.revoke(half.get()) == 0 && accel.revoke(half.get()) == ENODEV, "revoked twice");
    nupa_accel_call call = tcpqp::accel_call(NUPA_ACCEL_FILL, 4, {half.get()});
    expect(accel.submit({&call, 1}), ENODEV, "a revoked buffer");
}

// A region lets go of its memory when RCU's readers are through, soon after it is deregistered.
void settle(const Accelerator& accel, uint64_t buffers, const char* what) {
    for (unsigned ms = 0; accel.info().buffers != buffers; ms++) {
        check(ms < kSettleMs, what);
        usleep(1000);
    }
}

void nothing_left(const Accelerator& accel, uint64_t free_before) {
    settle(accel, 0, "buffers are left over");
    check(accel.info().free_bytes == free_before, "memory is left over");
}

void engine() {
    const Accelerator accel;
    const uint64_t free_before = accel.info().free_bytes;
    const uint64_t mapped = accel.info().cpu_mapped_bytes;
    engine_moves_and_compares(accel);
    check(accel.info().cpu_mapped_bytes == mapped, "a processor has touched it");
    engine_waits_and_rings(accel);
    each_ring_is_told(accel);
    nothing_left(accel, free_before);
}

void attacks() {
    const Accelerator accel;
    const uint64_t free_before = accel.info().free_bytes;
    attack_commands(accel);
    attack_memory(accel);
    nothing_left(accel, free_before);
}

// ---- regions of it ----

std::unique_ptr<tcpqp::Context> device(const char* interface) {
    return tcpqp::open_device(interface);
}

void churn(unsigned times) {
    const Accelerator accel;
    const uint64_t free_before = accel.info().free_bytes, mapped = accel.info().cpu_mapped_bytes;
    const auto context = device("nupa0");
    for (unsigned i = 0; i < times; i++) {
        const Fd buffer = accel.allocate(64 << 10);
        const tcpqp::Mr mr(*context, buffer.get(), 0, 64 << 10, 0, IBV_ACCESS_LOCAL_WRITE);
        check(static_cast<bool>(mr), "register");
    }
    {
        // at an odd place, with any iova in a page; and the descriptor closed while it is a region
        Fd buffer = accel.allocate(8 << 20);
        const tcpqp::Mr mr(*context, buffer.get(), 4096 + 100, 5 << 20, 0x7000000064,
                           IBV_ACCESS_LOCAL_WRITE);
        check(static_cast<bool>(mr), "register a part");
        buffer.reset();
        settle(accel, 1, "a closed buffer must live with its region");
    }
    const Fd buffer = accel.allocate(4096);
    check(!tcpqp::Mr(*context, buffer.get(), 0, 8192, 0, 0), "a region beyond the buffer");
    check(accel.revoke(buffer.get()) == 0, "revoke");
    check(!tcpqp::Mr(*context, buffer.get(), 0, 4096, 0, 0) && errno == ENODEV,
          "a region of a revoked buffer");
    check(accel.info().cpu_mapped_bytes == mapped, "a processor has touched it");
    settle(accel, 1, "buffers left over");
    check(accel.info().free_bytes == free_before - 4096, "memory left over");
}

// The software engine's device does not reach it, and says so.
void refused(const char* interface) {
    const Accelerator accel;
    const auto context = device(interface);
    const Fd buffer = accel.allocate(4096);
    check(!tcpqp::Mr(*context, buffer.get(), 0, 4096, 0, 0) && errno == EOPNOTSUPP,
          "registered without a switch");
}

// A region that its exporter took, still registered: keys are dead, memory is free once all is
// closed.
void revoked() {
    const Accelerator accel;
    const uint64_t free_before = accel.info().free_bytes;
    {
        const auto context = device("nupa0");
        const Fd buffer = accel.allocate(kBytes);
        const tcpqp::Mr mr(*context, buffer.get(), 0, kBytes, 0, IBV_ACCESS_LOCAL_WRITE);
        check(static_cast<bool>(mr), "register");
        void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.get(), 0);
        check(at != MAP_FAILED, "mmap");
        std::memset(at, 1, 4096);
        check(accel.revoke(buffer.get()) == 0, "revoke");
        if (fork() == 0) {  // it faults
            std::signal(SIGBUS, [](int) { _exit(0); });
            *static_cast<volatile char*>(at) = 1;
            _exit(1);
        }
        int status = -1;
        check(wait(&status) > 0 && status == 0, "revoked memory can be touched");
        munmap(at, kBytes);
    }
    nothing_left(accel, free_before);
}

// Every buffer that another process has a descriptor of.
void revoke_of(int pid) {
    const Accelerator accel;
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    check(static_cast<bool>(process), "pidfd_open");
    unsigned revoked = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
        if (std::filesystem::read_symlink(entry.path()).string().find("dmabuf") ==
            std::string::npos)
            continue;
        const Fd buffer(static_cast<int>(
            syscall(SYS_pidfd_getfd, process.get(), std::stoi(entry.path().filename()), 0)));
        expect(accel.revoke(buffer.get()), 0, "revoke another's buffer");
        revoked++;
    }
    check(revoked > 0, "the process has no buffer");
}

void tell() {
    const nupa_accel_info i = Accelerator().info();
    std::printf(
        R"({"memory_bytes":%llu,"free_bytes":%llu,"commands":%llu,"cpu_mapped_bytes":%llu,"kernel_maps":%llu,"buffers":%llu})",
        i.memory_bytes, i.free_bytes, i.commands, i.cpu_mapped_bytes, i.kernel_maps, i.buffers);
}

void hold(unsigned mib) {
    const Accelerator accel;
    const auto context = device("nupa0");
    const Fd buffer = accel.allocate(uint64_t{mib} << 20);
    const tcpqp::Mr mr(*context, buffer.get(), 0, uint64_t{mib} << 20, 0, IBV_ACCESS_LOCAL_WRITE);
    check(static_cast<bool>(mr), "register");
    const Fd event(eventfd(0, EFD_CLOEXEC));
    check(accel.bell(1, event.get()) == 0, "bell");
    std::puts("held");
    std::fflush(stdout);
    for (;;)
        pause();
}

// ---- the device goes while buffers come and go ----

constexpr const char* kDriver = "/sys/bus/pci/drivers/nupa_accel/";
constexpr unsigned kRacers = 4, kBuffersFirst = 3, kNumbers = 4, kFilesMore = 64, kHeld = 64;

void tell_driver(const char* file, const std::string& function) {
    const Fd to(open((std::string(kDriver) + file).c_str(), O_WRONLY | O_CLOEXEC));
    check(
        write(to.get(), function.data(), function.size()) == static_cast<ssize_t>(function.size()),
        file);
}

std::string function_of_driver() {
    for (const auto& entry : std::filesystem::directory_iterator(kDriver))
        if (std::string name = entry.path().filename(); name.find(':') != std::string::npos)
            return name;
    throw std::runtime_error("the driver has no device");
}

// Its number is another while somebody has the earlier one.
std::unique_ptr<Accelerator> whichever() {
    for (unsigned ms = 0; ms < kSettleMs; ms++) {
        for (unsigned i = 0; i < kNumbers; i++)
            try {
                return std::make_unique<Accelerator>("/dev/nupa_accel" + std::to_string(i));
            } catch (const std::system_error&) {
            }
        usleep(1000);
    }
    throw std::runtime_error("no accelerator");
}

// Makes and closes buffers, @touch: with a page of them mapped, until the device is gone.  What it
// made first it closes while removal goes through those that came later.
void make_and_close(bool touch, std::atomic<unsigned>& made) {
    const auto accel = whichever();
    const Fd first = accel->allocate(4096);
    const Fd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    for (;;) {
        nupa_accel_alloc alloc{.bytes = 4096, .reserved = 0};
        const Fd buffer(ioctl(accel->fd(), NUPA_ACCEL_IOC_ALLOC, &alloc));
        if (!buffer) {
            expect(errno, ENODEV, "a buffer of a device that is going");
            return;
        }
        void* at = touch ? mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.get(), 0)
                         : MAP_FAILED;
        if (at != MAP_FAILED) {  // the kernel writes: EFAULT, and no signal, once it was taken
            if (read(zero.get(), at, 4096) < 0)
                expect(errno, EFAULT, "a page of a device that is going");
            munmap(at, 4096);
        }
        made++;
    }
}

bool is_zero(const Fd& buffer) {
    void* at = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, buffer.get(), 0);
    check(at != MAP_FAILED, "mmap");
    const auto* first = static_cast<const uint64_t*>(at);
    const bool zero =
        std::all_of(first, first + kBytes / sizeof *first, [](uint64_t word) { return word == 0; });
    munmap(at, kBytes);
    return zero;
}

// All that is free, as buffers of nobody else's, until standard input ends.
void stay_zero() {
    const auto accel = whichever();
    std::vector<Fd> buffers;
    nupa_accel_alloc alloc{.bytes = kBytes, .reserved = 0};
    for (int fd = 0; (fd = ioctl(accel->fd(), NUPA_ACCEL_IOC_ALLOC, &alloc)) >= 0;)
        buffers.emplace_back(fd);
    expect(errno, ENOSPC, "the last buffer");
    check(!buffers.empty(), "nothing is free");
    std::puts("held");
    std::fflush(stdout);
    for (char any = 0; read(STDIN_FILENO, &any, 1) > 0;)
        ;
    check(std::all_of(buffers.begin(), buffers.end(), is_zero), "a stranger wrote to our buffers");
}

void race_once(const std::string& function, unsigned held) {
    std::array<std::atomic<unsigned>, kRacers> made{};
    std::array<std::string, kRacers> problems;
    std::vector<std::jthread> racers;
    std::atomic<unsigned> ended = 0;
    for (unsigned i = 0; i < kRacers; i++)
        racers.emplace_back([&, i] {
            try {
                make_and_close(i % 2 == 1, made[i]);
            } catch (const std::exception& e) {
                problems[i] = e.what();
            }
            ended++;
        });
    for (auto& count : made)
        while (count < kBuffersFirst && !ended)
            usleep(100);
    {
        std::vector<Fd> later;
        const auto accel = whichever();
        while (later.size() < held)
            later.push_back(accel->allocate(4096));
        tell_driver("unbind", function);
        racers.clear();
    }
    tell_driver("bind", function);
    for (const std::string& problem : problems)
        check(problem.empty(), problem.c_str());
}

void race(unsigned times, unsigned held) {
    const rlimit files{held + kFilesMore, held + kFilesMore};
    check(setrlimit(RLIMIT_NOFILE, &files) == 0, "RLIMIT_NOFILE");
    const std::string function = function_of_driver();
    for (unsigned i = 0; i < times; i++)
        race_once(function, held);
    const auto accel = whichever();
    check(accel->info().free_bytes == accel->info().memory_bytes, "memory is left over");
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = [&](unsigned otherwise) {
        return argc > 2 ? static_cast<unsigned>(std::stoul(argv[2])) : otherwise;
    };
    if (what == "engine")
        engine();
    else if (what == "attacks")
        attacks();
    else if (what == "churn")
        churn(number(1000));
    else if (what == "refused")
        refused(argc > 2 ? argv[2] : "lo");
    else if (what == "revoked")
        revoked();
    else if (what == "revoke")
        revoke_of(static_cast<int>(number(0)));
    else if (what == "info")
        tell();
    else if (what == "hold")
        hold(number(1));
    else if (what == "stay_zero")
        stay_zero();
    else if (what == "race")
        race(number(20), argc > 3 ? static_cast<unsigned>(std::stoul(argv[3])) : kHeld);
    else
        throw std::runtime_error(
            "accel_check engine | attacks | churn N | refused IF | revoked | revoke PID | info | "
            "hold MIB | stay_zero | "
            "race N [BUFFERS]");
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "accel_check: %s\n", e.what());
    return 1;
}
