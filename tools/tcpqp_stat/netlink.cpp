// SPDX-License-Identifier: BSD-3-Clause
#include "netlink.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

namespace tcpqp::stat {
namespace {

constexpr size_t kAnswerBytes = 64 << 10;  // a dump's messages come in skbs of 32 KiB at most

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

int hand_on(const nlmsghdr* message, void* each) {
    (*static_cast<const std::function<void(const nlmsghdr*)>*>(each))(message);
    return MNL_CB_OK;
}

// libmnl's own loops are C's.
void walk(const nlattr* at, const char* end, const std::function<void(const nlattr*)>& each) {
    while (::mnl_attr_ok(at, static_cast<int>(end - reinterpret_cast<const char*>(at)))) {
        each(at);
        at = ::mnl_attr_next(at);
    }
}

}  // namespace

Netlink::Netlink(int bus) : socket_(::mnl_socket_open(bus)) {
    if (!socket_ || ::mnl_socket_bind(socket_.get(), 0, MNL_SOCKET_AUTOPID) < 0)
        fail("netlink");
}

nlmsghdr* Netlink::request(uint16_t type) noexcept {
    nlmsghdr* head = ::mnl_nlmsg_put_header(request_.data());
    head->nlmsg_type = type;
    head->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    head->nlmsg_seq = ++seq_;
    return head;
}

void Netlink::dump(nlmsghdr* request, const std::function<void(const nlmsghdr*)>& each) {
    if (::mnl_socket_sendto(socket_.get(), request, request->nlmsg_len) < 0)
        fail("netlink");
    std::vector<char> answer(kAnswerBytes);
    int more = MNL_CB_OK;
    while (more > MNL_CB_STOP) {
        const ssize_t bytes = ::mnl_socket_recvfrom(socket_.get(), answer.data(), answer.size());
        if (bytes < 0)
            fail("netlink");
        more = ::mnl_cb_run(answer.data(), static_cast<size_t>(bytes), seq_,
                            ::mnl_socket_get_portid(socket_.get()), hand_on,
                            const_cast<void*>(static_cast<const void*>(&each)));
        // what changed meanwhile is shown as it was or as it is
        if (more < 0 && errno != EINTR)
            fail("netlink");
        if (more < 0)
            more = MNL_CB_OK;
    }
}

void each_attribute(const nlmsghdr* message, size_t header_bytes,
                    const std::function<void(const nlattr*)>& each) {
    const auto* first = static_cast<const nlattr*>(
        ::mnl_nlmsg_get_payload_offset(message, static_cast<unsigned>(header_bytes)));
    walk(first, static_cast<const char*>(::mnl_nlmsg_get_payload_tail(message)), each);
}

void each_nested(const nlattr* nest, const std::function<void(const nlattr*)>& each) {
    const auto* first = static_cast<const nlattr*>(::mnl_attr_get_payload(nest));
    const char* end = static_cast<const char*>(::mnl_attr_get_payload(nest));
    walk(first, end + ::mnl_attr_get_payload_len(nest), each);
}

uint32_t u32_of(const nlattr* attribute) noexcept {
    uint32_t value = 0;
    if (::mnl_attr_get_payload_len(attribute) >= sizeof(value))
        std::memcpy(&value, ::mnl_attr_get_payload(attribute), sizeof(value));
    return value;
}

uint64_t u64_of(const nlattr* attribute) noexcept {
    uint64_t value = 0;
    if (::mnl_attr_get_payload_len(attribute) >= sizeof(value))
        std::memcpy(&value, ::mnl_attr_get_payload(attribute), sizeof(value));
    return value;
}

std::string_view string_of(const nlattr* attribute) noexcept {
    const char* text = static_cast<const char*>(::mnl_attr_get_payload(attribute));
    return {text, ::strnlen(text, ::mnl_attr_get_payload_len(attribute))};
}

}  // namespace tcpqp::stat
