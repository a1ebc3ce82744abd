// SPDX-License-Identifier: BSD-3-Clause
// What the engine may complete, and what it writes then: word by word and in its order, since
// nothing keeps the guest from laying rings and words over each other.
#include <rdma/ib_user_verbs.h>
#include <tcp_qp/tcp_bth_option.h>

#include "engine_model.hpp"

namespace fuzz {

namespace {

constexpr std::uint64_t kProducer = 128, kConsumer = 256, kElements = 384;
constexpr std::size_t kOwner = 0, kIndex = 4, kWaiting = 8;  // of both control structures
static_assert(offsetof(nupa_cq_ctl, owner) == kOwner && offsetof(nupa_srq_ctl, owner) == kOwner);
static_assert(offsetof(nupa_cq_ctl, prod) == kIndex && offsetof(nupa_srq_ctl, index) == kIndex);
static_assert(offsetof(nupa_cq_ctl, waiting) == kWaiting);

bool used(const std::map<std::uint32_t, ModelQp>& qps, std::uint32_t flag,
          __le32 nupa_cmd_qp::*name, std::uint32_t id) {
    return std::any_of(qps.begin(), qps.end(), [&](const auto& qp) {
        return qp.second.cmd.flags & flag && qp.second.cmd.*name == id;
    });
}

}  // namespace

std::vector<std::uint64_t> Model::pages_at(std::uint64_t table, std::uint32_t pages) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < pages; i++)
        all.push_back(memory_.read<std::uint64_t>(table + 8 * i));
    return all;
}

void Model::created(std::uint32_t id, const nupa_cmd_cq& cmd) {
    const ModelQueue cq{
        cmd.ctl_addr, cmd.mask, cmd.flags, 0, 0, pages_at(cmd.table_addr, cmd.pages)};
    require(cqs.emplace(id, cq).second, "a CQ's number is used once");
}

void Model::created(std::uint32_t id, const nupa_cmd_srq& cmd) {
    const ModelQueue srq{cmd.ctl_addr, cmd.mask,       0,
                         cmd.sge_max,  cmd.log2_bytes, pages_at(cmd.table_addr, cmd.pages)};
    require(srqs.emplace(id, srq).second, "an SRQ's number is used once");
}

bool Model::cq_destroyed(std::uint32_t id) {
    return !used(qps, NUPA_QP_F_COMPLETE, &nupa_cmd_qp::cq, id) &&
           !used(qps, NUPA_QP_F_SENDS, &nupa_cmd_qp::send_cq, id) && cqs.erase(id) == 1;
}

bool Model::srq_destroyed(std::uint32_t id) {
    return !used(qps, NUPA_QP_F_SRQ, &nupa_cmd_qp::srq, id) && srqs.erase(id) == 1;
}

const ModelQueue* Model::srq_of(const ModelQp& qp) const {
    return qp.cmd.flags & NUPA_QP_F_SRQ ? &srqs.at(qp.cmd.srq) : nullptr;
}

Model::Whole Model::whole(const tcp_bth& b, std::uint32_t bytes) {
    Whole all{1, bytes, b.msn, true};
    switch (b.opcode) {
        case TCP_BTH_OP_WRITE_TRAIN:
        case TCP_BTH_OP_SEND_TRAIN:
            require(b.mbo % b.length == 0 && bytes % b.length == 0, "whole messages of a train");
            all = {bytes / b.length, b.length, static_cast<std::uint16_t>(b.msn + b.mbo / b.length),
                   b.opcode == TCP_BTH_OP_SEND_TRAIN};
            return all;
        case TCP_BTH_OP_WRITE_ONLY:
            all.takes_receives = false;
            break;
        case TCP_BTH_OP_SEND_ONLY:
        case TCP_BTH_OP_SEND_ONLY_IMM:
        case TCP_BTH_OP_WRITE_ONLY_IMM:
            break;
        default:
            require(false, "SENDs and WRITEs alone are completed");
    }
    require(b.mbo == 0 && (b.ver == 0 || b.length == bytes), "a whole message");
    return all;
}

void Model::take_turn(const ModelQp& qp, const tcp_bth& b, std::uint32_t seq, const Whole& all) {
    require(qp.cmd.flags & NUPA_QP_F_COMPLETE && all.count, "the QP has completions");
    require(!qp.has_tsval || !(b.flags & TCP_BTH_F_TIMESTAMP) ||
                static_cast<std::int32_t>(b.tsval - qp.tsval) >= 0,
            "not older than what was completed");
    const std::uint64_t turn = field(qp, offsetof(nupa_qp_shadow, turn));
    require(memory_.read<std::uint32_t>(turn) == NUPA_TURN_SWITCH, "in turn");
    allow<std::uint32_t>(turn, NUPA_TURN_BUSY);
    require(memory_.read<std::uint32_t>(field(qp, offsetof(nupa_qp_shadow, done))) == seq,
            "what comes next");
    if (srq_of(qp) && tcp_bth_is_send(b.opcode))
        take(qp, all);
}

