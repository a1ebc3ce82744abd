// SPDX-License-Identifier: BSD-3-Clause
// The placement engine of one port: guest and peers do anything in any order.
#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <deque>

#include "engine/merge.hpp"
#include "engine/port_engine.hpp"
#include "engine/transmit.hpp"
#include "engine_model.hpp"

namespace {

using namespace fuzz;

// Where things are; nothing keeps the guest from laying them over each other.
enum : std::uint64_t {
    kMrTables = 0x0000,
    kRqTables = 0x0800,
    kRings = 0x1000,
    kRingPages = 2,
    kShadows = 0x9000,
    kShadowBytes = 0x500,  // of each QP
    kQueueTables = 0x0c00,
    kCqCtls = 0x0e00,
    kSrqCtls = 0x0e80,
    kCqRings = 0xb000,  // of a page each
    kSrqRings = 0xd000,
};
constexpr unsigned kQps = 4, kKeys = 8, kQueues = 2;
constexpr unsigned kOperationsMax = 48;
constexpr std::uint8_t kUntouched = 0xa5;

struct Peer {  // the sender of one flow
    std::uint32_t next = 0;
    std::uint16_t msn = 0;
};

class Machine {
public:
    explicit Machine(Memory& memory)
        : memory_(memory), model_(memory), engine_(memory.host(), stats_, 7, {kQps, kKeys}) {
        merger_.configure(NUPA_RX_BUF_MIN_BYTES, true);
    }

    void run(Input& in) {
        for (unsigned i = 0; i < kOperationsMax && !in.empty(); i++) {
            step(in);
            memory_.check_touched();
            require(engine_.qps() == model_.qps.size() && engine_.mrs() == model_.mrs.size(),
                    "as many objects as were made");
        }
        memory_.check();
        finish_run();
        require(stats_[NUPA_STAT_placed_segments] + stats_[NUPA_STAT_qp_delivered_segments] +
                        stats_[NUPA_STAT_drop_overtaken] ==
                    counted_,
                "every segment of a QP is counted once");
    }

private:
    using Ring = std::vector<std::uint64_t>;  // its pages

    void step(Input& in) {
        const std::uint8_t op = in.u8();
        switch (op & 15) {
            case 0:
                mr_reg(in);
                break;
            case 1:
                if (op >> 4 >= 12)
                    queue_command(in, op >> 4);
                else
                    mr_dereg(in.below(kKeys));
                break;
            case 2:
                qp_create(in);
                break;
            case 3:
                qp_destroy(in.below(kQps));
                break;
            case 4:
                poke(in);
                break;
            case 5:
                if (op >> 4 >= 8)
                    turn(in);
                else
                    shadow(in);
                break;
            case 6:
                host_segment(in);
                break;
            case 7:
            case 8:
                if (op >> 4 >= 8)
                    post_shared(in);
                else
                    post(in);
                break;
            case 9:
                raw_segment(in);
                break;
            case 10:
                if (op >> 4 >= 8)
                    open_shared();
                else
                    open_all(in);
                break;
            case 11:
                if (op >> 4 == 15)
                    reset();
                else
                    peer_message(in, op >> 4);
                break;
            case 12:
                if (op >> 4 < 8)
                    mixed_train(in);
                else
                    peer_message(in, op >> 4);
                break;
            default:
                peer_message(in, op >> 4);
        }
    }

    void reset() {
        engine_.reset();
        model_.reset();
    }

    // ---- admin commands ----
    void mr_reg(Input& in) {
        const std::uint32_t key = in.below(kKeys);
        nupa_cmd_mr cmd{};
        cmd.iova = 0x10000u * key + in.u16() % 0x1800;
        cmd.bytes = 1 + in.u16() % 0x6000;
        cmd.page_shift = in.u8() & 0x80 ? 13 : 12;
        cmd.pages = static_cast<std::uint32_t>(((cmd.iova + cmd.bytes - 1) >> cmd.page_shift) -
                                               (cmd.iova >> cmd.page_shift) + 1);
        cmd.table_addr = kMrTables + 128 * key;
        cmd.pd = in.u8() & 1;
        cmd.access = in.u8() & 15;
        for (std::uint64_t i = 0; i < std::min<std::uint32_t>(cmd.pages, 8); i++)
            memory_.put<std::uint64_t>(cmd.table_addr + 8 * i, any_page(in));
        if (in.u8() & 0x80)
            spoil(in, cmd);
        if (engine_.mr_reg(key, cmd) == NUPA_OK)
            model_.registered(key, cmd);
    }

