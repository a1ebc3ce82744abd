// SPDX-License-Identifier: BSD-3-Clause
// A hostile guest on one port of the switch: registers, admin queue, rings and
// memory in any order, with an honest host for a neighbour.
#include <memory>

#include "honest_host.hpp"

namespace {

using namespace fuzz;

constexpr unsigned kOperationsMax = 32;
constexpr unsigned kQueues = 2;

// Where the hostile guest usually has things.
enum : std::uint64_t {
    kAdminRing = 0 * kPage,
    kAdminComps = 2 * kPage,
    kFills = 3 * kPage,
    kComps = 4 * kPage,
    kSlots = 6 * kPage,
    kTxRing = 14 * kPage,
    kTables = 16 * kPage,
    kRq = 17 * kPage,
    kShadow = 18 * kPage,
    kLongFills = 19 * kPage,
    kBuffers = 20 * kPage,
    kRamPages = 32,
};

class World {
public:
    World() : hostile_(context_, "hostile", 0, kQueues, kRamPages), honest_(context_) {}

    void run(Input& in) {
        restart(in.u8());
        for (unsigned i = 0; i < kOperationsMax && !in.empty(); i++) {
            step(in);
            honest_.consume();
        }
        honest_.check();
    }

private:
    void restart(std::uint8_t rx_mode) {
        for (PortClient* c : {&hostile_, &honest_.client}) {
            fabric_.unplugged(c->port);
            link_of(*c).impairments().configure({}, {});
            link_of(*c).set_up(true);
        }
        std::memset(hostile_.ram.at(0), 0, hostile_.ram.bytes());
        hostile_.restart(kAdminRing, kAdminComps);
        produced_ = {};
        next_.fill(HonestHost::kRcvNxt);
        admin_ = 0;
        honest_.restart(rx_mode);
    }

    void step(Input& in) {
        const std::uint8_t op = in.u8();
        switch (op & 15) {
            case 0:
                poke_ram(in);
                break;
            case 1:
                poke_registers(in);
                break;
            case 2:
                ring(in.u8() % NUPA_VECTORS);
                break;
            case 3:
            case 4:
                command(in);
                break;
            case 5:
                control(in);
                break;
            case 6:
                send_anything(in);
                break;
            case 7:
                fill(in);
                break;
            case 8:
                open_all();
                break;
            case 9:
                honest_sends(in);
                break;
            case 10:
                honest_.post_receive(in.u16());
                break;
            case 11:
                faults(in);
                break;
            case 12:
                if (op & 16)
                    link_of(op & 32 ? hostile_ : honest_.client).set_up(op & 64);
                break;
            default:
                send_frame(in, op >> 4);
        }
    }

    void ring(unsigned vector) {
        hostile_.port.doorbell(vector);
        turn();
    }

    void turn() {
        for (unsigned i = 0; i < kTurnsMax; i++) {
            const bool more = hostile_.port.work();
            if (!(honest_.client.port.work() || more))
                return;
        }
    }

    // ---- raw ----
    void poke_ram(Input& in) {
        const std::uint64_t at = (in.u8() % kRamPages) * kPage + in.u16() % kPage;
        const auto bytes = in.bytes(1 + in.below(64));
        std::memcpy(hostile_.ram.at(at), bytes.data(),
                    std::min<std::size_t>(bytes.size(), hostile_.ram.bytes() - at));
    }

    void poke_registers(Input& in) {
        const std::uint32_t at = in.u16();
        for (std::uint32_t i = 0; const std::uint8_t v : in.bytes(1 + in.below(16)))
            hostile_.bar2<std::uint8_t>((at + i++) % NUPA_BAR2_BYTES) = v;
    }

    // ---- by the book, more or less ----
    void control(Input& in) {
        const std::uint8_t how = in.u8();
        if (how & 2)
            hostile_.admin().ring_addr = in.u32(), hostile_.admin().comp_addr = in.u32();
        hostile_.regs().control = how & 1;
        hostile_.regs().control_gen += how & 4 ? in.u8() : 1;
        if (how & 8) {
            produced_ = {}, admin_ = 0;
            hostile_.admin().ring.prod = 0;
        }
        ring(0);
    }

