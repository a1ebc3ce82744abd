// SPDX-License-Identifier: BSD-3-Clause
#include "fake_qp.hpp"

#include <rdma/rdma_user_rxe.h>

#include <cstring>
#include <utility>

namespace nupa::testing {
namespace {

constexpr uint8_t kElementLog2 = 8;
constexpr uint16_t kSgeMax = 8;
constexpr uint32_t kCqEntries = 32;
constexpr size_t kWqeHeadBytes = 40;  // struct rxe_recv_wqe up to its SGEs

uint64_t write_table(FakePort& port, const std::vector<uint64_t>& pages) {
    uint64_t table = port.alloc(pages.size() * sizeof(uint64_t));
    std::memcpy(port.ram(table), pages.data(), pages.size() * sizeof(uint64_t));
    return table;
}

}  // namespace

FakeMr::FakeMr(FakePort& port, uint32_t key, uint64_t iova, uint64_t bytes, uint32_t pd,
               uint32_t access)
    : port_(port), key_(key), iova_(iova), bytes_(bytes) {
    size_t count = (iova % kPageBytes + bytes + kPageBytes - 1) / kPageBytes;
    pages_.resize(count);
    for (size_t i = count; i-- > 0;) {
        pages_[i] = port.alloc(kPageBytes);
        port.alloc(kPageBytes);  // a hole
    }
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_REG;
    cmd.id = key;
    cmd.mr.iova = iova;
    cmd.mr.bytes = bytes;
    cmd.mr.table_addr = write_table(port, pages_);
    cmd.mr.pages = static_cast<uint32_t>(count);
    cmd.mr.pd = pd;
    cmd.mr.access = access;
    cmd.mr.page_shift = 12;
    port.must(cmd);
}

uint8_t* FakeMr::byte(uint64_t offset) const {
    uint64_t at = iova_ % kPageBytes + offset;
    return port_.ram(pages_.at(at / kPageBytes)) + at % kPageBytes;
}

Bytes FakeMr::read(uint64_t offset, size_t bytes) const {
    Bytes out(bytes);
    for (size_t i = 0; i < bytes; i++)
        out[i] = *byte(offset + i);
    return out;
}

void FakeMr::fill(uint8_t value) {
    for (uint64_t i = 0; i < bytes_; i++)
        *byte(i) = value;
}

void FakeMr::deregister() {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_DEREG;
    cmd.id = key_;
    port_.must(cmd);
}

FakeCq::FakeCq(FakePort& port, uint32_t id, uint32_t flags)
    : port_(port),
      id_(id),
      ring_(port.alloc(kPageBytes)),
      ctl_(port.alloc(sizeof(nupa_cq_ctl), 64)) {
    static_assert(sizeof(rxe_queue_buf) + kCqEntries * NUPA_CQE_BYTES <= kPageBytes);
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_CQ_CREATE;
    cmd.id = id;
    cmd.cq.table_addr = write_table(port, {ring_});
    cmd.cq.ctl_addr = ctl_;
    cmd.cq.pages = 1;
    cmd.cq.mask = kCqEntries - 1;
    cmd.cq.flags = flags;
    port.must(cmd);
}

void FakeCq::wait() {
    __atomic_store_n(&ctl().waiting, 1u, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

bool FakeCq::waiting() const { return __atomic_load_n(&ctl().waiting, __ATOMIC_RELAXED) != 0; }

uint32_t FakeCq::completions() const {
    return __atomic_load_n(&port_.at<rxe_queue_buf>(ring_)->producer_index, __ATOMIC_ACQUIRE);
}

ib_uverbs_wc FakeCq::completion(uint32_t index) const {
    ib_uverbs_wc wc;
    std::memcpy(&wc, port_.ram(ring_ + sizeof(rxe_queue_buf) + index % kCqEntries * NUPA_CQE_BYTES),
                sizeof(wc));
    return wc;
}

void FakeCq::poll() {
    __atomic_store_n(&port_.at<rxe_queue_buf>(ring_)->consumer_index, completions(),
                     __ATOMIC_RELEASE);
}

nupa_admin_status FakeCq::destroy() {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_CQ_DESTROY;
    cmd.id = id_;
    return port_.admin_status(cmd);
}

FakeRing::FakeRing(FakePort& port, uint32_t entries, uint32_t base)
    : port_(port), mask_(entries - 1), producer_(base) {
    uint64_t bytes = sizeof(rxe_queue_buf) + (uint64_t{entries} << kElementLog2);
    ring_ = port.alloc(bytes);
    port.at<rxe_queue_buf>(ring_)->producer_index = base;
    for (uint64_t at = 0; at < bytes; at += kPageBytes)
        pages_.push_back(ring_ + at);
    port.alloc(kPageBytes);  // the last page is whole
}

void FakeRing::post(const std::vector<std::pair<uint64_t, uint32_t>>& sges, uint32_t lkey,
                    uint64_t wr_id) {
    uint8_t* wqe =
        port_.ram(ring_) + sizeof(rxe_queue_buf) + (uint64_t{producer_ & mask_} << kElementLog2);
    std::memset(wqe, 0, 1u << kElementLog2);
    auto* recv = reinterpret_cast<rxe_recv_wqe*>(wqe);
    recv->wr_id = wr_id;
    recv->dma.num_sge = static_cast<uint32_t>(sges.size());
    for (size_t i = 0; i < sges.size(); i++) {
        rxe_sge sge{};
        sge.addr = sges[i].first;
        sge.length = sges[i].second;
        sge.lkey = lkey;
        recv->dma.length += sge.length;
        std::memcpy(wqe + kWqeHeadBytes + i * sizeof(sge), &sge, sizeof(sge));
    }
    producer_ = (producer_ + 1) & mask_;
    __atomic_store_n(&port_.at<rxe_queue_buf>(ring_)->producer_index, producer_, __ATOMIC_RELEASE);
}

uint32_t FakeRing::consumed() const {
    return __atomic_load_n(&port_.at<rxe_queue_buf>(ring_)->consumer_index, __ATOMIC_ACQUIRE);
}

uint64_t FakeRing::write_table() const { return testing::write_table(port_, pages_); }

FakeSrq::FakeSrq(FakePort& port, uint32_t id, uint32_t entries)
    : ring(port, entries, 0), port_(port), id_(id), ctl_(port.alloc(sizeof(nupa_srq_ctl), 64)) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_SRQ_CREATE;
    cmd.id = id;
    cmd.srq.table_addr = ring.write_table();
    cmd.srq.ctl_addr = ctl_;
    cmd.srq.pages = ring.pages();
    cmd.srq.mask = ring.mask();
    cmd.srq.sge_max = kSgeMax;
    cmd.srq.log2_bytes = kElementLog2;
    port.must(cmd);
}

uint32_t FakeSrq::index() const { return __atomic_load_n(&ctl().index, __ATOMIC_ACQUIRE); }

void FakeSrq::own(bool host) {
    __atomic_store_n(&ctl().owner, uint32_t{host ? NUPA_CQ_OWNER_HOST : NUPA_CQ_OWNER_NONE},
                     __ATOMIC_RELEASE);
}

nupa_admin_status FakeSrq::destroy() {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_SRQ_DESTROY;
    cmd.id = id_;
    return port_.admin_status(cmd);
}

nupa_admin_cmd FakeQp::command(const TcpFrame& incoming, const QpShape& shape) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_QP_CREATE;
    cmd.id = shape.qpn;
    nupa_flow& flow = cmd.qp.flow;
    TcpFrame bare = incoming;
    bare.payload.clear();
    Bytes header = build_tcp(bare, false);
    const uint8_t* ip = header.data() + kEthernetBytes;
    flow.family = incoming.v6 ? 6 : 4;
    std::memcpy(flow.saddr, ip + (incoming.v6 ? 8 : 12), incoming.v6 ? 16 : 4);
    std::memcpy(flow.daddr, ip + (incoming.v6 ? 24 : 16), incoming.v6 ? 16 : 4);
    std::memcpy(&flow.sport, ip + (incoming.v6 ? 40 : 20), 2);
    std::memcpy(&flow.dport, ip + (incoming.v6 ? 42 : 22), 2);
    cmd.qp.pd = shape.pd;
    cmd.qp.flags = shape.flags;
    cmd.qp.rcv_nxt = incoming.seq;
    cmd.qp.rcv_wscale = shape.wscale;
    cmd.qp.cq = shape.cq;
    cmd.qp.srq = shape.srq;
    if (shape.flags & NUPA_QP_F_SRQ)
        return cmd;
    cmd.qp.rq_log2_bytes = kElementLog2;
    cmd.qp.rq_sge_max = kSgeMax;
    cmd.qp.rq_mask = shape.rq_entries - 1;
    cmd.qp.rq_base = shape.rq_base;
    return cmd;
}

FakeQp::FakeQp(FakePort& port, const TcpFrame& incoming, const QpShape& shape)
    : port_(port), shape_(shape), ring_(port, shape.rq_entries, shape.rq_base) {
    shadow_ = port.alloc(sizeof(nupa_qp_shadow), 64);
    nupa_admin_cmd cmd = command(incoming, shape);
    if (!(shape.flags & NUPA_QP_F_SRQ)) {
        cmd.qp.rq_pages = ring_.pages();
        cmd.qp.rq_table_addr = ring_.write_table();
    }
    cmd.qp.shadow_addr = shadow_;
    port.must(cmd);
}

void FakeQp::complete(uint32_t messages) {
    completed_ += messages;
    __atomic_store_n(&port_.at<nupa_qp_shadow>(shadow_)->completed, completed_, __ATOMIC_RELEASE);
}

void FakeQp::give_turn(uint32_t seq) {
    auto* shadow = port_.at<nupa_qp_shadow>(shadow_);
    shadow->done = seq;
    __atomic_store_n(&shadow->turn, uint32_t{NUPA_TURN_SWITCH}, __ATOMIC_RELEASE);
}

void FakeQp::have_room() {
    __atomic_store_n(&port_.at<nupa_qp_shadow>(shadow_)->later, 1u, __ATOMIC_RELEASE);
}

void FakeQp::take_turn() {
    __atomic_store_n(&port_.at<nupa_qp_shadow>(shadow_)->turn, uint32_t{NUPA_TURN_HOST},
                     __ATOMIC_RELEASE);
}

void FakeQp::consume(uint32_t seq) {
    __atomic_store_n(&port_.at<nupa_qp_shadow>(shadow_)->consumed, seq, __ATOMIC_RELEASE);
}

nupa_admin_status FakeQp::destroy() {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_QP_DESTROY;
    cmd.id = shape_.qpn;
    return port_.admin_status(cmd);
}

namespace {

TcpFrame message(TcpFrame base, tcp_bth bth, Bytes payload, bool timestamps) {
    bth.ver = 1;
    bth.start_seq = base.seq;
    bth.length = static_cast<uint32_t>(payload.size());
    if (timestamps) {
        bth.flags |= TCP_BTH_F_TIMESTAMP;
        bth.tsval = 0x11223344;
        bth.tsecr = 0x55667788;
    }
    base.options = bth_option(bth);
    base.payload = std::move(payload);
    base.flags = kAck | kPsh;
    return base;
}

}  // namespace

TcpFrame send_message(TcpFrame base, uint16_t msn, Bytes payload, bool timestamps) {
    tcp_bth bth{};
    bth.opcode = TCP_BTH_OP_SEND_ONLY;
    bth.msn = msn;
    return message(std::move(base), bth, std::move(payload), timestamps);
}

TcpFrame write_message(TcpFrame base, uint16_t msn, Bytes payload, uint64_t va, uint32_t rkey) {
    tcp_bth bth{};
    bth.opcode = TCP_BTH_OP_WRITE_ONLY;
    bth.msn = msn;
    bth.ext_bytes = TCP_BTH_RETH_BYTES;
    bth.va = va;
    bth.rkey = rkey;
    bth.dma_length = static_cast<uint32_t>(payload.size());
    return message(std::move(base), bth, std::move(payload), true);
}

TcpFrame ack_of(const TcpFrame& f, uint32_t ack) {
    TcpFrame back = f;
    std::swap(back.src, back.dst);
    std::swap(back.saddr, back.daddr);
    std::swap(back.sport, back.dport);
    back.seq = f.ack;
    back.ack = ack;
    back.flags = kAck;
    back.options.clear();
    back.payload.clear();
    return back;
}

}  // namespace nupa::testing
