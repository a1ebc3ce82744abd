// SPDX-License-Identifier: BSD-3-Clause
#include "link.hpp"

#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fd.hpp"

namespace nupa::bench {
namespace {

// linux/if_link.h of 6.3 and later; iproute2 before that cannot set them either
constexpr uint16_t kGsoIpv4MaxSize = 63;
constexpr uint16_t kGroIpv4MaxSize = 64;

struct Attribute {
    rtattr head;
    uint32_t value;
};

struct SetLink {
    nlmsghdr head;
    ifinfomsg link;
    Attribute gso, gro;
};

struct Reply {
    nlmsghdr head;
    nlmsgerr error;
    std::array<char, 256> more;
};

constexpr uint32_t kGroMaxBytes = 8 * 65535;  // Linux's GRO_MAX_SIZE

constexpr Attribute attribute(uint16_t type, uint32_t value) {
    return {{sizeof(Attribute), type}, value};
}

}  // namespace

void set_burst_max(const std::string& interface, uint32_t bytes) {
    const tcpqp::Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    SetLink request{};
    request.head = {sizeof request, RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0};
    request.link.ifi_index = static_cast<int>(if_nametoindex(interface.c_str()));
    request.gso = attribute(kGsoIpv4MaxSize, bytes);
    request.gro = attribute(kGroIpv4MaxSize, std::min(bytes, kGroMaxBytes));
    Reply reply{};
    if (send(fd.get(), &request, sizeof request, 0) != sizeof request ||
        recv(fd.get(), &reply, sizeof reply, 0) < static_cast<ssize_t>(sizeof reply.head))
        tcpqp::throw_errno("netlink");
    if (reply.head.nlmsg_type != NLMSG_ERROR || reply.error.error)
        tcpqp::throw_errno("set the largest burst of " + interface, -reply.error.error);
}

void set_mtu(const std::string& interface, uint32_t bytes) {
    const tcpqp::Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    if (ioctl(fd.get(), SIOCGIFMTU, &request) == 0 && request.ifr_mtu == static_cast<int>(bytes))
        return;
    request.ifr_mtu = static_cast<int>(bytes);
    if (ioctl(fd.get(), SIOCSIFMTU, &request))
        tcpqp::throw_errno("set the MTU of " + interface);
}

}  // namespace nupa::bench