// The switch becomes the owner of a CQ, or of an SRQ.  False: somebody is.
bool Model::own(const ModelQueue& queue) {
    if (memory_.read<std::uint32_t>(queue.ctl + kOwner) != NUPA_CQ_OWNER_NONE)
        return false;
    allow<std::uint32_t>(queue.ctl + kOwner, NUPA_CQ_OWNER_SWITCH);
    return true;
}

// As the owner of a CQ: for so many more, the one behind the next @place, and the end of it.
std::uint32_t Model::room(const ModelQueue& cq) {
    const auto prod = memory_.read<std::uint32_t>(cq.ctl + kIndex);
    return cq.mask - ((prod - ring32(cq.pages, kConsumer)) & cq.mask);
}

void Model::put(const ModelQueue& cq, std::uint32_t place, const ib_uverbs_wc& wc) {
    const std::uint32_t to = (memory_.read<std::uint32_t>(cq.ctl + kIndex) + place) & cq.mask;
    const std::uint64_t at = kElements + std::uint64_t{to} * NUPA_CQE_BYTES;
    allow(cq.pages.at(at / kPageBytes) + at % kPageBytes, wc);
}

void Model::give(const ModelQueue& cq, std::uint32_t count) {
    if (count) {
        const std::uint32_t prod = memory_.read<std::uint32_t>(cq.ctl + kIndex) + count;
        allow32(cq.pages, kProducer, prod & cq.mask);
        allow(cq.ctl + kIndex, prod);
    }
    allow<std::uint32_t>(cq.ctl + kOwner, NUPA_CQ_OWNER_NONE);
}

// Owner of both queues, with room and receives.
void Model::take(const ModelQp& qp, const Whole& all) {
    const auto completed =
        memory_.read<std::uint32_t>(field(qp, offsetof(nupa_qp_shadow, completed)));
    require(static_cast<std::uint16_t>(completed) == all.msn, "the next number");
    const ModelQueue& cq = cqs.at(qp.cmd.cq);
    require(own(cq), "nobody's CQ");
    require(room(cq) >= all.count, "room for the completions");
    if (const ModelQueue* srq = srq_of(qp)) {
        require(own(*srq), "nobody's SRQ");
        const auto index = memory_.read<std::uint32_t>(srq->ctl + kIndex);
        require(((ring32(srq->pages, kProducer) - index) & srq->mask) >= all.count,
                "a receive is posted for each");
    } else {
        const std::uint32_t posted =
            (ring32(qp.rq_pages, kProducer) - qp.cmd.rq_base - completed) & qp.cmd.rq_mask;
        require(posted >= all.count, "a receive is posted for each");
    }
}

// SENDs go to the next receives, whichever their numbers are.
void Model::shared(const ModelQp& qp, const Whole& all, std::span<const std::uint8_t> left,
                   std::vector<Piece>& pieces) {
    const ModelQueue& srq = *srq_of(qp);
    require(left.size() <= NUPA_SRQ_BURST_MAX_BYTES, "not too long for an SRQ");
    const auto index = memory_.read<std::uint32_t>(srq.ctl + kIndex);
    for (std::uint32_t i = 0; i < all.count; i++) {
        const std::uint64_t wqe =
            kElements + (std::uint64_t{(index + i) & srq.mask} << srq.log2_bytes);
        pieces_of(srq.pages, wqe, srq.sge_max, 0, left.first(all.length), pieces);
        left = left.subspan(all.length);
    }
}

void Model::tell(const ModelQp& qp, const tcp_bth& b, const Whole& all) {
    const ModelQueue& cq = cqs.at(qp.cmd.cq);
    const ModelQueue* srq = srq_of(qp);
    const bool write = tcp_bth_is_write(b.opcode);
    ib_uverbs_wc wc{};
    wc.opcode = write ? 129 : 128;
    wc.byte_len = all.length;
    wc.qp_num = wc.src_qp = qp.qpn;
    wc.port_num = 1;
    if (b.opcode == TCP_BTH_OP_SEND_ONLY_IMM || write)
        wc.ex.imm_data = __builtin_bswap32(write ? b.dma_length : b.ext4), wc.wc_flags = 2;
    const std::vector<std::uint64_t>& ring = srq ? srq->pages : qp.rq_pages;
    for (std::uint32_t i = 0; i < all.count; i++) {
        const std::uint32_t index =
            srq ? (memory_.read<std::uint32_t>(srq->ctl + kIndex) + i) & srq->mask
                : (qp.cmd.rq_base + static_cast<std::uint16_t>(all.msn + i)) & qp.cmd.rq_mask;
        const std::uint64_t wqe =
            kElements + (std::uint64_t{index} << (srq ? srq->log2_bytes : qp.cmd.rq_log2_bytes));
        wc.wr_id = ring32(ring, wqe) | std::uint64_t{ring32(ring, wqe + 4)} << 32;
        put(cq, i, wc);
    }
    const std::uint64_t solicited = field(qp, offsetof(nupa_qp_shadow, solicited));
    if (b.flags & TCP_BTH_F_SOLICITED)
        allow(solicited, memory_.read<std::uint32_t>(solicited) + all.count);
    const std::uint64_t at = field(qp, offsetof(nupa_qp_shadow, completed));
    const std::uint32_t completed = memory_.read<std::uint32_t>(at) + all.count;
    allow(at, completed);
    if (srq) {
        const std::uint32_t next =
            (memory_.read<std::uint32_t>(srq->ctl + kIndex) + all.count) & srq->mask;
        allow(srq->ctl + kIndex, next);
        allow32(srq->pages, kConsumer, next);
        allow<std::uint32_t>(srq->ctl + kOwner, NUPA_CQ_OWNER_NONE);
    } else {
        allow32(qp.rq_pages, kConsumer, (qp.cmd.rq_base + completed) & qp.cmd.rq_mask);
    }
    give(cq, all.count);
}

