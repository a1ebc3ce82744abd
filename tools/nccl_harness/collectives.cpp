// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_harness/collectives.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tcpqp::harness {
namespace {

constexpr size_t kSteps = 8;                       // NCCL_STEPS
constexpr size_t kSlotBytes = size_t{512} * 1024;  // of 4 MiB of NCCL_BUFFSIZE
constexpr size_t kSlotFloats = kSlotBytes / sizeof(float);
// Short operations follow each other, as those of nccl-tests do: of one alone the barrier before it
// would be a large part.
constexpr size_t kShortBytes = size_t{64} * 1024;
constexpr int kShortInARow = 20;

double now_us() {
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double cpu_us() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    const auto of = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
    };
    return of(u.ru_utime) + of(u.ru_stime);
}

// Eight slots of a comm to send from.
class Outlet {
public:
    Outlet(const Comm& comm, Memory& memory)
        : comm_(comm), slots_(comm, memory, kSteps * kSlotBytes) {}
    // The next slot, if its last message has left.
    [[nodiscard]] bool is_free() {
        void*& request = requests_[turn_ % kSteps];
        if (request != nullptr && try_wait(comm_, request))
            request = nullptr;
        return request == nullptr;
    }
    [[nodiscard]] float* next() const { return reinterpret_cast<float*>(slot()); }
    // False: the receiver has announced nothing yet.
    [[nodiscard]] bool try_send(size_t bytes) {
        void* request = harness::try_send(comm_, {slot(), bytes, 0, slots_.region()});
        if (request == nullptr)
            return false;
        requests_[turn_++ % kSteps] = request;
        return true;
    }
    // What a proxy does between other things: some networks go on in test() only.
    void go_on() {
        for (; tested_ < turn_; tested_++) {
            void*& request = requests_[tested_ % kSteps];
            if (request != nullptr && !try_wait(comm_, request))
                return;
            request = nullptr;
        }
    }
    [[nodiscard]] bool is_done() {
        go_on();
        return tested_ == turn_;
    }

private:
    std::byte* slot() const { return slots_.data() + turn_ % kSteps * kSlotBytes; }
    const Comm& comm_;
    Buffer slots_;
    std::array<void*, kSteps> requests_{};
    size_t turn_ = 0, tested_ = 0;
};

// Eight slots to receive into; receives are posted as far ahead as there are messages to come.
class Inlet {
public:
    Inlet(const Comm& comm, Memory& memory)
        : comm_(comm), slots_(comm, memory, kSteps * kSlotBytes), host_(memory.is_host()) {}
    void expect(size_t messages) {
        expected_ += messages;
        post();
    }
    // The next message, until release(); NULL: it has not come.
    const float* try_next(size_t bytes) {
        go_on();
        if (!came_)
            return nullptr;
        check((*came_)[0] == static_cast<int>(bytes), "a slot of another size came");
        std::byte* slot = slots_.data() + turn_ % kSteps * kSlotBytes;
        if (!host_)
            flush(slot, static_cast<int>(bytes));
        return reinterpret_cast<const float*>(slot);
    }
    void release() {
        came_.reset();
        turn_++;
        post();
    }
    // As a proxy does, which tests all of its receives in turns, whatever its sends wait for.
    void go_on() {
        if (!came_ && turn_ < posted_)
            came_ = try_wait(comm_, requests_[turn_ % kSteps]);
    }

private:
    void post() {
        for (; posted_ < expected_ && posted_ < turn_ + kSteps; posted_++) {
            const size_t slot = posted_ % kSteps;
            const Part part{slots_.data() + slot * kSlotBytes, kSlotBytes, 0, slots_.region()};
            requests_[slot] = receive(comm_, {&part, 1});
        }
    }
    // As NCCL does before a GPU reads what came.
    void flush(std::byte* slot, int bytes) const {
        if (void* request = comm_.plugin().flush(comm_.get(), slot, bytes, slots_.region()))
            wait(comm_, request);
    }
    const Comm& comm_;
    Buffer slots_;
    bool host_;
    std::array<void*, kSteps> requests_{};
    std::optional<std::vector<int>> came_;  // sizes of the next message
    size_t turn_ = 0, posted_ = 0, expected_ = 0;
};

struct Piece {
    size_t at, count;
};

