// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/send_ring.hpp"

#include <rdma/rdma_user_rxe.h>
#include <sys/mman.h>
#include <tcp_qp/tcp_qp.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/fd.hpp"
#include "verbs/ioctl.hpp"

namespace tcpqp {
namespace {

// Inline data or SGEs.  Not by the members' names: in C++ a flexible array that
// linux/stddef.h declares in a union lies behind an empty struct, which has a size there.
constexpr size_t kPayloadAt =
    offsetof(rxe_send_wqe, dma) + offsetof(rxe_dma_info, reserved) + sizeof(uint32_t);

rxe_queue_buf& header_of(std::span<unsigned char> memory) noexcept {
    return *reinterpret_cast<rxe_queue_buf*>(memory.data());
}

tcp_qp_sq where(const Context& context, const ibv_qp& qp) {
    tcp_qp_sq sq{};
    std::array attrs{value_attr(TCP_QP_ATTR_SQ_HANDLE, qp.handle),
                     pointer_attr(TCP_QP_ATTR_SQ_RESP, &sq, sizeof(sq))};
    if (const int error = invoke(context.cmd_fd(), UVERBS_OBJECT_QP, TCP_QP_METHOD_SQ, attrs);
        error != 0)
        throw_errno("find the send queue", error);
    return sq;
}

}  // namespace

SendRing::SendRing(const Context& context, const ibv_qp& qp) {
    const tcp_qp_sq sq = where(context, qp);
    void* at = ::mmap(nullptr, sq.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, context.cmd_fd(),
                      static_cast<off_t>(sq.offset));
    if (at == MAP_FAILED)
        throw_errno("map the send queue");
    memory_ = {static_cast<unsigned char*>(at), sq.bytes};
    mask_ = sq.slots - 1;
    slot_bytes_ = sq.slot_bytes;
    inline_bytes_ = sq.inline_bytes;
    next_ = header_of(memory_).producer_index;
}

SendRing::~SendRing() { ::munmap(memory_.data(), memory_.size()); }

// One slot stays empty, as rxe's rings have it.
uint32_t SendRing::room() const noexcept {
    const std::atomic_ref consumer(header_of(memory_).consumer_index);
    return (consumer.load(std::memory_order_acquire) - next_ - 1) & mask_;
}

bool SendRing::fits(const ibv_send_wr& wr) const noexcept {
    if (wr.num_sge > 1)
        return false;
    return (wr.send_flags & IBV_SEND_INLINE) == 0 || wr.num_sge == 0 ||
           wr.sg_list->length <= inline_bytes_;
}

void SendRing::write(uint32_t index, const ibv_send_wr& wr) const noexcept {
    const size_t at = sizeof(rxe_queue_buf) + size_t{index & mask_} * slot_bytes_;
    auto& wqe = *reinterpret_cast<rxe_send_wqe*>(memory_.data() + at);
    wqe.wr.wr_id = wr.wr_id;
    wqe.wr.opcode = wr.opcode;
    wqe.wr.send_flags = wr.send_flags;
    wqe.wr.ex.imm_data = wr.imm_data;
    wqe.wr.wr.rdma.remote_addr = wr.wr.rdma.remote_addr;
    wqe.wr.wr.rdma.rkey = wr.wr.rdma.rkey;
    wqe.dma.num_sge = static_cast<uint32_t>(wr.num_sge);
    wqe.dma.length = 0;
    if (wr.num_sge == 0)
        return;
    wqe.dma.length = wr.sg_list->length;
    const rxe_sge sge{wr.sg_list->addr, wr.sg_list->length, wr.sg_list->lkey};
    unsigned char* payload = memory_.data() + at + kPayloadAt;
    if ((wr.send_flags & IBV_SEND_INLINE) != 0)  // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs
        std::memcpy(payload, reinterpret_cast<const void*>(sge.addr), sge.length);
    else
        std::memcpy(payload, &sge, sizeof sge);
}

int SendRing::post(const ibv_send_wr* chain) noexcept {
    uint32_t count = 0;
    for (const ibv_send_wr* wr = chain; wr != nullptr; wr = wr->next, count++)
        if (!fits(*wr))
            return EINVAL;
    if (count > room())
        return ENOMEM;
    for (const ibv_send_wr* wr = chain; wr != nullptr; wr = wr->next)
        write(next_++, *wr);
    const std::atomic_ref producer(header_of(memory_).producer_index);
    producer.store(next_ & mask_, std::memory_order_release);
    return 0;
}

}  // namespace tcpqp
