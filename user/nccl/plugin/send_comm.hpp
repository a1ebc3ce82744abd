// SPDX-License-Identifier: BSD-3-Clause
// The sending end.  The receiver announces each irecv(); a send takes the first unused receive of
// its tag in the oldest announcement.  When all of a group are taken they are posted, in the
// group's order: the peer's receives then wait in the order in which the messages come.
//
// While eager messages are granted (receive_comm.hpp) a short send of their tag leaves at once. Any
// other stops them, and waits for announcements.
#pragma once

#include "nccl/plugin/comm.hpp"

namespace tcpqp::nccl {

class SendComm final : public Comm {
public:
    explicit SendComm(std::vector<Rail> rails);
    ~SendComm() override;

    [[nodiscard]] static Depth depth(uint32_t rail) noexcept;
    // Posts what announcements are received into.
    Result start();
    // No request: nothing announced that it could go to.
    Result send(void* data, size_t bytes, int tag, Memory* memory, Request** out);
    // Waits at most kCloseLimitMs for eager messages, and so long for what each rail handed to TCP.
    void close() noexcept;

private:
    struct Send : Request {
        std::byte* data = nullptr;
        Memory* memory = nullptr;
    };
    struct Group {
        Announce announce;
        std::array<Send*, kGroupMax> taken;
        uint32_t matched;
    };
    static constexpr size_t kBufferBytes = 128;

    void completed(uint32_t rail, const tcpqp_completion& completion) override;
    [[nodiscard]] bool has_unposted() const noexcept override;
    void release(Request& request) noexcept override;
    Result receive_announces(std::span<const uint32_t> buffers) noexcept;
    // What the receiver says; false: it makes no sense.
    void take(const tcpqp_completion& completion);
    bool take(const Announce& said);
    bool take_announce(const Announce& said);
    bool take_credits(const Announce& said);
    Result send_announced(void* data, size_t bytes, int tag, Memory* memory, Request** out);
    Result send_eager(void* data, size_t bytes, int tag, Memory* memory, Request** out);
    Send& take_slot(void* data, size_t bytes, Memory* memory, uint32_t parts) noexcept;
    // The module's engines are done with a send when TCP has its ACK, which may take 40 ms where
    // nothing comes back.  So eager messages are copied there, and done at once.
    void make_copies();
    void wait_for_copies() noexcept;
    Result post_silent(uint32_t count) noexcept;
    Result stop() noexcept;
    // Recalled: stops as soon as no announced receive waits for its send.
    Result stop_after_groups() noexcept;
    Result post_group(Group& group);
    [[nodiscard]] Group& oldest() noexcept { return groups_[head_ % kAnnouncesMax]; }

    std::array<Send, kSendsMax> sends_;
    std::vector<uint16_t> free_;
    uint32_t busy_ = 0;
    std::array<Group, kAnnouncesMax> groups_{};
    uint32_t head_ = 0, tail_ = 0;  // groups that wait for sends; free running
    std::vector<std::byte> buffers_;
    Region buffers_region_;
    uint32_t heard_ = 0;  // sequence of what the receiver says next
    uint32_t announced_ = 0;
    bool eager_ = false;     // granted
    bool stop_due_ = false;  // recalled, and not stopped yet
    bool stopped_ = false;   // nothing was announced since eager messages ended
    int eager_tag_ = 0;
    uint32_t credits_ = 0;
    std::vector<std::byte> copies_;  // kEagerCredits of kEagerBytes, or none
    Region copies_region_;
    std::vector<uint16_t> free_copies_;
    uint32_t eager_sequence_ = 0;  // messages of all grants
    bool told_of_truncation_ = false;
};

}  // namespace tcpqp::nccl
