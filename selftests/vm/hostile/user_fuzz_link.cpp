// SPDX-License-Identifier: BSD-3-Clause
// What root does: RDMA devices on veth links come, go, move to other network namespaces, are asked
// for what they hold, and their interfaces go down, up, and change their MTU and address.
#include "user_fuzz_link.hpp"

#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "user_fuzz_netlink.hpp"
#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

using netlink::Message;

constexpr uint32_t kLinks = 2;
constexpr uint32_t kDevicesMax = 8;
constexpr uint16_t kDriverDetails = 97;  // RDMA_NLDEV_ATTR_DRIVER_DETAILS of later headers

std::string interface_of(uint32_t i, bool far = false) {
    return "fz" + std::to_string(i) + (far ? "b" : "a");
}
std::string device_of(uint32_t i) { return "tcpqpfz" + std::to_string(i); }

// There is no udev in a guest; any user may open what is new.
void make_nodes() {
    for (uint32_t i = 0; i < kDevicesMax; i++) {
        const std::string name = "uverbs" + std::to_string(i);
        std::ifstream number("/sys/class/infiniband_verbs/" + name + "/dev");
        unsigned major = 0, minor = 0;
        char colon = 0;
        if (!(number >> major >> colon >> minor))
            continue;
        const std::string path = "/dev/infiniband/" + name;
        struct stat now {};
        if (!stat(path.c_str(), &now) && now.st_rdev != makedev(major, minor))
            (void)unlink(path.c_str());
        (void)mknod(path.c_str(), S_IFCHR | 0666, makedev(major, minor));
        (void)chmod(path.c_str(), 0666);
    }
}

int op_veth(Player& p) {
    const uint32_t i = p.dice.below(kLinks);
    p.note(i);
    Message m(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
    m.add(IFLA_IFNAME, interface_of(i));
    m.nest(IFLA_LINKINFO, [&](Message& info) {
        info.add(IFLA_INFO_KIND, std::string("veth"));
        info.nest(IFLA_INFO_DATA, [&](Message& data) {
            data.nest(VETH_INFO_PEER, [&](Message& peer) {
                // the peer's header comes before its attributes
                const ifinfomsg none{};
                peer.raw(&none, sizeof none);
                peer.add(IFLA_IFNAME, interface_of(i, true));
            });
        });
    });
    if (const int error = netlink::ask(NETLINK_ROUTE, m))
        return error;
    for (const bool far : {false, true})
        (void)netlink::link_up(if_nametoindex(interface_of(i, far).c_str()), true);
    return 0;
}

int op_veth_delete(Player& p) {
    ifinfomsg link{};
    link.ifi_index = static_cast<int>(
        if_nametoindex(interface_of(p.dice.below(kLinks), p.dice.below(2)).c_str()));
    return link.ifi_index ? netlink::ask(NETLINK_ROUTE, Message(RTM_DELLINK, 0, link)) : kNothing;
}

int op_add(Player& p) {
    const uint32_t i = p.dice.below(kLinks);
    p.note(i);
    const int error = netlink::add_rdma(
        device_of(i), p.dice.one_in(16) ? "lo" : interface_of(i, p.dice.one_in(8)));
    make_nodes();
    return error;
}

int op_delete(Player& p) { return netlink::delete_rdma(device_of(p.dice.below(kLinks))); }

int op_change(Player& p) {
    ifinfomsg link{};
    link.ifi_index = static_cast<int>(
        if_nametoindex(interface_of(p.dice.below(kLinks), p.dice.below(2)).c_str()));
    if (!link.ifi_index)
        return kNothing;
    const uint32_t what = p.dice.below(6);
    p.note(link.ifi_index, what);
    if (what < 2)
        return netlink::link_up(static_cast<unsigned>(link.ifi_index), what);
    Message m(RTM_NEWLINK, 0, link);
    if (what == 2) {
        m.add(IFLA_MTU, 68 + p.dice.below(9000));
    } else if (what == 3) {
        const uint8_t address[6] = {2, 0, 0, 0, 0, static_cast<uint8_t>(p.dice.below(256))};
        m.add(IFLA_ADDRESS, address, sizeof address);
    } else if (what == 4) {
        m.add(IFLA_NET_NS_PID, static_cast<uint32_t>(1 + p.dice.below(2)));
    } else {
        ifaddrmsg at{};
        at.ifa_family = AF_INET, at.ifa_prefixlen = 24,
        at.ifa_index = static_cast<uint32_t>(link.ifi_index);
        const uint8_t address[4] = {10, 99, static_cast<uint8_t>(p.dice.below(4)), 1};
        Message a(static_cast<uint16_t>(p.dice.below(2) ? RTM_NEWADDR : RTM_DELADDR), NLM_F_CREATE,
                  at);
        a.add(IFA_LOCAL, address, sizeof address);
        return netlink::ask(NETLINK_ROUTE, a);
    }
    return netlink::ask(NETLINK_ROUTE, m);
}

// To a namespace that ends at once, and what is there with it.
int op_namespace(Player& p) {
    const unsigned index = if_nametoindex(interface_of(p.dice.below(kLinks)).c_str());
    if (!index || p.child)
        return kNothing;
    const pid_t child = fork();
    if (child < 0)
        return errno;
    if (!child) {
        const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (unshare(CLONE_NEWNET))
            _exit(1);
        const int away = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        (void)!setns(home, CLONE_NEWNET);
        ifinfomsg link{};
        link.ifi_index = static_cast<int>(index);
        (void)netlink::ask(
            NETLINK_ROUTE,
            Message(RTM_NEWLINK, 0, link).add(IFLA_NET_NS_FD, static_cast<uint32_t>(away)));
        if (p.dice.one_in(2)) {
            Message m(static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SET)),
                      0);
            const int device = netlink::rdma_index(device_of(p.dice.below(kLinks)));
            m.add(RDMA_NLDEV_ATTR_DEV_INDEX, static_cast<uint32_t>(device));
            (void)netlink::ask(NETLINK_RDMA,
                               m.add(RDMA_NLDEV_NET_NS_FD, static_cast<uint32_t>(away)));
        }
        _exit(0);
    }
    return 0;
}

