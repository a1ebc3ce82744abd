// SPDX-License-Identifier: BSD-3-Clause
// One host: memory, its port's engine and merger, memory regions.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "engine/merge.hpp"
#include "engine/port_engine.hpp"
#include "frame.hpp"
#include "observer.hpp"
#include "ram.hpp"

namespace sim {

class End;
class World;

// What a segment in flight really is, whatever its bytes say.
struct Truth {
    std::uint32_t connection = 0;
    int to = 0;                     // the end it goes to
    std::uint32_t at = 0, len = 0;  // stream offset and bytes
    bool tampered = false;          // its option was changed on the way, checksum kept right
    bool bleached = false;          // its option was removed
    bool late = false;
    std::vector<std::pair<std::uint32_t, std::uint32_t>>
        sack;  // stream offsets of the other direction
};

// A memory region, as the kernel and the engine know it.
struct Region {
    std::uint32_t key = 0, pd = 0, access = 0;
    std::uint64_t iova = 0, bytes = 0;
    std::vector<std::uint64_t> pages;
    bool live = false;
    bool allows(std::uint32_t of_pd, std::uint64_t addr, std::uint64_t n,
                std::uint32_t right = NUPA_ACCESS_LOCAL_WRITE) const noexcept;
    // [addr, addr + n), inside the region, as runs of host memory in order.
    void runs(std::uint64_t addr, std::uint64_t n,
              const std::function<void(std::uint64_t, std::uint64_t)>& each) const;
};

// What the driver gives to TCP.
struct Received {
    Truth truth;
    TcpFields tcp;
    std::uint32_t bytes = 0;
    bool placed = false;
    std::vector<std::byte> data;  // unless placed
};

class Host {
public:
    static constexpr std::uint32_t kForeignPd = 99, kForeignKey = 0xf00, kNoKey = 0xdead;

    Host(World& world, std::uint32_t id, std::size_t bytes);

    // Registers @bytes of scattered pages at an odd address; with the engine, too.
    std::size_t add_region(std::uint32_t key, std::uint32_t pd, std::uint32_t access,
                           std::uint64_t bytes);
    const Region& region(std::size_t index) const noexcept { return regions_[index]; }
    const Region* find(std::uint32_t key) const noexcept;
    // Also of one that is gone.
    std::uint64_t region_iova(std::uint32_t key) const noexcept;
    void deregister(std::uint32_t key);
    // Does [addr, addr + bytes) of host memory belong to @pd's own regions with @right?
    bool writable(std::uint64_t addr, std::uint64_t bytes, std::uint32_t pd,
                  std::uint32_t right = NUPA_ACCESS_LOCAL_WRITE) const;

    // From the fabric.
    void receive(nupa::Packet& packet, const Truth& truth);
    void flush();  // the merger's open run goes up
    void turn();   // the same, unless it may wait
    // TCP hears of all that is in the receive ring; @in_vain: nobody had looked.
    void hear(bool in_vain);
    void hear_if_due();
    // It has sent something, and looks into the ring behind it.
    void sent();
    void check_memory();
    // A segment without payload arrived since: looked at by the next one with, or by the next tick.
    bool unchecked() const noexcept { return unchecked_; }

    std::uint32_t id() const noexcept { return id_; }

    Ram ram;
    nupa::PortStats stats;
    nupa::PortEngine engine;

private:
    struct Waiting {
        End* end;
        Received received;
        std::uint32_t quiet_qpn;  // 0: is to be heard of at once, or somebody has looked
        bool completed;           // by the switch, and so is all before it
        bool later;               // with quiet_qpn: it may wait for others
    };

    void note_in_vain();
    // The completed messages that follow @first become one packet with it.
    void join(Waiting& first);
    bool page_writable(std::uint64_t addr, std::uint64_t bytes, std::uint32_t pd,
                       std::uint32_t right) const;
    void merge(nupa::Packet& packet, const nupa::Decision& decision, const Truth& truth);
    // Somebody else sends @genuine's header with a payload of his own: from another port, or with
    // an acknowledgement of what was never sent.  TCP drops the latter, and here both.
    void forge(const nupa::Packet& genuine);

    World& world_;
    std::uint32_t id_;
    std::vector<Region> regions_;
    std::vector<Write> writes_;
    nupa::Merger merger_;
    Truth run_truth_;
    bool run_bad_ = false;  // a checksum is wrong: TCP will drop it
    bool run_placed_ = false;
    bool run_may_wait_ = false;
    bool run_quiet_ = false, run_later_ = false;
    std::deque<Waiting> ring_;
    bool hearing_ = false, looks_ = false;
    std::uint64_t hear_due_ = 0;
    std::uint64_t hold_us_ = 0;  // how long a placed run waits for more
    std::uint64_t run_due_ = 0;
    bool unchecked_ = false;
    std::uint32_t data_segments_ = 0;
    std::vector<std::byte> run_data_;
};

}  // namespace sim
