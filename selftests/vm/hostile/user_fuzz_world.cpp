// SPDX-License-Identifier: BSD-3-Clause
#include "user_fuzz_world.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <ctime>

namespace nupa::fuzz {
namespace {

constexpr uint32_t kHotLifeCalls = 256;  // of one choice of hot slots, about
constexpr uint32_t kTickUs = 100000;     // after which a thread that sleeps is interrupted
constexpr uint32_t kBlowsMax = 8;        // of one thread in a row
constexpr int kCrashed = 99;

thread_local sigjmp_buf* landing = nullptr;
Shared* shared_log = nullptr;

void on_fault(int number) {
    if (landing)
        siglongjmp(*landing, number);
    shared_log->crashed++;
    _exit(kCrashed);
}

void on_tick(int) {}

void handle(int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_NODEFER;  // no SA_RESTART: calls end with EINTR
    sigaction(number, &action, nullptr);
}

void set_signals() {
    for (const int fault : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE})
        handle(fault, on_fault);
    for (const int tick : {SIGALRM, SIGUSR1, SIGUSR2, SIGIO, SIGURG})
        handle(tick, on_tick);
    std::signal(SIGPIPE, SIG_IGN);
    const itimerval every{{0, kTickUs}, {0, kTickUs}};
    setitimer(ITIMER_REAL, &every, nullptr);
}

// What everything else is made of; without it a thread would find little for a while.
constexpr const char* kFirst[] = {"uverbs_open",      "uverbs_alloc_pd",  "uverbs_reg_mr",
                                  "uverbs_alloc_mw",  "uverbs_create_qp", "method_attach_pair",
                                  "uverbs_create_qp", "socket_pair",      "cm_create"};

// What is on every menu; of the rest each process has a part.
const std::vector<std::string> kAlways = {"uverbs_open",      "uverbs_alloc_pd",    "uverbs_reg_mr",
                                          "uverbs_create_qp", "method_attach_pair", "socket_pair",
                                          "ring_post"};

// What is done to one queue pair and its socket, by several at once.
const std::vector<std::string> kOfDuels = {
    "method_attach",
    "method_query",
    "method_cq_call",
    "option_",
    "data_",
    "stream_",
    "path_name",
    "socket_connect",
    "socket_shutdown",
    "socket_close",
    "ring_post",
    "ring_storm",
    "uverbs_modify_qp",
    "uverbs_destroy_qp",
    "uverbs_post_send",
    "uverbs_dereg_mr",
    "process_signal",
};

void begin(Player& player) {
    for (const char* name : kFirst)
        for (size_t op = 0; op < all_ops().size(); op++)
            if (std::string(all_ops()[op].name) == name)
                player.play(op);
}

bool begins(const char* name, const std::vector<std::string>& with) {
    return std::any_of(with.begin(), with.end(),
                       [name](const std::string& w) { return std::string(name).starts_with(w); });
}

uint64_t now_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// The same call again and again while the others do theirs.
void fight(Player& player, const Menu& menu) {
    const size_t op = menu.choose(player.dice);
    for (uint32_t i = 0, n = 1 + player.dice.below(kBlowsMax); i < n; i++) {
        player.play(op);
        if (player.world.duel.fetch_sub(1) <= 0)
            return;
    }
}

}  // namespace

int guarded(void (*what)(void*), void* with) noexcept {
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        landing = nullptr;
        return EFAULT;
    }
    landing = &here;
    what(with);
    landing = nullptr;
    return 0;
}