class World {
public:
    World(Env& env)
        : n_(static_cast<size_t>(env.ranks.size())),
          rank_(static_cast<size_t>(env.ranks.rank())),
          memory_(env.memory) {
        std::vector<int> others;
        for (size_t i = 0; i < n_; i++)
            if (i != rank_)
                others.push_back(static_cast<int>(i));
        mesh_ = connect_mesh(env.plugin, env.ranks, env.device, others, others);
        out_.resize(n_);
        in_.resize(n_);
        for (const int i : others) {
            out_[static_cast<size_t>(i)] =
                std::make_unique<Outlet>(mesh_.send[static_cast<size_t>(i)], memory_);
            in_[static_cast<size_t>(i)] =
                std::make_unique<Inlet>(mesh_.receive[static_cast<size_t>(i)], memory_);
        }
    }

    [[nodiscard]] size_t size() const noexcept { return n_; }
    [[nodiscard]] size_t rank() const noexcept { return rank_; }

    void all_reduce(const float* from, float* to, size_t count) {
        rounds(count, [&](const auto& piece) { ring(from, to, piece, true, true); });
    }
    // @count: floats of a rank's part
    void all_gather(const float* from, float* to, size_t count) {
        copy(to + rank_ * count, from, count);
        parts(count, [&](const auto& piece) { ring(nullptr, to, piece, false, true); });
    }
    void reduce_scatter(const float* from, float* to, size_t count) {
        if (!scratch_ || scratch_->bytes() < n_ * count * sizeof(float))
            scratch_ = memory_.allocate(n_ * count * sizeof(float));
        float* all = scratch_->floats();
        parts(count, [&](const auto& piece) { ring(from, all, piece, true, false); });
        copy(to, all + rank_ * count, count);
    }
    void all_to_all(const float* from, float* to, size_t count) {
        copy(to + rank_ * count, from + rank_ * count, count);
        for (size_t i = 1; i < n_; i++)
            exchange((rank_ + i) % n_, (rank_ + n_ - i) % n_, from + (rank_ + i) % n_ * count,
                     to + (rank_ + n_ - i) % n_ * count, count);
        finish();
    }
    void send_receive(const float* from, float* to, size_t count) {
        exchange(next(), previous(), from, to, count);
        finish();
    }

private:
    [[nodiscard]] size_t next() const noexcept { return (rank_ + 1) % n_; }
    [[nodiscard]] size_t previous() const noexcept { return (rank_ + n_ - 1) % n_; }
    // Calls @f until it gives something, and goes on with what is sent meanwhile.
    template <typename F>
    auto until(const char* what, F f) {
        for (const Limit limit(kStepLimitS);; idle()) {
            if (auto got = f())
                return got;
            for (auto& outlet : out_)
                if (outlet)
                    outlet->go_on();
            for (auto& inlet : in_)
                if (inlet)
                    inlet->go_on();
            limit.check(what);
        }
    }
    float* next_slot(Outlet& out) {
        until("a free slot", [&] { return out.is_free(); });
        return out.next();
    }
    void send(Outlet& out, size_t floats) {
        until("a send", [&] { return out.try_send(floats * sizeof(float)); });
    }
    const float* next_message(Inlet& in, size_t floats) {
        return until("a message", [&] { return in.try_next(floats * sizeof(float)); });
    }
    void copy(float* to, const float* from, size_t count) {
        const Step step{to, from, nullptr, count};
        memory_.run({&step, 1});
    }
    void finish() {
        for (auto& outlet : out_)
            if (outlet)
                until("the last sends", [&] { return outlet->is_done(); });
    }

    // Cuts @count into rounds of a slot for each rank.
    template <typename F>
    void rounds(size_t count, F f) {
        for (size_t done = 0; done < count;) {
            const size_t now = std::min(count - done, n_ * kSlotFloats);
            const size_t each = (now + n_ - 1) / n_;
            f([=](size_t owner) -> Piece {
                const size_t begin = std::min(owner * each, now);
                return {done + begin, std::min(each, now - begin)};
            });
            done += now;
        }
        finish();
    }
    // The same where each rank's part is @count and lies behind the other's.
    template <typename F>
    void parts(size_t count, F f) {
        for (size_t done = 0; done < count; done += kSlotFloats) {
            const size_t each = std::min(count - done, kSlotFloats);
            f([=](size_t owner) -> Piece { return {owner * count + done, each}; });
        }
        finish();
    }

