// SPDX-License-Identifier: BSD-3-Clause
#include "ulp/taken.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "ulp/say.hpp"
#include "ulp/ulp.hpp"

namespace tcpqp::run {
namespace {

// A root's setsockopt() of an unknown ULP starts modprobe: so no more than that while the module
// is missing.  It may come, or come again, in a long life.
constexpr int64_t kAskAgainS = 60;
constexpr size_t kWhyBytes = 200;

constinit std::atomic<int64_t> ask_again_s{0};  // 0: the module was not missed
constinit std::atomic<uint64_t> sockets{0}, refused{0};
constinit std::atomic<int> last_error{0};

int64_t now_s() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

bool is_missing() noexcept {
    const int64_t until_s = ask_again_s.load(std::memory_order_relaxed);
    return until_s != 0 && now_s() < until_s;
}

// No TCP socket, or one that has a ULP: ours, from before or by its listener, or its program's.
bool says_nothing(int error) noexcept {
    return error == ENOPROTOOPT || error == EOPNOTSUPP || error == EEXIST || error == ENOTSOCK ||
           error == EBADF;
}

}  // namespace

void take(int fd) noexcept {
    if (is_missing())
        return;
    const int error = set_stream_ulp(fd);
    if (error == 0)
        sockets.fetch_add(1, std::memory_order_relaxed);
    else
        refuse(error);
    if (error == ENOENT)
        ask_again_s.store(now_s() + kAskAgainS, std::memory_order_relaxed);
}

void refuse(int error) noexcept {
    if (says_nothing(error))
        return;
    refused.fetch_add(1, std::memory_order_relaxed);
    last_error.store(error, std::memory_order_relaxed);
}

void print_taken(const char* program, int pid) noexcept {
    const uint64_t had = sockets, missed = refused;
    const int error = last_error;
    if (had == 0 && missed == 0)
        return;
    const char* why = error == ENOENT ? "tcp_qp is not loaded" : ::strerror(error);
    std::array<char, kWhyBytes> not_had{};
    if (missed != 0)
        std::snprintf(not_had.data(), not_had.size(), ", refused %ju times: %s", uintmax_t{missed},
                      why);
    say("tcpqp-run: %s(%d): " TCP_QP_STREAM_ULP_NAME " on %ju sockets%s\n", program, pid,
        uintmax_t{had}, not_had.data());
}

void forget_taken() noexcept { sockets = refused = 0; }

}  // namespace tcpqp::run
