// SPDX-License-Identifier: BSD-3-Clause
// Cases about messages: sizes, many at once, groups, order, what is in *request, memory, random.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <numeric>
#include <random>

#include "nccl_harness/cases.hpp"

namespace tcpqp::harness {
namespace {

// One message from rank 1 to rank 0: into a receive of @room bytes with guards behind.
void one_message(Env& env, const Pair& pair, size_t bytes, size_t room, uint64_t seed) {
    const std::string what = fmt::format("{} bytes into {}", bytes, room);
    if (env.ranks.rank() == 1) {
        const Buffer out(pair.send, bytes);
        fill_pattern(out.data(), bytes, seed);
        const auto sizes = wait(pair.send, send(pair.send, {out.data(), bytes, 3, out.region()}));
        check(sizes[0] == static_cast<int>(std::min(bytes, room)), what + ": the sender's size");
        return;
    }
    const Buffer in(pair.receive, room + kGuardBytes);
    std::fill_n(in.data(), room + kGuardBytes, kGuard);
    const Part there{in.data(), room, 3, in.region()};
    const auto sizes = wait(pair.receive, receive(pair.receive, {&there, 1}));
    check(sizes[0] == static_cast<int>(std::min(bytes, room)),
          what + fmt::format(": the receiver's size is {}", sizes[0]));
    const size_t whole = std::min(bytes, room);
    check(check_pattern(in.data(), whole, seed) == whole, what + ": a byte is wrong");
    check(std::all_of(in.data() + room, in.data() + room + kGuardBytes,
                      [](std::byte b) { return b == kGuard; }),
          what + ": a byte behind the receive was written");
}

// @count messages of both sides under way at once, checked.
class Window {
public:
    Window(Env& env, const Pair& pair, size_t bytes, size_t slots)
        : env_(env), pair_(pair), bytes_(bytes), slots_(slots) {
        if (env.ranks.rank() == 0)
            in_.emplace(pair.receive, bytes * slots);
        else
            out_.emplace(pair.send, bytes * slots);
    }
    void run(uint64_t messages) {
        if (env_.ranks.rank() == 0)
            receive_all(messages);
        else
            send_all(messages);
    }

private:
    void receive_all(uint64_t messages) {
        std::deque<void*> under_way;
        uint64_t posted = 0, done = 0;
        for (const Limit limit(kStepLimitS); done < messages;) {
            if (posted < messages && under_way.size() < slots_) {
                const Part part{in_->data() + posted % slots_ * bytes_, bytes_, 1, in_->region()};
                if (void* request = try_receive(pair_.receive, {&part, 1})) {
                    under_way.push_back(request);
                    posted++;
                    continue;
                }
            }
            if (try_wait(pair_.receive, under_way.front())) {
                check(check_pattern(in_->data() + done % slots_ * bytes_, bytes_, done) == bytes_,
                      fmt::format("message {} is wrong", done));
                under_way.pop_front();
                done++;
            } else {
                idle();
            }
            if (done % 1024 == 0)
                limit.check("messages one behind the other");
        }
    }
    void send_all(uint64_t messages) {
        std::deque<void*> under_way;
        for (uint64_t sent = 0; sent < messages || !under_way.empty();) {
            if (sent < messages && under_way.size() < slots_) {
                std::byte* at = out_->data() + sent % slots_ * bytes_;
                fill_pattern(at, bytes_, sent);
                under_way.push_back(send(pair_.send, {at, bytes_, 1, out_->region()}));
                sent++;
                continue;
            }
            if (try_wait(pair_.send, under_way.front()))
                under_way.pop_front();
            else
                idle();
        }
    }

