// SPDX-License-Identifier: BSD-3-Clause
// A schedule of one stream: a TCP connection without a queue pair, a reader that posts its memory
// and takes it back at any moment, also while the engine writes.
//
// Real: the engine and the merger.  Modelled: a sender that cuts, repeats and reorders as TCP may,
// a fabric that loses and damages, a forger, the driver's delay, TCP's receiver, and the reader.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <vector>

#include "coverage.hpp"
#include "dice.hpp"
#include "engine/merge.hpp"
#include "engine/port_engine.hpp"
#include "event_log.hpp"
#include "observer.hpp"
#include "ram.hpp"

namespace sim {

class PostWorld {
public:
    PostWorld(std::uint64_t seed, Coverage& coverage);

    // Throws Violation at the first invariant that does not hold.
    void run();

    EventLog log;

private:
    // Stream offsets, not sequence numbers.
    struct Segment {
        std::uint32_t at = 0, bytes = 0;
        std::uint16_t mss = 0;  // of a run; 0: one segment
        std::uint8_t more_flags = 0;
        bool forged = false, corrupt = false;
    };
    struct Skb {
        std::uint32_t at = 0, bytes = 0;
        bool placed = false;
        std::vector<std::byte> data;  // unless placed
        std::uint32_t end() const noexcept { return at + bytes; }
    };
    // What the reader waits for.
    struct Post {
        bool open = false;  // the host has not taken it back
        std::uint32_t at = 0, bytes = 0, offset = 0;
        std::vector<std::uint64_t> pages;
        std::uint32_t end = 0;  // once it is not open: behind the last byte placed
        std::vector<std::byte> rescued;
    };

    void create_context();
    void say_ack();
    void turn();
    void send_some();
    void launch(const Segment& segment);
    void arrive();
    void arrive_part(Segment segment);
    nupa::Decision receive(nupa::Packet& packet, const Segment& segment);
    void judge(const Segment& segment, const nupa::Decision& decision);
    void judge_writes(const Segment& segment);
    void passed_up(std::uint32_t begin, std::uint32_t end);
    void merge(const nupa::Packet& packet, const nupa::Decision& decision, const Segment& segment);
    void go_up();
    void tcp(Skb skb);
    bool in_window(const Skb& skb) const noexcept;
    void accept(Skb skb);
    void open();
    void meanwhile() noexcept;
    bool take_back();
    void closed();
    void read();
    std::byte byte_of(const Skb& skb, std::uint32_t at);
    void check_memory();

    std::uint32_t word(std::size_t field) const;
    std::uint64_t page_of(std::uint32_t at) const;
    std::uint32_t seq(std::uint32_t at) const noexcept { return isn_ + at; }
    [[noreturn]] void violation(const char* text, std::initializer_list<std::uint64_t> numbers);

    Dice dice_;
    Coverage& coverage_;
    Ram ram_;
    nupa::PortStats stats_;
    nupa::PortEngine engine_;
    nupa::Merger merger_;
    nupa::FlowKey flow_, back_;
    std::uint64_t post_at_ = 0;
    std::vector<std::uint64_t> pages_;
    std::vector<Write> writes_;

    std::uint32_t isn_ = 0;
    std::vector<std::byte> stream_;
    std::uint32_t mss_ = 0, sent_ = 0, una_ = 0;
    std::deque<Segment> flights_;

    std::uint32_t context_from_ = 0;
    // To the host, by the context or before it was made, whatever TCP made of it; all before the
    // first mark, none from the second one on.
    std::vector<bool> passed_up_;
    std::uint32_t up_to_ = 0, up_end_ = 0;
    Skb run_;
    bool run_active_ = false;
    std::deque<Skb> driver_;  // on its way to TCP

    std::uint32_t rcv_nxt_ = 0, right_edge_ = 0, copied_ = 0;
    std::deque<Skb> queue_;
    std::vector<Skb> ooo_;
    Post post_;
    bool written_ = false;
    const char* meanwhile_ = nullptr;  // what was wrong while the engine wrote
    std::uint64_t turns_ = 0;
    bool quiet_ = false;
};

}  // namespace sim