    // n - 1 steps that sum, n - 1 that hand on, as NCCL's ring has them.
    template <typename P>
    void ring(const float* from, float* to, const P& piece, bool sum, bool spread) {
        Outlet& out = *out_[next()];
        Inlet& in = *in_[previous()];
        in.expect((n_ - 1) * (static_cast<size_t>(sum) + static_cast<size_t>(spread)));
        // a rank ends the sum of its own part; what it begins with has gone round by then
        const size_t first = sum ? previous() : rank_;
        put(out, sum ? from : to, piece(first));
        if (sum)
            for (size_t i = 1; i < n_; i++) {
                const bool last = i == n_ - 1;
                add(in, out, from, to, piece((first + n_ - i) % n_), last, !last || spread);
            }
        if (spread)
            for (size_t i = 1; i < n_; i++)
                pass_on(in, out, to, piece((rank_ + n_ - i) % n_), i != n_ - 1);
    }

    void put(Outlet& out, const float* from, Piece p) {
        copy(next_slot(out), from + p.at, p.count);
        send(out, p.count);
    }
    void add(Inlet& in, Outlet& out, const float* ours, float* to, Piece p, bool keep, bool pass) {
        const float* theirs = next_message(in, p.count);
        float* sums = pass ? next_slot(out) : to + p.at;
        const Step steps[] = {{sums, theirs, ours + p.at, p.count},
                              {to + p.at, sums, nullptr, p.count}};
        memory_.run(std::span(steps).first(pass && keep ? 2 : 1));
        if (pass)
            send(out, p.count);
        in.release();
    }
    void pass_on(Inlet& in, Outlet& out, float* to, Piece p, bool pass) {
        const float* theirs = next_message(in, p.count);
        const Step steps[] = {{to + p.at, theirs, nullptr, p.count},
                              {pass ? next_slot(out) : nullptr, theirs, nullptr, p.count}};
        memory_.run(std::span(steps).first(pass ? 2 : 1));
        if (pass)
            send(out, p.count);
        in.release();
    }

    void exchange(size_t to_rank, size_t from_rank, const float* from, float* to, size_t count) {
        Outlet& out = *out_[to_rank];
        Inlet& in = *in_[from_rank];
        const size_t messages = (count + kSlotFloats - 1) / kSlotFloats;
        in.expect(messages);
        // both ways at once: at most half of the slots ahead of what has come
        for (size_t sent = 0, got = 0; got < messages;) {
            if (sent < messages && sent < got + kSteps / 2) {
                put(out, from, piece_of(sent++, count));
                continue;
            }
            const Piece p = piece_of(got++, count);
            copy(to + p.at, next_message(in, p.count), p.count);
            in.release();
        }
    }
    static Piece piece_of(size_t i, size_t count) {
        return {i * kSlotFloats, std::min(kSlotFloats, count - i * kSlotFloats)};
    }

    size_t n_, rank_;
    Memory& memory_;
    Mesh mesh_;
    std::vector<std::unique_ptr<Outlet>> out_;
    std::vector<std::unique_ptr<Inlet>> in_;
    std::unique_ptr<Block> scratch_;
};

// Whole numbers so small that their sums are exact in any order.  The period is a prime, so that no
// slot has what another has; @turn: nor what it had before.
constexpr size_t kPeriod = 4093, kTurnStep = 1009, kRankStep = 7;
constexpr float kPoison = -1;
float value(size_t rank, size_t i, size_t turn) {
    return static_cast<float>((rank * kRankStep + i + turn * kTurnStep) % kPeriod);
}

// One operation: bytes as nccl-tests counts them, and what must come out.
struct Operation {
    const char* name;
    double (*bus)(double n);
    bool divided;  // each rank's part is bytes / n
    void (World::*run)(const float*, float*, size_t);
    float (*expected)(size_t n, size_t rank, size_t count, size_t i, size_t turn);
};

double one(double) { return 1; }
double part(double n) { return (n - 1) / n; }
double twice(double n) { return 2 * (n - 1) / n; }
float sum_at(size_t n, size_t i, size_t turn) {
    float sum = 0;
    for (size_t r = 0; r < n; r++)
        sum += value(r, i, turn);
    return sum;
}

const Operation kOperations[] = {
    {"all_reduce", twice, false, &World::all_reduce,
     [](size_t n, size_t, size_t, size_t i, size_t turn) { return sum_at(n, i, turn); }},
    {"all_gather", part, true, &World::all_gather,
     [](size_t, size_t, size_t count, size_t i, size_t turn) {
         return value(i / count, i % count, turn);
     }},
    {"reduce_scatter", part, true, &World::reduce_scatter,
     [](size_t n, size_t rank, size_t count, size_t i, size_t turn) {
         return sum_at(n, rank * count + i, turn);
     }},
    {"all_to_all", part, true, &World::all_to_all,
     [](size_t, size_t rank, size_t count, size_t i, size_t turn) {
         return value(i / count, rank * count + i % count, turn);
     }},
    {"send_receive", one, false, &World::send_receive,
     [](size_t n, size_t rank, size_t, size_t i, size_t turn) {
         return value((rank + n - 1) % n, i, turn);
     }},
};

