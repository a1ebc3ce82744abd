// SPDX-License-Identifier: BSD-3-Clause
// A host's window to the pool: an ivshmem-doorbell device that speaks nupa_pool_hw.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/leased_memory.hpp"
#include "event/client_log.hpp"
#include "event/epoll.hpp"
#include "event/unix_listener.hpp"
#include "ivshmem/client.hpp"
#include "ivshmem/consumed_ring.hpp"
#include "ports/vm/shared_pool.hpp"

namespace nupa::daemon {

// Of zeroing, between two looks at the clock.
inline constexpr uint64_t kPoolClearStepBytes = 1 << 20;

// What a window needs of its port.
class PoolWindowOwner {
public:
    // Regions in the window are gone when this returns, and nothing reaches its memory by an
    // address: it is about to lose its leases, or to go itself.
    virtual void window_ends() noexcept = 0;

protected:
    ~PoolWindowOwner() = default;
};

// One for each port in mode cxl.  The memory of each client is its own: what an earlier client kept
// open is no later one's.
class PoolWindow final : private EventHandler {
public:
    struct Options {
        std::string socket;                  // where QEMU connects
        std::shared_ptr<SharedPool> shared;  // of all ports
        uint64_t share_bytes = 0;            // that this one may lease at a time; 0: an equal part
    };

    // It listens when this returns; throws std::system_error.
    PoolWindow(Epoll& epoll, const Options& options, Leases::Owner owner, const std::string& name,
               PoolWindowOwner& port);
    ~PoolWindow();

    // One turn of what its host asked for; true when more waits.
    bool work() noexcept;
    // The port has no region any more.
    void regions_gone() noexcept { leases().unpin_all(owner_); }
    [[nodiscard]] const LeasedMemory& memory() const noexcept { return memory_; }
    // How the host names the window to its port; 0: nobody is plugged in.
    [[nodiscard]] uint64_t id() const noexcept { return client_ ? id_ : 0; }
    [[nodiscard]] const SharedPool& shared() const noexcept { return *shared_; }
    // Of host memory, leased or not.
    [[nodiscard]] uint64_t resident_bytes() const noexcept;

private:
    enum What : uint32_t { kListen, kClient, kDoorbell };

    // A range that is being zeroed, or gets what is in it from another window, and why.
    struct Job {
        enum class Why : uint8_t { kLease, kRelease, kReset, kTake };
        Why why;
        nupa_accel_cmd cmd;
        uint64_t at;
        uint64_t bytes;
        uint64_t done = 0;
        Fd from = {};  // kTake: the other window's memory, which outlives that window
    };
    struct Outcome {
        int status;
        uint64_t result = 0;
    };

    void handle(uint32_t what, uint32_t events) override;
    void accept_client();
    void plug(Fd socket);
    void client_event() noexcept;
    void unplug() noexcept;
    void initialise() noexcept;
    void control() noexcept;
    void next_reset_job() noexcept;
    void commands(uint64_t end_ns) noexcept;
    std::optional<Outcome> execute(const nupa_accel_cmd& cmd) noexcept;
    std::optional<Outcome> lease(const nupa_accel_cmd& cmd) noexcept;
    std::optional<Outcome> release(const nupa_accel_cmd& cmd) noexcept;
    Outcome offer(const nupa_accel_cmd& cmd) noexcept;
    std::optional<Outcome> take(const nupa_accel_cmd& cmd) noexcept;
    bool go_on(uint64_t end_ns) noexcept;
    void job_done() noexcept;
    bool step(const Job& job, uint64_t bytes) noexcept;
    bool move(const Job& job, uint64_t bytes) noexcept;
    void fail_job() noexcept;
    // The job is no more; what it leaves in another window goes, too.
    Job give_up() noexcept;
    void clear(uint64_t at, uint64_t bytes) noexcept;
    void complete(const nupa_accel_cmd& cmd, const Outcome& outcome) noexcept;

    [[nodiscard]] nupa_accel_regs& regs() const noexcept {
        return *reinterpret_cast<nupa_accel_regs*>(client_->bar2());
    }

    [[nodiscard]] Leases& leases() const noexcept { return shared_->leases; }

    Epoll& epoll_;
    std::shared_ptr<SharedPool> shared_;
    const Leases::Owner owner_;
    PoolWindowOwner& port_;
    const uint64_t bar2_bytes_;
    UnixListener listener_;
    ClientLog log_;
    LeasedMemory memory_;
    std::optional<IvshmemClient> client_;
    std::optional<ConsumedRing> ring_;  // while it is enabled
    std::optional<Job> job_;
    uint64_t id_ = 0;           // of this client's window, random
    uint32_t control_gen_ = 0;  // the last one obeyed
    bool rang_ = false;
};

}  // namespace nupa::daemon