    std::uint64_t any_page(Input& in) {
        const std::uint64_t n = in.below(static_cast<std::uint32_t>(kLowPages + kHighPages + 1));
        return n < kLowPages ? n * kPageBytes : kHighAt + (n - kLowPages) * kPageBytes;
    }

    template <class T>
    void spoil(Input& in, T& cmd) {
        const std::size_t at = in.u8() % sizeof cmd;
        const auto bytes = in.bytes(1 + in.below(8));
        std::memcpy(reinterpret_cast<std::uint8_t*>(&cmd) + at, bytes.data(),
                    std::min(bytes.size(), sizeof cmd - at));
    }

    void mr_dereg(std::uint32_t key) {
        require((engine_.mr_dereg(key) == NUPA_OK) == (model_.mrs.erase(key) == 1), "deregistered");
    }

    void qp_create(Input& in) {
        const std::uint32_t qpn = in.below(kQps);
        const unsigned flow = in.below(kFlows);
        nupa_cmd_qp cmd{};
        cmd.flow = flow_of(flow);
        const std::uint8_t more = in.u8(), kind = in.u8();
        cmd.pd = more & 1;
        cmd.flags = kind & 31;
        if (!(in.u8() & 0x80))
            cmd.flags &= ~std::uint32_t{NUPA_QP_F_NO_RQ};
        cmd.rcv_nxt = in.u8() & 1 ? in.u32() : 0xfffff000u + in.u16();
        cmd.rcv_wscale = in.below(15);
        cmd.rq_log2_bytes = static_cast<std::uint8_t>(6 + in.below(3));
        cmd.rq_sge_max = static_cast<std::uint16_t>(in.below(2 + (1u << (cmd.rq_log2_bytes - 4))));
        cmd.rq_mask = (2u << in.below(5)) - 1;
        cmd.rq_base = in.u8();
        cmd.rq_pages = kRingPages;
        cmd.rq_table_addr = kRqTables + 64 * qpn;
        cmd.shadow_addr = kShadows + kShadowBytes * qpn;
        for (std::uint64_t i = 0; i < kRingPages; i++)
            memory_.put<std::uint64_t>(cmd.rq_table_addr + 8 * i,
                                       kRings + (kRingPages * qpn + i) * kPageBytes);
        if (kind >> 6 == 3)
            make_complete(in, cmd, kind & 32, more);
        if (in.u8() & 0x80)
            spoil(in, cmd);
        if (engine_.qp_create(qpn, cmd) != NUPA_OK)
            return;
        model_.created(qpn, flow, cmd);
        peers_[flow] = {cmd.rcv_nxt, 0};
    }

    static void make_complete(Input& in, nupa_cmd_qp& cmd, bool shares, std::uint8_t more) {
        cmd.flags |= NUPA_QP_F_COMPLETE;
        cmd.cq = in.below(kQueues);
        if (more & 2)
            cmd.flags |= NUPA_QP_F_SENDS, cmd.send_cq = (more >> 2) % kQueues;
        if (!shares)
            return;
        cmd.flags |= NUPA_QP_F_SRQ;
        cmd.srq = in.below(kQueues);
        cmd.rq_log2_bytes = 0, cmd.rq_sge_max = 0, cmd.rq_mask = 0, cmd.rq_base = 0;
        cmd.rq_pages = 0, cmd.rq_table_addr = 0;
    }

    void queue_command(Input& in, unsigned which) {
        const std::uint32_t id = in.below(kQueues);
        if (which == 12)
            cq_create(in, id);
        else if (which == 13)
            require((engine_.cq_destroy(id) == NUPA_OK) == model_.cq_destroyed(id), "destroyed");
        else if (which == 14)
            srq_create(in, id);
        else
            require((engine_.srq_destroy(id) == NUPA_OK) == model_.srq_destroyed(id), "destroyed");
    }

