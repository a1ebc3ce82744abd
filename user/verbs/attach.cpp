// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/attach.hpp"

#include "verbs/ioctl.hpp"

namespace tcpqp {
namespace {

// What the uverbs core answers for a method that the device does not have.
constexpr int kNoMethod = EPROTONOSUPPORT;

int query_handle(const Context& context, uint32_t handle, tcp_qp_info& info) {
    std::array attrs{value_attr(TCP_QP_ATTR_QUERY_HANDLE, handle),
                     pointer_attr(TCP_QP_ATTR_QUERY_INFO, &info, sizeof(info))};
    return invoke(context.cmd_fd(), UVERBS_OBJECT_QP, TCP_QP_METHOD_QUERY, attrs);
}

}  // namespace

Attached attach(const Context& context, const QueuePair& qp, int socket,
                const tcp_qp_attach_req& request) noexcept {
    Attached r;
    std::array attrs{value_attr(TCP_QP_ATTR_ATTACH_HANDLE, qp.handle()),
                     value_attr(TCP_QP_ATTR_ATTACH_SOCKET, static_cast<uint64_t>(socket)),
                     pointer_attr(TCP_QP_ATTR_ATTACH_REQ, &request, sizeof(request)),
                     pointer_attr(TCP_QP_ATTR_ATTACH_RESP, &r.response, sizeof(r.response))};
    r.error = invoke(context.cmd_fd(), UVERBS_OBJECT_QP, TCP_QP_METHOD_ATTACH, attrs);
    return r;
}

int query(const Context& context, const QueuePair& qp, tcp_qp_info& info) noexcept {
    return query_handle(context, qp.handle(), info);
}

int set_bell(const Context& context, const QueuePair& qp, int eventfd, uint32_t count) noexcept {
    const tcp_qp_bell bell{.eventfd = eventfd, .count = count};
    std::array attrs{value_attr(TCP_QP_ATTR_BELL_HANDLE, qp.handle()),
                     inline_attr(TCP_QP_ATTR_BELL_REQ, bell)};
    return invoke(context.cmd_fd(), UVERBS_OBJECT_QP, TCP_QP_METHOD_BELL, attrs);
}

bool is_tcp_qp(const Context& context) noexcept {
    tcp_qp_info info{};
    return query_handle(context, kNoHandle, info) != kNoMethod;
}

const char* reason_name(uint32_t reason) noexcept {
#define NCQP_NAME(name, text) #name,
    static constexpr const char* kNames[] = {TCP_QP_REASONS(NCQP_NAME)};
#undef NCQP_NAME
    return reason < TCP_QP_REASON_COUNT ? kNames[reason] : "UNKNOWN";
}

const char* reason_text(uint32_t reason) noexcept {
#define NCQP_TEXT(name, text) text,
    static constexpr const char* kTexts[] = {TCP_QP_REASONS(NCQP_TEXT)};
#undef NCQP_TEXT
    return reason < TCP_QP_REASON_COUNT ? kTexts[reason] : "a reason this program does not know";
}

const char* engine_name(uint32_t engine) noexcept {
    switch (engine) {
        case TCP_QP_ENGINE_SOFTWARE:
            return "software";
        case TCP_QP_ENGINE_OFFLOAD:
            return "offload";
        default:
            return "auto";
    }
}

}  // namespace tcpqp
