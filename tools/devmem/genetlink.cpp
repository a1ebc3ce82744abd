// SPDX-License-Identifier: BSD-3-Clause
#include "devmem/genetlink.hpp"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tcpqp::devmem {
namespace {

constexpr size_t kAnswerBytes = 64 << 10;
constexpr uint16_t kTypeMask = 0x3fff;  // without the flags NESTED and BYTEORDER

Fd open_socket() {
    Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
    const int on = 1;
    if (fd.get() < 0)
        throw_errno("netlink");
    ::setsockopt(fd.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
    ::setsockopt(fd.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
    return fd;
}

// Calls @each(attribute, value, bytes) until it returns true.
template <typename Each>
void walk(const char* at, size_t bytes, Each each) {
    nlattr head{};
    while (bytes >= sizeof(head)) {
        std::memcpy(&head, at, sizeof(head));
        if (head.nla_len < sizeof(head) || head.nla_len > bytes)
            return;
        if (each(head.nla_type & kTypeMask, at + sizeof(head), head.nla_len - sizeof(head)))
            return;
        const size_t step = std::min<size_t>(NLA_ALIGN(head.nla_len), bytes);
        at += step, bytes -= step;
    }
}

// What the kernel says of its refusal.
std::string refusal(const nlmsghdr& head, const char* body, size_t bytes) {
    std::string text = "refused";
    if (!(head.nlmsg_flags & NLM_F_ACK_TLVS) || bytes < sizeof(nlmsgerr))
        return text;
    walk(body + sizeof(nlmsgerr), bytes - sizeof(nlmsgerr),
         [&](uint16_t type, const char* value, size_t length) {
             if (type != NLMSGERR_ATTR_MSG)
                 return false;
             text = std::string(value, ::strnlen(value, length));
             return true;
         });
    return text;
}

}  // namespace

void Attributes::put(uint16_t type, const void* value, size_t bytes) {
    const nlattr head{.nla_len = static_cast<uint16_t>(sizeof(nlattr) + bytes), .nla_type = type};
    const size_t at = bytes_.size();
    bytes_.resize(at + NLA_ALIGN(head.nla_len));
    std::memcpy(bytes_.data() + at, &head, sizeof(head));
    if (bytes)
        std::memcpy(bytes_.data() + at + sizeof(head), value, bytes);
}

void Attributes::put_text(uint16_t type, const std::string& value) {
    put(type, value.c_str(), value.size() + 1);
}

void Attributes::put_nest(uint16_t type, const Attributes& inner) {
    put(type | NLA_F_NESTED, inner.bytes_.data(), inner.bytes_.size());
}

Genetlink::Genetlink(const std::string& family) : socket_(open_socket()) {
    Attributes name;
    name.put_text(CTRL_ATTR_FAMILY_NAME, family);
    const std::vector<char> answer = exchange(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 2, name);
    const std::optional<uint32_t> id =
        find_attribute(answer, CTRL_ATTR_FAMILY_ID, sizeof(uint16_t));
    if (!id)
        throw_errno(family, EPROTO);
    family_ = static_cast<uint16_t>(*id);
}

std::vector<char> Genetlink::request(uint8_t command, const Attributes& attributes) {
    return exchange(family_, command, 1, attributes);
}

std::vector<char> Genetlink::exchange(uint16_t type, uint8_t command, uint8_t version,
                                      const Attributes& attributes) {
    struct {
        nlmsghdr head;
        genlmsghdr generic;
    } front{};
    static_assert(sizeof(front) == NLMSG_HDRLEN + GENL_HDRLEN);
    front.head = {.nlmsg_len = static_cast<uint32_t>(sizeof(front) + attributes.bytes().size()),
                  .nlmsg_type = type,
                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                  .nlmsg_seq = ++seq_,
                  .nlmsg_pid = 0};
    front.generic.cmd = command;
    front.generic.version = version;
    std::vector<char> message(front.head.nlmsg_len);
    std::memcpy(message.data(), &front, sizeof(front));
    std::memcpy(message.data() + sizeof(front), attributes.bytes().data(),
                attributes.bytes().size());
    if (::send(socket_.get(), message.data(), message.size(), 0) < 0)
        throw_errno("netlink");

    std::vector<char> answer, buffer(kAnswerBytes);
    for (;;) {
        const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
        if (got < 0)
            throw_errno("netlink");
        auto left = static_cast<size_t>(got);
        const char* at = buffer.data();
        nlmsghdr head{};
        while (left >= sizeof(head)) {
            std::memcpy(&head, at, sizeof(head));
            if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > left)
                throw_errno("netlink", EPROTO);
            const char* body = at + NLMSG_HDRLEN;
            const size_t bytes = head.nlmsg_len - NLMSG_HDRLEN;
            if (head.nlmsg_seq == seq_ && head.nlmsg_type == NLMSG_ERROR) {
                int error = 0;
                std::memcpy(&error, body, sizeof(error));
                if (error)
                    throw_errno(refusal(head, body, bytes), -error);
                return answer;
            }
            if (head.nlmsg_seq == seq_ && bytes >= GENL_HDRLEN)
                answer.assign(body + GENL_HDRLEN, body + bytes);
            const size_t step = std::min<size_t>(NLMSG_ALIGN(head.nlmsg_len), left);
            at += step, left -= step;
        }
    }
}

std::optional<uint32_t> find_attribute(const std::vector<char>& attributes, uint16_t type,
                                       size_t bytes) {
    std::optional<uint32_t> found;
    walk(attributes.data(), attributes.size(),
         [&](uint16_t have, const char* value, size_t length) {
             if (have != type || length < bytes)
                 return false;
             uint32_t number = 0;
             std::memcpy(&number, value, std::min(bytes, sizeof(number)));
             found = number;
             return true;
         });
    return found;
}

}  // namespace tcpqp::devmem
