// SPDX-License-Identifier: BSD-3-Clause
// The sending half of an end: send buffers, the kernel's message log, and a
// modelled TCP that cuts and repeats as it likes.
#pragma once

#include <tcp_qp/tcp_bth_mixed.h>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "exposed.hpp"
#include "plan.hpp"
#include "stream.hpp"
#include "tcp_receiver.hpp"

extern "C" {
#include "wire/msglog.h"
#include "wire/rxmsg.h"
}

namespace sim {

class End;

class Sender {
public:
    Sender(End& end, std::vector<Planned> plan);

    // What the peer's READ or atomic gets, in the order of the requests.
    struct Response {
        std::uint16_t msn;
        std::uint8_t opcode;
        Place source;  // READ
        Place sink;    // of the requester
        std::uint64_t value;
    };
    void respond(const Response& response) { responses_.push_back(response); }
    std::size_t responses() const noexcept { return responses_.size(); }
    // Is memory of @key still to be sent, or not yet acknowledged?
    bool holds(std::uint32_t key) const noexcept;

    // The next response, or the next message of the plan.  False: there is none,
    // no buffer or no sink, or the log is full.
    bool post();
    // Messages of the plan that may be posted now.
    void allow(std::size_t messages) noexcept { allowed_ = messages; }
    std::uint32_t una() const noexcept { return una_; }
    bool all_acked() const noexcept { return una_ == stream.end(); }
    bool all_posted() const noexcept { return planned_ == plan_.size() && responses_.empty(); }
    std::size_t planned() const noexcept { return planned_; }
    const std::vector<Planned>& plan() const noexcept { return plan_; }
    // Those of the plan that take a receive.
    const std::vector<Planned>& untagged() const noexcept { return untagged_; }

    // TCP: an ACK of stream offset @ack with a right edge, then what can be sent.
    void acked(std::uint32_t ack, std::uint32_t window_bytes, const std::vector<Range>& sack);
    bool plausible(std::uint32_t ack) const noexcept { return ack >= una_ && ack <= highest_; }
    std::uint32_t sent() const noexcept { return highest_; }
    void send();
    void tick();
    // The connection is gone: buffers are the application's again.
    void drop();

    Stream& stream;

private:
    struct Buffer {
        std::uint64_t addr;
        std::size_t message;
        bool busy;
    };

    Message next_message(std::uint8_t opcode, std::uint32_t length);
    void draw_bytes(std::uint32_t n);
    bool post_mixed();
    std::uint32_t mixed_sends() const;
    std::uint32_t mixed_writes();
    void post_table(bool writes, std::uint32_t messages);
    void post_payload(const Planned& p, Buffer& buffer);
    void aim(Message& m);
    void pretend(Message& m);
    void post_request(const Planned& p);
    Place ask(const Planned& p, bool& bad);
    Place wrong(bool write);
    void post_response();
    void commit(Message& m);
    Buffer* free_buffer() noexcept;
    std::uint16_t train_place(const Message& m);
    bool train_reaches(const Message& m) const noexcept;
    bool follow_train(Message& m, const Place& place);
    std::uint32_t left_of_train(const tqp_msg_rec& rec, std::uint32_t seq) const;
    std::uint32_t piece(std::uint32_t at, std::uint32_t limit);
    void emit(std::uint32_t at, std::uint32_t len);
    void release();
    void repair();
    void timeout();
    void persist();
    void overrun();
    std::span<const std::byte> bytes_at(std::uint32_t at, std::uint32_t len);
    std::span<const std::byte> bytes_in_message(std::uint32_t at, std::uint32_t len);

    End& end_;
    std::vector<Planned> plan_, untagged_;
    std::size_t allowed_ = 0, planned_ = 0, receives_ = 0;
    std::deque<Response> responses_;
    bool window_ = true;         // the peer's, until we take it back
    std::uint64_t counter_ = 0;  // the peer's, once all atomics so far are done
    std::vector<std::byte> gathered_, joined_;
    struct {
        bool open;
        std::uint16_t place;
        std::uint32_t length;
        std::uint8_t opcode;
        std::uint32_t rkey, step;  // of WRITEs; the step from the second on, in lengths
        std::uint64_t va;          // the newest one's
    } train_{};                    // the latest message, if the next may share its segments
    struct {
        std::uint32_t left;  // messages to post
        std::uint32_t start;
        tcp_bth_mixed all;
        std::uint16_t place;
    } mixed_{};                                            // the mixed train that is being posted
    std::vector<std::uint64_t> targets_;                   // of its WRITEs
    std::array<__u8, TCP_BTH_TARGETS_MAX_BYTES> table_{};  // and the table of them
    std::vector<tqp_msg_rec> records_;
    tqp_msglog log_{};
    std::vector<Buffer> buffers_;
    tqp_rx_numbers msn_;  // of the next message of each space
    std::uint32_t una_ = 0, next_ = 0, highest_ = 0, right_edge_ = 0;
    std::vector<bool> sacked_;
    std::uint64_t rto_at_ = 0, repaired_at_ = 0;
    std::uint32_t rto_us_;
};

}  // namespace sim