    void cq_create(Input& in, std::uint32_t id) {
        const std::uint8_t how = in.u8();
        nupa_cmd_cq cmd{};
        cmd.table_addr = kQueueTables + 8 * id;
        cmd.ctl_addr = kCqCtls + sizeof(nupa_cq_ctl) * id;
        cmd.pages = 1;
        cmd.mask = (2u << how % 5) - 1;
        cmd.flags = how & 32 ? NUPA_CQ_F_WAITING : 0;
        memory_.put<std::uint64_t>(cmd.table_addr, kCqRings + kPageBytes * id);
        if (how & 0x80)
            spoil(in, cmd);
        if (engine_.cq_create(id, cmd) == NUPA_OK)
            model_.created(id, cmd);
    }

    void srq_create(Input& in, std::uint32_t id) {
        const std::uint8_t how = in.u8();
        nupa_cmd_srq cmd{};
        cmd.table_addr = kQueueTables + 8 * (kQueues + id);
        cmd.ctl_addr = kSrqCtls + sizeof(nupa_srq_ctl) * id;
        cmd.pages = 1;
        cmd.mask = (2u << how % 4) - 1;
        cmd.log2_bytes = how & 32 ? 7 : 6;
        cmd.sge_max = how & 32 ? 5 : 1;
        memory_.put<std::uint64_t>(cmd.table_addr, kSrqRings + kPageBytes * id);
        if (how & 0x80)
            spoil(in, cmd);
        if (engine_.srq_create(id, cmd) == NUPA_OK)
            model_.created(id, cmd);
    }

    void qp_destroy(std::uint32_t qpn) {
        require((engine_.qp_destroy(qpn) == NUPA_OK) == (model_.qps.erase(qpn) == 1), "destroyed");
    }

    // A usable world in one operation, so that the rest is reached often.
    void open_all(Input& in) {
        const std::uint8_t how = in.u8();
        static constexpr std::uint8_t kMr[] = {0, 0,  0xff, 0x5f, 0,  0,  15,
                                               9, 10, 11,   16,   17, 12, 0};
        static constexpr std::uint8_t kQp[] = {0, 0, 0, 24, 1, 0, 0, 0, 0,
                                               0, 0, 0, 7,  1, 3, 2, 5, 0};
        for (unsigned i = 0; i < 2; i++) {
            std::array<std::uint8_t, sizeof kMr> mr;
            std::copy_n(kMr, sizeof kMr, mr.begin());
            mr[0] = static_cast<std::uint8_t>((how & 3) + i);
            Input mr_in(mr.data(), mr.size());
            mr_reg(mr_in);
            std::array<std::uint8_t, sizeof kQp> qp;
            std::copy_n(kQp, sizeof kQp, qp.begin());
            qp[0] = static_cast<std::uint8_t>(i),
            qp[1] = static_cast<std::uint8_t>((how >> 2 & 1) + i);
            Input qp_in(qp.data(), qp.size());
            qp_create(qp_in);
        }
    }

    // The same with completions: a QP with its own receives, and two that share theirs.
    void open_shared() {
        static constexpr std::uint8_t kCq[] = {0, 0x24}, kSrq[] = {0, 0x21};
        static constexpr std::uint8_t kMr[] = {1, 0, 0, 0xff, 0x3f, 0, 0, 15, 15, 16, 17, 18};
        Input cq_in(kCq, sizeof kCq), srq_in(kSrq, sizeof kSrq), mr_in(kMr, sizeof kMr);
        queue_command(cq_in, 12);
        queue_command(srq_in, 14);
        mr_reg(mr_in);
        for (std::uint8_t i = 0; i < 3; i++) {
            const std::uint8_t kind = i == 2 ? 0xd8 : 0xf8;
            const std::uint8_t sends = i == 1 ? 0 : 2;
            const std::uint8_t qp[] = {i, i, sends, kind, 0, 0, 0, 0, 7, 1, 3, 2, 5, 0, 0, 0};
            Input qp_in(qp, sizeof qp);
            qp_create(qp_in);
            const std::uint8_t ack[] = {i, 0}, give[] = {i, 0};
            Input ack_in(ack, sizeof ack), give_in(give, sizeof give);
            host_segment(ack_in);
            turn(give_in);
        }
        static constexpr std::uint8_t kReceive[] = {0, 1, 1, 0, 0, 0, 0xff, 3};
        // Once round, and two: so those that are not posted are written, as applications keep them.
        for (unsigned i = 0; i < 6; i++) {
            Input post_in(kReceive, sizeof kReceive);
            post_shared(post_in);
        }
    }

