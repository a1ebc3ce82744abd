// SPDX-License-Identifier: BSD-3-Clause
// What one fuzzed process has: tables with few slots, so that its threads meet at the same objects.
// Objects are raw descriptors and handles, not rdma-core's: what another thread has destroyed
// meanwhile is the kernel's to refuse, and no memory of ours is freed under anybody.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "user_fuzz_dice.hpp"
#include "user_fuzz_log.hpp"

namespace nupa::fuzz {

struct Options {
    uint64_t seed = 1;
    uint32_t seconds = 10;
    uint32_t processes = 4;
    uint32_t threads = 3;
    uint32_t death_s = 60;            // that a killed process may take to die
    std::string peer = "127.0.0.1";   // where the honest one listens
    uint16_t port = 0;                // 0: there is none
    std::string local = "127.0.0.1";  // an address of ours on the device's interface
    std::string engine = "auto";
    std::string interface;          // of the device that loyal clients use
    std::string report = "/tmp";    // the folder for log and outcomes
    std::vector<std::string> only;  // operations whose names begin so; empty: all
    std::vector<std::string> without;
    bool links = true;  // root also makes and removes devices of its own
};

struct Context {
    int fd = -1, events = -1;
};
struct Object {  // PD, CQ, SRQ, MW
    int fd = -1;
    uint32_t handle = 0, key = 0;
};
struct Region {
    int fd = -1;
    uint32_t handle = 0, lkey = 0, rkey = 0;
    uint64_t address = 0, bytes = 0;
};
// Of uverbs' enum ib_uverbs_qp_type.
constexpr uint8_t kReliable = 2, kDatagram = 4;
constexpr uint32_t kQkey = 0;  // of most
struct QueuePair {
    int fd = -1;
    uint32_t handle = 0, number = 0;
    uint8_t type = kReliable;
};
struct AddressHandle {
    int fd = -1;
    uint32_t handle = 0, number = 0;
};
enum class RingKind { kSend, kReceive, kCompletion };
struct Ring {
    int fd = -1;
    uint64_t offset = 0;
    uint32_t bytes = 0;
    RingKind kind = RingKind::kSend;
    uint32_t qp = 0;                   // its handle
    uint8_t type = kReliable;          // of the queue pair
    uint32_t mask = 0, log2_slot = 0;  // as the kernel had written them
};
struct CqDescriptor {
    int fd = -1;
};
struct CmId {
    int fd = -1;
    uint32_t id = 0;
};

// Copies go out, so that nobody holds the lock while he works.
template <typename T, size_t N>
class Slots {
public:
    // The first that is @wanted, looked for from @first on.
    template <typename Wanted>
    std::optional<T> pick(uint64_t first, Wanted wanted) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock)
            return std::nullopt;
        for (size_t i = 0; i < N; i++)
            if (const auto& slot = slots_[(first + i) % N]; slot && wanted(*slot))
                return slot;
        return std::nullopt;
    }
    // Whoever was there before: the caller ends it.
    std::optional<T> put(size_t at, std::optional<T> value) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock)
            return value;
        return std::exchange(slots_[at % N], value);
    }
    std::optional<T> take(size_t at) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        return lock ? std::exchange(slots_[at % N], std::nullopt) : std::nullopt;
    }
    // All that are of a descriptor which is closed.
    void forget(int fd) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        for (auto& slot : slots_)
            if (lock && slot && slot->fd == fd)
                slot.reset();
    }
    // For who ends it: it stays in the table, stale, once in a while.
    std::optional<T> drop(Dice& dice, uint64_t first) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock)
            return std::nullopt;
        for (size_t i = 0; i < N; i++)
            if (auto& slot = slots_[(first + i) % N])
                return dice.one_in(4) ? slot : std::exchange(slot, std::nullopt);
        return std::nullopt;
    }
    std::optional<T> look(size_t at) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        return lock ? slots_[at % N] : std::nullopt;
    }
    std::optional<T> put(Dice& dice, T value) { return put(dice.below(N), value); }
    static constexpr size_t size() { return N; }

private:
    std::mutex mutex_;  // only ever tried: a child of fork() may find it taken for good
    std::array<std::optional<T>, N> slots_;
};

// Address space of our own, in slots: whatever is mapped or unmapped there, nobody else's memory
// is.
class Arena {
public:
    Arena(size_t slots, size_t slot_bytes);
    // A mapping at a fixed place that fails has unmapped what was there.  The next mmap() in any
    // thread may take the hole, and the next mapping at that place would be over its memory.
    static void fill_hole(uint8_t* at, size_t bytes) noexcept;
    [[nodiscard]] uint8_t* slot(size_t at) const noexcept {
        return base_ + (at % slots_) * slot_bytes_;
    }
    [[nodiscard]] size_t slot_bytes() const noexcept { return slot_bytes_; }
    [[nodiscard]] size_t slots() const noexcept { return slots_; }

private:
    size_t slots_, slot_bytes_;
    uint8_t* base_;
};

struct World {
    World(const Options& options, Shared& log, int mailbox);

    const Options& o;
    Shared& shared;
    int mail;  // a datagram socket that all processes share: descriptors travel by it
    void forget_context(int fd);

