// SPDX-License-Identifier: BSD-3-Clause
// The port of a virtual machine: an ivshmem-doorbell device that speaks nupa_hw.h.
//
//   unplugged --client--> plugged --ENABLE--> running --ABI broken--> failed
//       ^                    ^------- control written ------'------------'
//       '---- client gone, from anywhere
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "engine/port_engine.hpp"
#include "event/client_log.hpp"
#include "event/unix_listener.hpp"
#include "ivshmem/client.hpp"
#include "ports/port_type.hpp"
#include "ports/vm/guest_ram.hpp"
#include "ports/vm/pool_window.hpp"
#include "ports/vm/registers.hpp"
#include "ports/vm/rx_queue.hpp"
#include "ports/vm/steering.hpp"
#include "ports/vm/tx_queue.hpp"
#include "ports/vm/vm_options.hpp"
#include "ports/vm/windows.hpp"

namespace nupa::daemon {

// One turn of one transmit queue: whichever comes first ends it.
inline constexpr unsigned kTxBurstPackets = 64;
inline constexpr uint32_t kTxBurstBytes = 512 << 10;
inline constexpr uint32_t kTxBurstSegments = 8192;
// One turn of one port, its commands and its transmit queues: the others' turns come after it, so
// this is what any number of busy neighbours may cost them.
inline constexpr uint64_t kAdminTurnNs = 500'000;
inline constexpr uint64_t kTxTurnNs = 1'000'000;
// Of an MR's registration between two looks at the clock.
inline constexpr uint32_t kMrPagesPerStep = 1024;
inline constexpr uint64_t kMrPopulateStepBytes = 64 << 10;
// What of a region was not mapped by then is left to page faults: its host waits for the answer,
// 5 s and no longer.
inline constexpr uint64_t kMrPopulateMaxNs = 2'500'000'000;

class VmPort final : public Port, private EventHandler, private PoolWindowOwner {
public:
    VmPort(const PortContext& context, const VmOptions& options, uint16_t id, uint64_t hash_seed);
    ~VmPort() override;

    // Events.
    void accept_client();
    void client_event() noexcept;
    void doorbell(unsigned vector) noexcept {
        stats().add(NUPA_STAT_tx_doorbells, vector != 0);
        schedule(vector);
    }
    // What the doorbells asked for, within one turn's bounds; true when more waits.
    bool work() noexcept override;
    [[nodiscard]] bool watches() const noexcept override { return watched_ != 0; }
    [[nodiscard]] const VmOptions& options() const noexcept { return options_; }

    void expect(std::span<const Packet> packets) noexcept override;
    uint32_t span(const Packet& burst) noexcept override;
    void deliver(Packet& segment) noexcept override;
    bool beat() noexcept override;
    void shut_down() noexcept override;
    void flush() noexcept override;
    void expire(uint64_t now_ns) noexcept override;
    void link_changed(bool up) noexcept override;
    [[nodiscard]] const char* state() const noexcept override;
    [[nodiscard]] std::vector<PortFact> facts() const override;
    [[nodiscard]] std::vector<PortQp> qps() const override;
    [[nodiscard]] std::optional<PortPool> pool() const override;

private:
    // What its descriptors mean; a doorbell has its vector added.
    enum What : uint32_t { kListen, kClient, kDoorbell };

    struct Outcome {
        nupa_admin_status status;
        uint64_t value = 0;
    };

    // An MR_REG that takes more than a turn.  Commands complete in order: the next ones wait.
    struct SlowCommand {
        nupa_admin_cmd cmd;
        uint64_t begun_ns;
        bool registered = false;
        uint64_t populated = 0;  // bytes of the region
    };

    void schedule(unsigned vector) noexcept { pending_ |= 1u << vector; }

    void handle(uint32_t what, uint32_t events) override;
    void window_ends() noexcept override;

    // Life cycle (vm_port.cpp).
    void plug(Fd socket);
    void unplug(const char* why) noexcept;
    void control() noexcept;
    void enable() noexcept;
    void reset() noexcept;
    void fail(const char* reason) noexcept;
    [[nodiscard]] uint32_t status_bits() const noexcept;
    void show_status() noexcept;

