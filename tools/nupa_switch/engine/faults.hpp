// SPDX-License-Identifier: BSD-3-Clause
// Seeded fabric faults: which packet suffers what.  The same seed and the same
// packets give the same decisions; each kind of fault draws from a stream of
// its own, so turning one on does not shift the others.
#pragma once

#include <array>
#include <cstdint>

#include "packet.hpp"

namespace nupa {

inline constexpr std::uint32_t kPpm = 1000000;

struct FaultConfig {
    std::uint64_t seed = 1;
    std::uint32_t loss_ppm = 0;
    std::uint32_t duplicate_ppm = 0;
    std::uint32_t reorder_ppm = 0;
    std::uint32_t reorder_packets_max = 8;  // it waits for 1 .. this many later packets
    std::uint32_t corrupt_ppm = 0;
    std::uint32_t truncate_ppm = 0;
    std::uint32_t bleach_ppm = 0;  // the tcp_bth option is overwritten with NOPs
    std::uint32_t mangle_ppm = 0;  // a byte of the option changes, the checksum is repaired
    std::uint32_t copy_ppm = 0;    // the option of the flow's last data segment takes its place
    std::uint32_t delay_ppm = 0;
    std::uint64_t delay_min_ns = 0;
    std::uint64_t delay_max_ns = 0;
    bool any() const noexcept;
    bool valid() const noexcept;  // each rate at most kPpm, ranges not empty
};

struct FaultDecision {
    bool lose = false;
    bool duplicate = false;
    bool corrupt = false;
    bool truncate = false;
    bool bleach = false;
    bool mangle = false;
    bool copy = false;
    std::uint32_t reorder_packets = 0;  // 0: not reordered
    std::uint64_t delay_ns = 0;
    std::uint64_t where = 0;  // picks the bit to flip, or where to cut
    std::uint64_t mangle_where = 0;
    bool any() const noexcept;
};

// xoshiro256**, seeded by splitmix64 (Blackman and Vigna, public domain algorithm).
class Random {
public:
    explicit Random(std::uint64_t seed = 0) noexcept;
    std::uint64_t next() noexcept;
    std::uint64_t below(std::uint64_t bound) noexcept;  // [0, bound), bound > 0
    bool chance(std::uint32_t ppm) noexcept { return below(kPpm) < ppm; }

private:
    std::array<std::uint64_t, 4> s_;
};

class Faults {
public:
    Faults() noexcept : Faults(FaultConfig{}) {}
    explicit Faults(const FaultConfig& config) noexcept;
    const FaultConfig& config() const noexcept { return config_; }
    FaultDecision decide() noexcept;  // for the next packet

private:
    enum Stream : std::uint8_t {
        kLoss,
        kDuplicate,
        kReorder,
        kCorrupt,
        kTruncate,
        kBleach,
        kDelay,
        kMangle,
        kCopy,
        kStreams
    };
    FaultConfig config_;
    std::array<Random, kStreams> random_;
    bool any_ = false;
};

// The packet owns its bytes and has true checksums before a bit flips, so a
// receiver finds the damage.  False: no memory; the caller drops the packet.
bool fault_corrupt(Packet& packet, std::uint64_t where) noexcept;
bool fault_truncate(Packet& packet, std::uint64_t where) noexcept;
// Overwrites every option of kind 253 with NOPs and keeps the checksum right.
// False: there was none.
bool fault_bleach(Packet& packet) noexcept;
// What middleboxes do that rewrite or split segments: the option says something
// else and TCP's checksum is right.  False: there was nothing to change.
bool fault_mangle(Packet& packet, std::uint64_t where) noexcept;

// The last tcp_bth option of each of some flows.
class OptionMemory {
public:
    // Remembers @packet's option; with @copy it leaves with the one remembered before,
    // if that is as long and another.  True: the packet changed.
    bool pass(Packet& packet, bool copy) noexcept;

private:
    static constexpr std::size_t kFlowsMax = 64;  // of the same place the latest stays
    struct Entry {
        FlowKey flow;
        std::uint8_t bytes = 0;  // 0: free
        std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> option{};
    };
    static std::size_t place_of(const FlowKey& flow) noexcept;
    std::array<Entry, kFlowsMax> entries_{};
};

// A copy with its own payload.  False: no memory.
bool packet_copy(Packet& to, const Packet& from) noexcept;

}  // namespace nupa
