// SPDX-License-Identifier: BSD-3-Clause
// What sending and receiving comms have in common: rails, registered memory, and how they fail.
// One lock for all of it: NCCL may register a user's buffer on one thread while another sends.
#pragma once

#include <array>
#include <cstdarg>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "nccl/contract/net.hpp"
#include "nccl/plugin/lane.hpp"
#include "nccl/plugin/rail.hpp"

namespace tcpqp::nccl {

class Comm;

inline constexpr uint64_t kAnnounceId = uint64_t{1} << 32;  // an announcement's work; below: data

// A registered range.  Engines without the module need no region; the range is checked all the
// same.
struct Memory {
    Comm* comm;
    std::byte* data;
    size_t bytes;
    std::array<Region, kRailsMax> regions;
    uint32_t users = 0;           // posted works that lie in it
    bool is_device_only = false;  // a GPU's: no CPU reads or writes it

    Memory(Comm* of, void* begin, size_t length) noexcept
        : comm(of), data(static_cast<std::byte*>(begin)), bytes(length) {}
    [[nodiscard]] bool holds(const void* at, size_t length) const noexcept;
};

// What isend() and irecv() return.
struct Request {
    Comm* comm = nullptr;
    uint32_t count = 0;  // of a group; 0: free
    uint32_t left = 0;   // works that have not completed
    std::array<size_t, kGroupMax> bytes{};
};

class Comm {
public:
    explicit Comm(std::vector<Rail> rails);
    Comm(const Comm&) = delete;
    Comm& operator=(const Comm&) = delete;
    virtual ~Comm();

    Result register_memory(void* data, size_t bytes, Memory** out);
    Result register_dmabuf(void* data, size_t bytes, bool is_device_only, uint64_t offset, int fd,
                           Memory** out);
    // Revoked when it returns.  With work posted in it the comm ends: nothing else takes the
    // buffers back.
    Result deregister(Memory* memory);
    Result test(Request& request, int* done, int* bytes);
    [[nodiscard]] std::mutex& lock() noexcept { return lock_; }

protected:
    // A work of ours has completed, for good.  The id is what it was posted with.
    virtual void completed(uint32_t rail, const tcpqp_completion& completion) = 0;
    // A request has works that are not on their rails yet.
    [[nodiscard]] virtual bool has_unposted() const noexcept = 0;
    virtual void release(Request& request) noexcept = 0;

    Result progress() noexcept;
    // Says why, once, takes all buffers back, and is what every later call returns.
    [[gnu::format(printf, 3, 4)]] Result fail(Result result, const char* format, ...) noexcept;
    [[nodiscard]] Result result() const noexcept { return result_; }
    // The peer has gone, and there is something that it should have done.
    Result fail_lost() noexcept;
    [[nodiscard]] bool is_lost() const noexcept { return lost_ != nullptr; }
    Result post(uint32_t rail, std::span<const tcpqp_work> works, bool sends) noexcept;
    // The same, for what nobody waits for: that the connection has ended is told by progress(),
    // once all that came before is taken.
    void post_aside(uint32_t rail, std::span<const tcpqp_work> works, bool sends) noexcept;
    // kInvalidUsage if the range is not in it.
    Result check(const Memory* memory, const void* data, size_t bytes) noexcept;
    [[nodiscard]] bool has_device_memory() const noexcept { return has_device_memory_; }
    [[nodiscard]] tcpqp_mr* region(const Memory* memory, uint32_t rail) const noexcept;
    int make_region(uint32_t rail, void* data, size_t bytes, Region& out);
    // Each rail's line.  Messages were announced or eager.
    void report(uint32_t announced, uint32_t eager) const;
    // All work is posted, and no worker has any rail.
    void take_back_lanes() noexcept;
    // From its return on no buffer of posted work is read or written any more.
    void end_rails() noexcept;

    std::vector<Rail> rails_;

private:
    int poll(uint32_t rail, std::span<tcpqp_completion> out) noexcept;
    int try_post(uint32_t rail, std::span<const tcpqp_work> works, bool sends) noexcept;
    void lose(uint32_t rail) noexcept;
    // A request needs a rail that is lost.  Those that do not may still be done by the others.
    [[nodiscard]] bool misses_lost() const noexcept;
    Result keep(std::unique_ptr<Memory> memory, Memory** out);

    std::mutex lock_;
    std::vector<std::unique_ptr<Lane>> lanes_;  // of the rails, or none
    std::vector<std::unique_ptr<Memory>> memories_;
    bool has_device_memory_ = false;  // or had
    Result result_ = kSuccess;
    struct State {
        uint32_t data = 0;      // works with data that have not completed well
        bool is_ended = false;  // seen by post_aside()
        bool is_lost = false;
    };
    std::array<State, kRailsMax> states_;  // of each rail
    const Rail* lost_ = nullptr;           // the first one
};

}  // namespace tcpqp::nccl
