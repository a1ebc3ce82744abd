// SPDX-License-Identifier: BSD-3-Clause
// The receive side of a QP: the application's buffers, the ring, and what
// tcp_qp does with TCP's receive queue.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "completion_ring.hpp"
#include "engine/placement.hpp"
#include "receive_ring.hpp"
#include "send_table.hpp"
#include "stream.hpp"
#include "tcp_receiver.hpp"

extern "C" {
#include "wire/rxmsg.h"
}

namespace sim {

class End;
class Host;
struct Region;
struct Truth;

class QpReceiver {
public:
    explicit QpReceiver(End& end);

    // ---- application ----
    void turn();
    void flush();  // the QP is in error: every posted receive comes back
    void post_all();

    // ---- kernel ----
    void attached();
    void run();

    bool started() const noexcept { return started_; }
    std::size_t completed() const noexcept { return completed_; }  // receives
    std::size_t done() const noexcept { return done_; }            // messages of any kind
    // Asks the message being received for what its sender has no right to?
    bool bad_message() const;
    std::size_t posted() const noexcept { return receives_.size() - others_; }  // for its messages
    nupa_cmd_qp command() const;
    nupa_cmd_srq srq_command() const { return ring_.srq_cmd; }
    nupa_cmd_cq cq_command() const { return cq_.cmd; }
    nupa_cmd_cq send_cq_command() { return sends_.cq_command(); }

    // ---- the switch's completions, qp_nic.cpp ----
    void disturb();
    void judge_completed(const Truth& segment, const nupa::Decision& decision);
    void judge_quiet(const nupa::Decision& decision);
    // A merged run ends at sequence number @end, and says whether it is @completed.
    void judge_run(std::uint32_t end, bool completed);
    void tell_awaits();
    void tell_sends();
    void turn_over();

    struct Run {
        std::uint64_t addr;  // host memory
        std::uint64_t bytes;
    };
    // May the engine write message @index's bytes now?
    bool open(std::size_t index) const;
    // Where @bytes from @offset of message @index go; less when the buffer ends before.
    std::vector<Run> place(std::size_t index, std::uint32_t offset, std::uint32_t bytes) const;
    std::vector<Run> place_receive(std::size_t receive, std::uint32_t offset,
                                   std::uint32_t bytes) const;
    // May [addr, addr + bytes) of host memory be written as part of some open receive?
    bool inside_open(std::uint64_t addr, std::uint64_t bytes) const;

private:
    struct Buffer {
        std::size_t region;
        std::uint64_t addr;  // as the application names it
        std::uint32_t bytes;
        bool busy = false;
    };
    struct Receive {
        std::vector<nupa::RecvSge> sges;
        std::size_t place;
        bool good;  // keys and length fit
        enum class State : std::uint8_t { kPosted, kCompleted, kReturned } state;
    };

    void post();
    void poll();
    void poison(const Buffer& place);
    void scribble();
    void deregister();
    std::vector<nupa::RecvSge> cut(const Buffer& place, std::uint32_t bytes);
    void revoke(std::uint32_t region);

    bool shared() const;
    bool open_receive(std::size_t receive) const noexcept;
    // Which receive the message takes that is number @message of those that take one.
    std::size_t receive_of(std::size_t message) const;
    // Of a shared queue: the next message has the next receive.
    void taken();
    void taken_by_others();
    void note_completed(std::size_t message);
    // What the stream really says; nullptr when nobody can know.
    const Message* truth() const;
    const Region* tagged_region(const Message& m) const;

    // ---- kernel, qp_rx.cpp ----
    std::uint32_t step(const Skb& skb, std::uint32_t off);
    bool begin(const tqp_skb_map* map);
    bool admit();
    bool room(std::uint32_t bytes);
    bool take_wqe();
    bool take(const Skb& skb, std::uint32_t off, std::uint32_t bytes);
    bool payload(const Skb& skb, std::uint32_t off, std::uint32_t bytes);
    bool copy_receive(const std::byte* from, std::uint32_t at, std::uint32_t bytes);
    bool copy_write(const std::byte* from, std::uint32_t bytes);
    bool copy_response(const std::byte* from, std::uint32_t bytes);
    void reject(Counter why);
    bool finish();
    bool request();
    bool atomic(std::uint64_t& before);
    bool response();
    void consume();
    void check_message();
    void count(const Message& m);
    void check_payload(const Message& m);
    void check_bytes(const Message& m);
    bool overwritten_by_peer(const Message& m) const;
    void violation(const char* text);

    // ---- qp_nic.cpp ----
    void sync();
    std::uint32_t done_ahead() const;
    void skip();
    void take_turn();
    void give_turn();
    void judge_sends(const Truth& segment, const nupa::Decision& decision);
    void judge_one(const Truth& segment, bool receive);
    void judge_message(const Message& m, const Truth& segment, bool receive);
    void judge_entry(const Message& m, const ib_uverbs_wc& wc, std::size_t name);

    End& end_;
    Host& host_;
    ReceiveRing ring_;
    CompletionRing cq_;
    SendTable sends_;
    std::vector<Buffer> places_;
    std::vector<Receive> receives_;
    // Of a shared queue: whose receives messages have, and which one is the next.
    std::vector<std::size_t> taken_;
    std::size_t next_receive_ = 0, others_ = 0;
    std::size_t polled_ = 0, completed_ = 0, done_ = 0;
    bool started_ = false;
    tqp_rx_numbers next_{};
    tqp_rx_train train_{};
    tqp_rx_msg msg_{};
    bool have_wqe_ = false;
    std::vector<nupa::RecvSge> wqe_;
    std::array<std::byte, TCP_BTH_OPERANDS_MAX_BYTES> operands_{};
    std::array<std::uint32_t, TCP_BTH_TABLE_MAX_WORDS> lengths_{};
    std::uint64_t payload_bytes_ = 0;  // of the peer's messages that are done
    std::uint64_t placed_bytes_ = 0, copied_bytes_ = 0;
    // What the switch has completed, as the host knows it, and as we have judged it.
    struct Counts {
        std::uint32_t completed, writes;
    };
    Counts known_, seen_;
    bool given_ = false;
    std::uint32_t disturbed_ = 0;
    std::uint32_t late_ = 0, seen_late_ = 0;
    bool later_ = false;  // the latest completed message was so quiet
};

}  // namespace sim