// What any user may ask of every device, and root with the drivers' own details.
int op_resources(Player& p) {
    static constexpr uint32_t kCommands[] = {
        RDMA_NLDEV_CMD_GET,         RDMA_NLDEV_CMD_PORT_GET,      RDMA_NLDEV_CMD_RES_GET,
        RDMA_NLDEV_CMD_RES_QP_GET,  RDMA_NLDEV_CMD_RES_CQ_GET,    RDMA_NLDEV_CMD_RES_MR_GET,
        RDMA_NLDEV_CMD_RES_PD_GET,  RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_CMD_STAT_GET,
        RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_CMD_RES_CTX_GET};
    const uint32_t command = p.dice.of(kCommands);
    p.note(command);
    Message m(static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)), NLM_F_DUMP);
    m.add(RDMA_NLDEV_ATTR_DEV_INDEX, p.dice.below(4));
    const uint8_t details = 1;
    m.add(kDriverDetails, &details, sizeof details);
    if (p.dice.one_in(8))
        m.damage(p.dice.next(), static_cast<uint32_t>(p.dice.wild()));
    return netlink::ask(NETLINK_RDMA, m);
}

constexpr Op kOps[] = {
    {"link_veth_add", 4, op_veth},       {"link_veth_delete", 1, op_veth_delete},
    {"link_rdma_add", 6, op_add},        {"link_rdma_delete", 2, op_delete},
    {"link_change", 4, op_change},       {"link_namespace", 1, op_namespace},
    {"link_resources", 6, op_resources},
};

}  // namespace

void remove_links() {
    for (uint32_t i = 0; i < kLinks; i++) {
        (void)netlink::delete_rdma(device_of(i));
        ifinfomsg link{};
        link.ifi_index = static_cast<int>(if_nametoindex(interface_of(i).c_str()));
        if (link.ifi_index)
            (void)netlink::ask(NETLINK_ROUTE, Message(RTM_DELLINK, 0, link));
    }
}

std::span<const Op> link_ops() { return kOps; }

}  // namespace nupa::fuzz