    // ---- the guest ----
    void poke(Input& in) {
        const std::uint64_t at = (in.u8() & 1 ? kHighAt : 0) + in.u16();
        memory_.write(at, in.bytes(1 + in.below(64)));
    }

    // The kernel's side: messages completed, bytes consumed, a READ that waits.
    void shadow(Input& in) {
        const std::uint64_t at = kShadows + kShadowBytes * in.below(kQps);
        const std::uint8_t how = in.u8();
        if (how & 1) {
            memory_.put<std::uint32_t>(at + offsetof(nupa_qp_shadow, completed), in.u16());
        } else if (how & 2) {
            memory_.put<std::uint32_t>(at + offsetof(nupa_qp_shadow, consumed),
                                       peers_[in.below(kFlows)].next + in.u8());
        } else {
            nupa_qp_read read{};
            const std::uint16_t msn = how & 4 ? in.u16() : peers_[in.below(kFlows)].msn;
            read.key = in.below(kKeys);
            read.va = 0x10000u * read.key + in.u16();
            read.length = in.u16() % 9000;
            read.valid = NUPA_READ_VALID | msn;
            const std::uint64_t reads = at + sizeof(nupa_qp_shadow);
            memory_.put<std::uint64_t>(at + offsetof(nupa_qp_shadow, reads_addr), reads);
            memory_.put(reads + msn % NUPA_READS_MAX * sizeof read, read);
        }
    }

    // The kernel gives the turn, or takes it; it owns queues, or nobody does; somebody sleeps; the
    // application polls.
    void turn(Input& in) {
        const std::uint32_t qpn = in.below(kQps);
        const auto it = model_.qps.find(qpn);
        if (it == model_.qps.end())
            return;
        const Peer& peer = peers_[it->second.flow];
        const std::uint8_t how = in.u8();
        const auto shadow = [&](std::size_t field, std::uint32_t v) {
            memory_.put(it->second.cmd.shadow_addr + field, v);
        };
        shadow(offsetof(nupa_qp_shadow, done), how & 1 ? in.u32() : peer.next);
        shadow(offsetof(nupa_qp_shadow, completed), how & 2 ? in.u16() : peer.msn);
        shadow(offsetof(nupa_qp_shadow, writes), peer.msn);
        shadow(offsetof(nupa_qp_shadow, turn), how & 4 ? in.below(4) : NUPA_TURN_SWITCH);
        if (it->second.cmd.flags & NUPA_QP_F_SENDS)
            send(in, it->second.cmd.shadow_addr + offsetof(nupa_qp_shadow, sends), how & 128);
        for (std::uint64_t id = 0; id < kQueues; id++) {
            const std::uint64_t cq = kCqCtls + sizeof(nupa_cq_ctl) * id;
            const std::uint64_t srq = kSrqCtls + sizeof(nupa_srq_ctl) * id;
            memory_.put<std::uint32_t>(cq, how & 8 ? in.below(3) : 0);
            memory_.put<std::uint32_t>(cq + offsetof(nupa_cq_ctl, waiting), how & 16 ? 1 : 0);
            memory_.put<std::uint32_t>(srq, how & 32 ? in.below(3) : 0);
            const std::uint64_t ring = kCqRings + kPageBytes * id;
            memory_.put<std::uint32_t>(
                ring + 256, how & 64 ? in.u16() : memory_.read<std::uint32_t>(ring + 128));
        }
    }

    // One more, or as many as it likes, which anything acknowledges, or not.
    void send(Input& in, std::uint64_t sends, bool odd) {
        const auto completed =
            memory_.read<std::uint32_t>(sends + offsetof(nupa_qp_sends, completed));
        const std::uint32_t posted = completed + (odd ? in.below(4) : 1);
        const nupa_qp_send one{in.u8(), odd ? in.u32() : 0, in.u16(), in.below(3), 0};
        for (std::uint64_t i = 0; i < NUPA_SENDS_MAX; i++)
            memory_.put(sends + offsetof(nupa_qp_sends, send) + i * sizeof one, one);
        memory_.put(sends + offsetof(nupa_qp_sends, posted), posted);
    }