    std::uint64_t page(Input& in) { return in.below(kRamPages + 2) * kPage; }

    void submit(const nupa_admin_cmd& cmd) {
        std::memcpy(hostile_.ram.at(kAdminRing + admin_ % NUPA_ADMIN_ENTRIES * sizeof cmd), &cmd,
                    sizeof cmd);
        hostile_.admin().ring.prod = ++admin_;
        ring(0);
    }

    void command(Input& in) {
        nupa_admin_cmd cmd{};
        cmd.op = in.u8() % (NUPA_ADMIN_OP_COUNT + 1);
        cmd.id = in.below(8);
        body(in, cmd);
        for (unsigned lies = in.u8() & 3; lies == 3; lies = in.u8() & 3) {
            const auto bytes = in.bytes(1 + in.below(8));
            const std::size_t at = in.u8() % sizeof cmd;
            std::memcpy(reinterpret_cast<std::uint8_t*>(&cmd) + at, bytes.data(),
                        std::min(bytes.size(), sizeof cmd - at));
        }
        submit(cmd);
    }

    void body(Input& in, nupa_admin_cmd& cmd) {
        switch (cmd.op) {
            case NUPA_ADMIN_TXQ_CREATE:
            case NUPA_ADMIN_RXQ_CREATE:
                cmd.id %= kQueues;
                cmd.queue.ring_addr = page(in), cmd.queue.entries = 64u << in.below(4);
                if (cmd.op == NUPA_ADMIN_TXQ_CREATE) {
                    cmd.queue.flags = in.u8() & (2 * NUPA_TXQ_F_WATCH | NUPA_TXQ_F_WATCH);
                    break;
                }
                cmd.queue.comp_addr = page(in), cmd.queue.slot_addr = page(in);
                cmd.queue.comp_entries = 64u << in.below(4);
                cmd.queue.buf_bytes = NUPA_RX_BUF_MIN_BYTES + in.u16();
                queue_flags(in, in.u8(), cmd.queue);
                break;
            case NUPA_ADMIN_RX_MODE:
                rx_mode_flags(in.u8(), cmd.rx_mode);
                cmd.rx_mode.mtu = 68 + in.u16() % 9000;
                cmd.rx_mode.mac[0] = 2, cmd.rx_mode.mac[5] = in.u8() & 3;
                break;
            case NUPA_ADMIN_RSS:
                cmd.rss.table_addr = page(in);
                break;
            case NUPA_ADMIN_STEER_ADD:
                cmd.steer.flow = flow_of(in.below(kFlows));
                cmd.steer.queue = in.u8() % (kQueues + 1), cmd.steer.wildcards = in.u8() & 31;
                break;
            case NUPA_ADMIN_STATS:
            case NUPA_ADMIN_QP_STATS:
                cmd.stats.addr = page(in) + in.u8(),
                cmd.stats.count = in.below(NUPA_STAT_COUNT + 2);
                break;
            case NUPA_ADMIN_MR_REG:
                cmd.mr.iova = in.u16(), cmd.mr.bytes = in.u16() + 1u;
                cmd.mr.pages = static_cast<__le32>(((cmd.mr.iova + cmd.mr.bytes - 1) >> 12) -
                                                   (cmd.mr.iova >> 12) + 1);
                cmd.mr.table_addr = table(in, cmd.mr.pages);
                cmd.mr.pd = in.u8() & 1, cmd.mr.access = in.u8() & 15, cmd.mr.page_shift = 12;
                break;
            case NUPA_ADMIN_QP_CREATE:
                cmd.qp.flow = flow_of(in.below(kFlows));
                cmd.qp.pd = in.u8() & 1;
                qp_flags(in, in.u8(), cmd.qp);
                cmd.qp.rcv_nxt = in.u16();
                cmd.qp.rcv_wscale = in.below(15),
                cmd.qp.rq_log2_bytes = static_cast<__u8>(6 + in.below(3));
                cmd.qp.rq_sge_max = in.below(4), cmd.qp.rq_mask = (2u << in.below(4)) - 1;
                cmd.qp.rq_pages = 1 + in.below(2), cmd.qp.rq_table_addr = table(in, 2);
                cmd.qp.shadow_addr = page(in) + 4 * in.u8();
                if (cmd.qp.flags & NUPA_QP_F_SRQ)
                    no_rq(cmd.qp);
                break;
            case NUPA_ADMIN_CQ_CREATE:
                cmd.cq.pages = 1 + in.below(2), cmd.cq.table_addr = table(in, 2);
                cmd.cq.ctl_addr = page(in) + 4 * in.u8();
                cmd.cq.mask = (2u << in.below(7)) - 1;
                cmd.cq.flags = in.u8() & NUPA_CQ_F_WAITING;
                break;
            case NUPA_ADMIN_SRQ_CREATE:
                cmd.srq.pages = 1 + in.below(2), cmd.srq.table_addr = table(in, 2);
                cmd.srq.ctl_addr = page(in) + 4 * in.u8();
                cmd.srq.mask = (2u << in.below(4)) - 1, cmd.srq.sge_max = in.below(4);
                cmd.srq.log2_bytes = static_cast<__u8>(6 + in.below(3));
                break;
            default:
                break;
        }
    }