Arena::Arena(size_t slots, size_t slot_bytes) : slots_(slots), slot_bytes_(slot_bytes) {
    void* at = mmap(nullptr, slots * slot_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        tcpqp::throw_errno("reserve address space");
    base_ = static_cast<uint8_t*>(at);
}

void Arena::fill_hole(uint8_t* at, size_t bytes) noexcept {
    const void* got =
        mmap(at, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED && errno != EEXIST)  // EEXIST: there is no hole
        std::abort();
}

World::World(const Options& options, Shared& log, int mailbox)
    : o(options), shared(log), mail(mailbox) {}

void World::forget_context(int fd) {
    pds.forget(fd);
    regions.forget(fd);
    windows.forget(fd);
    cqs.forget(fd);
    srqs.forget(fd);
    qps.forget(fd);
    handles.forget(fd);
    rings.forget(fd);
}

void Player::note(int64_t a, int64_t b, int64_t c) noexcept {
    Entry& e = track.entries[(track.next.load(std::memory_order_relaxed) - 1) % kEntries];
    e.args[0] = a, e.args[1] = b, e.args[2] = c;
}

void Player::play(size_t op) noexcept {
    Entry& e = track.entries[track.next++ % kEntries];
    const uint64_t cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
    e = {now_ns(CLOCK_MONOTONIC), {}, getpid(), static_cast<int16_t>(op), kUnderWay};
    const int error = all_ops()[op].run(*this);
    e.error = static_cast<int16_t>(error);
    world.shared.count(op, error);
    world.shared.cpu_ns[op].fetch_add(now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu,
                                      std::memory_order_relaxed);
    if (world.duel.load(std::memory_order_relaxed) <= 0 && dice.one_in(kHotLifeCalls))
        world.hot.store(dice.next(), std::memory_order_relaxed);
}

const std::vector<Op>& all_ops() {
    static const std::vector<Op> all = [] {
        std::vector<Op> list;
        for (const auto& some :
             {uverbs_ops(), queue_ops(), method_ops(), ring_ops(), socket_ops(), option_ops(),
              data_ops(), stream_ops(), path_ops(), memory_ops(), process_ops(), cm_ops(),
              loyal_ops(), loyal_stream_ops(), link_ops()})
            list.insert(list.end(), some.begin(), some.end());
        return list;
    }();
    return all;
}

Menu::Menu(const Options& o, bool root, uint64_t seed, bool of_duels) {
    Dice dice(seed);
    const auto& all = all_ops();
    const size_t first_of_root = all.size() - link_ops().size();
    for (size_t i = 0; i < all.size(); i++) {
        if ((i >= first_of_root && !(root && o.links)) || begins(all[i].name, o.without) ||
            !(o.only.empty() || begins(all[i].name, o.only)) ||
            (of_duels && !begins(all[i].name, kOfDuels)))
            continue;
        const bool always = !o.only.empty() || begins(all[i].name, kAlways);
        const uint32_t times = always ? 2 : dice.below(4);
        ops_.insert(ops_.end(), size_t{times} * all[i].weight, static_cast<uint32_t>(i));
    }
}

size_t Menu::choose(Dice& dice) const noexcept {
    return ops_.empty() ? 0 : ops_[dice.below(ops_.size())];
}

const Menu& menu_of(const Options& o, uint64_t seed) {
    static const Menu menu(o, getuid() == 0, seed);
    return menu;
}

void work(const Options& o, Shared& shared, int mailbox, size_t first_track, uint64_t seed,
          uint32_t limit_s) {
    shared_log = &shared;
    set_signals();
    alignas(World) static std::byte room[sizeof(World)];  // never destroyed: threads run to the end
    World& world = *new (room) World(o, shared, mailbox);
    const Menu& menu = menu_of(o, seed);
    static const Menu duels(o, getuid() == 0, seed, true);
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < o.threads; t++)
        threads.emplace_back([&, t] {
            Player player{world, Dice(seed * 64 + t),
                          shared.tracks[(first_track + t) % kTracksMax]};
            if (t == 0 && o.only.empty())
                begin(player);
            for (;;)
                world.duel.load() > 0 ? fight(player, duels)
                                      : player.play(menu.choose(player.dice));
        });
    for (timespec left{static_cast<time_t>(limit_s), 0}; nanosleep(&left, &left);) {
    }
    _exit(0);
}

}  // namespace nupa::fuzz