    Env& env_;
    const Pair& pair_;
    size_t bytes_, slots_;
    std::optional<Buffer> in_, out_;
};

// A group of receives on rank 0 and its sends on rank 1, in the order @turn.
void one_group(Env& env, const Pair& pair, const std::vector<int>& tags,
               const std::vector<size_t>& sizes, const std::vector<size_t>& turn, uint64_t seed) {
    const size_t n = tags.size();
    const size_t room = *std::max_element(sizes.begin(), sizes.end()) + kGuardBytes;
    if (env.ranks.rank() == 1) {
        const Buffer out(pair.send, room * n);
        std::vector<void*> requests;
        for (const size_t i : turn) {
            fill_pattern(out.data() + i * room, sizes[i], seed + i);
            requests.push_back(
                send(pair.send, {out.data() + i * room, sizes[i], tags[i], out.region()}));
        }
        for (void* request : requests)
            wait(pair.send, request);
        return;
    }
    const Buffer in(pair.receive, room * n);
    std::vector<Part> parts;
    for (size_t i = 0; i < n; i++)
        parts.push_back({in.data() + i * room, room, tags[i], in.region()});
    const auto got = wait(pair.receive, receive(pair.receive, parts));
    // sends of equal tags take the entries of that tag one after the other
    std::vector<bool> taken(n, false);
    for (const size_t i : turn) {
        size_t entry = 0;
        while (taken[entry] || tags[entry] != tags[i])
            entry++;
        taken[entry] = true;
        check(got[entry] == static_cast<int>(sizes[i]),
              fmt::format("group of {}: a size is {} instead of {}", n, got[entry], sizes[i]));
        check(check_pattern(parts[entry].data, sizes[i], seed + i) == sizes[i],
              fmt::format("group of {}: a byte is wrong", n));
    }
}

size_t group_limit(const Env& env) {
    return static_cast<size_t>(env.plugin.properties(env.device).receives_max);
}

// Runs of short messages of one tag, and what ends each: a long one, another tag, a group.
void after_runs(Env& env, const Pair& pair, size_t group) {
    uint64_t seed = 1000;
    const auto one = [&](const std::vector<int>& tags, size_t bytes) {
        std::vector<size_t> turn(tags.size());
        std::iota(turn.begin(), turn.end(), size_t{0});
        one_group(env, pair, tags, std::vector<size_t>(tags.size(), bytes), turn, seed += 10);
    };
    const auto run = [&] {
        for (size_t i = 0; i < 24; i++)
            one({3}, i * 170);
    };
    run();
    one({3}, 100'000);
    run();
    one({4}, 100);
    run();
    one(std::vector<int>(group, 3), 50);
    run();
    if (group > 1)
        one({4, 3}, 50);
    run();
}

struct Message {
    size_t bytes, room;
    uint64_t seed;
};

// Short ones come in long runs, too: a network may treat those in another way.
std::vector<Message> random_messages(std::mt19937_64& random, int rounds, size_t largest) {
    std::vector<Message> messages;
    for (int i = 0, run = 0; i < rounds; i++, run--) {
        if (run <= 0 && random() % 8 == 0)
            run = 10 + static_cast<int>(random() % 50);
        const bool is_long = run <= 0 && random() % 4 == 0;
        const size_t bytes = is_long ? random() % largest : random() % 3000;
        messages.push_back({bytes, bytes + random() % 5000, random()});
    }
    return messages;
}

}  // namespace

void case_sizes(Env& env) {
    const Pair pair = env.pair();
    if (env.is_end()) {
        std::vector<size_t> sizes = {0,
                                     1,
                                     63,
                                     64,
                                     65,
                                     4095,
                                     4096,
                                     4097,
                                     16 * kKib - 1,
                                     16 * kKib,
                                     16 * kKib + 1,
                                     64 * kKib,
                                     512 * kKib,
                                     4 * kMib};
        if (env.thorough)
            sizes.push_back(1024 * kMib);
        for (const size_t bytes : sizes) {
            one_message(env, pair, bytes, bytes, bytes);
            one_message(env, pair, bytes, bytes + 1000, bytes + 1);
        }
    }
    env.ranks.barrier();
    if (env.is_end() && env.is_ours())
        for (const size_t room : {0u, 1u, 100u, 70000u})
            one_message(env, pair, 2 * room + 1, room, room);
    env.ranks.barrier();
}

void case_outstanding(Env& env) {
    const Pair pair = env.pair();
    if (env.is_end()) {
        const size_t n = group_limit(env), bytes = 1000;
        const size_t groups = nccl::kRequestsMax, total = groups * n;
        if (env.ranks.rank() == 0) {
            const Buffer in(pair.receive, total * bytes);
            std::vector<void*> requests;
            for (size_t g = 0; g < groups; g++) {
                std::vector<Part> parts;
                for (size_t i = 0; i < n; i++)
                    parts.push_back(
                        {in.data() + (g * n + i) * bytes, bytes, static_cast<int>(i), in.region()});
                requests.push_back(try_receive(pair.receive, parts));
                check(requests.back() != nullptr,
                      fmt::format("receive {} of {} was not taken", g + 1, groups));
            }
            const Part more{in.data(), bytes, 0, in.region()};
            check(env.is_ib() || try_receive(pair.receive, {&more, 1}) == nullptr,
                  "one too many was taken");
            for (void* request : requests)
                wait(pair.receive, request);
            for (size_t i = 0; i < total; i++)
                check(check_pattern(in.data() + i * bytes, bytes, i) == bytes, "a byte is wrong");
        } else {
            const Buffer out(pair.send, total * bytes);
            std::vector<void*> requests;
            for (size_t i = 0; i < total; i++) {
                fill_pattern(out.data() + i * bytes, bytes, i);
                requests.push_back(send(pair.send, {out.data() + i * bytes, bytes,
                                                    static_cast<int>(i % n), out.region()}));
            }
            for (void* request : requests)
                wait(pair.send, request);
        }
        Window(env, pair, 256, 32).run(env.thorough ? 1'000'000 : 10'000);
        Window(env, pair, 512 * kKib, 8).run(env.thorough ? 2000 : 40);
    }
    env.ranks.barrier();
}

void case_grouped(Env& env) {
    const Pair pair = env.pair();
    const size_t limit = env.is_end() ? group_limit(env) : 0;
    std::mt19937_64 random(env.seed);  // alike on both ends
    for (size_t n = 1; n <= limit; n++) {
        std::vector<size_t> turn(n), sizes(n);
        std::vector<int> alike(n, 5), different(n);
        std::iota(turn.begin(), turn.end(), size_t{0});
        std::iota(different.begin(), different.end(), 100);
        for (size_t& bytes : sizes)
            bytes = random() % 200'000;
        one_group(env, pair, alike, sizes, turn, random());
        one_group(env, pair, different, sizes, turn, random());
        std::reverse(turn.begin(), turn.end());
        one_group(env, pair, different, sizes, turn, random());
        std::shuffle(turn.begin(), turn.end(), random);
        std::vector<int> mixed(n);
        for (int& tag : mixed)
            tag = static_cast<int>(random() % 3);
        sizes[0] = 0;
        one_group(env, pair, mixed, sizes, turn, random());
    }
    if (env.is_end())
        after_runs(env, pair, limit);
    env.ranks.barrier();
}

void case_order(Env& env) {
    const Pair pair = env.pair();
    if (env.is_end()) {
        const size_t bytes = 100 * kKib;
        const Buffer out(pair.send, bytes), in(pair.receive, 2 * bytes);
        const auto rank = static_cast<uint64_t>(env.ranks.rank());
        const Part there{in.data(), bytes, 0, in.region()};
        const Part here{out.data(), bytes, 0, out.region()};
        fill_pattern(out.data(), bytes, rank);
        // sends first: each may be taken or not, none may be lost
        void* early = nullptr;
        for (int i = 0; i < 100 && early == nullptr; i++)
            early = try_send(pair.send, here);
        env.ranks.barrier();
        void* received = receive(pair.receive, {&there, 1});
        void* sent = early != nullptr ? early : send(pair.send, here);
        wait_both(pair.send, sent, pair.receive, received);
        check(check_pattern(in.data(), bytes, 1 - rank) == bytes, "send first: a byte is wrong");
        // receives first, both ways
        received = receive(pair.receive, {&there, 1});
        env.ranks.barrier();
        sent = send(pair.send, here);
        wait_both(pair.send, sent, pair.receive, received);
        check(check_pattern(in.data(), bytes, 1 - rank) == bytes, "receive first: a byte is wrong");
        check(env.plugin.flush(pair.receive.get(), in.data(), 1, in.region()) == nullptr,
              "host memory needs no flush");
    } else {
        env.ranks.barrier();
        env.ranks.barrier();
    }
    env.ranks.barrier();
}

void case_preset(Env& env) {
    const Pair pair = env.pair();
    // What no pointer of ours is: the plugin must not look behind it.
    const auto no_pointer = [](uintptr_t value) { return std::bit_cast<void*>(value); };
    void* presets[] = {nccl::kReceiveIsPolled, no_pointer(0xdeadbeef00), no_pointer(~uintptr_t{0})};
    for (void* preset : presets) {
        const size_t bytes = 30'000;
        if (env.ranks.rank() == 1) {
            const Buffer out(pair.send, bytes);
            fill_pattern(out.data(), bytes, 9);
            wait(pair.send, send(pair.send, {out.data(), bytes, 0, out.region()}));
        } else if (env.ranks.rank() == 0) {
            const Buffer in(pair.receive, bytes);
            const Part there{in.data(), bytes, 0, in.region()};
            wait(pair.receive, receive(pair.receive, {&there, 1}, preset));
            check(check_pattern(in.data(), bytes, 9) == bytes, "a byte is wrong");
        }
    }
    env.ranks.barrier();
}

void case_memory(Env& env) {
    Pair pair = env.pair();
    if (env.is_end()) {
        const Buffer large(pair.receive, kMib);
        const int rounds = env.thorough ? 100'000 : 1000;
        for (int i = 0; i < rounds; i++) {  // overlapping
            const size_t at = static_cast<size_t>(i) * 37 % (kMib / 2);
            void* a = env.plugin.register_memory(pair.receive.get(), large.data() + at, 8192);
            void* b = env.plugin.register_memory(pair.receive.get(), large.data() + at + 100, 8192);
            check(env.plugin.try_deregister(pair.receive.get(), a) == nccl::kSuccess, "deregMr");
            check(env.plugin.try_deregister(pair.receive.get(), b) == nccl::kSuccess, "deregMr");
        }
    }
    env.ranks.barrier();
    // memory that is taken away under a posted receive is written no more
    std::vector<std::byte> kept;
    if (env.ranks.rank() == 0) {
        Buffer in(pair.receive, kMib);
        const Part there{in.data(), kMib, 0, in.region()};
        receive(pair.receive, {&there, 1});
        env.ranks.barrier();
        static_cast<void>(in.deregister());
        std::fill_n(in.data(), kMib, kGuard);
        env.ranks.barrier();
        env.ranks.barrier();  // the peer has sent
        check(std::all_of(in.data(), in.data() + kMib, [](std::byte b) { return b == kGuard; }),
              "a deregistered buffer was written");
    } else {
        env.ranks.barrier();
        env.ranks.barrier();
        if (env.ranks.rank() == 1) {
            const Buffer out(pair.send, kMib);
            void* request = nullptr;
            int done = 0, sizes[nccl::kGroupMax] = {};
            for (int i = 0; i < 1000 && done == 0; i++, idle()) {  // refused or not: no matter
                if (request == nullptr &&
                    env.plugin.try_send(pair.send.get(), out.data(), kMib, 0, out.region(),
                                        &request) != nccl::kSuccess)
                    break;
                if (request != nullptr &&
                    env.plugin.try_test(request, &done, sizes) != nccl::kSuccess)
                    break;
            }
        }
        env.ranks.barrier();
    }
    env.ranks.barrier();
}

// Both ways at once; the schedule is the seed's, alike on both ends.
void case_random(Env& env) {
    const Pair pair = env.pair();
    if (env.is_end()) {
        std::mt19937_64 random(env.seed * 77 + 1);
        const int rounds = env.thorough ? 6000 : 300;
        const size_t largest = 300'000, slots = 8;
        std::vector<Message> plan[2];
        for (auto& messages : plan)
            messages = random_messages(random, rounds, largest);
        const auto& out_plan = plan[env.ranks.rank()];
        const auto& in_plan = plan[env.peer()];
        const size_t step = largest + 8192;
        const Buffer out(pair.send, step * slots), in(pair.receive, step * slots);
        std::deque<void*> sends, receives;
        size_t sent = 0, posted = 0, done = 0;
        std::mt19937_64 own(env.seed + static_cast<uint64_t>(env.ranks.rank()));
        for (const Limit limit(2 * kStepLimitS);
             sent < out_plan.size() || done < in_plan.size() || !sends.empty();) {
            limit.check("random messages both ways");
            if (posted < in_plan.size() && receives.size() < slots && own() % 3 != 0) {
                const Part p{in.data() + posted % slots * step, in_plan[posted].room, 0,
                             in.region()};
                if (void* request = try_receive(pair.receive, {&p, 1})) {
                    receives.push_back(request);
                    posted++;
                }
            }
            if (sent < out_plan.size() && sends.size() < slots && own() % 3 != 0) {
                std::byte* at = out.data() + sent % slots * step;
                fill_pattern(at, out_plan[sent].bytes, out_plan[sent].seed);
                if (void* request =
                        try_send(pair.send, {at, out_plan[sent].bytes, 0, out.region()})) {
                    sends.push_back(request);
                    sent++;
                }
            }
            if (!sends.empty() && try_wait(pair.send, sends.front()))
                sends.pop_front();
            if (!receives.empty())
                if (const auto sizes = try_wait(pair.receive, receives.front())) {
                    const Message& m = in_plan[done];
                    check((*sizes)[0] == static_cast<int>(m.bytes) &&
                              check_pattern(in.data() + done % slots * step, m.bytes, m.seed) ==
                                  m.bytes,
                          fmt::format("message {} is wrong (--seed {})", done, env.seed));
                    receives.pop_front();
                    done++;
                }
            idle();
        }
    }
    env.ranks.barrier();
}

}  // namespace tcpqp::harness
