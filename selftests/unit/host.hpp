// SPDX-License-Identifier: BSD-3-Clause
// One receiving host with one QP: the fixture of the tests of placement checks and of properties.
#pragma once

#include <gtest/gtest.h>
#include <memory>

#include "engine/port_engine.hpp"
#include "frames.hpp"
#include "guest.hpp"

namespace test {

inline constexpr std::uint32_t kPd = 3, kKey = 0x1100, kOtherKey = 0x2200, kQpn = 17;
inline constexpr std::uint32_t kRcvNxt = 5000;
inline constexpr std::uint64_t kIova = 0x7f0000001000;

struct HostOptions {
    std::uint32_t rcv_nxt = kRcvNxt;
    std::uint32_t qp_flags = NUPA_QP_F_REMOTE_WRITE | NUPA_QP_F_SHADOW;
    std::uint32_t rq_base = 0;
    std::uint32_t rq_entries = 64;
    std::uint32_t sge_max = 4;
    std::uint64_t mr_bytes = 1 << 20;
    std::uint8_t wscale = 7;
    std::uint64_t half_bytes = 8 << 20;  // RAM in each of its two regions
};

class Host {
public:
    explicit Host(HostOptions o = {})
        : options(o),
          guest(o.half_bytes, o.half_bytes),
          ring(guest, o.rq_entries, o.sge_max, o.rq_base),
          mr(guest, kIova, o.mr_bytes, kPd),
          engine(guest.memory, stats, 42) {
        EXPECT_EQ(engine.mr_reg(kKey, mr.cmd), NUPA_OK);
        EXPECT_EQ(engine.qp_create(kQpn, qp_cmd()), NUPA_OK);
    }

    nupa_cmd_qp qp_cmd() {
        nupa_cmd_qp cmd = ring.cmd;
        TcpFrame peer;  // as it comes from the peer: 10.0.0.1 -> 10.0.0.2
        cmd.flow = Wire(peer).packet.flow().raw;
        cmd.pd = kPd;
        cmd.flags = options.qp_flags;
        cmd.rcv_nxt = options.rcv_nxt;
        cmd.rcv_wscale = options.wscale;
        return cmd;
    }

    // The host's own segment: acknowledges @ack and offers @window_bytes beyond.
    TcpFrame from_host(std::uint32_t ack, std::uint32_t window_bytes = 1 << 20) const {
        TcpFrame f;
        f.src = 2, f.dst = 1, f.sport = 2000, f.dport = 1000;
        f.ack = ack;
        f.window = static_cast<std::uint16_t>(window_bytes >> options.wscale);
        return f;
    }
    nupa::TxRewrite tx(const TcpFrame& frame) {
        Wire w(frame);
        return engine.transmit(w.packet);
    }
    nupa::TxRewrite ack(std::uint32_t ack, std::uint32_t window_bytes = 1 << 20) {
        return tx(from_host(ack, window_bytes));
    }

    nupa::Decision rx(const TcpFrame& frame) {
        Wire w(frame);
        return engine.receive(w.packet);
    }

    std::uint64_t stat(nupa_stat which) const { return stats[which]; }
    const nupa::QpStats& qp() const { return *engine.qp_stats(kQpn); }

    HostOptions options;
    Guest guest;
    RecvRing ring;
    Region mr;
    nupa::PortStats stats;
    nupa::PortEngine engine;
};

// A segment of a SEND message that begins at @start, ver 0.
inline TcpFrame send_segment(std::uint32_t start, std::uint32_t mbo, ByteVector payload,
                             std::uint16_t msn = 0, std::uint8_t opcode = TCP_BTH_OP_SEND_MIDDLE) {
    tcp_bth b{};
    b.opcode = opcode;
    b.msn = msn;
    b.mbo = mbo;
    b.flags = TCP_BTH_F_TIMESTAMP;
    b.tsval = 11, b.tsecr = 12;
    if (opcode == TCP_BTH_OP_SEND_MIDDLE && mbo == 0)
        b.opcode = TCP_BTH_OP_SEND_FIRST;
    TcpFrame f;
    f.seq = start + mbo;
    f.options = bth_option(b);
    f.payload = std::move(payload);
    return f;
}

// @bytes from offset @at on of a train of @messages that begins with number @msn at @start.
inline TcpFrame train_segment(std::uint32_t start, std::uint32_t messages, std::uint32_t at,
                              ByteVector payload, std::uint16_t msn = 0,
                              std::uint32_t length = 64) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_SEND_TRAIN, b.msn = msn, b.start_seq = start;
    b.length = length, b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = messages * length;
    b.flags = TCP_BTH_F_TIMESTAMP;
    TcpFrame f;
    f.seq = start + at, f.payload = std::move(payload), f.options = bth_option(b);
    return f;
}

inline TcpFrame write_segment(std::uint32_t start, std::uint32_t mbo, ByteVector payload,
                              std::uint64_t va, std::uint32_t rkey, std::uint32_t dma_length,
                              std::uint8_t opcode = TCP_BTH_OP_WRITE_ONLY, std::uint16_t msn = 0) {
    tcp_bth b{};
    b.opcode = opcode;
    b.msn = msn;
    b.mbo = mbo;
    b.ext_bytes = TCP_BTH_RETH_BYTES;
    b.va = va, b.rkey = rkey, b.dma_length = dma_length;
    TcpFrame f;
    f.seq = start + mbo;
    f.options = bth_option(b);
    f.payload = std::move(payload);
    return f;
}

}  // namespace test