    // A receive with up to four SGEs, and the producer index.
    void post(Input& in) {
        const std::uint32_t qpn = in.below(kQps);
        const auto it = model_.qps.find(qpn);
        if (it == model_.qps.end() || it->second.rq_pages.empty())
            return;
        const ModelQp& qp = it->second;
        post_to(in, qp.rq_pages, qp.cmd.rq_mask, qp.cmd.rq_log2_bytes);
    }

    void post_shared(Input& in) {
        const auto it = model_.srqs.find(in.below(kQueues));
        if (it != model_.srqs.end())
            post_to(in, it->second.pages, it->second.mask, it->second.log2_bytes);
    }

    void post_to(Input& in, const Ring& ring, std::uint32_t mask, std::uint32_t log2_bytes) {
        const std::uint32_t producer = ring32(ring, 128);
        const std::uint64_t wqe = 384 + (std::uint64_t{producer & mask} << log2_bytes);
        const std::uint32_t sges = in.below(5);
        put32(ring, wqe, receives_++);  // its name
        put32(ring, wqe + 28, sges);
        for (std::uint64_t i = 0; i < sges; i++) {
            const std::uint32_t key = in.below(kKeys);
            const std::uint64_t at = wqe + 40 + 16 * i;
            put32(ring, at, 0x10000u * key + in.u16());
            put32(ring, at + 4, in.u8() == 0xff ? 0xffffffffu : 0);
            put32(ring, at + 8, in.u16());
            put32(ring, at + 12, key);
        }
        put32(ring, 128, (producer + 1) & mask);
    }

    static std::uint64_t ring_at(const Ring& ring, std::uint64_t offset) {
        return ring[std::min<std::size_t>(offset / kPageBytes, ring.size() - 1)] +
               offset % kPageBytes;
    }
    std::uint32_t ring32(const Ring& ring, std::uint64_t offset) {
        return memory_.read<std::uint32_t>(ring_at(ring, offset));
    }
    void put32(const Ring& ring, std::uint64_t offset, std::uint32_t v) {
        memory_.put<std::uint32_t>(ring_at(ring, offset), v);
    }

    // The host's own segment: acknowledges, opens the window, may carry data to be cut.
    void host_segment(Input& in) {
        Frame f;
        f.flow = in.below(kFlows);
        f.reverse = true;
        const std::uint8_t how = in.u8();
        const ModelQp* qp = model_.find(f.flow);
        const std::uint32_t base = qp ? qp->cmd.rcv_nxt : 0;
        f.ack = how & 1   ? peers_[f.flow].next
                : how & 2 ? base + in.u16()
                : how & 4 ? in.u32()
                          : base;
        f.window = how & 8 ? in.u16() : 0xffff;
        f.flags = how & 16 ? in.u8() : 0x10;
        f.seq = in.u16();
        if (how & 32) {
            f.payload = pattern(1 + in.u16() % 6000, how);
            if (how & 64) {
                const std::uint32_t mbo = in.u8();
                f.set_option(describe(in, f.seq - mbo, mbo,
                                      static_cast<std::uint32_t>(mbo + f.payload.size()), 3),
                             in.below(8));
            }
        }
        send(f, how & 128 ? static_cast<std::uint16_t>(in.u16()) : std::uint16_t{0});
    }

    // What the driver would put in the ring, cut by the switch.
    void send(const Frame& f, std::uint16_t mss) {
        const std::vector<std::uint8_t> frame = f.build();
        nupa_tx_ctx ctx{};
        ctx.bufs = 1, ctx.bytes = static_cast<std::uint32_t>(frame.size());
        ctx.flags = NUPA_TX_F_CSUM;
        ctx.csum_start = static_cast<std::uint16_t>(f.l4_at()), ctx.csum_offset = 16;
        if (mss) {
            ctx.flags = f.flow % 2 ? NUPA_TX_F_TSO6 : NUPA_TX_F_TSO4;
            ctx.mss = mss, ctx.header_bytes = static_cast<std::uint16_t>(f.header_bytes());
        }
        const nupa::Bytes whole = std::as_bytes(std::span(frame));
        nupa::Packet packet;
        if (nupa::packet_from_tx(packet, ctx, {&whole, 1}) != nupa::TxError::kOk)
            return;
        const nupa::TxRewrite rewrite = engine_.transmit(packet);
        if (ModelQp* qp = model_.find(f.flow); qp && packet.at.tcp())
            model_.host_sent(*qp, f);
        cut(packet, rewrite);
    }

