// SPDX-License-Identifier: BSD-3-Clause
#include "base/route.hpp"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace tcpqp {
namespace {

constexpr size_t kReplyBytes = 4096;

struct Endpoint {
    uint8_t family = 0;
    uint8_t bytes = 0;
    std::array<uint8_t, 16> address{};
};

// An IPv4 address mapped into IPv6 is routed as what it is.
Endpoint endpoint_of(const sockaddr_storage& s) {
    Endpoint e;
    if (s.ss_family == AF_INET) {
        e = {AF_INET, 4, {}};
        std::memcpy(e.address.data(), &reinterpret_cast<const sockaddr_in&>(s).sin_addr, 4);
        return e;
    }
    const auto& six = reinterpret_cast<const sockaddr_in6&>(s);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
    e = {static_cast<uint8_t>(mapped ? AF_INET : AF_INET6),
         static_cast<uint8_t>(mapped ? 4 : 16),
         {}};
    std::memcpy(e.address.data(), six.sin6_addr.s6_addr + (mapped ? 12 : 0), e.bytes);
    return e;
}

struct Request {
    nlmsghdr header;
    rtmsg route;
    std::array<uint8_t, 64> attributes;
};

void add_address(Request& r, uint16_t type, const Endpoint& e) {
    auto* at = reinterpret_cast<uint8_t*>(&r) + NLMSG_ALIGN(r.header.nlmsg_len);
    rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(e.bytes)), type};
    std::memcpy(at, &attribute, sizeof(attribute));
    std::memcpy(at + RTA_LENGTH(0), e.address.data(), e.bytes);
    r.header.nlmsg_len = NLMSG_ALIGN(r.header.nlmsg_len) + RTA_SPACE(e.bytes);
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

}  // namespace

int route_interface(int socket, std::string& ifname) noexcept {
    sockaddr_storage local{}, peer{};
    socklen_t local_bytes = sizeof(local), peer_bytes = sizeof(peer);
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0 ||
        ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0)
        return errno;
    return route_interface(local, peer, ifname);
}

int route_interface(const sockaddr_storage& local, const sockaddr_storage& peer,
                    std::string& ifname) noexcept {
    const Endpoint from = endpoint_of(local), to = endpoint_of(peer);

    Request request{};
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg));
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.route.rtm_family = to.family;
    request.route.rtm_dst_len = request.route.rtm_src_len = static_cast<uint8_t>(to.bytes * 8);
    add_address(request, RTA_DST, to);
    add_address(request, RTA_SRC, from);

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

}  // namespace tcpqp
