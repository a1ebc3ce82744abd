// SPDX-License-Identifier: BSD-3-Clause
// A receive queue: several growing merges, then header slots, fill buffers and completions.
//
// A run keeps references to its payload until it is finished, so that runs of different flows
// can grow side by side while fill buffers are used strictly in ring order (rx_buffers.hpp).  What
// a run will need is held when a segment joins: finishing never fails for want of room.
//
// A placed run refers to nobody's memory.  It may outlive the turn (nupa_cmd_rx_mode.hold_us),
// so that a sender slower than the switch still costs its receiver one completion and not many.
// A message that ends with another one behind it is completed, but the interrupt waits as well.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/host_memory.hpp"
#include "engine/merge.hpp"
#include "engine/stats.hpp"
#include "ports/vm/rx_buffers.hpp"
#include "ports/vm/steering.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {

inline constexpr size_t kRunsMax = 16;        // flows that merge side by side in one queue
inline constexpr size_t kRunPiecesMax = 512;  // payload references of one run
inline constexpr unsigned kHoldTotal = 8;     // a held run's longest life, in hold times
// What is quiet waits a fourth of the hold time, and where answers take longer than that up to
// kQuietMostNs.
inline constexpr unsigned kQuietShare = 4;
inline constexpr uint64_t kQuietMostNs = 2'000'000;
inline constexpr uint32_t kQuietMax = 32;  // completions that may wait for an interrupt
inline constexpr uint64_t kNever = UINT64_MAX;

class RxQueue {
public:
    enum class Result : uint8_t { kTaken, kNoBuffer, kBroken };

    static nupa_admin_status check(const HostMemory& memory, const nupa_cmd_queue& cmd) noexcept;
    // @cmd passed check().  May throw std::bad_alloc.
    RxQueue(const HostMemory& memory, nupa_rxq_ctl& ctl, const nupa_cmd_queue& cmd,
            PortStats& stats);

    // What of it is about what is received; only between flush() and add().
    void set_mode(const nupa_cmd_rx_mode& mode) noexcept;
    // Is there a completion for this packet?  Its buffers are looked for once placement is decided.
    Result room_for(const Packet& packet) noexcept;
    // As Merger::span(), by the buffers there are.
    uint32_t span(const Packet& burst, bool placed) noexcept;
    // Takes the packet; its payload references must stay valid until flush() or turn().
    Result add(Packet& packet, const Decision& decision, const QueueChoice& choice) noexcept;
    // Finishes every run.
    Result flush() noexcept;
    // Lets go of all payload references: finishes every run but those that may wait.
    Result turn(uint64_t now_ns) noexcept;
    // Finishes one run that has waited long enough; nullopt: there is none.  @silent_qpn: whose
    // sender had nothing more to send (0: it had).
    std::optional<Result> expire(uint64_t now_ns, uint32_t& silent_qpn) noexcept;
    // By expire(): whose completions were quiet, and the host did not look at them in time.
    [[nodiscard]] std::span<const uint32_t> in_vain() const noexcept { return in_vain_; }
    // When the first of the runs that wait will have waited long enough, or kNever.
    [[nodiscard]] uint64_t due_ns() const noexcept;
    // Shows the host what was completed; true when it wants an interrupt.
    bool publish() noexcept;
    [[nodiscard]] const char* reason() const noexcept { return reason_; }  // after kBroken

private:
    struct Run {
        Merger merger;
        Packet first;
        std::vector<Bytes> more;                          // delivered payload after first's
        std::vector<std::unique_ptr<std::byte[]>> owned;  // that some of it lies in
        QueueChoice choice;
        BufferCount held;
        bool strict = false;  // payload never in the header slot
        bool placed = false;
        bool may_wait = false;    // the latest segment's
        bool quiet = false;       // all segments'
        uint16_t patience = 1;    // the least of all segments'
        bool later = false;       // all segments'
        bool wakes = false;       // one segment's
        uint32_t cq = 0;          // of who is woken
        bool grown = false;       // since the last turn
        uint64_t due_ns = 0;      // it waits until then for another segment
        uint64_t due_max_ns = 0;  // it waits no longer than until then; 0: it has not waited
    };

    struct QuietCompletion {
        uint32_t qpn;  // 0: it is not quiet
        uint16_t patience;
    };

    [[nodiscard]] bool completion_free() const noexcept;
    Run* find(const Packet& packet) noexcept;
    Run* open() noexcept;
    Result finish(Run& run) noexcept;
    bool hold(Run& run, uint64_t now_ns) noexcept;
    void completed(const Run& run) noexcept;
    bool heard(uint32_t index) noexcept;
    void told(uint32_t index) noexcept;
    void note_in_vain() noexcept;
    [[nodiscard]] uint32_t patience() const noexcept;
    [[nodiscard]] uint64_t interrupt_in_ns() const noexcept;
    [[nodiscard]] bool waits_for(uint32_t qpn) const noexcept;
    Result start(Run& run, Packet& packet, const Decision& decision,
                 const QueueChoice& choice) noexcept;
    Result append(Run& run, Packet& packet, const Decision& decision) noexcept;
    void close(Run& run) noexcept;
    Result write_payload(const Run& run) noexcept;
    void write_completion(const Run& run, const Merged& merged, uint32_t slot_payload) noexcept;
    [[nodiscard]] bool in_slot(const Run& run, uint32_t payload_bytes, bool single) const noexcept;
    Result hold_buffers(Run& run, uint32_t payload_bytes, bool single) noexcept;
    Result broken(const char* reason) noexcept;

    nupa_rxq_ctl* ctl_;
    PortStats& stats_;
    RxBuffers buffers_;
    std::byte* comps_;
    std::byte* slots_;
    uint32_t comp_entries_;
    bool strict_split_;
    bool checksums_ = false;
    uint64_t hold_ns_ = 0;

    uint32_t comp_prod_ = 0;
    uint32_t comp_cons_seen_ = 0;
    uint32_t published_ = 0;
    uint32_t signalled_ = 0;  // as far as an interrupt was considered
    uint32_t hurry_ = 0;      // as far as the host is to look when it sends
    bool urgent_ = false;     // a completion since then asks for one at once
    bool wake_ = false;       // ... for one that wakes who slept, and no more
    uint64_t interrupt_due_ns_ = kNever;
    uint32_t quiet_qpn_ = 0;  // of the latest completion that does not
    uint16_t patience_ = 0;   // the least of those that are quiet and wait; 0: none
    std::array<QuietCompletion, kQuietMax> quiet_{};  // by index
    std::vector<uint32_t> in_vain_;
    const char* reason_ = "";

    std::vector<Run> runs_;  // kRunsMax of them
    std::array<uint8_t, kRunsMax>
        open_{};  // indices into runs_: open ones first, latest used in front
    size_t open_count_ = 0;
};

}  // namespace nupa::daemon
