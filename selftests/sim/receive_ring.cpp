// SPDX-License-Identifier: BSD-3-Clause
#include "receive_ring.hpp"

#include <algorithm>
#include <bit>

namespace sim {

static_assert(offsetof(rxe_queue_buf, producer_index) == 128 &&
              offsetof(rxe_queue_buf, consumer_index) == 256 &&
              offsetof(rxe_queue_buf, data) == 384);

ReceiveRing::ReceiveRing(Ram& ram, std::uint32_t entries, std::uint32_t sge_max,
                         std::uint32_t index, std::uint16_t first_msn, bool shared)
    : ram_(ram),
      mask_(entries - 1),
      sge_max_(sge_max),
      shared_(shared),
      producer_(index),
      consumer_(index) {
    const std::uint32_t element =
        std::bit_ceil(kSgesAt + sge_max * std::uint32_t{sizeof(nupa::RecvSge)});
    cmd.rq_log2_bytes = static_cast<std::uint8_t>(std::countr_zero(element));
    const std::uint64_t bytes = kElementsAt + std::uint64_t{entries} * element;
    cmd.rq_pages = static_cast<std::uint32_t>((bytes + kPageBytes - 1) / kPageBytes);
    for (std::uint32_t i = 0; i < cmd.rq_pages; i++)
        pages_.push_back(ram.alloc(kPageBytes, kPageBytes));
    cmd.rq_table_addr = ram.alloc(cmd.rq_pages * sizeof(std::uint64_t), sizeof(std::uint64_t));
    for (std::uint32_t i = 0; i < cmd.rq_pages; i++)
        ram.put(cmd.rq_table_addr + i * sizeof(std::uint64_t), pages_[i]);
    cmd.shadow_addr = ram.alloc(sizeof(nupa_qp_shadow) + sizeof(nupa_qp_reads), 64);
    cmd.rq_mask = mask_;
    cmd.rq_base = index - first_msn;
    cmd.rq_sge_max = static_cast<std::uint16_t>(sge_max);
    ram.put<std::uint32_t>(cmd.shadow_addr, first_msn);
    ram.put<std::uint64_t>(cmd.shadow_addr + offsetof(nupa_qp_shadow, reads_addr),
                           cmd.shadow_addr + sizeof(nupa_qp_shadow));
    put32(kProducerAt, index);
    put32(kConsumerAt, index);
    srq_cmd.table_addr = cmd.rq_table_addr;
    srq_cmd.ctl_addr = ram.alloc(sizeof(nupa_srq_ctl), 64);
    srq_cmd.pages = cmd.rq_pages;
    srq_cmd.mask = mask_;
    srq_cmd.sge_max = cmd.rq_sge_max;
    srq_cmd.log2_bytes = cmd.rq_log2_bytes;
    ram.put(srq_cmd.ctl_addr + offsetof(nupa_srq_ctl, index), index);
}

std::uint64_t ReceiveRing::at(std::uint64_t offset) const noexcept {
    return pages_[offset / kPageBytes] + offset % kPageBytes;
}

std::uint64_t ReceiveRing::element(std::uint32_t index) const noexcept {
    return kElementsAt + (std::uint64_t{index & mask_} << cmd.rq_log2_bytes);
}

void ReceiveRing::put32(std::uint64_t offset, std::uint32_t value) noexcept {
    ram_.put(at(offset), value);
}

std::uint32_t ReceiveRing::get32(std::uint64_t offset) const noexcept {
    return ram_.get<std::uint32_t>(at(offset));
}

bool ReceiveRing::full() const noexcept {
    return ((producer_ + 1 - get32(kConsumerAt)) & mask_) == 0;
}

void ReceiveRing::post(const std::vector<nupa::RecvSge>& sges) noexcept {
    const std::uint64_t e = element(producer_);
    put32(e, static_cast<std::uint32_t>(name(names_)));
    put32(e + 4, static_cast<std::uint32_t>(name(names_) >> 32));
    names_++;
    put32(e + kNumSgeAt, static_cast<std::uint32_t>(sges.size()));
    for (std::size_t i = 0; i < sges.size(); i++) {
        const std::uint64_t s = e + kSgesAt + i * sizeof(nupa::RecvSge);
        put32(s, static_cast<std::uint32_t>(sges[i].addr));
        put32(s + 4, static_cast<std::uint32_t>(sges[i].addr >> 32));
        put32(s + 8, sges[i].length);
        put32(s + 12, sges[i].lkey);
    }
    producer_ = (producer_ + 1) & mask_;
    put32(kProducerAt, producer_);
}

void ReceiveRing::scribble_element(std::uint32_t ahead, std::uint32_t word,
                                   std::uint32_t value) noexcept {
    const std::uint32_t words = 1u << (cmd.rq_log2_bytes - 2);
    put32(element(producer_ - ahead) + 4 * std::uint64_t{word % words}, value);
}

void ReceiveRing::scribble_producer(std::uint32_t value) noexcept { put32(kProducerAt, value); }

std::uint32_t ReceiveRing::posted() const noexcept {
    return (get32(kProducerAt) - consumer_) & mask_;
}

std::vector<nupa::RecvSge> ReceiveRing::take() noexcept {
    const std::uint64_t e = element(consumer_);
    std::vector<nupa::RecvSge> sges(std::min(get32(e + kNumSgeAt), sge_max_));
    for (std::size_t i = 0; i < sges.size(); i++) {
        const std::uint64_t s = e + kSgesAt + i * sizeof(nupa::RecvSge);
        sges[i].addr = get32(s) | std::uint64_t{get32(s + 4)} << 32;
        sges[i].length = get32(s + 8);
        sges[i].lkey = get32(s + 12);
    }
    if (shared_)
        used(1);
    return sges;
}

void ReceiveRing::used(std::uint32_t count) noexcept {
    consumer_ = (consumer_ + count) & mask_;
    put32(kConsumerAt, consumer_);
    if (shared_)
        ram_.put(srq_cmd.ctl_addr + offsetof(nupa_srq_ctl, index), consumer_);
}

void ReceiveRing::complete() noexcept {
    ram_.put(cmd.shadow_addr, completed() + 1);
    if (!shared_)
        used(1);
}

void ReceiveRing::own(bool host) noexcept {
    owned_ = host;
    ram_.put<std::uint32_t>(srq_cmd.ctl_addr + offsetof(nupa_srq_ctl, owner),
                            host ? NUPA_CQ_OWNER_HOST : NUPA_CQ_OWNER_NONE);
}

bool ReceiveRing::taken(std::uint32_t count) noexcept {
    const std::uint64_t index = srq_cmd.ctl_addr + offsetof(nupa_srq_ctl, index);
    consumer_ = (consumer_ + count) & mask_;
    const bool right = get32(kConsumerAt) == consumer_ &&
                       ram_.get<std::uint32_t>(index) == consumer_ &&
                       ram_.get<std::uint32_t>(srq_cmd.ctl_addr) ==
                           (owned_ ? NUPA_CQ_OWNER_HOST : NUPA_CQ_OWNER_NONE);
    ram_.accept(at(kConsumerAt), sizeof(std::uint32_t));
    ram_.accept(index, sizeof(std::uint32_t));
    return right;
}

std::uint32_t ReceiveRing::turn_word(std::size_t field) const noexcept {
    return ram_.get<std::uint32_t>(cmd.shadow_addr + field);
}

void ReceiveRing::put_turn_word(std::size_t field, std::uint32_t value) noexcept {
    ram_.put(cmd.shadow_addr + field, value);
}

void ReceiveRing::accept_turn() noexcept {
    for (const std::size_t field :
         {offsetof(nupa_qp_shadow, completed), offsetof(nupa_qp_shadow, done),
          offsetof(nupa_qp_shadow, writes), offsetof(nupa_qp_shadow, solicited),
          offsetof(nupa_qp_shadow, last)})
        ram_.accept(cmd.shadow_addr + field, sizeof(std::uint32_t));
    if (!shared_ && get32(kConsumerAt) == ((cmd.rq_base + completed()) & mask_))
        ram_.accept(at(kConsumerAt), sizeof(std::uint32_t));
}

void ReceiveRing::consumed(std::uint32_t seq) noexcept {
    ram_.put(cmd.shadow_addr + offsetof(nupa_qp_shadow, consumed), seq);
}

std::uint32_t ReceiveRing::completed() const noexcept {
    return ram_.get<std::uint32_t>(cmd.shadow_addr);
}

}  // namespace sim