    Slots<Context, 3> contexts;
    Slots<int, 3> channels;
    Slots<Object, 4> pds;
    Slots<Region, 12> regions;
    Slots<Object, 4> windows;
    Slots<Object, 6> cqs;
    Slots<Object, 3> srqs;
    Slots<QueuePair, 8> qps;
    Slots<AddressHandle, 4> handles;
    Slots<Ring, 24> rings;  // at the arena's slot of the same number
    Slots<CqDescriptor, 4> cq_fds;
    Slots<int, 10> sockets;
    Slots<int, 3> cm_channels;
    Slots<CmId, 6> cm_ids;
    Slots<CmId, 3> cm_requests;  // that nobody has answered; in no other table
    // Where threads meet: the slot that all like, and for how many calls yet they like nothing
    // else.
    std::atomic<uint64_t> hot = 0;
    std::atomic<int> duel = 0;
    std::atomic_flag layout;  // by class Layout
    Arena ring_space{24, 256 << 10};
    Arena memory{8, 512 << 10};
};

// Held while the arenas may have a hole, and by who maps memory that nobody may map over.  Only
// ever tried; a child of fork() begins with its own.
class Layout {
public:
    explicit Layout(std::atomic_flag& taken) noexcept
        : taken_(taken), ours_(!taken.test_and_set(std::memory_order_acquire)) {}
    ~Layout() {
        if (ours_)
            taken_.clear(std::memory_order_release);
    }
    Layout(const Layout&) = delete;
    Layout& operator=(const Layout&) = delete;
    explicit operator bool() const noexcept { return ours_; }

private:
    std::atomic_flag& taken_;
    bool ours_;
};

// One thread of a process.
struct Player {
    World& world;
    Dice dice;
    Track& track;
    bool child = false;  // after fork(): no further fork

    // The slot to look at first.
    [[nodiscard]] uint64_t place() noexcept {
        const bool duel = world.duel.load(std::memory_order_relaxed) > 0;
        return (duel ? !dice.one_in(16) : dice.one_in(3))
                   ? world.hot.load(std::memory_order_relaxed)
                   : dice.next();
    }
    template <typename T, size_t N>
    std::optional<T> pick(Slots<T, N>& slots) {
        return slots.pick(place(), [](const T&) { return true; });
    }
    // One of the same context, but for a few.
    template <typename T, size_t N>
    std::optional<T> pick(Slots<T, N>& slots, int fd) {
        if (dice.one_in(16))
            return pick(slots);
        return slots.pick(place(), [fd](const T& t) { return t.fd == fd; });
    }
    template <typename T, size_t N>
    std::optional<T> take(Slots<T, N>& slots) {
        return slots.take(place());
    }
    template <typename T, size_t N>
    std::optional<T> drop(Slots<T, N>& slots) {
        return slots.drop(dice, place());
    }
    // What of this call is worth reading in a log.
    void note(int64_t a, int64_t b = 0, int64_t c = 0) noexcept;
    void play(size_t op) noexcept;
};

struct Op {
    const char* name;
    uint32_t weight;
    int (*run)(Player&);  // 0, an errno, or kNothing
};

// By noun; every process has the same list in the same order.
std::span<const Op> uverbs_ops();
std::span<const Op> queue_ops();
std::span<const Op> method_ops();
std::span<const Op> ring_ops();
std::span<const Op> socket_ops();
std::span<const Op> option_ops();
std::span<const Op> data_ops();
std::span<const Op> stream_ops();
std::span<const Op> path_ops();
std::span<const Op> memory_ops();
std::span<const Op> process_ops();
std::span<const Op> cm_ops();
std::span<const Op> loyal_ops();
std::span<const Op> loyal_stream_ops();
std::span<const Op> link_ops();  // of root
const std::vector<Op>& all_ops();

// Weighted choice among what @o allows.  Each process has some operations often, some not at all:
// what needs many of one kind is met sooner so.
class Menu {
public:
    Menu(const Options& o, bool root, uint64_t seed, bool of_duels = false);
    [[nodiscard]] size_t choose(Dice& dice) const noexcept;

private:
    std::vector<uint32_t> ops_;  // an operation as often as its weight says
};

// A new connection and a new queue pair at the hot slots, for all threads to fall upon.
int begin_duel(Player& p);

// The menu of this process, for children too: the first call's seed makes it.
const Menu& menu_of(const Options& o, uint64_t seed = 0);

// Runs threads until the process is killed or @limit_s is over.
[[noreturn]] void work(const Options& o, Shared& shared, int mailbox, size_t first_track,
                       uint64_t seed, uint32_t limit_s);

// @what with a signal for memory that is not there caught: 0 or EFAULT.
int guarded(void (*what)(void*), void* with) noexcept;
template <typename F>
int guarded(F f) noexcept {
    return guarded([](void* with) { (*static_cast<F*>(with))(); }, &f);
}

// @map's mapping at a fixed place in an arena: 0, an errno, or kNothing.
template <typename Map>
int map_at(Player& p, uint8_t* at, size_t bytes, Map map) noexcept {
    const Layout layout(p.world.layout);
    if (!layout)
        return kNothing;
    if (map() != MAP_FAILED)
        return 0;
    const int error = errno;
    Arena::fill_hole(at, bytes);
    return error;
}

// Shared by several nouns.
int open_context(Player& p);
// A queue pair that is nobody's yet, with its rings mapped, in INIT, and a region beside it.
std::optional<QueuePair> fresh_qp(Player& p, uint8_t type = kReliable);
int make_region(Player& p, const Object& pd);
// Work requests on that queue pair's ring of the kind, and a doorbell.
int post_to(Player& p, const QueuePair& qp, RingKind kind);
[[nodiscard]] int doorbell(int fd, uint32_t qp_handle) noexcept;
void map_ring(Player& p, Ring ring);
std::optional<std::pair<int, int>> connected_pair(const std::string& address);
[[nodiscard]] int connected_to(const std::string& address, uint16_t port) noexcept;
void keep_socket(Player& p, int fd);
int set_ulp(int fd, const char* name) noexcept;
inline int result(long returned) noexcept { return returned < 0 ? errno : 0; }

}  // namespace nupa::fuzz
