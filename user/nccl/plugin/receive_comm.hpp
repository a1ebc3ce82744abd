// SPDX-License-Identifier: BSD-3-Clause
// The receiving end.  irecv() posts its buffers on the rails, then announces them: no byte of data
// comes before its receive is posted, so on the offload engine the switch places all of them.
//
// An announcement costs a short message as much as itself.  After kEagerAfter short ones of one tag
// the sender is granted eager messages (eager_receives.cpp): they land in buffers of ours, and the
// receives that wait take them in order, each of its tag.  Either end returns to announcements:
//   announced --grant--> eager --stop, or recall and then stop--> announced
#pragma once

#include "nccl/plugin/comm.hpp"

namespace tcpqp::nccl {

// What one irecv() takes.
struct Receive {
    void* data;
    size_t bytes;
    int tag;
    Memory* memory;
};

class ReceiveComm final : public Comm {
public:
    explicit ReceiveComm(std::vector<Rail> rails);
    ~ReceiveComm() override;

    [[nodiscard]] static Depth depth(uint32_t rail) noexcept;
    Result start();
    // @polled: somebody reads the buffer before the request is done (LL, LL128), and must find
    // each line old or new.  No request: as many as may be are under way.
    Result receive(std::span<const Receive> receives, bool polled, Request** out);
    void close() noexcept;

private:
    // Where the bytes of a polled receive land, since they may land in any order: the switch places
    // segments as they come, and memcpy() and the kernel's copy promise no order either.
    struct Bounce {
        std::vector<uint64_t> words;
        std::array<Region, kRailsMax> regions;
    };
    struct Slot : Request {
        uint32_t sequence = 0;
        bool announcing = false;  // its Announce is still the library's
        bool polled = false;
        bool bounced = false;
        uint8_t taken = 0;  // bit i: an eager message was receive i's
        std::array<Receive, kGroupMax> receives{};
    };
    // What is said beside announcements, until it has left.
    struct Note {
        Announce said;
        bool busy;
    };
    static constexpr uint64_t kEagerId = uint64_t{2} << 32;  // of a receive: into eager_
    static constexpr uint64_t kNoteId = uint64_t{4} << 32;   // of a send: beside announcements
    enum class Mode { kAnnounced, kEager, kRecalling };
    // An eager message that no receive has taken.
    struct Held {
        uint32_t buffer;
        size_t bytes;
    };

    void completed(uint32_t rail, const tcpqp_completion& completion) override;
    [[nodiscard]] bool has_unposted() const noexcept override;
    void release(Request&) noexcept override {}
    [[nodiscard]] Slot* free_slot() noexcept;
    [[nodiscard]] size_t index(const Slot& slot) const noexcept {
        return static_cast<size_t>(&slot - slots_.data());
    }
    Result prepare_bounce(Bounce& bounce, size_t bytes);
    Result take_up(Slot& slot);
    Result announce(Slot& slot);
    Result post_receives(Slot& slot);
    Result send_announce(Slot& slot);
    void received(const tcpqp_completion& completion);
    void finish_part(Slot& slot, uint32_t entry) noexcept;

    void count_short(const Slot& slot) noexcept;
    void received_eager(const tcpqp_completion& completion);
    void stopped();
    // What is held goes to the slot; to whoever waits.
    void serve_held(Slot& slot) noexcept;
    void serve_waiting();
    bool serve(Slot& slot, const Held& held) noexcept;
    // Grant, credits and recall, when they are due and can be said.
    void say_what_is_due(uint32_t credits);
    void grant();
    bool make_buffers() noexcept;
    void post_buffers(std::span<const uint32_t> buffers) noexcept;
    [[nodiscard]] Note* free_note() noexcept;
    bool say(Kind kind, uint32_t messages) noexcept;

    std::array<Slot, kGroupsMax> slots_;
    std::array<Bounce, kGroupsMax> bounces_;
    uint32_t next_ = 0;  // the slot after the last one taken
    uint32_t sequence_ = 0;
    uint32_t announced_ = 0;
    std::vector<Announce> announces_;
    Region announces_region_;

    Mode mode_ = Mode::kAnnounced;
    int eager_tag_ = 0;  // of this grant, and of what is held
    int short_tag_ = 0;
    uint32_t short_ones_ = 0;      // in a row
    uint32_t eager_sequence_ = 0;  // messages of all grants
    uint32_t eager_posted_ = 0;    // buffers that wait for a message
    uint32_t owed_ = 0;            // credits to give back
    uint32_t skips_ = 0;           // of eager_posted_, after a stop
    bool skips_told_ = true;
    bool recall_due_ = false;
    bool told_of_truncation_ = false;
    // Reserved at set-up: nothing may be allocated where completions are taken.
    std::vector<Held> held_;      // at most kEagerBuffers, in order
    std::vector<Slot*> waiting_;  // at most kGroupsMax; not announced, in order
    std::vector<std::byte> eager_;
    Region eager_region_;
    std::array<Note, kNotesMax> notes_{};
    Region notes_region_;
};

// Rising stores of whole words, each visible before the next: a flag never before its data.
void copy_in_order(std::byte* to, const std::byte* from, size_t bytes) noexcept;

}  // namespace tcpqp::nccl