    // Data (vm_port_data.cpp).
    void bursts() noexcept;
    void burst(unsigned queue, uint64_t end_ns) noexcept;
    bool wait_for_more(unsigned queue) noexcept;
    void look() noexcept;
    [[nodiscard]] bool may_watch(uint64_t now_ns) const noexcept {
        return options_.watch == Watch::kAlways || spare_time_.any(now_ns);
    }
    bool transmit(TxQueue& tx, uint64_t end_ns) noexcept;
    bool take(Packet& packet, const TxQueue& tx) noexcept;
    void send(Packet& packet) noexcept;
    bool accepts(const Packet& segment) noexcept;
    bool took(const RxQueue& rx, RxQueue::Result result, uint32_t segments) noexcept;
    void add(RxQueue& rx, Packet& segment, const Decision& decision,
             const QueueChoice& choice) noexcept;
    void add_parts(RxQueue& rx, Packet& run, const Decision& decision,
                   const QueueChoice& choice) noexcept;
    void interrupt(unsigned vector) noexcept;
    bool tell(unsigned queue, RxQueue::Result result) noexcept;
    void expire_queue(unsigned queue, uint64_t now_ns) noexcept;
    void flush_held() noexcept;

    // Admin ring (vm_port_admin.cpp).
    void admin() noexcept;
    std::optional<Outcome> next_command(uint64_t end_ns) noexcept;
    void complete(const nupa_admin_cmd& cmd, const Outcome& outcome) noexcept;
    std::optional<Outcome> execute(const nupa_admin_cmd& cmd, uint64_t end_ns) noexcept;
    nupa_admin_status create_txq(uint32_t queue, const nupa_cmd_queue& cmd) noexcept;
    nupa_admin_status create_rxq(uint32_t queue, const nupa_cmd_queue& cmd) noexcept;
    nupa_admin_status destroy_txq(uint32_t queue) noexcept;
    nupa_admin_status destroy_rxq(uint32_t queue) noexcept;
    nupa_admin_status set_rx_mode(const nupa_cmd_rx_mode& cmd) noexcept;
    nupa_admin_status set_rss(const nupa_cmd_rss& cmd) noexcept;
    std::optional<Outcome> register_mr(const nupa_admin_cmd& cmd, uint64_t end_ns) noexcept;
    std::optional<Outcome> go_on_registering(uint64_t end_ns) noexcept;
    nupa_admin_status create_qp(uint32_t qpn, const nupa_cmd_qp& cmd) noexcept;
    nupa_admin_status destroy_qp(uint32_t qpn) noexcept;
    Outcome write_stats(const nupa_cmd_stats& cmd, const uint64_t* values, uint32_t count) noexcept;

    Epoll& epoll_;
    Fabric& fabric_;
    Heartbeat& heartbeat_;
    const SpareTime& spare_time_;
    VmOptions options_;
    UnixListener listener_;
    ClientLog log_;
    std::optional<IvshmemClient> client_;
    Registers registers_;
    GuestRam ram_;
    HostMemory memory_;
    Windows windows_;
    std::unique_ptr<PoolWindow> pool_;  // mode cxl
    PortEngine engine_;
    Steering steering_;
    std::map<uint32_t, nupa_flow> qp_flows_;

    // A transmit ring that is neither pending nor watched is armed: its host rings for what is new.
    uint32_t pending_ = 0;      // vectors that rang
    uint32_t watched_ = 0;      // vectors whose queue's ring is looked at in each turn
    uint32_t control_gen_ = 0;  // the last one obeyed
    bool link_up_ = true;
    bool running_ = false;
    bool failed_ = false;
    nupa_cmd_rx_mode rx_mode_{};

    const std::byte* admin_cmds_ = nullptr;
    std::byte* admin_comps_ = nullptr;
    std::optional<ConsumedRing> admin_ring_;
    std::optional<SlowCommand> slow_;
    unsigned next_queue_ = 0;  // whose turn comes first
    std::array<std::optional<TxQueue>, NUPA_QUEUE_PAIRS_MAX> tx_;
    std::array<std::unique_ptr<RxQueue>, NUPA_QUEUE_PAIRS_MAX> rx_;
    std::array<Packet, kLookaheadMax> packets_;  // taken from a ring, and being sent
    Packet part_;                                // of a run that comes in parts
};

static_assert(NUPA_VECTORS <= 32, "pending_ has a bit for each vector");

}  // namespace nupa::daemon
