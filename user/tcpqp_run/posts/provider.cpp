// SPDX-License-Identifier: BSD-3-Clause
#include "posts/provider.hpp"

#include <dlfcn.h>
#include <tcp_qp/tcp_qp.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "posts/queue.hpp"
#include "ulp/say.hpp"
#include "ulp/stats_place.hpp"
#include "verbs/ioctl.hpp"

namespace tcpqp::posts {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";
constexpr uint32_t kNoHandle = 0xffffffff;
constexpr int kWatches = 3;  // TCP_QP_ABI_VERSION that has watched send queues

// Only the module's devices know the method; a handle that nobody has is refused after that.
bool is_tcp_qp(const ibv_context& context) noexcept {
    tcp_qp_sq sq{};
    std::array attrs{value_attr(TCP_QP_ATTR_SQ_HANDLE, kNoHandle),
                     pointer_attr(TCP_QP_ATTR_SQ_RESP, &sq, sizeof(sq))};
    return invoke(context.cmd_fd, UVERBS_OBJECT_QP, TCP_QP_METHOD_SQ, attrs) == ENOENT;
}

// Its firmware version is the module's ABI.
int abi_of(ibv_context* context) noexcept {
    ibv_device_attr attr{};
    auto* query = verb<int(ibv_context*, ibv_device_attr*)>("ibv_query_device");
    return query != nullptr && query(context, &attr) == 0 ? std::atoi(attr.fw_ver) : 0;
}

void tell(const ibv_context& context, const char* why) noexcept {
    static std::atomic<bool> told{false};
    const char* said = std::getenv(run::kVerbsVariable);
    run::StatsPlace place;
    if (said == nullptr || !run::parse(said, place) || !place.is_at(STDERR_FILENO) ||
        told.exchange(true))
        return;
    run::say("tcpqp-run: %s: %s %s: used as it is\n", program_invocation_short_name,
             context.device->name, why);
}

const char* why_not(ibv_context* context) noexcept {
    if (!is_tcp_qp(*context))
        return "is no tcp_qp device";
    return abi_of(context) < kWatches ? "has an older tcp_qp module" : nullptr;
}

bool replace_all(ibv_context& context) noexcept {
    ibv_context_ops& ops = context.ops;
    if (!replace(ops.post_send, provider.post_send, ours.post_send))
        return false;
    (void)replace(ops.poll_cq, provider.poll_cq, ours.poll_cq);
    (void)replace(ops.req_notify_cq, provider.req_notify_cq, ours.req_notify_cq);
    if (verbs_context* extended = verbs_get_ctx_op(&context, create_qp_ex))
        (void)replace(extended->create_qp_ex, provider.create_qp_ex, ours.create_qp_ex);
    if (verbs_context* extended = verbs_get_ctx_op(&context, create_cq_ex))
        (void)replace(extended->create_cq_ex, provider.create_cq_ex, ours.create_cq_ex);
    return true;
}

}  // namespace

Provider provider;

void* find_verb(const char* name) noexcept {
    // by a handle of its own: RTLD_NEXT does not see what a library was loaded for alone
    void* library = ::dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
        return nullptr;
    void* at = ::dlsym(library, name);  // of the version that programs of today have
    ::dlclose(library);                 // whoever calls us has it, too
    return at;
}

void take(ibv_context* context) noexcept {
    const int before = errno;
    const char* why = why_not(context);
    if (why == nullptr) {
        lock();
        if (!replace_all(*context))
            why = "has another provider than the first";
        unlock();
    }
    if (why != nullptr)
        tell(*context, why);
    errno = before;
}

}  // namespace tcpqp::posts