    static void qp_flags(Input& in, std::uint8_t how, nupa_cmd_qp& qp) {
        qp.flags = how & 31;
        if ((how & 0xc0) != 0xc0)
            return;
        qp.flags |= NUPA_QP_F_COMPLETE, qp.cq = in.below(8);
        if (how & 32)
            qp.flags |= NUPA_QP_F_SRQ, qp.srq = in.below(8);
        if (in.u8() & 1)
            qp.flags |= NUPA_QP_F_SENDS, qp.send_cq = in.below(8);
    }

    static void no_rq(nupa_cmd_qp& qp) {
        qp.rq_log2_bytes = 0, qp.rq_sge_max = 0, qp.rq_mask = 0, qp.rq_base = 0;
        qp.rq_pages = 0, qp.rq_table_addr = 0;
    }

    void queue_flags(Input& in, std::uint8_t how, nupa_cmd_queue& queue) {
        queue.flags = how & 1;
        if ((how & 0xc0) != 0xc0)
            return;
        queue.long_ring_addr = page(in), queue.long_entries = 64u << (how >> 1 & 3);
        queue.long_buf_bytes = queue.buf_bytes + in.u16();
    }

    static void rx_mode_flags(std::uint8_t how, nupa_cmd_rx_mode& mode) {
        mode.flags = how & 15;
        mode.run4_max_bytes = (how >> 4) * (NUPA_RX_RUN_MAX_BYTES / 14u);
    }

    // Page addresses; sometimes wild ones.
    std::uint64_t table(Input& in, std::uint32_t pages) {
        const std::uint64_t at = kTables + 64 * in.below(16);
        for (std::uint64_t i = 0; i < std::min(pages, 8u); i++) {
            const std::uint64_t p = page(in);
            std::memcpy(hostile_.ram.at(at + 8 * i), &p, sizeof p);
        }
        return at;
    }

