// SPDX-License-Identifier: BSD-3-Clause
// The case that a placing network breaks first: in LL and LL128 the GPU waits for no completion.
// It spins on flags in the receive buffer, and takes the data beside them.  A thread does so here.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string_view>
#include <thread>

#include "nccl_harness/cases.hpp"

namespace tcpqp::harness {
namespace {

constexpr size_t kSlots = 8, kPolledSlotBytes = size_t{64} * 1024;
constexpr int kStepsDefault = 300;

uint64_t word_of(uint64_t step, size_t index) noexcept {
    return (step * 0x9e3779b97f4a7c15u) ^ (index * 0xc2b2ae3d27d4eb4fu);
}

// LL128: 15 words and a flag.  LL: 4 bytes of data, flag, 4 bytes of data, flag; each half of a
// line is one store.
struct Layout {
    bool wide;
    [[nodiscard]] size_t line() const noexcept { return wide ? 128 : 16; }

    void write(std::byte* at, uint64_t step, size_t index) const noexcept {
        std::array<uint64_t, 16> words;
        const size_t n = line() / 8;
        for (size_t i = 0; i < n; i++)
            words[i] = wide ? word_of(step, index + i)
                            : (word_of(step, index + i) & 0xffffffff) | (step + 1) << 32;
        if (wide)
            words[15] = step + 1;
        std::memcpy(at, words.data(), line());
    }

    // The network writes while this reads: there is nothing to synchronise by but the flag.
    [[gnu::noinline, gnu::no_sanitize("thread")]] [[nodiscard]] bool is_there(
        const std::byte* at, uint64_t step) const noexcept {
        const auto* words = reinterpret_cast<const uint64_t*>(at);
        if (wide)
            return __atomic_load_n(&words[15], __ATOMIC_ACQUIRE) == step + 1;
        return __atomic_load_n(&words[0], __ATOMIC_ACQUIRE) >> 32 == step + 1 &&
               __atomic_load_n(&words[1], __ATOMIC_ACQUIRE) >> 32 == step + 1;
    }
    [[gnu::noinline, gnu::no_sanitize("thread")]] [[nodiscard]] bool is_right(
        const std::byte* at, uint64_t step, size_t index) const noexcept {
        const auto* words = reinterpret_cast<const volatile uint64_t*>(at);
        for (size_t i = 0; i < (wide ? 15u : 2u); i++) {
            const uint64_t expected = word_of(step, index + i);
            const uint64_t got = words[i];
            if (wide ? got != expected : (got & 0xffffffff) != (expected & 0xffffffff))
                return false;
        }
        return true;
    }
};

// A message of a step; all lengths but none that is no whole line.
size_t bytes_of(uint64_t step, const Layout& layout) noexcept {
    return (1 + word_of(step, 99) % (kPolledSlotBytes / layout.line())) * layout.line();
}

class Poller {
public:
    Poller(const Layout& layout, const std::byte* base)
        : layout_(layout), base_(base), thread_([this] { run(); }) {}
    ~Poller() {
        stop_ = true;
        thread_.join();
    }
    [[nodiscard]] uint64_t consumed() const noexcept { return consumed_; }
    [[nodiscard]] bool torn() const noexcept { return torn_; }

private:
    void run() noexcept {
        for (uint64_t step = 0; !stop_; step++) {
            const std::byte* slot = base_ + step % kSlots * kPolledSlotBytes;
            const size_t bytes = bytes_of(step, layout_);
            for (size_t at = 0; at < bytes; at += layout_.line()) {
                while (!layout_.is_there(slot + at, step)) {
                    if (stop_)
                        return;
                    idle();
                }
                if (!layout_.is_right(slot + at, step, at)) {
                    torn_ = true;
                    return;
                }
            }
            consumed_ = step + 1;
        }
    }

    Layout layout_;
    const std::byte* base_;
    std::atomic<bool> stop_ = false, torn_ = false;
    std::atomic<uint64_t> consumed_ = 0;
    std::thread thread_;
};

void receive_steps(const Pair& pair, const Layout& layout, uint64_t steps) {
    const Buffer in(pair.receive, kSlots * kPolledSlotBytes);
    Poller poller(layout, in.data());
    std::deque<void*> under_way;
    uint64_t posted = 0, last = 0;
    Limit limit(kStepLimitS);
    while (poller.consumed() < steps || !under_way.empty()) {
        // a slot is given to the network again when the poller is through with it
        if (posted < steps && posted < poller.consumed() + kSlots) {
            const Part part{in.data() + posted % kSlots * kPolledSlotBytes, kPolledSlotBytes, 0,
                            in.region()};
            if (void* request = try_receive(pair.receive, {&part, 1}, nccl::kReceiveIsPolled)) {
                under_way.push_back(request);
                posted++;
            }
        }
        if (!under_way.empty() && try_wait(pair.receive, under_way.front()))
            under_way.pop_front();
        check(!poller.torn(),
              fmt::format("step {}: a line's flag came before its data", poller.consumed()));
        if (poller.consumed() != last)
            limit = Limit(kStepLimitS);
        last = poller.consumed();
        limit.check("flags");
        idle();
    }
}

void send_steps(const Pair& pair, const Layout& layout, uint64_t steps) {
    const Buffer out(pair.send, kSlots * kPolledSlotBytes);
    std::deque<void*> under_way;
    for (uint64_t step = 0; step < steps; step++) {
        while (under_way.size() == kSlots) {
            if (try_wait(pair.send, under_way.front()))
                under_way.pop_front();
            else
                idle();
        }
        std::byte* slot = out.data() + step % kSlots * kPolledSlotBytes;
        const size_t bytes = bytes_of(step, layout);
        for (size_t at = 0; at < bytes; at += layout.line())
            layout.write(slot + at, step, at);
        under_way.push_back(send(pair.send, {slot, bytes, 0, out.region()}));
    }
    for (void* request : under_way)
        wait(pair.send, request);
}

// As NCCL reads it: a list, or with ^ all but these.  A plugin may have set it.
bool is_allowed(std::string_view protocol) {
    const char* word = std::getenv("NCCL_PROTO");
    std::string_view list = word != nullptr ? word : "";
    const bool exclude = list.starts_with('^');
    list.remove_prefix(exclude ? 1 : 0);
    bool named = false;
    while (!list.empty()) {
        const size_t end = list.find(',');
        named |= list.substr(0, end) == protocol;
        list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    }
    return word == nullptr || named != exclude;
}

}  // namespace

void case_polled(Env& env) {
    std::vector<Layout> layouts;
    if (is_allowed("LL128"))
        layouts.push_back({true});
    if (is_allowed("LL"))
        layouts.push_back({false});
    const auto begin = std::chrono::steady_clock::now();
    for (bool more = !layouts.empty(); more;) {
        for (const Layout& layout : layouts) {
            const Pair pair = env.pair();
            if (env.ranks.rank() == 0)
                receive_steps(pair, layout, kStepsDefault);
            else if (env.ranks.rank() == 1)
                send_steps(pair, layout, kStepsDefault);
            env.ranks.barrier();
        }
        const double took =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const uint8_t again = took < env.seconds;
        more = env.ranks.all_gather_values(again)[0] != 0;
    }
}

}  // namespace tcpqp::harness