// What goes into an operation and what comes out.
class Checked {
public:
    Checked(Env& env, const World& world, const Operation& op, size_t count)
        : op_(op), n_(world.size()), rank_(world.rank()), count_(count) {
        const std::string name = op.name;
        const bool whole_in = name == "reduce_scatter" || name == "all_to_all";
        const bool whole_out = name == "all_gather" || name == "all_to_all";
        in_.resize(whole_in ? n_ * count : count);
        out_.resize(whole_out ? n_ * count : count);
        from_ = env.memory.allocate(in_.size() * sizeof(float));
        to_ = env.memory.allocate(out_.size() * sizeof(float));
    }
    void write(size_t turn) {
        for (size_t i = 0; i < in_.size(); i++)
            in_[i] = value(rank_, i, turn);
        from_->write(std::as_bytes(std::span(in_)));
        std::fill(out_.begin(), out_.end(), kPoison);
        to_->write(std::as_bytes(std::span(out_)));
    }
    void run(World& world) const { (world.*op_.run)(from_->floats(), to_->floats(), count_); }
    [[nodiscard]] uint64_t wrong(size_t turn) {
        to_->read(std::as_writable_bytes(std::span(out_)));
        uint64_t wrong = 0;
        for (size_t i = 0; i < out_.size(); i++)
            wrong += out_[i] != op_.expected(n_, rank_, count_, i, turn);
        return wrong;
    }

private:
    const Operation& op_;
    size_t n_, rank_, count_;
    std::vector<float> in_, out_;
    std::unique_ptr<Block> from_, to_;
};

Row measure_one(Env& env, World& world, const Operation& op, size_t bytes, int iterations) {
    const size_t n = world.size(), floats = std::max<size_t>(bytes / sizeof(float), 1);
    const size_t count = op.divided ? std::max<size_t>(floats / n, 1) : floats;
    Checked checked(env, world, op, count);
    checked.write(0);
    std::vector<double> times;
    double cpu = 0;
    const uint64_t touched = env.memory.touched();
    const int in_a_row = bytes <= kShortBytes ? std::min(kShortInARow, iterations) : 1;
    for (int i = -in_a_row; i < iterations; i += in_a_row) {  // the first is a warm-up
        env.ranks.barrier();
        const double begin = now_us(), cpu_begin = cpu_us();
        for (int k = 0; k < in_a_row; k++)
            checked.run(world);
        if (i >= 0) {
            times.push_back((now_us() - begin) / in_a_row);
            cpu += cpu_us() - cpu_begin;
        }
    }
    const uint64_t touches = env.memory.touched() - touched;
    uint64_t wrong = checked.wrong(0);
    checked.write(1);  // once more: what came before must be nothing of what comes now
    checked.run(world);
    wrong += checked.wrong(1);
    std::sort(times.begin(), times.end());
    struct Ours {
        double time_us, cpu_us;
        uint64_t wrong, touched;
    };
    const auto all = env.ranks.all_gather_values(
        Ours{times[times.size() / 2], cpu / static_cast<double>(times.size()) / in_a_row, wrong,
             touches});
    Row row{op.name, (op.divided ? n * count : count) * sizeof(float), 0, 0, 0, 0, 0, 0};
    for (const Ours& o : all) {
        row.time_us = std::max(row.time_us, o.time_us);
        row.cpu_us += o.cpu_us / static_cast<double>(n);
        row.wrong += o.wrong;
        row.touched_bytes += o.touched;
    }
    row.algorithm_gbs = static_cast<double>(row.bytes) / row.time_us / 1e3;
    row.bus_gbs = row.algorithm_gbs * op.bus(static_cast<double>(n));
    return row;
}

}  // namespace

const std::vector<std::string>& operations() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> v;
        for (const Operation& op : kOperations)
            v.emplace_back(op.name);
        return v;
    }();
    return names;
}

std::vector<Row> measure(Env& env, const Measure& what) {
    World world(env);
    std::vector<Row> rows;
    for (const Operation& op : kOperations) {
        const auto& chosen = what.operations;
        if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), op.name) == chosen.end())
            continue;
        for (size_t bytes = what.least_bytes; bytes <= what.most_bytes; bytes *= what.factor)
            rows.push_back(measure_one(env, world, op, bytes, what.iterations));
    }
    env.ranks.barrier();
    return rows;
}

}  // namespace tcpqp::harness
