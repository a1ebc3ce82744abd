// SPDX-License-Identifier: BSD-3-Clause
#include "base/route.hpp"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/fd.hpp"

namespace tcpqp {
namespace {

constexpr size_t kReplyBytes = 4096;

struct Endpoint {
    uint8_t family = 0;
    uint8_t bytes = 0;
    in_port_t port = 0;
    std::array<uint8_t, 16> address{};
};

// An IPv4 address mapped into IPv6 is routed as what it is.
Endpoint endpoint_of(const sockaddr_storage& s) {
    Endpoint e;
    if (s.ss_family == AF_INET) {
        const auto& four = reinterpret_cast<const sockaddr_in&>(s);
        e = {AF_INET, 4, four.sin_port, {}};
        std::memcpy(e.address.data(), &four.sin_addr, 4);
        return e;
    }
    const auto& six = reinterpret_cast<const sockaddr_in6&>(s);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
    e = {static_cast<uint8_t>(mapped ? AF_INET : AF_INET6),
         static_cast<uint8_t>(mapped ? 4 : 16),
         six.sin6_port,
         {}};
    std::memcpy(e.address.data(), six.sin6_addr.s6_addr + (mapped ? 12 : 0), e.bytes);
    return e;
}

struct Request {
    nlmsghdr header;
    rtmsg route;
    std::array<uint8_t, 128> attributes;
};

void add(Request& r, uint16_t type, const void* value, size_t bytes) {
    auto* at = reinterpret_cast<uint8_t*>(&r) + NLMSG_ALIGN(r.header.nlmsg_len);
    rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(bytes)), type};
    std::memcpy(at, &attribute, sizeof(attribute));
    std::memcpy(at + RTA_LENGTH(0), value, bytes);
    r.header.nlmsg_len = NLMSG_ALIGN(r.header.nlmsg_len) + RTA_SPACE(bytes);
}

template <typename T>
void add(Request& r, uint16_t type, const T& value) {
    add(r, type, &value, sizeof(value));
}

// What rules, VRFs and equal paths may choose a route by, beside the addresses.
struct Flow {
    uint32_t mark = 0;
    uint32_t bound_to = 0;  // an interface
    uint8_t dscp = 0;       // of the TOS field; the rest of it is ECN's
    std::optional<uid_t> owner;
};

uint32_t option_of(int socket, int level, int name) {
    uint32_t value = 0;
    socklen_t bytes = sizeof(value);
    return ::getsockopt(socket, level, name, &value, &bytes) == 0 ? value : 0;
}

Flow flow_of(int socket, uint8_t family) {
    struct stat about {};
    const uint32_t tos = family == AF_INET ? option_of(socket, IPPROTO_IP, IP_TOS)
                                           : option_of(socket, IPPROTO_IPV6, IPV6_TCLASS);
    Flow flow{option_of(socket, SOL_SOCKET, SO_MARK),
              option_of(socket, SOL_SOCKET, SO_BINDTOIFINDEX),
              static_cast<uint8_t>(tos & IPTOS_DSCP_MASK),
              {}};
    if (::fstat(socket, &about) == 0)
        flow.owner = about.st_uid;
    return flow;
}

// The output interface in an RTM_NEWROUTE answer; 0: none.
uint32_t output_of(const uint8_t* reply, size_t bytes) {
    nlmsghdr header{};
    if (bytes < NLMSG_LENGTH(sizeof(rtmsg)))
        return 0;
    std::memcpy(&header, reply, sizeof(header));
    if (header.nlmsg_type != RTM_NEWROUTE || header.nlmsg_len > bytes)
        return 0;
    size_t at = NLMSG_SPACE(sizeof(rtmsg));
    while (at + sizeof(rtattr) <= header.nlmsg_len) {
        rtattr attribute{};
        std::memcpy(&attribute, reply + at, sizeof(attribute));
        if (attribute.rta_len < sizeof(rtattr) || attribute.rta_len > header.nlmsg_len - at)
            return 0;
        uint32_t index = 0;
        if (attribute.rta_type == RTA_OIF && attribute.rta_len >= RTA_LENGTH(sizeof(index))) {
            std::memcpy(&index, reply + at + RTA_LENGTH(0), sizeof(index));
            return index;
        }
        at += RTA_ALIGN(attribute.rta_len);
    }
    return 0;
}

int route(const sockaddr_storage& local, const sockaddr_storage& peer, const Flow& flow,
          std::string& ifname) {
    const Endpoint from = endpoint_of(local), to = endpoint_of(peer);

    Request request{};
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg));
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.route.rtm_family = to.family;
    request.route.rtm_tos = flow.dscp;
    request.route.rtm_dst_len = request.route.rtm_src_len = static_cast<uint8_t>(to.bytes * 8);
    add(request, RTA_DST, to.address.data(), to.bytes);
    add(request, RTA_SRC, from.address.data(), from.bytes);
    add(request, RTA_IP_PROTO, uint8_t{IPPROTO_TCP});
    add(request, RTA_SPORT, from.port);
    add(request, RTA_DPORT, to.port);
    if (flow.mark != 0)
        add(request, RTA_MARK, flow.mark);
    if (flow.bound_to != 0)
        add(request, RTA_OIF, flow.bound_to);
    if (flow.owner)
        add(request, RTA_UID, *flow.owner);

    Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    std::array<uint8_t, kReplyBytes> reply{};
    ssize_t n = -1;
    if (fd && ::send(fd.get(), &request, request.header.nlmsg_len, 0) > 0)
        n = ::recv(fd.get(), reply.data(), reply.size(), 0);
    if (n < 0)
        return errno;
    // a link-local peer has its interface in its own address
    uint32_t index =
        to.family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(peer).sin6_scope_id : 0;
    if (index == 0)
        index = output_of(reply.data(), static_cast<size_t>(n));
    char name[IF_NAMESIZE];
    if (index == 0 || ::if_indextoname(index, name) == nullptr)
        return ENETUNREACH;
    ifname = name;
    return 0;
}

}  // namespace

int route_interface(int socket, std::string& ifname) noexcept {
    sockaddr_storage local{}, peer{};
    socklen_t local_bytes = sizeof(local), peer_bytes = sizeof(peer);
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0 ||
        ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0)
        return errno;
    return route(local, peer, flow_of(socket, endpoint_of(peer).family), ifname);
}

int route_interface(const sockaddr_storage& local, const sockaddr_storage& peer,
                    std::string& ifname) noexcept {
    return route(local, peer, {}, ifname);
}

}  // namespace tcpqp
