// SPDX-License-Identifier: BSD-3-Clause
// The context of one QP: its flow, receive queue, and what was passed up.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <cstddef>
#include <cstdint>

#include "ack_pace.hpp"
#include "completions.hpp"
#include "disorder.hpp"
#include "flow.hpp"
#include "length_tables.hpp"
#include "packet.hpp"
#include "prefetch.hpp"
#include "quiet.hpp"
#include "rq.hpp"
#include "segment.hpp"
#include "shadow.hpp"
#include "start_table.hpp"
#include "stats.hpp"
#include "stream_post.hpp"
#include "write_order.hpp"

namespace nupa {

// What each packet looks at comes first.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class alignas(64) QpContext {
public:
    // It will be needed soon: what each packet looks at comes into cache.
    void prefetch() const noexcept {
        for (std::size_t at = 0; at < kHotBytes; at += alignof(QpContext))
            nupa::prefetch(reinterpret_cast<const std::byte*>(this) + at);
    }
    // Checks the whole command; the context is usable on NUPA_OK only.
    nupa_admin_status init(const HostMemory& memory, std::uint32_t qpn,
                           const nupa_cmd_qp& cmd) noexcept;

    std::uint32_t qpn() const noexcept { return qpn_; }
    std::uint32_t pd() const noexcept { return pd_; }
    const FlowKey& flow() const noexcept { return flow_; }
    TxRewrite rewrite() const noexcept { return rewrite_; }
    bool remote_write() const noexcept { return remote_write_; }
    bool stream() const noexcept { return post.stream(); }
    // The host has begun another connection on this flow: nothing that comes is for this one.  Its
    // driver may be long in saying so, since who ends the queue pair may wait for others.
    bool over() const noexcept { return over_; }
    // May the next segment be placed in the post of a stream?  All before it was passed up, and
    // nothing behind it.
    bool in_order() const noexcept { return !disorder.blocks() && !disorder.resyncing(); }

    // A packet that the host sends on this connection: its ACK and window move E and the right
    // edge.  It went to port @egress, so that is where the peer's segments come from: nobody else
    // can change that, as no guest can send from another's address.
    void watch_tx(const Packet& packet, std::uint16_t egress) noexcept;
    // Is it the peer who sent @packet?  From where the host sends to, and it acknowledges what the
    // host has sent: TCP drops what does not, but after it would have been placed.
    bool from_peer(const Packet& packet) const noexcept {
        return packet.ingress == peer_port_ && packet.at.tcp_flags & kTcpAck &&
               sent_ - packet.at.ack <= sent_ - acked_ + kAckBehindMaxBytes;
    }
    // A packet for which from_peer() holds.
    void heard(const Packet& packet) noexcept {
        if (seq_after(packet.at.ack, acked_))
            acked_ = packet.at.ack;
    }

    bool in_window(std::uint32_t seq, std::uint32_t bytes) const noexcept;
    // Could TCP take a segment at @seq at all, whatever window it has advertised
    // by now?  What it can't take need not be remembered.
    bool plausible(std::uint32_t seq) const noexcept;
    // All that was sent has come, without a hole: may TCP hear of it a little later?
    bool may_wait() const noexcept {
        return !disorder.blocks() && !disorder.resyncing() &&
               pace.may_wait(disorder.next(), right_edge_);
    }
    // The same of whole messages that were completed.
    bool may_be_quiet() noexcept {
        if (completions.acked_late())
            (was_later_ ? later : quiet).in_vain();
        return !completions.sleeper_awaits_sends() &&
               (pace.may_delay(disorder.next()) || may_wait()) && quiet.may();
    }
    // A message that is quiet: may TCP hear of it with others, although its receiver sends?
    bool may_be_later() noexcept {
        return was_later_ = completions.ends_have_room() && pace.may_be_later(disorder.next()) &&
                            later.may();
    }
    // Completed, and TCP hears of it now.
    void told_at_once() noexcept { was_later_ = false; }
    // [seq, seq + bytes) goes up to the host, placed or delivered.
    void passed_up(std::uint32_t seq, std::uint32_t bytes) noexcept;

private:
    static constexpr std::size_t kHotBytes = 320;  // up to the first of disorder's blocks

    FlowKey flow_;
    std::uint32_t qpn_ = 0;
    std::uint32_t pd_ = 0;
    std::uint32_t right_edge_ = 0;
    std::uint32_t sent_ = 0;   // the host has sent all before this
    std::uint32_t acked_ = 0;  // the peer has acknowledged all before this
    std::uint16_t peer_port_ = kNoPort;
    bool seen_tx_ = false;
    bool over_ = false;
    std::uint8_t wscale_ = 0;
    bool remote_write_ = false;
    bool was_later_ = false;  // the latest completed message
    TxRewrite rewrite_;

public:
    ReceiveQueue rq;
    Shadow shadow;
    WriteOrder writes;
    AckPace pace;
    QuietPolicy quiet, later;
    bool synced = false;  // no byte at or above E can have escaped this context
    QpStats stats;
    Disorder disorder;
    StartTable starts;
    LengthTables lengths;
    alignas(64) Completions completions;
    alignas(64) StreamPost post;  // of a stream, which has none of the above
};
// So that the first lines of many do not share a few sets of a cache.
static_assert(sizeof(QpContext) / alignof(QpContext) % 2 == 1);

}  // namespace nupa