    void open_all() {
        nupa_admin_cmd cmd{};
        for (std::uint32_t q = 0; q < kQueues; q++) {
            cmd = {};
            cmd.op = NUPA_ADMIN_TXQ_CREATE, cmd.id = q;
            cmd.queue.ring_addr = kTxRing + q * kPage, cmd.queue.entries = 64;
            cmd.queue.flags = q % 2 ? NUPA_TXQ_F_WATCH : 0;
            submit(cmd);
        }
        cmd = {};
        cmd.op = NUPA_ADMIN_RXQ_CREATE;
        cmd.queue.ring_addr = kFills, cmd.queue.comp_addr = kComps, cmd.queue.slot_addr = kSlots;
        cmd.queue.entries = cmd.queue.comp_entries = 64,
        cmd.queue.buf_bytes = NUPA_RX_BUF_MIN_BYTES;
        cmd.queue.long_ring_addr = kLongFills, cmd.queue.long_entries = 64,
        cmd.queue.long_buf_bytes = kPage;
        submit(cmd);
        cmd = {};
        cmd.op = NUPA_ADMIN_RX_MODE;
        cmd.rx_mode.flags = 15, cmd.rx_mode.mtu = 9000, cmd.rx_mode.mac[0] = 2,
        cmd.rx_mode.mac[5] = 1;
        submit(cmd);
        for (std::uint64_t i = 0; i < 16; i++) {
            const std::uint64_t buffer = kBuffers + i * NUPA_RX_BUF_MIN_BYTES;
            std::memcpy(hostile_.ram.at(kFills + 8 * i), &buffer, sizeof buffer);
            std::memcpy(hostile_.ram.at(kLongFills + 8 * i), &buffer, sizeof buffer);
        }
        hostile_.rx(0).fill_prod = hostile_.rx(0).long_prod = 16;
    }

    void fill(Input& in) {
        const unsigned q = in.below(kQueues);
        const std::uint8_t how = in.u8();
        hostile_.rx(q).fill_prod = how & 1 ? in.u32() : hostile_.rx(q).fill_prod + in.below(64);
        hostile_.rx(q).comp_cons = how & 2 ? in.u32() : hostile_.rx(q).comp_prod;
        if ((how & 0xc0) == 0xc0)
            hostile_.rx(q).long_prod = how & 4 ? in.u32() : hostile_.rx(q).long_prod + in.below(64);
    }

    // Ring entries of any content.
    void send_anything(Input& in) {
        const unsigned q = in.below(kQueues);
        const unsigned entries = in.below(20);
        for (unsigned i = 0; i < entries; i++) {
            const auto bytes = in.bytes(sizeof(nupa_tx_entry));
            std::memcpy(entry(q), bytes.data(), bytes.size());
        }
        publish(q);
    }

    std::byte* entry(unsigned q) {
        return hostile_.ram.at(kTxRing + q * kPage + produced_[q]++ % 64 * sizeof(nupa_tx_entry));
    }
    void publish(unsigned q) {
        hostile_.tx(q).prod = produced_[q];
        ring(1 + q);
    }

    // A data segment or burst to the honest host's QP flows, or to anybody.
    void send_frame(Input& in, unsigned how) {
        Frame f;
        const std::uint8_t fields = in.u8();
        f.flow = in.below(how & 1 ? kFlows : 2);
        f.to = fields & 1 ? Mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} : HonestHost::kMac;
        const std::uint32_t mbo = fields & 2 ? in.u16() : 0;
        const std::uint32_t start = fields & 4 ? HonestHost::kRcvNxt + in.u16() : next_[f.flow];
        f.seq = start + mbo;
        f.flags = fields & 8 ? in.u8() : 0x10;
        f.fragment = fields & 16 ? in.u16() : 0;
        f.payload = pattern(1 + in.u16() % 5000, fields);
        const auto length = static_cast<std::uint32_t>(mbo + f.payload.size());
        tcp_bth b = describe(in, start, mbo, length, static_cast<std::uint16_t>(in.u8()));
        if (b.ver == 0)
            b.ver = 1, b.flags |= TCP_BTH_F_TIMESTAMP;
        f.set_option(b, in.below(4));
        if (!(fields & 4))
            next_[f.flow] = start + length;
        std::vector<std::uint8_t> frame = f.build();
        if (fields & 32)
            frame[in.u8() % frame.size()] ^= in.u8();
        const std::uint16_t mss = how & 2 ? static_cast<std::uint16_t>(8 + in.u16() % 3000) : 0;
        transmit(f, frame, mss, how & 4 ? in.below(18) : 1);
    }