    // Cut segments say of every byte what the burst said of it.
    void cut(const nupa::Packet& packet, nupa::TxRewrite rewrite) {
        tcp_bth whole;
        const bool named =
            packet.payload.bytes() &&
            tcp_bth_find(packet.header.data() + packet.at.options_at, packet.at.option_bytes(),
                         packet.at.seq, packet.payload.bytes(), &whole, nullptr) == TCP_BTH_OK;
        std::vector<std::byte> all(packet.payload.bytes()), got;
        packet.payload.copy_to(all.data());
        nupa::Cutter cutter(packet, rewrite);
        nupa::Packet segment;
        segment.header.fill(kUntouched);
        while (cutter.next(segment)) {
            require(
                std::all_of(segment.header.begin() + segment.at.header_bytes, segment.header.end(),
                            [](std::uint8_t byte) { return byte == kUntouched; }),
                "nothing is written behind a header");
            require(!packet.tso || segment.payload.bytes() <= packet.mss, "no larger than the MSS");
            require(segment.at.seq == packet.at.seq + got.size(), "sequence numbers follow");
            if (named && whole.ver == 1)
                same_message(segment, whole);
            const std::size_t at = got.size();
            got.resize(at + segment.payload.bytes());
            segment.payload.copy_to(got.data() + at);
        }
        require(got == all, "every byte once and in order");
    }

    void same_message(const nupa::Packet& segment, const tcp_bth& whole) {
        tcp_bth b;
        const std::uint32_t bytes = segment.payload.bytes();
        require(
            tcp_bth_find(segment.header.data() + segment.at.options_at, segment.at.option_bytes(),
                         segment.at.seq, bytes, &b, nullptr) == TCP_BTH_OK,
            "a cut option parses");
        require(b.start_seq == whole.start_seq && b.msn == whole.msn && b.ext4 == whole.ext4 &&
                    b.va == whole.va && b.rkey == whole.rkey,
                "the same message");
        const bool last = tcp_bth_position(b.opcode) & TCP_BTH_POS_LAST;
        require(b.ver == 1 ? b.length == whole.length : last == (b.mbo + bytes == whole.length),
                "the same length");
    }

    // ---- the fabric ----
    // Up to eight segments of one message, in an order and with gaps of the input's choice.
    void peer_message(Input& in, unsigned how) {
        const unsigned flow = in.below(kFlows);
        Peer& peer = peers_[flow];
        const std::uint32_t length = in.u16() % 9000, mss = 1 + in.u16() % 3000;
        const std::uint8_t order = in.u8(), fields = in.u8();
        std::uint32_t start = peer.next;
        if (how & 8)
            start += static_cast<std::uint32_t>(static_cast<std::int16_t>(in.u16()));
        const std::uint32_t stream = length ? length : 1;
        const unsigned count = std::min((stream + mss - 1) / mss, 8u);
        std::uint32_t messages = 1;
        for (unsigned i = 0; i < count; i++) {
            const unsigned n = order & 1 ? count - 1 - i : i;
            if (order & 2 && n == (order >> 4) % count)
                continue;
            const std::uint32_t mbo = n * mss;
            Frame f;
            f.flow = flow;
            f.seq = start + mbo;
            f.ack = 100;
            f.window = 1000;
            f.payload = pattern(std::min(mss, stream - mbo), static_cast<std::uint8_t>(start + n));
            const std::uint8_t repeat[] = {fields,  in.u8(), in.u8(), in.u8(),
                                           in.u8(), in.u8(), in.u8(), in.u8()};
            Input same(repeat, sizeof repeat);
            tcp_bth b = describe(same, start, mbo, length, peer.msn);
            if (tcp_bth_is_even_train(b.opcode) && b.length)
                messages = tcp_bth_stream_bytes(&b) / b.length;
            if (b.ver == 0)
                b.opcode = tcp_bth_variant(
                    b.opcode, (mbo == 0 ? TCP_BTH_POS_FIRST : 0) |
                                  (mbo + f.payload.size() == length ? TCP_BTH_POS_LAST : 0));
            f.set_option(b);
            receive(f.build(), order & 4 ? nupa::Csum::kPartial : nupa::Csum::kUnknown);
            if (order & 8)
                receive(f.build(), nupa::Csum::kUnknown);
        }
        if (!(how & 4)) {
            peer.next = start + stream;
            peer.msn = static_cast<std::uint16_t>(peer.msn + messages);
        }
    }