void Model::give_turn(ModelQp& qp, const tcp_bth& b, std::uint32_t done, const Whole& all) {
    const std::uint32_t kind = tcp_bth_is_write(b.opcode) ? std::uint32_t{NUPA_LAST_WRITE} : 0;
    allow(field(qp, offsetof(nupa_qp_shadow, last)), all.length | kind);
    allow(field(qp, offsetof(nupa_qp_shadow, done)), done);
    allow<std::uint32_t>(field(qp, offsetof(nupa_qp_shadow, turn)), NUPA_TURN_SWITCH);
    qp.has_tsval = b.flags & TCP_BTH_F_TIMESTAMP;
    qp.tsval = b.tsval;
}

// @begun: the turn and the queues were taken before it was placed.
void Model::completed(ModelQp& qp, const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes,
                      bool begun) {
    const Whole all = whole(b, bytes);
    if (!begun)
        take_turn(qp, b, seq, all);
    if (all.takes_receives) {
        if (!begun)
            take(qp, all);
        tell(qp, b, all);
    } else {
        const std::uint64_t at = field(qp, offsetof(nupa_qp_shadow, writes));
        const auto writes = memory_.read<std::uint32_t>(at);
        require(static_cast<std::uint16_t>(writes) == all.msn, "the next number");
        allow(at, writes + all.count);
    }
    give_turn(qp, b, seq + bytes, all);
}

nupa_qp_send Model::send_at(const ModelQp& qp, std::uint32_t number) {
    return memory_.read<nupa_qp_send>(field(qp, offsetof(nupa_qp_shadow, sends.send)) +
                                      number % NUPA_SENDS_MAX * sizeof(nupa_qp_send));
}

// Of the sends under way, how many lie before @ack?
std::uint32_t Model::sends_before(const ModelQp& qp, std::uint32_t ack) {
    const auto first =
        memory_.read<std::uint32_t>(field(qp, offsetof(nupa_qp_shadow, sends.completed)));
    const std::uint32_t posted =
        memory_.read<std::uint32_t>(field(qp, offsetof(nupa_qp_shadow, sends.posted))) - first;
    std::uint32_t n = 0;
    while (posted <= NUPA_SENDS_MAX && n < posted &&
           static_cast<std::int32_t>(ack - send_at(qp, first + n).end) >= 0)
        n++;
    return n;
}

// What a completed segment acknowledges, as the owner of another queue, or of the same.
std::uint32_t Model::sends(const ModelQp& qp, std::uint32_t ack) {
    if (!(qp.cmd.flags & NUPA_QP_F_SENDS) || !sends_before(qp, ack))
        return 0;
    const ModelQueue& cq = cqs.at(qp.cmd.send_cq);
    if (!own(cq))
        return 0;
    std::uint32_t count = sends_before(qp, ack);
    if (room(cq) < count)
        count = 0;
    const std::uint64_t at = field(qp, offsetof(nupa_qp_shadow, sends.completed));
    const auto first = memory_.read<std::uint32_t>(at);
    for (std::uint32_t i = 0; i < count; i++) {
        const nupa_qp_send send = send_at(qp, first + i);
        ib_uverbs_wc wc{};
        wc.wr_id = send.wr_id, wc.opcode = send.opcode, wc.byte_len = send.bytes;
        wc.qp_num = qp.qpn;
        put(cq, i, wc);
    }
    if (count)
        allow(at, first + count);
    give(cq, count);
    return count;
}

// Who may sleep is woken by what is quiet, once.
void Model::woken(const ModelQp& qp, const nupa::Decision& d) {
    const ModelQueue& cq = cqs.at(qp.cmd.cq);
    require(!d.quiet || cq.flags & NUPA_CQ_F_WAITING, "quiet where the host says who waits");
    const bool waiting = d.quiet && tcp_bth_takes_receive(d.bth.opcode) &&
                         memory_.read<std::uint32_t>(cq.ctl + kWaiting) != 0;
    require(d.wakes == waiting, "woken if somebody may sleep");
    if (waiting)
        allow<std::uint32_t>(cq.ctl + kWaiting, 0);
}

}  // namespace fuzz
