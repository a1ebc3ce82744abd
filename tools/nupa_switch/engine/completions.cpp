// SPDX-License-Identifier: BSD-3-Clause
#include "completions.hpp"

#include <rdma/ib_user_verbs.h>
#include <tcp_qp/tcp_bth_option.h>

#include <cstddef>
#include <utility>

#include "disorder.hpp"
#include "endian.hpp"

namespace nupa {

namespace {

// As the kernel's enum ib_wc_opcode and ib_wc_flags, which librxe hands on.
constexpr std::uint32_t kWcRecv = 1 << 7, kWcRecvWriteImm = kWcRecv + 1, kWcWithImm = 1 << 1;

void store(std::uint32_t& field, std::uint32_t value) noexcept {
    __atomic_store_n(&field, value, __ATOMIC_RELAXED);
}

std::uint32_t immediate(const tcp_bth& b) noexcept {
    return tcp_bth_is_write(b.opcode) ? b.dma_length : b.ext4;
}

}  // namespace

nupa_admin_status Completions::init(const HostMemory& memory, std::uint32_t qpn,
                                    const nupa_cmd_qp& cmd) noexcept {
    shadow_ = nullptr;
    constexpr std::uint32_t kMore = NUPA_QP_F_SRQ | NUPA_QP_F_SENDS;
    if (!(cmd.flags & NUPA_QP_F_COMPLETE))
        return cmd.cq || cmd.srq || cmd.send_cq || cmd.flags & kMore ? NUPA_E_INVALID : NUPA_OK;
    if ((cmd.srq && !(cmd.flags & NUPA_QP_F_SRQ)) ||
        (cmd.send_cq && !(cmd.flags & NUPA_QP_F_SENDS)))
        return NUPA_E_INVALID;
    if (cmd.flags & (NUPA_QP_F_NO_RQ | NUPA_QP_F_STREAM) ||
        cmd.shadow_addr % alignof(nupa_qp_shadow) != 0)
        return NUPA_E_INVALID;
    const std::size_t bytes =
        cmd.flags & NUPA_QP_F_SENDS ? sizeof(nupa_qp_shadow) : offsetof(nupa_qp_shadow, sends);
    std::byte* at = memory.at(cmd.shadow_addr, bytes);
    if (!at)
        return NUPA_E_ADDRESS;
    shadow_ = reinterpret_cast<nupa_qp_shadow*>(at);
    qpn_ = qpn;
    return NUPA_OK;
}

// Of a turn of the host's the mark may be so old that it is no number of this window.
bool Completions::finished(std::uint32_t seq) const noexcept {
    return cq_ && load(shadow_->turn) == NUPA_TURN_SWITCH && !seq_after(seq, load(shadow_->done));
}

Completions::Messages Completions::messages(const tcp_bth& b, std::uint32_t bytes) noexcept {
    const tcp_bth_op_info& op = *tcp_bth_op(b.opcode);
    if (tcp_bth_is_even_train(b.opcode)) {
        if (b.length == 0 || b.mbo % b.length || bytes % b.length)
            return {};
        return {bytes / b.length, b.length, static_cast<std::uint16_t>(b.msn + b.mbo / b.length),
                !tcp_bth_is_write(b.opcode)};
    }
    const bool whole =
        b.mbo == 0 && (b.ver == 1 ? b.length == bytes : op.position == TCP_BTH_POS_ONLY);
    // To invalidate a key is the host's.
    if (!whole || op.ext == TCP_BTH_EXT_IETH ||
        (op.kind != TCP_BTH_KIND_SEND && op.kind != TCP_BTH_KIND_WRITE))
        return {};
    return {1, bytes, b.msn, tcp_bth_takes_receive(b.opcode)};
}

// Who spins looks for both, and answers before the host has to hear of anything.
bool Completions::sleeper_awaits_sends() const noexcept {
    if (!load(shadow_->awaits) && !(send_cq_ && sends().under_way()))
        return false;
    return cq_->is_waited_for() || (send_cq_ && send_cq_->is_waited_for());
}

std::uint32_t Completions::complete_sends(std::uint32_t ack) noexcept {
    return send_cq_ ? sends().complete(ack) : 0;
}

bool Completions::send_is_waited_for(bool receive) const noexcept {
    return !(receive && send_cq_ == cq_) && send_cq_->may_be_waited_for();
}

bool Completions::acked_late() noexcept {
    const std::uint32_t late = load(shadow_->late);
    return std::exchange(late_, late) != late;
}

bool Completions::ends_have_room() const noexcept { return load(shadow_->later) != 0; }

// TCP refuses what is older (PAWS), and that did not begin at just the next byte by chance.
bool Completions::newer(const tcp_bth& b) const noexcept {
    return !has_tsval_ || !(b.flags & TCP_BTH_F_TIMESTAMP) || !seq_before(b.tsval, tsval_);
}

bool Completions::begin(const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes) noexcept {
    if (!cq_ || load(shadow_->turn) != NUPA_TURN_SWITCH || load(shadow_->done) != seq || !newer(b))
        return false;
    all_ = messages(b, bytes);
    std::uint32_t turn = NUPA_TURN_SWITCH;
    if (!all_.count || !__atomic_compare_exchange_n(&shadow_->turn, &turn, NUPA_TURN_BUSY, false,
                                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    if (load(shadow_->done) == seq)  // it may have been the host's turn meanwhile
        return true;
    end(b, seq, false);
    return false;
}

std::uint32_t Completions::end(const tcp_bth& b, std::uint32_t done, bool completed) noexcept {
    if (completed) {
        const std::uint32_t kind = tcp_bth_is_write(b.opcode) ? std::uint32_t{NUPA_LAST_WRITE} : 0;
        store(shadow_->last, all_.length | kind);
        // After the counts: who sees that these bytes are done knows how many messages they were.
        __atomic_store_n(&shadow_->done, done, __ATOMIC_RELEASE);
        has_tsval_ = b.flags & TCP_BTH_F_TIMESTAMP;
        tsval_ = b.tsval;
    }
    __atomic_store_n(&shadow_->turn, NUPA_TURN_SWITCH, __ATOMIC_RELEASE);
    return completed ? all_.count : 0;
}

std::uint32_t Completions::complete(const ReceiveQueue& rq, const tcp_bth& b, std::uint32_t seq,
                                    std::uint32_t bytes) noexcept {
    if (!begin(b, seq, bytes))
        return 0;
    const bool taken = all_.untagged && take_queues(&rq);
    if (taken)
        tell(&rq, b);
    return end(b, seq + bytes, all_.untagged ? taken : writes());
}

bool Completions::claim(const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes) noexcept {
    if (!srq_ || !begin(b, seq, bytes))
        return false;
    if (take_queues(nullptr))
        return true;
    end(b, seq, false);
    return false;
}

std::uint32_t Completions::settle(const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes,
                                  bool placed) noexcept {
    if (placed) {
        tell(nullptr, b);
    } else {
        srq_->give(0);
        cq_->give(0);
    }
    return end(b, seq + bytes, placed);
}

bool Completions::writes() noexcept {
    if (static_cast<std::uint16_t>(load(shadow_->writes)) != all_.msn)
        return false;
    store(shadow_->writes, load(shadow_->writes) + all_.count);
    return true;
}

// Where the next messages are completed, and what they take.
bool Completions::take_queues(const ReceiveQueue* rq) noexcept {
    if (static_cast<std::uint16_t>(load(shadow_->completed)) != all_.msn || !cq_->take())
        return false;
    if (cq_->room() >= all_.count && take_receives(rq))  // the host says that it overflows
        return true;
    cq_->give(0);
    return false;
}

bool Completions::take_receives(const ReceiveQueue* rq) noexcept {
    const auto last = static_cast<std::uint16_t>(all_.msn + all_.count - 1);
    return srq_ ? srq_->take(all_.count) : rq->posted(last);
}

// After take_queues(), which are given back.
void Completions::tell(const ReceiveQueue* rq, const tcp_bth& b) noexcept {
    ib_uverbs_wc wc{};
    wc.opcode = tcp_bth_is_write(b.opcode) ? kWcRecvWriteImm : kWcRecv;
    wc.byte_len = all_.length;
    wc.qp_num = wc.src_qp = qpn_;
    wc.port_num = 1;
    if (tcp_bth_has_immediate(b.opcode)) {
        put_be32(reinterpret_cast<std::uint8_t*>(&wc.ex.imm_data), immediate(b));
        wc.wc_flags = kWcWithImm;
    }
    for (std::uint32_t i = 0; i < all_.count; i++) {
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): without an SRQ there is @rq
        wc.wr_id = srq_ ? srq_->wr_id(i) : rq->wr_id(static_cast<std::uint16_t>(all_.msn + i));
        cq_->write(i, wc);
    }
    if (b.flags & TCP_BTH_F_SOLICITED)
        store(shadow_->solicited, load(shadow_->solicited) + all_.count);
    // The slots are used before the application can post them again.
    const std::uint32_t completed = load(shadow_->completed) + all_.count;
    __atomic_store_n(&shadow_->completed, completed, __ATOMIC_RELEASE);
    if (srq_)
        srq_->give(all_.count);
    else
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the same
        rq->consumed(completed);
    cq_->give(all_.count);
}

}  // namespace nupa
