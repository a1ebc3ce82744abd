// SPDX-License-Identifier: BSD-3-Clause
// The few netlink requests that a fuzzer has for links and RDMA devices, without starting programs.
#pragma once

#include <linux/netlink.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

namespace nupa::fuzz::netlink {

class Message {
public:
    template <typename Body>
    Message(uint16_t type, uint16_t flags, const Body& body) {
        header().nlmsg_type = type;
        header().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
        header().nlmsg_len = NLMSG_LENGTH(sizeof body);
        std::memcpy(bytes_.data() + NLMSG_HDRLEN, &body, sizeof body);
    }
    Message(uint16_t type, uint16_t flags) {
        header().nlmsg_type = type;
        header().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
        header().nlmsg_len = NLMSG_HDRLEN;
    }
    Message& add(uint16_t type, const void* value, size_t bytes);
    Message& add(uint16_t type, const std::string& text) {
        return add(type, text.c_str(), text.size() + 1);
    }
    Message& add(uint16_t type, uint32_t number) { return add(type, &number, sizeof number); }
    // What @fill adds is inside.
    Message& nest(uint16_t type, const std::function<void(Message&)>& fill);
    Message& raw(const void* value, size_t bytes);
    [[nodiscard]] std::string_view bytes() const { return {bytes_.data(), header_of().nlmsg_len}; }
    // A word of it overwritten.
    void damage(size_t at, uint32_t value);

private:
    nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }
    [[nodiscard]] const nlmsghdr& header_of() const {
        return *reinterpret_cast<const nlmsghdr*>(bytes_.data());
    }
    alignas(8) std::array<char, 1024> bytes_{};
};

using Heard = std::function<void(const nlmsghdr&)>;
// Sends and reads the answer, whatever it is: 0 or an errno.
int ask(int protocol, const Message& message, const Heard& heard = nullptr);

int link_up(unsigned index, bool up);
// All that leaves by the link waits so long.
int delay(unsigned index, uint32_t us);
int add_rdma(const std::string& device, const std::string& interface);
int delete_rdma(const std::string& device);
// -1: there is none.
int rdma_index(const std::string& device);

}  // namespace nupa::fuzz::netlink
