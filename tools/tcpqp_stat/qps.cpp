// SPDX-License-Identifier: BSD-3-Clause
#include "qps.hpp"

#include <rdma/rdma_netlink.h>
#include <tcp_qp/tcp_qp.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include "netlink.hpp"

namespace tcpqp::stat {
namespace {

constexpr std::array kStateNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

struct Reason {
    const char* name;
    const char* text;
};
#define TCPQP_STAT_REASON(name, text) {#name, text},
constexpr Reason kReasons[] = {TCP_QP_REASONS(TCPQP_STAT_REASON)};
#undef TCPQP_STAT_REASON

constexpr uint16_t type_of(unsigned command) {
    return static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

struct Device {
    uint32_t index;
    std::string name;
};

std::vector<Device> devices(Netlink& netlink) {
    std::vector<Device> all;
    netlink.dump(netlink.request(type_of(RDMA_NLDEV_CMD_GET)), [&](const nlmsghdr* message) {
        Device device{};
        each_attribute(message, 0, [&](const nlattr* a) {
            if (::mnl_attr_get_type(a) == RDMA_NLDEV_ATTR_DEV_INDEX)
                device.index = u32_of(a);
            else if (::mnl_attr_get_type(a) == RDMA_NLDEV_ATTR_DEV_NAME)
                device.name = string_of(a);
        });
        all.push_back(std::move(device));
    });
    return all;
}

void set_number(QueuePair& qp, std::string_view name, uint64_t value) {
    const std::pair<std::string_view, uint64_t*> known[] = {
        {"socket_cookie", &qp.socket_cookie}, {"tx_credits", &qp.credits},
        {"tx_messages", &qp.tx_messages},     {"tx_bytes", &qp.tx_bytes},
        {"rx_messages", &qp.rx_messages},     {"rx_delivered", &qp.rx_delivered},
        {"rx_placed", &qp.rx_placed},         {"rx_copied", &qp.rx_copied},
    };
    if (name == "reason")
        qp.reason = static_cast<uint32_t>(value);
    for (const auto& [word, to] : known)
        if (word == name)
            *to = value;
}

// A name, and then its value, one behind the other.
void read_details(const nlattr* nest, QueuePair& qp) {
    std::string_view name;
    each_nested(nest, [&](const nlattr* a) {
        switch (::mnl_attr_get_type(a)) {
            case RDMA_NLDEV_ATTR_DRIVER_STRING:
                if (name == "engine")
                    qp.engine = string_of(a);
                name = name.empty() ? string_of(a) : std::string_view();
                break;
            case RDMA_NLDEV_ATTR_DRIVER_U64:
                set_number(qp, name, u64_of(a));
                name = {};
                break;
            case RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE:
                break;
            default:
                name = {};
        }
    });
}

QueuePair read_qp(const nlattr* entry, const std::string& device) {
    QueuePair qp;
    qp.device = device;
    each_nested(entry, [&](const nlattr* a) {
        switch (::mnl_attr_get_type(a)) {
            case RDMA_NLDEV_ATTR_RES_LQPN:
                qp.qpn = u32_of(a);
                break;
            case RDMA_NLDEV_ATTR_RES_STATE:
                if (const uint8_t state = ::mnl_attr_get_u8(a); state < kStateNames.size())
                    qp.state = kStateNames[state];
                break;
            case RDMA_NLDEV_ATTR_RES_PID:
                qp.pid = static_cast<int>(u32_of(a));
                break;
            case RDMA_NLDEV_ATTR_DRIVER:
                read_details(a, qp);
                break;
            default:
                break;
        }
    });
    return qp;
}

void add_queue_pairs(Netlink& netlink, const Device& device, std::vector<QueuePair>& all) {
    nlmsghdr* request = netlink.request(type_of(RDMA_NLDEV_CMD_RES_QP_GET));
    ::mnl_attr_put_u32(request, RDMA_NLDEV_ATTR_DEV_INDEX, device.index);
    netlink.dump(request, [&](const nlmsghdr* message) {
        each_attribute(message, 0, [&](const nlattr* table) {
            if (::mnl_attr_get_type(table) != RDMA_NLDEV_ATTR_RES_QP)
                return;
            each_nested(table, [&](const nlattr* entry) {
                QueuePair qp = read_qp(entry, device.name);
                if (!qp.engine.empty())  // else another driver's
                    all.push_back(std::move(qp));
            });
        });
    });
}

}  // namespace

std::vector<QueuePair> queue_pairs() {
    std::vector<QueuePair> all;
    try {
        Netlink netlink(NETLINK_RDMA);
        for (const Device& device : devices(netlink))
            try {
                add_queue_pairs(netlink, device, all);
            } catch (const std::system_error& e) {
                if (e.code().value() != ENODEV)  // it went between two dumps
                    throw;
            }
    } catch (const std::system_error& e) {
        // ib_core is not loaded, or has nobody who answers
        if (e.code().value() != EPROTONOSUPPORT && e.code().value() != EINVAL)
            throw;
    }
    return all;
}

std::string reason_name(uint32_t reason) {
    return reason < std::size(kReasons) ? kReasons[reason].name : std::to_string(reason);
}

std::string reason_text(uint32_t reason) {
    return reason < std::size(kReasons) ? kReasons[reason].text : "a newer module's reason";
}

}  // namespace tcpqp::stat
