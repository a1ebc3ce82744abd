// SPDX-License-Identifier: BSD-3-Clause
#include "qp.hpp"

namespace nupa {

namespace {

constexpr std::uint32_t kQpFlagsKnown =
    NUPA_QP_F_TX_V0 | NUPA_QP_F_NO_RQ | NUPA_QP_F_ICRC | NUPA_QP_F_REMOTE_WRITE | NUPA_QP_F_SHADOW |
    NUPA_QP_F_STREAM | NUPA_QP_F_COMPLETE | NUPA_QP_F_SRQ | NUPA_QP_F_SENDS;
constexpr std::uint32_t kWindowMax = 65535;

bool no_rq(const nupa_cmd_qp& cmd) noexcept {
    return !cmd.rq_log2_bytes && !cmd.rq_sge_max && !cmd.rq_mask && !cmd.rq_base && !cmd.rq_pages &&
           !cmd.rq_table_addr;
}

// A stream has nothing that a queue pair has.
bool only_stream(const nupa_cmd_qp& cmd) noexcept {
    return cmd.flags == NUPA_QP_F_STREAM && !cmd.pd && no_rq(cmd) && !cmd.shadow_addr;
}

}  // namespace

nupa_admin_status QpContext::init(const HostMemory& memory, std::uint32_t qpn,
                                  const nupa_cmd_qp& cmd) noexcept {
    flow_.raw = cmd.flow;
    if (!flow_.valid() || cmd.flags & ~kQpFlagsKnown || cmd.rcv_wscale > kWindowScaleMax ||
        (cmd.flags & NUPA_QP_F_STREAM && !only_stream(cmd)) ||
        (cmd.flags & NUPA_QP_F_SRQ && !no_rq(cmd)))
        return NUPA_E_INVALID;
    if (const nupa_admin_status status = post.init(memory, cmd); status != NUPA_OK)
        return status;
    if (const nupa_admin_status status = rq.init(memory, cmd); status != NUPA_OK)
        return status;
    if (const nupa_admin_status status = shadow.init(memory, cmd); status != NUPA_OK)
        return status;
    if (const nupa_admin_status status = completions.init(memory, qpn, cmd); status != NUPA_OK)
        return status;
    qpn_ = qpn;
    remote_write_ = cmd.flags & NUPA_QP_F_REMOTE_WRITE;
    pd_ = cmd.pd;
    disorder = Disorder(cmd.rcv_nxt);
    pace = AckPace(cmd.rcv_nxt);
    right_edge_ = cmd.rcv_nxt;  // nothing fits until the host has advertised a window
    wscale_ = cmd.rcv_wscale;
    rewrite_ = {(cmd.flags & NUPA_QP_F_TX_V0) != 0, (cmd.flags & NUPA_QP_F_ICRC) != 0};
    return NUPA_OK;
}

void QpContext::watch_tx(const Packet& packet, std::uint16_t egress) noexcept {
    const Headers& at = packet.at;
    // no host sends one on a flow that has a connection, and no peer can make one of it
    over_ |= at.tcp() && at.tcp_flags & kTcpSyn;
    if (!at.tcp() || (at.tcp_flags & (kTcpAck | kTcpSyn | kTcpRst)) != kTcpAck)
        return;
    const std::uint32_t end = at.seq + packet.payload.bytes() + (at.tcp_flags & kTcpFin ? 1 : 0);
    if (!seen_tx_)
        sent_ = acked_ = end;
    else if (seq_after(end, sent_))
        sent_ = end;
    if (sent_ - acked_ > kUnackedMaxBytes)  // or it would look like far ahead one day
        acked_ = sent_ - kUnackedMaxBytes;
    seen_tx_ = true;
    if (packet.payload.bytes())
        quiet.answered();
    peer_port_ = egress;
    disorder.raise(at.ack);
    pace.acknowledged(at.ack);
    const std::uint32_t right = at.ack + (std::uint32_t{at.window} << wscale_);
    if (seq_after(right, right_edge_))
        right_edge_ = right;
}

bool QpContext::in_window(std::uint32_t seq, std::uint32_t bytes) const noexcept {
    return !seq_after(seq, right_edge_) && bytes <= right_edge_ - seq;
}

bool QpContext::plausible(std::uint32_t seq) const noexcept {
    const std::uint32_t e = disorder.next();
    return seq_before(seq, e) || seq - e <= (kWindowMax << wscale_);
}

void QpContext::passed_up(std::uint32_t seq, std::uint32_t bytes) noexcept {
    const bool in_order = seq == disorder.next();
    if (disorder.record(seq, bytes))
        stats.add(NUPA_QP_STAT_disorder_overflows);
    if (in_order)
        pace.reached(disorder.next());
    else
        pace.note_loss(disorder.next());
    // So that the edge can never fall 2^31 behind and look like far ahead.
    if (seq_before(right_edge_, disorder.next()))
        right_edge_ = disorder.next();
}

}  // namespace nupa
