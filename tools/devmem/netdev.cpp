// SPDX-License-Identifier: BSD-3-Clause
#include "devmem/netdev.hpp"

#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace tcpqp::devmem {
namespace {

// Linux 6.12's <linux/netdev.h>; Debian 12's own is older.
enum : uint8_t { kNetdevBindRx = 13, kNetdevBindTx = 15 };
enum : uint16_t { kDmabufIfindex = 1, kDmabufQueues, kDmabufFd, kDmabufId };
enum : uint16_t { kQueueId = 1, kQueueType = 3 };
enum : uint32_t { kQueueTypeRx = 0 };
constexpr uint8_t kSplitOff = 1, kSplitOn = 2;  // ETHTOOL_TCP_DATA_SPLIT_*

uint32_t index_of(const std::string& interface) {
    const uint32_t index = ::if_nametoindex(interface.c_str());
    if (!index)
        throw_errno(interface);
    return index;
}

void ethtool(const std::string& interface, ethtool_rxnfc& what) {
    const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    request.ifr_data = reinterpret_cast<char*>(&what);
    if (::ioctl(any.get(), SIOCETHTOOL, &request) != 0)
        throw_errno(interface + ": steering");
}

// Sets the mask of what is matched, all of it.
template <typename Field>
void match(Field& value, Field& mask, const Field& wanted) {
    value = wanted;
    std::memset(&mask, 0xff, sizeof(mask));
}

void match4(ethtool_rx_flow_spec& rule, const in_addr& from, const in_addr& to, in_port_t sport,
            in_port_t dport) {
    auto &h = rule.h_u.tcp_ip4_spec, &m = rule.m_u.tcp_ip4_spec;
    rule.flow_type = TCP_V4_FLOW;
    match(h.ip4src, m.ip4src, from.s_addr);
    match(h.ip4dst, m.ip4dst, to.s_addr);
    match(h.psrc, m.psrc, sport);
    match(h.pdst, m.pdst, dport);
}

void match6(ethtool_rx_flow_spec& rule, const in6_addr& from, const in6_addr& to, in_port_t sport,
            in_port_t dport) {
    auto &h = rule.h_u.tcp_ip6_spec, &m = rule.m_u.tcp_ip6_spec;
    rule.flow_type = TCP_V6_FLOW;
    std::memcpy(h.ip6src, &from, sizeof(from));
    std::memcpy(h.ip6dst, &to, sizeof(to));
    std::memset(m.ip6src, 0xff, sizeof(m.ip6src));
    std::memset(m.ip6dst, 0xff, sizeof(m.ip6dst));
    match(h.psrc, m.psrc, sport);
    match(h.pdst, m.pdst, dport);
}

in_addr unmapped(const in6_addr& mapped) {
    in_addr address{};
    std::memcpy(&address, mapped.s6_addr + 12, sizeof(address));
    return address;
}

// As the peer's segments say it: from its address to ours.
void match_flow(ethtool_rx_flow_spec& rule, int socket) {
    sockaddr_storage here{}, there{};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_bytes) != 0 ||
        ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_bytes) != 0)
        throw_errno("steering");
    if (here.ss_family == AF_INET) {
        const auto &a = reinterpret_cast<sockaddr_in&>(there),
                   &b = reinterpret_cast<sockaddr_in&>(here);
        match4(rule, a.sin_addr, b.sin_addr, a.sin_port, b.sin_port);
        return;
    }
    const auto &a = reinterpret_cast<sockaddr_in6&>(there),
               &b = reinterpret_cast<sockaddr_in6&>(here);
    if (IN6_IS_ADDR_V4MAPPED(&a.sin6_addr))
        match4(rule, unmapped(a.sin6_addr), unmapped(b.sin6_addr), a.sin6_port, b.sin6_port);
    else
        match6(rule, a.sin6_addr, b.sin6_addr, a.sin6_port, b.sin6_port);
}

Attributes memory_of(const std::string& interface, int dma_buf) {
    Attributes request;
    request.put_u32(kDmabufIfindex, index_of(interface));
    request.put_u32(kDmabufFd, static_cast<uint32_t>(dma_buf));
    return request;
}

// The number that the kernel gives to the binding.
uint32_t bind(Genetlink& netdev, uint8_t command, const Attributes& request) {
    const std::vector<char> answer = netdev.request(command, request);
    const std::optional<uint32_t> id = find_attribute(answer, kDmabufId, sizeof(uint32_t));
    if (!id)
        throw_errno("binding of a dma-buf", EPROTO);
    return *id;
}

uint32_t bind_rx(Genetlink& netdev, const std::string& interface,
                 const std::vector<uint32_t>& queues, int dma_buf) {
    Attributes request = memory_of(interface, dma_buf);
    for (const uint32_t queue : queues) {
        Attributes one;
        one.put_u32(kQueueId, queue);
        one.put_u32(kQueueType, kQueueTypeRx);
        request.put_nest(kDmabufQueues, one);
    }
    return bind(netdev, kNetdevBindRx, request);
}

}  // namespace

void set_data_split(const std::string& interface, bool on) {
    Genetlink family("ethtool");
    Attributes header, request;
    header.put_text(ETHTOOL_A_HEADER_DEV_NAME, interface);
    request.put_nest(ETHTOOL_A_RINGS_HEADER, header);
    request.put_u8(ETHTOOL_A_RINGS_TCP_DATA_SPLIT, on ? kSplitOn : kSplitOff);
    family.request(ETHTOOL_MSG_RINGS_SET, request);
}

Binding::Binding(const std::string& interface, const std::vector<uint32_t>& queues, int dma_buf)
    : netdev_("netdev"), id_(bind_rx(netdev_, interface, queues, dma_buf)) {}

TransmitBinding::TransmitBinding(const std::string& interface, int dma_buf)
    : netdev_("netdev"), id_(bind(netdev_, kNetdevBindTx, memory_of(interface, dma_buf))) {}

Steering::Steering(const std::string& interface, int socket, uint32_t queue)
    : interface_(interface) {
    ethtool_rxnfc what{};
    what.cmd = ETHTOOL_SRXCLSRLINS;
    what.fs.ring_cookie = queue;
    what.fs.location = RX_CLS_LOC_ANY;
    match_flow(what.fs, socket);
    ethtool(interface_, what);
    location_ = what.fs.location;
}

Steering::~Steering() {
    ethtool_rxnfc what{};
    what.cmd = ETHTOOL_SRXCLSRLDEL;
    what.fs.location = location_;
    try {
        ethtool(interface_, what);
    } catch (const std::system_error&) {
        // the interface, or an administrator, was faster
    }
}

}  // namespace tcpqp::devmem
