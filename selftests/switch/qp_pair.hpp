// SPDX-License-Identifier: BSD-3-Clause
// Two ports, a QP at the second one, and a connection to it from the first.
#pragma once

#include <nlohmann/json.hpp>

#include "fake_qp.hpp"
#include "two_ports.hpp"

namespace nupa::testing {

inline constexpr uint16_t kMss = 1408;  // a multiple of 128
inline constexpr uint32_t kKey = 0x1234;
inline constexpr uint64_t kIova = 0x7f0000001080;
inline constexpr uint64_t kMrBytes = 1 << 20;
inline constexpr uint32_t kAccess = NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE;
inline constexpr uint32_t kPd = 5;

// Port 0 sends to a QP of port 1.
struct QpPair {
    explicit QpPair(QpShape shape = {}, bool v6 = false)
        : p(2),
          base(make_base(v6)),
          mr(p[1], kKey, kIova, kMrBytes, kPd, kAccess),
          qp(p[1], base, shape) {
        mr.fill(0xee);
        TcpFrame ack = ack_of(base, base.seq);
        p[1].send(0, build_tcp(ack, false),
                  offload(ack));  // the window: the switch learns it from what the host sends
        p[0].receive(0);
    }
    TcpFrame make_base(bool v6) {
        TcpFrame f = p.frame(0, 1);
        f.v6 = v6;
        f.seq = 0xfffff000;  // wraps inside the first messages
        return f;
    }
    // The sender's own context: its bursts are cut into ver 0.
    void sender_qp(uint32_t flags) {
        QpShape shape;
        shape.qpn = 18;
        shape.flags = flags | NUPA_QP_F_NO_RQ;
        FakeQp(p[0], ack_of(base, base.seq), shape);
    }
    // A rule that none of these flows meets: bursts on this way are cut from now on.
    void cut() {
        const nlohmann::json rule = {
            {"cmd", "faults"}, {"port", "n1"}, {"flow", {{"dport", 9}}}, {"set", {{"loss", 1}}}};
        ASSERT_TRUE(p.daemon.control(rule)["ok"]);
    }
    void send(const TcpFrame& f) { p[0].send(0, build_tcp(f, false), offload(f, kMss)); }

    Ports p;
    TcpFrame base;
    FakeMr mr;
    FakeQp qp;
};

}  // namespace nupa::testing
