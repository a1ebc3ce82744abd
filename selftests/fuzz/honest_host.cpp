// SPDX-License-Identifier: BSD-3-Clause
#include "honest_host.hpp"

#include <algorithm>

namespace fuzz {

namespace {

constexpr std::uint32_t kEntries = NUPA_RING_ENTRIES_MIN, kBufBytes = NUPA_RX_BUF_MIN_BYTES;
constexpr std::uint32_t kLongBytes = 2 * kBufBytes, kLongs = 16;  // of them at a time
constexpr std::uint32_t kPd = 1, kRqMask = 15, kRqLog2 = 7;

// Pages.  Those between are never given to anybody.
enum : std::uint64_t {
    kAdminRing = 0 * kPage,
    kAdminComps = 2 * kPage,
    kFills = 4 * kPage,
    kComps = 5 * kPage,
    kSlots = 6 * kPage,
    kTables = 10 * kPage,
    kShadow = 11 * kPage,
    kRq = 12 * kPage,
    kSrq = 13 * kPage,
    kCq = 14 * kPage,
    kWords = 15 * kPage,  // what the kernel keeps for a QP that shares its receives
    kFillBuffers = 16 * kPage,
    kPosted = 50 * kPage,    // of the MR for receives: two pages that receives name
    kUnposted = 52 * kPage,  // of the same MR: two pages that no receive names
    kRemote = 54 * kPage,    // an MR for WRITE, half a page of it
    kOtherPd = 56 * kPage,
    kTxRing = 57 * kPage,
    kTxBuffer = 58 * kPage,
    kLongFills = 62 * kPage,
    kLongBuffers = 64 * kPage,
    kRamPages = 82,
};
constexpr std::uint64_t kSharedShadow = kWords, kSrqCtl = kWords + 64, kCqCtl = kWords + 80;
constexpr std::uint64_t kProducer = 128, kConsumer = 256;  // of a ring
constexpr std::uint32_t kQueueId = 1;                      // of the SRQ and the CQ
constexpr std::uint32_t kReceiveKey = 5, kRemoteKey = 6, kOtherPdKey = 7;
constexpr std::uint64_t kTxBufferBytes = 3 * kPage;
constexpr std::uint64_t kFillBuffersEnd = kFillBuffers + kEntries * std::uint64_t{kBufBytes};
constexpr std::uint64_t kLongBuffersEnd = kLongBuffers + kLongs * std::uint64_t{kLongBytes};

struct Range {
    std::uint64_t from, to;
};
// What the switch may write.
constexpr Range kGiven[] = {
    {kAdminComps, kAdminComps + NUPA_ADMIN_ENTRIES * sizeof(nupa_admin_comp)},
    {kComps, kComps + kEntries * sizeof(nupa_rx_comp)},
    {kSlots, kSlots + kEntries* std::uint64_t{NUPA_RX_SLOT_BYTES}},
    {kSrq + kConsumer, kSrq + kConsumer + 4},
    {kCq, kWords + kPage},
    {kFillBuffers, kFillBuffersEnd},
    {kPosted, kUnposted},
    {kRemote, kRemote + kPage / 2},
    {kLongBuffers, kLongBuffersEnd},
};

nupa_cmd_mr region(std::uint64_t table, std::uint64_t iova, std::uint64_t bytes, std::uint32_t pd,
                   std::uint32_t access) {
    nupa_cmd_mr cmd{};
    cmd.iova = iova, cmd.bytes = bytes, cmd.table_addr = table;
    cmd.pages = static_cast<std::uint32_t>((bytes + kPage - 1) / kPage);
    cmd.pd = pd, cmd.access = access, cmd.page_shift = 12;
    return cmd;
}

}  // namespace

HonestHost::HonestHost(const nupa::daemon::PortContext& context)
    : client(context, "honest", 1, 1, kRamPages), expected_(client.ram.bytes()) {}

void HonestHost::command(nupa_admin_op op, std::uint32_t id, const void* body, std::size_t bytes) {
    nupa_admin_cmd cmd{};
    cmd.op = static_cast<__le16>(op), cmd.id = id;
    std::memcpy(cmd.bytes, body, bytes);
    require(client.command(cmd).status == NUPA_OK, "an honest command is obeyed");
}

void HonestHost::clear(std::uint64_t from, std::uint64_t to) {
    std::memset(client.ram.at(from), 0, to - from);
    std::memset(expected_.data() + from, 0, to - from);
}

// Buffers for what is delivered keep their bytes: nobody reads them before they are written.
void HonestHost::restart(std::uint8_t rx_mode) {
    clear(0, kFillBuffers);
    clear(kFillBuffersEnd, kLongBuffers);
    clear(kLongBuffersEnd, client.ram.bytes());
    client.restart(kAdminRing, kAdminComps);
    sent_ = consumed_ = buffers_used_ = longs_used_ = posted_ = shared_ = polled_ = 0;
    has_longs_ = rx_mode & 0x40;
    for (std::uint64_t i = 0; i < kEntries; i++)
        put<std::uint64_t>(kFills + 8 * i, kFillBuffers + i * kBufBytes);
    for (std::uint64_t i = 0; i < kEntries; i++)
        put<std::uint64_t>(kLongFills + 8 * i, kLongBuffers + i % kLongs * kLongBytes);
    std::uint64_t table = kTables;
    for (const std::uint64_t page : {kPosted + 0 * kPage, kPosted + kPage, kUnposted + 0 * kPage,
                                     kUnposted + kPage, kRemote + 0 * kPage, kOtherPd + 0 * kPage,
                                     kRq + 0 * kPage, kSrq + 0 * kPage, kCq + 0 * kPage}) {
        put<std::uint64_t>(table, page);
        table += 8;
    }
    nupa_cmd_queue tx{};
    tx.ring_addr = kTxRing, tx.entries = kEntries;
    tx.flags = NUPA_TXQ_F_WATCH;
    command(NUPA_ADMIN_TXQ_CREATE, 0, &tx, sizeof tx);
    nupa_cmd_queue rx{};
    rx.ring_addr = kFills, rx.comp_addr = kComps, rx.slot_addr = kSlots;
    rx.entries = rx.comp_entries = kEntries, rx.buf_bytes = kBufBytes;
    rx.flags = rx_mode & 0x80 ? NUPA_RXQ_F_STRICT_SPLIT : 0;
    if (has_longs_) {
        rx.long_ring_addr = kLongFills, rx.long_entries = kEntries;
        rx.long_buf_bytes = kLongBytes;
    }
    command(NUPA_ADMIN_RXQ_CREATE, 0, &rx, sizeof rx);
    client.rx(0).fill_prod = filled_ = kEntries;
    client.rx(0).long_prod = has_longs_ ? kLongs : 0;
    nupa_cmd_rx_mode mode{};
    mode.flags = rx_mode & 15, mode.mtu = NUPA_MTU_MAX;
    mode.run4_max_bytes = has_longs_ ? NUPA_RX_RUN_MAX_BYTES : 0;
    std::copy(kMac.begin(), kMac.end(), mode.mac);
    command(NUPA_ADMIN_RX_MODE, 0, &mode, sizeof mode);
    nupa_cmd_mr mr = region(kTables, 0, 4 * kPage, kPd, NUPA_ACCESS_LOCAL_WRITE);
    command(NUPA_ADMIN_MR_REG, kReceiveKey, &mr, sizeof mr);
    mr = region(kTables + 32, 0x60000, kPage / 2, kPd,
                NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE);
    command(NUPA_ADMIN_MR_REG, kRemoteKey, &mr, sizeof mr);
    mr = region(kTables + 40, 0x70000, kPage, kPd + 1,
                NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE);
    command(NUPA_ADMIN_MR_REG, kOtherPdKey, &mr, sizeof mr);
    for (unsigned flow = 0; flow < 2; flow++) {
        nupa_cmd_qp qp{};
        qp.flow = flow_of(flow), qp.pd = kPd, qp.rcv_nxt = kRcvNxt, qp.rcv_wscale = 4;
        qp.flags = NUPA_QP_F_TX_V0 | NUPA_QP_F_REMOTE_WRITE;
        qp.rq_log2_bytes = kRqLog2, qp.rq_sge_max = 2, qp.rq_mask = kRqMask;
        qp.rq_pages = 1, qp.rq_table_addr = kTables + 48, qp.shadow_addr = kShadow;
        command(NUPA_ADMIN_QP_CREATE, flow, &qp, sizeof qp);
    }
    share_receives();
    for (std::uint32_t slot = 0; slot <= kRqMask; slot++)
        prepare(slot);
    // The admin ring is read, not written.
    std::memcpy(expected_.data() + kAdminRing, client.ram.at(kAdminRing), 2 * kPage);
}

// A QP whose receives the switch takes and completes, beside those of the others.
void HonestHost::share_receives() {
    nupa_cmd_cq cq{};
    cq.table_addr = kTables + 64, cq.ctl_addr = kCqCtl, cq.pages = 1, cq.mask = kRqMask;
    cq.flags = NUPA_CQ_F_WAITING;
    command(NUPA_ADMIN_CQ_CREATE, kQueueId, &cq, sizeof cq);
    nupa_cmd_srq srq{};
    srq.table_addr = kTables + 56, srq.ctl_addr = kSrqCtl, srq.pages = 1, srq.mask = kRqMask;
    srq.sge_max = 2, srq.log2_bytes = kRqLog2;
    command(NUPA_ADMIN_SRQ_CREATE, kQueueId, &srq, sizeof srq);
    nupa_cmd_qp qp{};
    qp.flow = flow_of(kSharedFlow), qp.pd = kPd, qp.rcv_nxt = kRcvNxt, qp.rcv_wscale = 4;
    qp.flags = NUPA_QP_F_REMOTE_WRITE | NUPA_QP_F_COMPLETE | NUPA_QP_F_SRQ;
    qp.shadow_addr = kSharedShadow, qp.cq = qp.srq = kQueueId;
    command(NUPA_ADMIN_QP_CREATE, kSharedFlow, &qp, sizeof qp);
    put<std::uint32_t>(kSharedShadow + offsetof(nupa_qp_shadow, done), kRcvNxt);
    put<std::uint32_t>(kSharedShadow + offsetof(nupa_qp_shadow, turn), NUPA_TURN_SWITCH);
}

std::uint32_t HonestHost::word(std::uint64_t addr) const {
    std::uint32_t v;
    std::memcpy(&v, client.ram.at(addr), sizeof v);
    return v;
}

// What the kernel and the application find of what the switch completed; the application polls, and
// posts what was used.
void HonestHost::poll() {
    const std::uint32_t prod = word(kCqCtl + offsetof(nupa_cq_ctl, prod));
    const std::uint32_t index = word(kSrqCtl + offsetof(nupa_srq_ctl, index));
    require(word(kCqCtl) == NUPA_CQ_OWNER_NONE && word(kSrqCtl) == NUPA_CQ_OWNER_NONE &&
                word(kSharedShadow + offsetof(nupa_qp_shadow, turn)) == NUPA_TURN_SWITCH,
            "the switch at rest holds nothing");
    require(word(kCq + kProducer) == (prod & kRqMask) && word(kSrq + kConsumer) == index,
            "the application sees what its kernel sees");
    require((prod & kRqMask) == index && prod - polled_ <= shared_ - polled_,
            "each completion used one posted receive");
    require(word(kSharedShadow) == prod, "each completion is of a message");
    polled_ = prod;
    put<std::uint32_t>(kCq + kConsumer, prod & kRqMask);
}

void HonestHost::receive_sge(std::uint64_t ring, std::uint32_t slot, unsigned n, std::uint64_t at,
                             std::uint32_t bytes) {
    const std::uint64_t wqe = ring + 384 + (std::uint64_t{slot & kRqMask} << kRqLog2);
    put<std::uint32_t>(wqe + 28, n + 1);
    put<std::uint64_t>(wqe + 40 + 16 * n, at), put<std::uint32_t>(wqe + 48 + 16 * n, bytes);
    put<std::uint32_t>(wqe + 52 + 16 * n, kReceiveKey);
}

// A receive that waits to be posted, as applications keep them: written, and
// nobody may use it before the producer index says so, or after its completion.
void HonestHost::prepare(std::uint32_t slot) {
    receive_sge(kRq, slot, 0, kUnposted - kPosted, 2 * kPage);
}

void HonestHost::post_receive(std::uint16_t bytes) {
    const std::uint32_t first = bytes % (2 * kPage), second = (bytes >> 3) % 512;
    receive_sge(kRq, posted_, 0, 0, first);
    receive_sge(kRq, posted_, 1, kPage + second, kPage - second);
    // The oldest counts as completed when there is no room for more.
    if (++posted_ >= kRqMask) {
        put<std::uint32_t>(kShadow, posted_ - kRqMask + 1);
        prepare(posted_ - kRqMask);
    }
    put<std::uint32_t>(kRq + kProducer, posted_ & kRqMask);
    if (shared_ - polled_ == kRqMask)
        return;
    receive_sge(kSrq, shared_, 0, 0, first);
    receive_sge(kSrq, shared_, 1, kPage + second, kPage - second);
    put<std::uint32_t>(kSrq + kProducer, ++shared_ & kRqMask);
}

void HonestHost::send(const Frame& frame) {
    const std::vector<std::uint8_t> bytes = frame.build();
    if (bytes.size() > kTxBufferBytes)
        return;
    std::memcpy(client.ram.at(kTxBuffer), bytes.data(), bytes.size());
    std::memcpy(expected_.data() + kTxBuffer, bytes.data(), bytes.size());
    nupa_tx_entry ctx{}, buf{};
    ctx.ctx.bufs = 1, ctx.ctx.bytes = static_cast<__le32>(bytes.size());
    ctx.ctx.flags = NUPA_TX_F_CSUM;
    ctx.ctx.csum_start = static_cast<__le16>(frame.l4_at()), ctx.ctx.csum_offset = 16;
    buf.buf.addr = kTxBuffer, buf.buf.bytes = ctx.ctx.bytes;
    for (const nupa_tx_entry& e : {ctx, buf})
        put(kTxRing + (sent_++ % kEntries) * sizeof e, e);
    client.tx(0).prod = sent_;
    client.port.doorbell(1);
    for (unsigned i = 0; i < kTurnsMax && client.port.work(); i++) {
    }
    require(client.tx(0).cons == sent_, "what was sent was taken");
}

void HonestHost::consume() {
    nupa_rxq_ctl& ctl = client.rx(0);
    const std::uint32_t produced = ctl.comp_prod;
    require(produced - consumed_ <= kEntries, "no more completions than entries");
    while (consumed_ != produced) {
        nupa_rx_comp c;
        const std::uint64_t i = consumed_++ % kEntries;
        std::memcpy(&c, client.ram.at(kComps + i * sizeof c), sizeof c);
        completion(c, reinterpret_cast<const std::uint8_t*>(
                          client.ram.at(kSlots + i * NUPA_RX_SLOT_BYTES)));
        buffers_used_ += c.bufs;
        longs_used_ += c.long_bufs;
    }
    require(ctl.fill_cons == buffers_used_ && (!has_longs_ || ctl.long_cons == longs_used_),
            "the buffers completions name were taken, and no others");
    filled_ = buffers_used_ + kEntries;
    ctl.fill_prod = filled_, ctl.comp_cons = consumed_;
    if (has_longs_)
        ctl.long_prod = longs_used_ + kLongs;
    poll();
}

void HonestHost::completion(const nupa_rx_comp& c, const std::uint8_t* header) {
    const bool placed = c.flags & NUPA_RX_F_PLACED;
    require(c.header_bytes >= 14 && c.header_bytes <= NUPA_RX_SLOT_BYTES,
            "the header fits its slot");
    require(nupa_rx_bufs_right(placed ? 0 : c.payload_bytes, c.long_bufs,
                               has_longs_ ? kLongBytes : 0, c.bufs, kBufBytes),
            "buffers for the payload, and no others");
    require(!placed || (c.flags & NUPA_RX_F_QP && c.payload_bytes), "placed by a QP");
    require(c.gso_segs >= 1 && c.reserved == 0 && (c.cq == 0 || c.flags & NUPA_RX_F_WAKE),
            "fields");
    require((c.gso_size != 0) == (c.gso_segs > 1), "merged or not");
    if (c.gso_size)
        require(c.payload_bytes > c.gso_size * std::uint64_t{c.gso_segs - 1u} &&
                    c.payload_bytes <= c.gso_size * std::uint64_t{c.gso_segs},
                "as many segments as the bytes need");
    if (c.flags & (NUPA_RX_F_TCP4 | NUPA_RX_F_TCP6))
        require(header[12] == (c.flags & NUPA_RX_F_TCP4 ? 8 : 0x86) || header[12] == 0x81 ||
                    header[12] == 0x88,
                "of the family it says");
}

void HonestHost::check() const {
    require(
        client.regs().status & NUPA_STATUS_READY && !(client.regs().status & NUPA_STATUS_FAILED),
        "an honest host goes on");
    std::uint64_t at = 0;
    for (const Range& given : kGiven) {
        require(std::memcmp(client.ram.at(at), expected_.data() + at, given.from - at) == 0,
                "memory that was not given away does not change");
        at = given.to;
    }
    require(std::memcmp(client.ram.at(at), expected_.data() + at, expected_.size() - at) == 0,
            "memory that was not given away does not change");
}

}  // namespace fuzz
