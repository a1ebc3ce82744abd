// SPDX-License-Identifier: BSD-3-Clause
// The case with everything at once, as random as a seed makes it: groups and single receives, tags,
// sizes, how far each end is ahead of the other, and which request is asked for next.  A network
// that treats some messages in another way goes over from one way to the other all the time.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "nccl_harness/cases.hpp"

namespace tcpqp::harness {
namespace {

constexpr int kGroups = 200;  // each way, of a comm
constexpr size_t kTags = 3, kReceivesAhead = 32, kSendsAhead = 60;
constexpr size_t kFewBytes = 600, kMiddleBytes = 17'000, kLargestBytes = 200'000;
constexpr size_t kSpareBytes = 2000;  // a receive is longer by up to so many
constexpr size_t kReceiveSlotBytes = 256 * kKib;
constexpr std::byte kUsed{0x55};  // over what has been sent
static_assert(nccl::kGroupMax * (kMiddleBytes + kSpareBytes + kGuardBytes) <= kReceiveSlotBytes);
static_assert(kLargestBytes + kSpareBytes + kGuardBytes <= kReceiveSlotBytes);

struct Entry {
    int tag;
    size_t bytes, room;
    uint64_t seed;
};
// What one irecv() takes.
struct Group {
    std::vector<Entry> entries;
    bool polled;
};
// A send for each entry.
struct Way {
    std::vector<Group> groups;
    std::vector<Entry> sends;
};

// Runs of single receives of one tag, and what is between them.  Sends of equal tags take the
// entries of a group in their order, others in any.
class Planner {
public:
    Planner(uint64_t seed, size_t group_max) : random_(seed), group_max_(group_max) {}
    Way plan(int groups) {
        Way way;
        const bool has_long = below(2) == 0;
        size_t run = 0, tag = 0;
        for (int i = 0; i < groups; i++) {
            if (run == 0 && below(4) == 0) {
                run = 5 + below(40);
                tag = below(kTags);
            }
            way.groups.push_back(run != 0 ? group(1, tag, false)
                                          : group(size(), below(kTags), has_long));
            run -= run != 0 ? 1 : 0;
            add_sends(way.groups.back(), way.sends);
        }
        return way;
    }

private:
    size_t below(size_t limit) { return random_() % limit; }
    size_t size() { return below(2) == 0 ? 1 : 1 + below(group_max_); }
    size_t length(bool may_be_long) {
        if (below(12) == 0)
            return 0;
        if (may_be_long && below(3) == 0)
            return below(kLargestBytes);
        return below(below(5) == 0 ? kMiddleBytes : kFewBytes);
    }
    Group group(size_t n, size_t tag, bool has_long) {
        Group group;
        group.polled = n == 1 && below(3) == 0;
        for (size_t i = 0; i < n; i++) {
            const size_t bytes = length(has_long && n == 1);
            const size_t spare = below(3) == 0 ? 0 : below(kSpareBytes);
            group.entries.push_back({static_cast<int>(tag), bytes, bytes + spare, random_()});
            tag = below(kTags);
        }
        return group;
    }
    void add_sends(const Group& group, std::vector<Entry>& sends) {
        std::vector<int> turn;
        for (const Entry& entry : group.entries)
            turn.push_back(entry.tag);
        std::shuffle(turn.begin(), turn.end(), random_);
        std::vector<Entry> left = group.entries;
        for (const int tag : turn) {
            const auto at = std::find_if(left.begin(), left.end(),
                                         [tag](const Entry& entry) { return entry.tag == tag; });
            sends.push_back(*at);
            left.erase(at);
        }
    }