    // The table of a mixed train of SENDs.
    std::vector<std::uint8_t> lengths(Input& in, unsigned messages, bool any, tcp_bth_mixed& all) {
        std::vector<std::uint8_t> table(messages * TCP_BTH_LENGTHS_ENTRY_BYTES);
        tcp_bth_mixed_begin(&all);
        for (unsigned i = 0; i < messages; i++) {
            const std::uint32_t entry = any && i == 1 ? in.u32() : 1u + in.u16() % 900;
            tcp_bth_put32(&table[i * TCP_BTH_LENGTHS_ENTRY_BYTES], entry);
            tcp_bth_mixed_add(&all, entry);
        }
        return table;
    }

    // And of one of WRITEs, one over the other or not.
    std::vector<std::uint8_t> targets(Input& in, unsigned messages, bool any, tcp_bth_mixed& all) {
        std::vector<std::uint8_t> table(tcp_bth_targets_bytes(messages));
        const std::uint32_t key = in.below(8);  // regions begin where frame.cpp says
        tcp_bth_put32(table.data(), key);
        tcp_bth_targets_begin(&all, key);
        for (unsigned i = 0; i < messages; i++) {
            const std::uint32_t length = any && i == 1 ? in.u32() : 1u + in.u16() % 900;
            const std::uint64_t va = 0x10000ull * key + in.u16();
            tcp_bth_targets_put(table.data(), i, length, va);
            tcp_bth_targets_add(&all, length, va);
        }
        return table;
    }

    // The table of a mixed train, and then up to eight segments of it.
    void mixed_train(Input& in) {
        Peer& peer = peers_[in.below(kFlows)];
        const unsigned flow = static_cast<unsigned>(&peer - peers_.data());
        const unsigned messages = 1 + in.below(12), count = 1 + in.below(8);
        const std::uint8_t how = in.u8();
        const bool writes = how & 64, any = how & 1;
        tcp_bth_mixed all;
        const std::vector<std::uint8_t> table =
            writes ? targets(in, messages, any, all) : lengths(in, messages, any, all);
        tcp_bth b{};
        b.ver = 1, b.msn = peer.msn, b.start_seq = peer.next;
        b.opcode = writes ? TCP_BTH_OP_TARGETS : TCP_BTH_OP_LENGTHS;
        b.length = static_cast<std::uint32_t>(table.size());
        if (!(how & 2))
            segment(flow, b, peer.next, table, how);
        b.opcode =
            writes != bool(how & 128) ? TCP_BTH_OP_WRITE_MIXED_TRAIN : TCP_BTH_OP_MIXED_TRAIN;
        b.start_seq += b.length, b.length = all.check;
        b.ext_bytes = TCP_BTH_EXT4_BYTES, b.ext4 = all.bytes;
        if (how & 4)
            b.length ^= in.u8(), b.ext4 += in.below(4), b.msn = in.u8();
        const std::uint32_t each = b.ext4 / count + 1;
        for (unsigned i = 0; i < count; i++) {
            const std::uint32_t at = (how & 8 ? count - 1 - i : i) * each;
            if (at >= b.ext4)
                continue;
            const std::uint32_t bytes = std::min({each, b.ext4 - at, 3000u});
            segment(flow, b, b.start_seq + at, pattern(bytes, static_cast<std::uint8_t>(how + i)),
                    how);
        }
        if (!(how & 16)) {
            peer.next = b.start_seq + all.bytes;
            peer.msn = static_cast<std::uint16_t>(peer.msn + messages);
        }
    }

    void segment(unsigned flow, const tcp_bth& b, std::uint32_t seq,
                 std::vector<std::uint8_t> payload, std::uint8_t how) {
        Frame f;
        f.flow = flow, f.seq = seq, f.ack = 100, f.window = 1000;
        f.payload = std::move(payload);
        f.set_option(b);
        receive(f.build(), how & 32 ? nupa::Csum::kPartial : nupa::Csum::kUnknown);
    }

