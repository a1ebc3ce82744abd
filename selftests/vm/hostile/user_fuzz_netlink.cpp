// SPDX-License-Identifier: BSD-3-Clause
#include "user_fuzz_netlink.hpp"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "base/fd.hpp"

namespace nupa::fuzz::netlink {
namespace {

constexpr int kAnswerS = 5;
constexpr uint32_t kQueuePackets = 1000;
constexpr uint32_t kTicksPerUs = 16;  // of the packet scheduler, nearly

uint16_t rdma_type(uint32_t command) {
    return static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

}  // namespace

Message& Message::add(uint16_t type, const void* value, size_t bytes) {
    const size_t at = NLMSG_ALIGN(header().nlmsg_len);
    if (at + RTA_SPACE(bytes) > bytes_.size())
        return *this;
    rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(bytes)), type};
    std::memcpy(bytes_.data() + at, &attribute, sizeof attribute);
    if (bytes)
        std::memcpy(bytes_.data() + at + RTA_LENGTH(0), value, bytes);
    header().nlmsg_len = static_cast<uint32_t>(at + RTA_SPACE(bytes));
    return *this;
}

Message& Message::raw(const void* value, size_t bytes) {
    const size_t at = NLMSG_ALIGN(header().nlmsg_len);
    if (at + bytes <= bytes_.size()) {
        std::memcpy(bytes_.data() + at, value, bytes);
        header().nlmsg_len = static_cast<uint32_t>(at + bytes);
    }
    return *this;
}

Message& Message::nest(uint16_t type, const std::function<void(Message&)>& fill) {
    const size_t at = NLMSG_ALIGN(header().nlmsg_len);
    add(type, nullptr, 0);
    fill(*this);
    const auto bytes = static_cast<unsigned short>(header().nlmsg_len - at);
    std::memcpy(bytes_.data() + at, &bytes, sizeof bytes);
    return *this;
}

void Message::damage(size_t at, uint32_t value) {
    const size_t words = header().nlmsg_len / 4;
    std::memcpy(bytes_.data() + NLMSG_HDRLEN + at % (words - NLMSG_HDRLEN / 4) * 4, &value,
                sizeof value);
}

int ask(int protocol, const Message& message, const Heard& heard) {
    const tcpqp::Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
    const timeval limit{kAnswerS, 0};
    if (!fd)
        return errno;
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const std::string_view bytes = message.bytes();
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    // an acknowledgement ends every answer
    std::string whole(bytes);
    reinterpret_cast<nlmsghdr*>(whole.data())->nlmsg_flags |= NLM_F_ACK;
    if (sendto(fd.get(), whole.data(), whole.size(), 0, reinterpret_cast<sockaddr*>(&kernel),
               sizeof kernel) < 0)
        return errno;
    alignas(8) std::array<char, 16384> answer;
    for (;;) {
        const ssize_t got = recv(fd.get(), answer.data(), answer.size(), 0);
        if (got < 0)
            return errno;
        auto left = static_cast<unsigned>(got);
        for (auto* m = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(m, left);
             m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type == NLMSG_ERROR)
                return -reinterpret_cast<nlmsgerr*>(NLMSG_DATA(m))->error;
            if (m->nlmsg_type == NLMSG_DONE)
                return 0;
            if (heard)
                heard(*m);
        }
    }
}

int link_up(unsigned index, bool up) {
    ifinfomsg link{};
    link.ifi_index = static_cast<int>(index);
    link.ifi_change = IFF_UP;
    link.ifi_flags = up ? IFF_UP : 0;
    return ask(NETLINK_ROUTE, Message(RTM_NEWLINK, 0, link));
}

int delay(unsigned index, uint32_t us) {
    tcmsg where{};
    where.tcm_ifindex = static_cast<int>(index);
    where.tcm_parent = TC_H_ROOT;
    where.tcm_handle = 0x10000;
    tc_netem_qopt how{};
    how.latency = us * kTicksPerUs;
    how.limit = kQueuePackets;
    Message m(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, where);
    m.add(TCA_KIND, std::string("netem")).add(TCA_OPTIONS, &how, sizeof how);
    return ask(NETLINK_ROUTE, m);
}

int add_rdma(const std::string& device, const std::string& interface) {
    Message m(rdma_type(RDMA_NLDEV_CMD_NEWLINK), 0);
    m.add(RDMA_NLDEV_ATTR_DEV_NAME, device)
        .add(RDMA_NLDEV_ATTR_LINK_TYPE, std::string("tcp_qp"))
        .add(RDMA_NLDEV_ATTR_NDEV_NAME, interface);
    return ask(NETLINK_RDMA, m);
}

int rdma_index(const std::string& device) {
    int found = -1;
    const auto heard = [&](const nlmsghdr& m) {
        uint32_t index = 0;
        bool named = false;
        auto left = static_cast<int>(m.nlmsg_len) - NLMSG_HDRLEN;
        for (auto* a =
                 reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(&m) + NLMSG_HDRLEN);
             RTA_OK(a, left); a = RTA_NEXT(const_cast<rtattr*>(a), left)) {
            const void* value = reinterpret_cast<const char*>(a) + RTA_LENGTH(0);
            if (a->rta_type == RDMA_NLDEV_ATTR_DEV_INDEX)
                std::memcpy(&index, value, sizeof index);
            else if (a->rta_type == RDMA_NLDEV_ATTR_DEV_NAME)
                named = device == static_cast<const char*>(value);
        }
        if (named)
            found = static_cast<int>(index);
    };
    (void)ask(NETLINK_RDMA, Message(rdma_type(RDMA_NLDEV_CMD_GET), NLM_F_DUMP), heard);
    return found;
}

int delete_rdma(const std::string& device) {
    const int index = rdma_index(device);
    if (index < 0)
        return ENODEV;
    Message m(rdma_type(RDMA_NLDEV_CMD_DELLINK), 0);
    m.add(RDMA_NLDEV_ATTR_DEV_INDEX, static_cast<uint32_t>(index));
    return ask(NETLINK_RDMA, m);
}

}  // namespace nupa::fuzz::netlink
