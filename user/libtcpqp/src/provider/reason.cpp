// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include "provider/provider.hpp"
#include "verbs/attach.hpp"

namespace {

struct Reason {
    const char* name;
    const char* text;
};

constexpr std::array<Reason, TCPQP_REASON_END - TCPQP_REASON_OWN> kReasons{{
    {"NO_MODULE", "the kernel module tcp_qp is not loaded"},
    {"NO_DEVICE", "the connection's interface has no tcp_qp device"},
    {"NO_ROUTE", "the connection's interface is not known"},
    {"NO_IO_URING", "the kernel refuses io_uring"},
    {"PEER_STOCK", "the peer speaks stock frames"},
    {"PEER_NOT_STOCK", "the peer's first bytes are not those of a stock end"},
    {"VERSION", "the peer speaks another version of stock frames"},
    {"NO_HELLO", "the peer said nothing in time"},
    {"BAD_FRAME", "the peer sent a frame header that no stock end writes"},
    {"TOO_LONG", "the peer's message was longer than the posted receive"},
    {"TRUNCATED", "the peer closed within a message"},
    {"CLOSED", "the peer closed the connection"},
    {"RESET", "the connection broke"},
    {"CANCELED", "the queue pair was canceled"},
    {"DEVICE_GONE", "the RDMA device was removed"},
    {"NO_BPF_HELPER", "no tcpqp-bpf answers: without it a stock end speaks to stock ends only"},
    {"BPF_REFUSED", "tcpqp-bpf refused: without it a stock end speaks to stock ends only"},
    {"FRAMING", "option framing was asked for, and the peer has none"},
    {"NO_BOUNDARY", "bytes came without the option that says whose they are"},
    {"NOT_A_SEND", "the peer asked for what a stock end does not do"},
    {"OLD_MODULE", "the kernel module tcp_qp is older than this library"},
}};

bool is_own(uint32_t reason) noexcept {
    return reason >= TCPQP_REASON_OWN && reason < TCPQP_REASON_END;
}

}  // namespace

extern "C" {

const char* tcpqp_engine_name(uint32_t engine) {
    return engine == TCPQP_ENGINE_STOCK ? "stock" : tcpqp::engine_name(engine);
}

const char* tcpqp_reason_name(uint32_t reason) {
    return is_own(reason) ? kReasons[reason - TCPQP_REASON_OWN].name : tcpqp::reason_name(reason);
}

const char* tcpqp_reason_text(uint32_t reason) {
    return is_own(reason) ? kReasons[reason - TCPQP_REASON_OWN].text : tcpqp::reason_text(reason);
}
}