    std::mt19937_64 random_;
    size_t group_max_;
};

// Requests under way, each with a slot of a buffer.
class UnderWay {
public:
    struct Request {
        void* request;
        size_t slot, which;
    };
    UnderWay(const Comm& comm, size_t slots, size_t slot_bytes)
        : comm_(comm), slot_bytes_(slot_bytes), buffer_(comm, slots * slot_bytes) {
        for (size_t i = slots; i-- > 0;)
            free_.push_back(i);
    }
    [[nodiscard]] bool has_room(size_t ahead) const { return all_.size() < ahead; }
    [[nodiscard]] bool empty() const { return all_.empty(); }
    [[nodiscard]] std::byte* at(size_t slot) const { return buffer_.data() + slot * slot_bytes_; }
    [[nodiscard]] size_t next_slot() const { return free_.back(); }
    [[nodiscard]] void* region() const { return buffer_.region(); }
    void add(void* request, size_t which) {
        all_.push_back({request, free_.back(), which});
        free_.pop_back();
    }
    // Asks for the @i-th; @done gets it and its sizes.
    template <typename F>
    bool test(size_t i, F done) {
        const Request asked = all_[i % all_.size()];
        const auto sizes = try_wait(comm_, asked.request);
        if (!sizes)
            return false;
        done(asked, *sizes);
        free_.push_back(asked.slot);
        all_.erase(all_.begin() + static_cast<ptrdiff_t>(i % all_.size()));
        return true;
    }

private:
    const Comm& comm_;
    size_t slot_bytes_;
    Buffer buffer_;
    std::vector<size_t> free_;
    std::vector<Request> all_;
};

class Mixed {
public:
    Mixed(const Pair& pair, const Way& out, const Way& in, uint64_t seed, const std::string& what)
        : pair_(pair),
          out_(out),
          in_(in),
          random_(seed),
          what_(what),
          sends_(pair.send, kSendsAhead, kLargestBytes),
          receives_(pair.receive, kReceivesAhead, kReceiveSlotBytes) {}
    void run() {
        for (const Limit limit(2 * kStepLimitS); !is_done();) {
            if (steps_++ % 200 == 0) {
                limit.check("random groups both ways");
                receives_ahead_ = 1 + random_() % kReceivesAhead;
                sends_ahead_ = 1 + random_() % kSendsAhead;
            }
            if (!step())
                idle();
        }
    }

private:
    [[nodiscard]] bool is_done() const {
        return posted_ == in_.groups.size() && sent_ == out_.sends.size() && sends_.empty() &&
               receives_.empty();
    }
    // False: nothing happened.
    bool step() {
        switch (random_() % 4) {
            case 0:
                return posted_ < in_.groups.size() && receives_.has_room(receives_ahead_) &&
                       receive();
            case 1:
                return sent_ < out_.sends.size() && sends_.has_room(sends_ahead_) && send();
            case 2:
                return !receives_.empty() &&
                       receives_.test(which(), [this](const auto& r, const auto& sizes) {
                           check_group(in_.groups[r.which], receives_.at(r.slot), sizes);
                       });
            default:
                return !sends_.empty() && sends_.test(which(), [this](const auto& r, const auto&) {
                    std::fill_n(sends_.at(r.slot), out_.sends[r.which].bytes, kUsed);
                });
        }
    }
    // The oldest, as a proxy does, or any.
    size_t which() { return random_() % 2 == 0 ? 0 : random_(); }
    bool receive() {
        const Group& group = in_.groups[posted_];
        std::vector<Part> parts;
        std::byte* at = receives_.at(receives_.next_slot());
        for (const Entry& entry : group.entries) {
            std::fill_n(at, entry.room + kGuardBytes, kGuard);
            parts.push_back({at, entry.room, entry.tag, receives_.region()});
            at += entry.room + kGuardBytes;
        }
        void* preset = group.polled ? nccl::kReceiveIsPolled : nullptr;
        void* request = try_receive(pair_.receive, parts, preset);
        if (request != nullptr)
            receives_.add(request, posted_++);
        return request != nullptr;
    }
    bool send() {
        const Entry& entry = out_.sends[sent_];
        std::byte* at = sends_.at(sends_.next_slot());
        fill_pattern(at, entry.bytes, entry.seed);
        void* request = try_send(pair_.send, {at, entry.bytes, entry.tag, sends_.region()});
        if (request != nullptr)
            sends_.add(request, sent_++);
        return request != nullptr;
    }
    void check_group(const Group& group, const std::byte* at, const std::vector<int>& sizes) {
        for (size_t i = 0; i < group.entries.size(); i++) {
            const Entry& entry = group.entries[i];
            check(sizes[i] == static_cast<int>(entry.bytes),
                  fmt::format("{}: {} bytes came, not {}", what_, sizes[i], entry.bytes));
            check(check_pattern(at, entry.bytes, entry.seed) == entry.bytes,
                  what_ + ": a byte is wrong");
            at += entry.room;
            check(std::all_of(at, at + kGuardBytes, [](std::byte b) { return b == kGuard; }),
                  what_ + ": a byte behind the receive was written");
            at += kGuardBytes;
        }
    }

    const Pair& pair_;
    const Way &out_, &in_;
    std::mt19937_64 random_;  // this end's own
    std::string what_;
    UnderWay sends_, receives_;
    size_t posted_ = 0, sent_ = 0, steps_ = 0;
    size_t receives_ahead_ = 1, sends_ahead_ = 1;
};

}  // namespace

// Both ways at once; what is sent is the seed's, alike on both ends.
void case_mixed(Env& env) {
    const uint64_t comms = env.thorough ? 200 : 3;
    for (uint64_t seed = env.seed * 1000; seed < env.seed * 1000 + comms; seed++) {
        const Pair pair = env.pair();
        if (env.is_end()) {
            const auto rank = static_cast<uint64_t>(env.ranks.rank());
            Planner planner(seed,
                            static_cast<size_t>(env.plugin.properties(env.device).receives_max));
            const Way ways[2] = {planner.plan(kGroups), planner.plan(kGroups)};
            Mixed(pair, ways[rank], ways[1 - rank], 2 * seed + rank,
                  fmt::format("comm {} of --seed {}", seed % 1000, env.seed))
                .run();
        }
        env.ranks.barrier();
    }
}

}  // namespace tcpqp::harness
