// SPDX-License-Identifier: BSD-3-Clause
#include "sockets.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "netlink.hpp"

namespace tcpqp::stat {
namespace {

// enum of the kernel's net/tcp_states.h
constexpr unsigned kEstablished = 1;
constexpr unsigned kTimeWait = 6;
constexpr unsigned kListen = 10;
constexpr unsigned kNewSynRecv = 12;
constexpr uint32_t kStatesShown = ~(1U << kTimeWait | 1U << kListen | 1U << kNewSynRecv);

// A socket of both families has IPv4 addresses in IPv6's clothes: both ends are to look alike.
std::string endpoint(uint8_t family, const __be32* address, __be16 port) {
    if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(address))) {
        family = AF_INET;
        address += 3;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(family, address, text.data(), text.size());
    if (family == AF_INET6)
        return fmt::format("[{}]:{}", text.data(), ntohs(port));
    return fmt::format("{}:{}", text.data(), ntohs(port));
}

void read_info(const nlattr* attribute, Socket& socket) {
    tcp_info info{};  // an older kernel's is shorter
    std::memcpy(&info, ::mnl_attr_get_payload(attribute),
                std::min<size_t>(sizeof(info), ::mnl_attr_get_payload_len(attribute)));
    socket.rtt_ms = info.tcpi_rtt / 1000.0;
    socket.cwnd = info.tcpi_snd_cwnd;
    socket.retransmits = info.tcpi_total_retrans;
    socket.bytes_acked = info.tcpi_bytes_acked;
    socket.bytes_received = info.tcpi_bytes_received;
}

// An older module's is shorter, and another one's has none.
void read_ulp(const nlattr* nest, Socket& socket) {
    tcp_qp_stream_info info{};
    bool ours = false;
    each_nested(nest, [&](const nlattr* a) {
        if (::mnl_attr_get_type(a) == INET_ULP_INFO_NAME)
            ours = string_of(a) == TCP_QP_STREAM_ULP_NAME;
        else if (::mnl_attr_get_type(a) == TCP_QP_STREAM_DIAG_INFO)
            std::memcpy(&info, ::mnl_attr_get_payload(a),
                        std::min<size_t>(sizeof(info), ::mnl_attr_get_payload_len(a)));
    });
    if (ours)
        socket.stream = info;
}

Socket read_socket(const nlmsghdr* message) {
    const auto* m = static_cast<const inet_diag_msg*>(::mnl_nlmsg_get_payload(message));
    Socket socket;
    socket.cookie = m->id.idiag_cookie[0] | uint64_t{m->id.idiag_cookie[1]} << 32;
    socket.inode = m->idiag_inode;
    socket.local = endpoint(m->idiag_family, m->id.idiag_src, m->id.idiag_sport);
    socket.peer = endpoint(m->idiag_family, m->id.idiag_dst, m->id.idiag_dport);
    socket.established = m->idiag_state == kEstablished;
    each_attribute(message, sizeof(*m), [&](const nlattr* a) {
        if (::mnl_attr_get_type(a) == INET_DIAG_INFO)
            read_info(a, socket);
        else if (::mnl_attr_get_type(a) == INET_DIAG_CONG)
            socket.congestion = string_of(a);
        else if (::mnl_attr_get_type(a) == INET_DIAG_ULP_INFO)
            read_ulp(a, socket);
    });
    return socket;
}

}  // namespace

std::unordered_map<uint64_t, Socket> sockets() {
    Netlink netlink(NETLINK_SOCK_DIAG);
    std::unordered_map<uint64_t, Socket> all;
    for (const uint8_t family : {AF_INET, AF_INET6}) {
        nlmsghdr* request = netlink.request(SOCK_DIAG_BY_FAMILY);
        auto* what = static_cast<inet_diag_req_v2*>(
            ::mnl_nlmsg_put_extra_header(request, sizeof(inet_diag_req_v2)));
        what->sdiag_family = family;
        what->sdiag_protocol = IPPROTO_TCP;
        what->idiag_ext = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
        what->idiag_states = kStatesShown;
        netlink.dump(request, [&](const nlmsghdr* message) {
            if (::mnl_nlmsg_get_payload_len(message) < sizeof(inet_diag_msg))
                return;
            Socket socket = read_socket(message);
            all[socket.cookie] = std::move(socket);
        });
    }
    return all;
}

}  // namespace tcpqp::stat