    // One segment with anything in any field.
    void raw_segment(Input& in) {
        Frame f;
        f.flow = in.below(kFlows);
        const std::uint8_t how = in.u8();
        f.seq = how & 1 ? in.u32()
                        : peers_[f.flow].next +
                              static_cast<std::uint32_t>(static_cast<std::int16_t>(in.u16()));
        f.flags = how & 2 ? in.u8() : 0x10;
        f.fragment = how & 4 ? in.u16() : 0;
        f.payload = pattern(in.u16() % 2000, how);
        if (how & 8) {
            const auto raw = in.bytes(in.u8() % 41 / 4 * 4);
            std::copy(raw.begin(), raw.end(), f.options.begin());
            f.options_bytes = static_cast<std::uint8_t>(raw.size() / 4 * 4);
        } else {
            const std::uint32_t mbo = in.u16();
            f.set_option(describe(in, f.seq - mbo, mbo,
                                  mbo + static_cast<std::uint32_t>(f.payload.size()), in.u8()),
                         in.below(16));
        }
        std::vector<std::uint8_t> frame = f.build();
        if (how & 16)
            frame[in.u8() % frame.size()] ^= in.u8();
        receive(frame, how & 32 ? nupa::Csum::kPartial : nupa::Csum::kUnknown);
    }

    void receive(const std::vector<std::uint8_t>& frame, nupa::Csum csum) {
        frames_.push_back(frame);  // a run refers to its segments until it is finished
        const nupa::Bytes whole = std::as_bytes(std::span(frames_.back()));
        nupa::Packet packet;
        packet.assign({&whole, 1});
        if (packet.csum == nupa::Csum::kUnknown)
            packet.csum = csum;
        const nupa::Decision d = engine_.receive(packet);
        counted_ += d.reason != nupa::Reason::kNoQp;
        if (d.has_qp) {
            const auto it = model_.qps.find(d.qpn);
            require(it != model_.qps.end(), "a QP that exists");
            model_.received(it->second, packet, d);
        } else {
            require(!d.placed(), "nothing is placed without a QP");
        }
        if (!d.dropped())
            merge(packet, d);
        if (frames_.size() > 64 && !merger_.active())
            frames_.clear();
    }

    // ---- merging, as a receive queue does it ----
    void merge(const nupa::Packet& packet, const nupa::Decision& d) {
        if (merger_.active() && !merger_.fits(packet, d))
            finish_run();
        if (merger_.active()) {
            merger_.append(packet, d);
        } else {
            merger_.start(packet, d);
            first_ = d, first_seq_ = packet.at.seq, run_bytes_ = 0, run_segments_ = 0;
        }
        run_bytes_ += packet.payload.bytes(), run_segments_++;
        if (merger_.closed())
            finish_run();
    }

    // A merged header tells the host of the whole what the segments told of their parts.
    void finish_run() {
        if (!merger_.active())
            return;
        const nupa::Merged& m = merger_.finish();
        require(m.payload_bytes == run_bytes_ && m.gso_segs == run_segments_,
                "nothing lost in a run");
        if (run_segments_ < 2 || !first_.has_bth)
            return;
        const std::uint8_t* options = m.header.data() + first_.bth_at;
        tcp_bth b;
        require(tcp_bth_parse(options, options[1], first_seq_, run_bytes_, &b) == TCP_BTH_OK,
                "a merged option parses");
        require(b.start_seq == first_.bth.start_seq && b.msn == first_.bth.msn &&
                    b.ext4 == first_.bth.ext4 && b.length == first_.bth.length &&
                    b.va == first_.bth.va && b.rkey == first_.bth.rkey,
                "a merged run is of one message");
    }

    Memory& memory_;
    nupa::PortStats stats_;
    Model model_;
    nupa::PortEngine engine_;
    std::array<Peer, kFlows> peers_{};
    std::uint64_t counted_ = 0;
    std::uint32_t receives_ = 0;
    std::deque<std::vector<std::uint8_t>> frames_;
    nupa::Merger merger_;
    nupa::Decision first_;
    std::uint32_t first_seq_ = 0, run_bytes_ = 0;
    unsigned run_segments_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    static Memory memory;
    memory.reset();
    Input in(data, bytes);
    Machine(memory).run(in);
    return 0;
}