    void transmit(const Frame& f, const std::vector<std::uint8_t>& frame, std::uint16_t mss,
                  unsigned pieces) {
        const unsigned q = f.flow % kQueues;
        pieces = std::max(1u, pieces);
        nupa_tx_entry e{};
        e.ctx.bufs = static_cast<__le16>(pieces), e.ctx.bytes = static_cast<__le32>(frame.size());
        e.ctx.flags = NUPA_TX_F_CSUM;
        e.ctx.csum_start = static_cast<__le16>(f.l4_at()), e.ctx.csum_offset = 16;
        if (mss) {
            e.ctx.flags = f.flow % 2 ? NUPA_TX_F_TSO6 : NUPA_TX_F_TSO4;
            e.ctx.mss = mss, e.ctx.header_bytes = static_cast<__le16>(f.header_bytes());
        }
        std::memcpy(entry(q), &e, sizeof e);
        std::memcpy(hostile_.ram.at(kBuffers + 8 * kPage), frame.data(), frame.size());
        const std::size_t share = frame.size() / pieces;
        for (unsigned i = 0; i < pieces; i++) {
            const std::size_t at = i * share;
            e = {};
            e.buf.addr = kBuffers + 8 * kPage + at;
            e.buf.bytes = static_cast<__le32>(i + 1 == pieces ? frame.size() - at : share);
            std::memcpy(entry(q), &e, sizeof e);
        }
        publish(q);
    }

    void honest_sends(Input& in) {
        Frame f;
        const std::uint8_t how = in.u8();
        f.flow = in.below(kFlows);
        f.reverse = !(how & 1);
        f.from = HonestHost::kMac, f.to = Mac{2, 0, 0, 0, 0, 1};
        f.ack = how & 2 ? next_[f.flow] : HonestHost::kRcvNxt + in.u16();
        f.window = 0xffff;
        f.seq = in.u16();
        if (how & 4) {
            f.payload = pattern(1 + in.u16() % 3000, how);
            const std::uint32_t mbo = in.u8();
            f.set_option(describe(in, f.seq - mbo, mbo,
                                  static_cast<std::uint32_t>(mbo + f.payload.size()), in.u8()));
        }
        honest_.send(f);
        turn();
    }

    void faults(Input& in) {
        nupa::FaultConfig c;
        c.seed = in.u8();
        for (std::uint32_t nupa::FaultConfig::*rate :
             {&nupa::FaultConfig::loss_ppm, &nupa::FaultConfig::duplicate_ppm,
              &nupa::FaultConfig::reorder_ppm, &nupa::FaultConfig::corrupt_ppm,
              &nupa::FaultConfig::truncate_ppm, &nupa::FaultConfig::bleach_ppm,
              &nupa::FaultConfig::mangle_ppm, &nupa::FaultConfig::copy_ppm})
            c.*rate = in.u8() * (nupa::kPpm / 255);
        link_of(c.seed & 1 ? hostile_ : honest_.client).impairments().configure(c, {});
    }

    nupa::daemon::Link& link_of(const PortClient& client) { return fabric_.link_of(client.port); }

    nupa::daemon::Epoll epoll_;
    nupa::daemon::Fabric fabric_;
    nupa::daemon::Heartbeat heartbeat_{epoll_, std::chrono::milliseconds(NUPA_BEAT_MS),
                                       [] { return false; }};
    const nupa::daemon::SpareTime spare_time_{1};
    const nupa::daemon::PortContext context_{epoll_, fabric_, heartbeat_, spare_time_};
    PortClient hostile_;
    HonestHost honest_;
    std::array<std::uint32_t, kQueues> produced_{};
    std::uint32_t admin_ = 0;
    std::array<std::uint32_t, kFlows> next_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    static World world;
    Input in(data, bytes);
    world.run(in);
    return 0;
}
