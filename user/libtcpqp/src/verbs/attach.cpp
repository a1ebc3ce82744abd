// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/attach.hpp"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tcpqp {
namespace {

constexpr uint32_t kNoHandle = 0xffffffff;
// What the uverbs core answers for a method that the device does not have.
constexpr int kNoMethod = EPROTONOSUPPORT;

ib_uverbs_attr value_attr(uint16_t id, uint64_t value) {
    ib_uverbs_attr a{};
    a.attr_id = id;
    a.flags = UVERBS_ATTR_F_MANDATORY;
    a.data = value;
    return a;
}

ib_uverbs_attr pointer_attr(uint16_t id, const void* at, size_t bytes) {
    ib_uverbs_attr a = value_attr(id, reinterpret_cast<uint64_t>(at));
    a.len = static_cast<uint16_t>(bytes);
    return a;
}

template <size_t N>
int invoke(const Context& context, uint16_t method, const std::array<ib_uverbs_attr, N>& attrs) {
    // the header ends in a flexible array, so the call is laid out by hand
    constexpr size_t kBytes = sizeof(ib_uverbs_ioctl_hdr) + N * sizeof(ib_uverbs_attr);
    alignas(ib_uverbs_ioctl_hdr) std::array<unsigned char, kBytes> call{};
    ib_uverbs_ioctl_hdr header{};
    header.length = kBytes;
    header.object_id = UVERBS_OBJECT_QP;
    header.method_id = method;
    header.num_attrs = N;
    header.driver_id = RDMA_DRIVER_RXE;
    std::memcpy(call.data(), &header, sizeof(header));
    std::memcpy(call.data() + sizeof(header), attrs.data(), N * sizeof(ib_uverbs_attr));
    return ::ioctl(context.cmd_fd(), RDMA_VERBS_IOCTL, call.data()) == 0 ? 0 : errno;
}

int query_handle(const Context& context, uint32_t handle, tcp_qp_info& info) {
    return invoke<2>(context, TCP_QP_METHOD_QUERY,
                     {value_attr(TCP_QP_ATTR_QUERY_HANDLE, handle),
                      pointer_attr(TCP_QP_ATTR_QUERY_INFO, &info, sizeof(info))});
}

}  // namespace

Attached attach(const Context& context, const QueuePair& qp, int socket,
                const tcp_qp_attach_req& request) noexcept {
    Attached r;
    r.error = invoke<4>(context, TCP_QP_METHOD_ATTACH,
                        {value_attr(TCP_QP_ATTR_ATTACH_HANDLE, qp.handle()),
                         value_attr(TCP_QP_ATTR_ATTACH_SOCKET, static_cast<uint64_t>(socket)),
                         pointer_attr(TCP_QP_ATTR_ATTACH_REQ, &request, sizeof(request)),
                         pointer_attr(TCP_QP_ATTR_ATTACH_RESP, &r.response, sizeof(r.response))});
    return r;
}

int query(const Context& context, const QueuePair& qp, tcp_qp_info& info) noexcept {
    return query_handle(context, qp.handle(), info);
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
