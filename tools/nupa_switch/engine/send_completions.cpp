// SPDX-License-Identifier: BSD-3-Clause
#include "send_completions.hpp"

#include <rdma/ib_user_verbs.h>

#include "disorder.hpp"

namespace nupa {

// A host that says there are more than there can be has none.
std::uint32_t SendCompletions::under_way() const noexcept {
    const std::uint32_t n = __atomic_load_n(&sends_.posted, __ATOMIC_ACQUIRE) -
                            __atomic_load_n(&sends_.completed, __ATOMIC_RELAXED);
    return n <= NUPA_SENDS_MAX ? n : 0;
}

nupa_qp_send SendCompletions::at(std::uint32_t number) const noexcept {
    const nupa_qp_send& from = sends_.send[number % NUPA_SENDS_MAX];
    nupa_qp_send to{};
    to.wr_id = __atomic_load_n(&from.wr_id, __ATOMIC_RELAXED);
    to.end = __atomic_load_n(&from.end, __ATOMIC_RELAXED);
    to.bytes = __atomic_load_n(&from.bytes, __ATOMIC_RELAXED);
    to.opcode = __atomic_load_n(&from.opcode, __ATOMIC_RELAXED);
    return to;
}

std::uint32_t SendCompletions::acknowledged(std::uint32_t ack) const noexcept {
    const std::uint32_t first = __atomic_load_n(&sends_.completed, __ATOMIC_RELAXED);
    const std::uint32_t pending = under_way();
    std::uint32_t n = 0;
    while (n < pending && !seq_before(ack, at(first + n).end))
        n++;
    return n;
}

std::uint32_t SendCompletions::complete(std::uint32_t ack) noexcept {
    if (!acknowledged(ack) || !cq_.take())
        return 0;
    std::uint32_t n = acknowledged(ack);  // the host may have completed some before it was ours
    if (cq_.room() < n)                   // it says that the queue overflows
        n = 0;
    if (n)
        write(n);
    cq_.give(n);
    return n;
}

void SendCompletions::write(std::uint32_t count) noexcept {
    const std::uint32_t first = __atomic_load_n(&sends_.completed, __ATOMIC_RELAXED);
    for (std::uint32_t i = 0; i < count; i++) {
        const nupa_qp_send send = at(first + i);
        ib_uverbs_wc wc{};
        wc.wr_id = send.wr_id;
        wc.opcode = send.opcode;
        wc.byte_len = send.bytes;
        wc.qp_num = qpn_;
        cq_.write(i, wc);
    }
    __atomic_store_n(&sends_.completed, first + count, __ATOMIC_RELAXED);
}

}  // namespace nupa
