// SPDX-License-Identifier: BSD-3-Clause
// The case about a GPU's memory, which an accelerator's is (memory.hpp): no CPU of the ranks may
// touch it, so that what a plugin can't hand to the hardware must be refused.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "nccl_harness/cases.hpp"

namespace tcpqp::harness {
namespace {

constexpr size_t kMost = 4 * kMib;
constexpr size_t kSizes[] = {0,         1,         8,       4 * kKib - 1, 4 * kKib, 4 * kKib + 1,
                             64 * kKib, kMib + 13, 4 * kMib};
constexpr int kShortMessages = 40;  // the plugin's are eager after eight
constexpr size_t kOneLineBytes = 64;
constexpr int kTag = 3;

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
    std::vector<std::byte> all(bytes);
    fill_pattern(all.data(), bytes, seed);
    return all;
}

// From rank 1 to rank 0.
void one_message(Env& env, const Pair& pair, const Buffer& ours, size_t bytes, uint64_t seed) {
    const std::string what = fmt::format("{} bytes", bytes);
    if (env.ranks.rank() == 1) {
        ours.block().write(pattern(bytes, seed));
        wait(pair.send, send(pair.send, {ours.data(), bytes, kTag, ours.region()}));
        return;
    }
    ours.block().write(std::vector(std::min(bytes + kGuardBytes, ours.size()), kGuard));
    const Part there{ours.data(), bytes, kTag, ours.region()};
    const auto sizes = wait(pair.receive, receive(pair.receive, {&there, 1}));
    check(sizes[0] == static_cast<int>(bytes), what + fmt::format(": the size is {}", sizes[0]));
    if (void* request = env.plugin.flush(pair.receive.get(), ours.data(), sizes[0], ours.region()))
        wait(pair.receive, request);
    std::vector<std::byte> came(std::min(bytes + kGuardBytes, ours.size()));
    ours.block().read(came);
    check(check_pattern(came.data(), bytes, seed) == bytes, what + ": a byte is wrong");
    check(std::all_of(came.begin() + static_cast<ptrdiff_t>(bytes), came.end(),
                      [](std::byte b) { return b == kGuard; }),
          what + ": a byte behind the receive was written");
}

// Each of the ends' memory in turn; nothing of the plugin's may touch the accelerators'.
void each_way(Env& env, const Pair& pair) {
    const bool receives = env.ranks.rank() == 0;
    const Comm& ours = receives ? pair.receive : pair.send;
    const Buffer here(ours, kMost + kGuardBytes);
    const Buffer there(ours, env.memory, kMost + kGuardBytes);
    uint64_t seed = env.seed;
    for (const auto& [from, to] : {std::pair(&there, &there), {&here, &there}, {&there, &here}})
        for (const size_t bytes : kSizes)
            one_message(env, pair, receives ? *to : *from, bytes, ++seed);
}

// Short messages from an accelerator into host memory.
void short_messages(Env& env, const Pair& pair) {
    const bool receives = env.ranks.rank() == 0;
    if (receives) {
        const Buffer ours(pair.receive, kOneLineBytes + kGuardBytes);
        for (int i = 0; i < kShortMessages; i++)
            one_message(env, pair, ours, kOneLineBytes, static_cast<uint64_t>(i));
    } else {
        const Buffer ours(pair.send, env.memory, kOneLineBytes);
        for (int i = 0; i < kShortMessages; i++)
            one_message(env, pair, ours, kOneLineBytes, static_cast<uint64_t>(i));
    }
}

// A short message that has left already, and then a receive in an accelerator for it: a CPU would
// have to copy, so the comm ends, and says so.
void late_registration(Env& env, const Pair& pair) {
    if (env.ranks.rank() == 1) {
        const Buffer ours(pair.send, kOneLineBytes);
        void* request = send(pair.send, {ours.data(), kOneLineBytes, kTag, ours.region()});
        wait(pair.send, request);
        env.ranks.barrier();
        env.ranks.barrier();
        return;
    }
    env.ranks.barrier();
    const Buffer ours(pair.receive, env.memory, kOneLineBytes);
    const uint64_t before = warnings();
    std::array<void*, 1> data{ours.data()}, regions{ours.region()};
    std::array<size_t, 1> bytes{kOneLineBytes};
    std::array<int, 1> tags{kTag};
    nccl::Result result = nccl::kSuccess;
    void* request = nullptr;
    for (const Limit limit(kStepLimitS); result == nccl::kSuccess; idle()) {
        if (request == nullptr)
            result = env.plugin.try_receive(pair.receive.get(), 1, data.data(), bytes.data(),
                                            tags.data(), regions.data(), &request);
        int done = 0, size = 0;
        if (result == nccl::kSuccess && request != nullptr)
            result = env.plugin.try_test(request, &done, &size);
        check(done == 0, "a short message reached an accelerator by a CPU");
        limit.check("a receive that must be refused");
    }
    check(warnings() > before, "a comm ended without a word");
    env.ranks.barrier();
}

void refused(Env& env, const Comm& comm) {
    const Buffer ours(comm, env.memory, kMib);
    void* region = nullptr;
    check(env.plugin.try_register_device(comm.get(), ours.data(), kMib, -1, &region) !=
              nccl::kSuccess,
          "a GPU's memory was registered without a dma-buf");
    check(env.plugin.try_register_device(comm.get(), ours.data(), 2 * kMib, ours.block().dmabuf(),
                                         &region) != nccl::kSuccess,
          "more than a dma-buf has was registered");
    check(
        env.plugin.try_register_device(comm.get(), ours.data(), kMib, 0, &region) != nccl::kSuccess,
        "stdin was registered as a dma-buf");
    if (!env.plugin.marks_polled())
        return;
    std::array<void*, 1> data{ours.data()}, regions{ours.region()};
    std::array<size_t, 1> bytes{kMib};
    std::array<int, 1> tags{kTag};
    void* request = nccl::kReceiveIsPolled;
    check(env.plugin.try_receive(comm.get(), 1, data.data(), bytes.data(), tags.data(),
                                 regions.data(), &request) != nccl::kSuccess &&
              request == nullptr,
          "a receive of LL was taken that a GPU polls");
}

}  // namespace

void case_device(Env& env) {
    const int pointers = env.plugin.properties(env.device).pointers;
    check((pointers & nccl::kPointerDmabuf) != 0 && (pointers & nccl::kPointerCuda) != 0,
          "it takes no dma-bufs of GPUs");
    const Pair pair = env.pair(), other = env.pair();
    if (env.is_end()) {
        each_way(env, pair);
        refused(env, pair.receive);
        short_messages(env, other);
        late_registration(env, other);
    } else {
        env.ranks.barrier();
        env.ranks.barrier();
    }
    env.ranks.barrier();
}

}  // namespace tcpqp::harness
