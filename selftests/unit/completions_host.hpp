// SPDX-License-Identifier: BSD-3-Clause
// A host with a queue pair whose receives the switch may complete.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "cq_ring.hpp"
#include "host.hpp"

namespace test {

struct Completions : testing::Test {
    Completions() : cq(host.guest, kEntries) {
        EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
        EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_OK);
        EXPECT_EQ(host.engine.qp_create(kQpn, cmd()), NUPA_OK);
        host.ack(kRcvNxt);
    }
    nupa_cmd_qp cmd() {
        nupa_cmd_qp c = host.qp_cmd();
        c.flags |= NUPA_QP_F_COMPLETE;
        c.cq = kCq;
        return c;
    }
    void put(std::size_t field, std::uint32_t value) {
        host.guest.put<std::uint32_t>(host.ring.cmd.shadow_addr + field, value);
    }
    std::uint32_t get(std::size_t field) {
        std::uint32_t value;
        std::memcpy(&value, host.guest.ptr(host.ring.cmd.shadow_addr + field, 4), 4);
        return value;
    }
    std::uint32_t done() { return get(offsetof(nupa_qp_shadow, done)); }
    std::uint32_t completed() { return get(offsetof(nupa_qp_shadow, completed)); }
    std::uint32_t turn() { return get(offsetof(nupa_qp_shadow, turn)); }
    void give(std::uint32_t seq = kRcvNxt) {
        put(offsetof(nupa_qp_shadow, done), seq);
        put(offsetof(nupa_qp_shadow, turn), NUPA_TURN_SWITCH);
    }
    // So many receives, with names from @first on.
    void post(std::uint32_t count, std::uint64_t first = 1000) {
        for (; count; count--, posted++) {
            const std::uint16_t msn = host.ring.post(
                {{kIova + std::uint64_t{posted % kPlaces} * kStride, kStride, kKey}});
            const std::uint32_t element = (host.ring.cmd.rq_base + msn) & host.ring.mask();
            const std::uint64_t e =
                kElementsAt + (std::uint64_t{element} << host.ring.cmd.rq_log2_bytes);
            host.ring.put32(e, static_cast<std::uint32_t>(first + msn));
            host.ring.put32(e + 4, 1);  // the upper half of its name
        }
    }
    // A whole SEND with number @msn.
    static TcpFrame send(std::uint16_t msn, std::uint32_t seq, std::uint8_t opcode,
                         std::uint32_t bytes = kLength) {
        return send_segment(seq, 0, pattern(bytes, msn), msn, opcode);
    }
    // @bytes from offset @at on of a train of five.
    static TcpFrame train(std::uint32_t at, std::size_t bytes) {
        return train_segment(kRcvNxt, 5, at, pattern(bytes), 0, kLength);
    }
    std::uint64_t messages() { return host.stat(NUPA_STAT_completed_messages); }

    Host host;
    CqRing cq;
    std::uint32_t posted = 0;
};

// Whose kernel says who sleeps until a completion comes.
struct Quiet : Completions {
    Quiet() {
        EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
        EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
        cq.cmd.flags = NUPA_CQ_F_WAITING;
        EXPECT_EQ(host.engine.cq_create(kCq, cq.cmd), NUPA_OK);
        EXPECT_EQ(host.engine.qp_create(kQpn, Completions::cmd()), NUPA_OK);
        host.ack(kRcvNxt);
        post(12);
        give();
        while (!next().quiet)
            first++;
        host.ack(seq);
    }
    // Of so many messages, none of which is acknowledged: bytes of those of which this is decided.
    std::uint32_t bytes_of(int messages, bool nupa::Decision::*is) {
        std::uint32_t bytes = 0;
        for (int i = 0; i < messages; i++, post(1))
            bytes += next(kStride).*is ? kStride : 0;
        return bytes;
    }
    nupa::Decision next(std::uint32_t bytes = kLength, std::uint8_t tos = 0) {
        TcpFrame f = send(msn++, seq, TCP_BTH_OP_SEND_ONLY, bytes);
        f.tos = tos;
        f.flags |= nupa::kTcpPsh;
        seq += bytes;
        const nupa::Decision d = host.rx(f);
        cq.poll(cq.prod());
        return d;
    }
    std::uint16_t msn = 0;
    std::uint32_t seq = kRcvNxt;
    std::uint32_t first = 0;  // that were told at once
};

}  // namespace test
