// SPDX-License-Identifier: BSD-3-Clause
#include "end.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "engine/endian.hpp"
#include "engine/transmit.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kRtrEveryUs = 2000;
constexpr std::uint32_t kTeardownUs = 600;  // at most, from the error to the context's end
constexpr std::uint32_t kBufferBudgetBytes = 24 << 10;
constexpr std::uint8_t kTimestampBytes = 12;
constexpr std::uint32_t kSendCq = 1 << 20;  // its number, beside that of receives

std::uint32_t qpn_of(std::uint32_t number, int side) {
    return 2 * number + static_cast<std::uint32_t>(side) + 1;
}

}  // namespace

End& end_of(const World& world, std::uint32_t qpn) {
    return world.end((qpn - 1) / 2, static_cast<int>((qpn - 1) % 2));
}

std::uint32_t key_of(const End& end, std::uint32_t region) {
    return 0x100 + kRegionNumbers * (2 * end.number() + static_cast<std::uint32_t>(end.side())) +
           region;
}

std::uint32_t pd_of(const End& end) {
    return 10 + 2 * end.number() + static_cast<std::uint32_t>(end.side());
}

End::End(World& world, Host& host, const ConnectionSettings& connection, std::uint32_t number,
         int side, std::vector<Planned> plan)
    : world_(world),
      host_(host),
      connection_(connection),
      number_(number),
      side_(side),
      flow_(flow_of(connection.family, number, side)),
      sender_(*this, std::move(plan)),
      tcp_(world.stream_from(number, 1 - side), settings().window_bytes, settings().wscale,
           world.dice, world.coverage),
      exposed_(*this),
      reads_(*this),
      qp_(*this) {
    sender_.allow(connection.messages);
}

Dice& End::dice() noexcept { return world_.dice; }
End& End::peer() { return world_.end(number_, 1 - side_); }

std::uint32_t End::buffers() const noexcept {
    return std::clamp(kBufferBudgetBytes / connection_.message_max, 6u, 8u);
}

// ---- life ----

void End::tick() {
    if (gone_)
        return;
    if (dead_) {
        if (world_.now() >= gone_at_)
            teardown();
        return;
    }
    attach();
    handshake();
    begin_epilogue();
    if (attached_)
        qp_.turn();
    if (attached_ && rtr_seen_)
        while (!dead_ && dice().percent(70) && sender_.post()) {
        }
    if (attached_)
        qp_.run();
    if (dead_)
        return;
    read_plain();
    sender_.tick();
    if (ack_owed_ || dice().percent(10))
        send_ack();
}

// rcv_nxt is read, and a moment later the context is born: what came in between escaped it.
void End::attach() {
    const EndSettings& s = settings();
    if (!snapshot_ && world_.now() >= s.attach_us)
        snapshot_ = tcp_.next();
    if (attached_ || !snapshot_ || world_.now() < s.attach_us + s.escape_us)
        return;
    qp_.attached();
    if (offloaded(s.engine)) {
        if (create_context(peer().sender().stream.seq(*snapshot_)) != NUPA_OK)
            throw std::logic_error("qp_create");
        if (*snapshot_ != tcp_.next())
            world_.coverage.add(k_escaped);
    }
    attached_ = true;
    rtr_at_ = world_.now();
    world_.log.add(world_.now(), "end {}.{} attaches at {}, next is {}",
                   {number_, static_cast<std::uint64_t>(side_), *snapshot_, tcp_.next()});
}

nupa_admin_status End::create_context(std::uint32_t rcv_nxt) {
    nupa_cmd_qp cmd = qp_.command();
    cmd.flow = flow_.raw;
    cmd.pd = pd_of(*this);
    cmd.flags = settings().engine == Engine::kOffloadV0 ? NUPA_QP_F_TX_V0 : 0;
    cmd.flags |= NUPA_QP_F_SHADOW;
    if (!settings().refuses_writes)
        cmd.flags |= NUPA_QP_F_REMOTE_WRITE;
    if (connection_.icrc)
        cmd.flags |= NUPA_QP_F_ICRC;
    if (settings().completes) {
        cmd.flags |= NUPA_QP_F_COMPLETE;
        cmd.cq = qpn_of(number_, side_);
        cmd.flags |= NUPA_QP_F_SENDS;
        cmd.send_cq = cmd.cq | kSendCq;
        if (host_.engine.cq_create(cmd.cq, qp_.cq_command()) != NUPA_OK ||
            host_.engine.cq_create(cmd.send_cq, qp_.send_cq_command()) != NUPA_OK)
            throw std::logic_error("cq_create");
    }
    if (settings().shared) {
        cmd.flags |= NUPA_QP_F_SRQ;
        cmd.srq = qpn_of(number_, side_);
        if (host_.engine.srq_create(cmd.srq, qp_.srq_command()) != NUPA_OK)
            throw std::logic_error("srq_create");
    }
    cmd.rcv_nxt = rcv_nxt;
    cmd.rcv_wscale = settings().wscale;
    context_ = true;
    proven_ = false;
    forged_reach_ = 0;
    return host_.engine.qp_create(qpn_of(number_, side_), cmd);
}

void End::destroy_context() {
    if (!context_)
        return;
    const nupa::QpStats& stats = *host_.engine.qp_stats(qpn_of(number_, side_));
    world_.coverage.add(k_overflows, stats[NUPA_QP_STAT_disorder_overflows]);
    host_.engine.qp_destroy(qpn_of(number_, side_));
    if (settings().completes)
        for (const std::uint32_t which : {0u, kSendCq})
            host_.engine.cq_destroy(qpn_of(number_, side_) | which);
    if (settings().shared)
        host_.engine.srq_destroy(qpn_of(number_, side_));
    qp_.turn_over();
    context_ = false;
}

// In the middle of everything, as after a device reset.
void End::recreate_context() {
    destroy_context();
    recreated_ = true;
    world_.coverage.add(k_recreated);
    Stream& in = peer().sender().stream;
    in.clear(0, in.end(), kBytePlaced | kByteHonest);  // once per context
    rtr_acked_ = window_told_ = false;                 // it learns the window from our own ACKs
    rtr_at_ = world_.now() + dice().below(kRtrEveryUs);
    world_.log.add(world_.now(), "end {}.{} has a new context at {}",
                   {number_, static_cast<std::uint64_t>(side_), tcp_.next()});
    if (create_context(in.seq(tcp_.next())) != NUPA_OK)
        world_.violation("end {}.{} has no new context: the old one is still there",
                         {number_, static_cast<std::uint64_t>(side_)});
}

void End::handshake() {
    if (!attached_ || rtr_acked_ || world_.now() < rtr_at_)
        return;
    rtr_at_ = world_.now() + kRtrEveryUs;
    send_ack();
}

bool End::strange() const {
    const EndSettings& s = settings();
    return s.hostile || s.short_receive || s.bad_key || s.deregister || s.refuses_writes;
}

// Did the schedule give it a reason?
bool End::excused(Counter why) const {
    const End& peer = world_.end(number_, 1 - side_);
    if (rules_broken_ || peer.rules_broken_ || settings().hostile)
        return true;
    if (why == k_protocol_errors || why == k_access_errors)
        if (qp_.bad_message())
            return true;
    // A message whose end lost its option takes the next one's bytes that lost theirs, too.
    if (bleached_ && (why == k_protocol_errors || why == k_length_errors))
        return true;
    return why != k_protocol_errors && strange();
}

// From here on nobody can say what belongs where.
void End::exempt() {
    rules_broken_ = true;
    exposed_.spoil();
}

void End::fail(Counter why) {
    if (dead_)
        return;
    world_.log.add(world_.now(), "end {}.{} fails:", {number_, static_cast<std::uint64_t>(side_)},
                   counter_name(why));
    world_.coverage.add(why);
    if (!excused(why))
        world_.violation("end {}.{} failed, and nothing but TCP's troubles happened to it",
                         {number_, static_cast<std::uint64_t>(side_)});
    world_.coverage.add(k_failed_connections);
    dead_ = true;
    gone_at_ = world_.now() + dice().below(kTeardownUs);
    peer().reset_by_peer();
}

void End::reset_by_peer() {
    if (dead_)
        return;
    dead_ = true;
    gone_at_ = world_.now() + dice().below(kTeardownUs);
}

// The context goes first, then the buffers are the application's.
void End::teardown() {
    destroy_context();
    qp_.flush();
    reads_.flush();
    exposed_.poison();
    sender_.drop();
    gone_ = true;
    world_.log.add(world_.now(), "end {}.{} is gone", {number_, static_cast<std::uint64_t>(side_)});
}

// As tqp_mr_revoke(): what may still be sent takes its connection along.
void End::revoke(std::uint32_t key) {
    if (dead_ || !sender_.holds(key))
        return;
    fail(k_revoked_responses);
}

// Without its option a segment may be the last that is known of a ver 0
// message: then only the next message's start shows the error.
bool End::spoiled() const { return settings().hostile || rules_broken_ || bleached_; }

void End::log_state() {
    const auto side = static_cast<std::uint64_t>(side_);
    const Stream& in = world_.end(number_, 1 - side_).sender_.stream;
    world_.log.add(world_.now(),
                   "end {}.{} attached {} peer ready {} dead {} hostile {} strange option {}",
                   {number_, side, attached_, rtr_seen_, dead_, settings().hostile, rules_broken_});
    world_.log.add(world_.now(),
                   "end {}.{} receives: {} posted, {} completed of {}; TCP next {} of {}",
                   {number_, side, qp_.posted(), qp_.completed(), peer().sender_.untagged().size(),
                    tcp_.next(), in.end()});
    world_.log.add(
        world_.now(), "end {}.{} messages: {} done of {}; {} of {} planned are sent",
        {number_, side, qp_.done(), in.messages.size(), sender_.planned(), sender_.plan().size()});
}

bool End::finished() const {
    if (dead_)
        return gone_;
    if (world_.quiet() && (spoiled() || world_.end(number_, 1 - side_).spoiled()))
        return true;
    const Sender& in = world_.end(number_, 1 - side_).sender_;
    return in.all_posted() && qp_.done() == in.stream.messages.size() && sender_.all_posted() &&
           sender_.all_acked() && reads_.idle();
}

// When all before is done, which the switch knows by the host's ACK, and the receives are posted:
// these must be placed.
void End::begin_epilogue() {
    if (world_.quiet() && sender_.planned() >= connection_.messages &&
        peer().qp_.done() == sender_.stream.messages.size() && sender_.all_acked() &&
        sender_.responses() == 0 && peer().qp_.posted() == sender_.untagged().size() &&
        peer().window_told_)
        sender_.allow(sender_.plan().size());
}

// The table of tagged starts keeps a false one, and takes a WRITE with immediate
// for the WRITE with its number and target: such messages may be delivered.
bool End::start_unsure(const Stream& in, const Message& m) const {
    return tcp_bth_is_tagged(m.opcode) &&
           (misled_ || std::any_of(in.messages.begin(), in.messages.end(), [&](const Message& o) {
                return o.opcode != m.opcode && o.write() && o.msn == m.msn && o.va == m.va &&
                       o.rkey == m.rkey;
            }));
}

// Whatever happened before, clean traffic is placed again.  If a forged segment was ahead of it,
// what lies behind that is; but WRITEs may wait there until the host has copied what was delivered.
void End::check_epilogue() {
    if (dead_ || !context_ || spoiled() || world_.end(number_, 1 - side_).spoiled())
        return;
    const Stream& in = world_.end(number_, 1 - side_).sender_.stream;
    const auto first = std::ranges::find_if(in.messages, &Message::clean);
    const bool in_the_way = first != in.messages.end() && forged_reach_ > first->at;
    const auto sure = [&](const Message& m) {
        // a SEND of several segments is nobody's receive before all of it is there
        return m.clean && m.payload() && m.length && !start_unsure(in, m) &&
               !(in_the_way && m.write()) && !(settings().shared && tcp_bth_is_send(m.opcode));
    };
    const auto last = std::find_if(in.messages.rbegin(), in.messages.rend(), sure);
    if (last == in.messages.rend())
        return;
    const std::uint32_t end = last->at + last->length;
    const std::uint32_t from = std::clamp(forged_reach_, last->at, end);
    if (!in.all(from, end - from, kBytePlaced))
        world_.violation("end {}.{} placement did not resume: the last message was not placed",
                         {number_, static_cast<std::uint64_t>(side_)});
}

// ---- output ----

std::uint8_t End::rtr_flags() const noexcept {
    return static_cast<std::uint8_t>((attached_ && !rtr_acked_ ? TCP_BTH_F_RTR : 0) |
                                     (rtr_owed_ ? TCP_BTH_F_RTR_ACK : 0));
}

TcpFields End::fields(std::uint32_t at) {
    TcpFields tcp;
    tcp.seq = sender_.stream.seq(at);
    tcp.ack = peer().sender_.stream.seq(tcp_.next());
    tcp.window = tcp_.advertise();
    tcp.flags = nupa::kTcpAck;
    return tcp;
}

void End::send_data(std::uint32_t at, std::span<const std::byte> bytes, const tqp_msg_rec* rec,
                    const tqp_msg_rec* last) {
    TcpFields tcp = fields(at);
    if (dice().percent(20))
        tcp.flags |= nupa::kTcpPsh;
    const auto tsval = static_cast<std::uint32_t>(world_.now() / 1000);
    if (rec) {
        tcp_bth bth;
        if (rec == last)
            tqp_bth_of(&bth, rec, settings().engine == Engine::kSoftwareV0 ? 0 : 1, rtr_flags(),
                       tcp.seq, static_cast<std::uint32_t>(bytes.size()));
        else
            tqp_bth_of_train(&bth, rec, last, rtr_flags(), tcp.seq);
        if (connection_.timestamps)
            bth.flags |= TCP_BTH_F_TIMESTAMP, bth.tsval = tsval;
        tcp.option_bytes = static_cast<std::uint8_t>(tcp_bth_build(tcp.options.data(), &bth));
    } else if (connection_.timestamps) {
        tcp.option_bytes = kTimestampBytes;
        tcp.options = {1, 1, 8, 10};
        nupa::put_be32(tcp.options.data() + 4, tsval);
    }
    Truth truth;
    truth.at = at, truth.len = static_cast<std::uint32_t>(bytes.size());
    ack_owed_ = false;
    transmit(tcp, bytes, std::move(truth));
}

void End::send_probe(std::uint32_t una) { transmit(fields(una - 1), {}, {}); }

void End::send_ack() {
    TcpFields tcp = fields(sender_.sent());
    if (attached_) {
        tcp_bth bth{};
        bth.ver = 1, bth.opcode = TCP_BTH_OP_ACKNOWLEDGE, bth.ext_bytes = TCP_BTH_EXT4_BYTES;
        bth.flags = rtr_flags();
        tcp.option_bytes = static_cast<std::uint8_t>(tcp_bth_build(tcp.options.data(), &bth));
        rtr_owed_ = false;
    }
    Truth truth;
    for (const Range& r : tcp_.islands())
        truth.sack.push_back({r.begin, r.end});
    ack_owed_ = false;
    transmit(tcp, {}, std::move(truth));
}

void End::transmit(const TcpFields& tcp, std::span<const std::byte> payload, Truth&& truth) {
    window_told_ = true;
    const FrameHeader header =
        build_frame(peer().flow_, tcp, static_cast<std::uint32_t>(payload.size()));
    const nupa::Bytes parts[] = {std::as_bytes(std::span(header.bytes).first(header.size)),
                                 payload};
    nupa_tx_ctx ctx{};
    const bool burst = payload.size() > connection_.mss;
    ctx.flags = NUPA_TX_F_CSUM;
    if (burst)
        ctx.flags = family() == 4 ? NUPA_TX_F_TSO4 : NUPA_TX_F_TSO6;
    ctx.bufs = payload.empty() ? 1 : 2;
    ctx.bytes = static_cast<std::uint32_t>(header.size + payload.size());
    ctx.mss = static_cast<std::uint16_t>(connection_.mss);
    ctx.header_bytes = header.size;
    ctx.csum_start = header.l4_at;
    ctx.csum_offset = 16;
    nupa::Packet packet, segment;
    if (nupa::packet_from_tx(packet, ctx, {parts, ctx.bufs}) != nupa::TxError::kOk)
        throw std::logic_error("packet_from_tx");
    const nupa::TxRewrite rewrite = host_.engine.transmit(packet);
    // Some bursts meet nobody who looks at their segments, and arrive in runs.
    const bool whole = burst && !rewrite.icrc && world_.faults().whole &&
                       dice().per_mille(world_.faults().whole) &&
                       peer().host_.engine.runs(packet) == nupa::PortEngine::Runs::kPlaced;
    const std::uint32_t span = whole ? connection_.mss * (2 + dice().below(8)) : 0;
    nupa::Cutter cutter = whole ? nupa::Cutter(packet, span) : nupa::Cutter(packet, rewrite);
    truth.connection = number_;
    truth.to = 1 - side_;
    const std::uint32_t at = truth.at;
    if (!payload.empty())
        host_.sent();
    while (cutter.next(segment)) {
        truth.at = payload.empty() ? 0 : at + (segment.at.seq - tcp.seq);
        truth.len = segment.payload.bytes();
        world_.fabric().send(segment, truth);
    }
}

// ---- input ----

void End::arrive(Received&& r) {
    if (dead_)
        return;
    if (r.tcp.flags & nupa::kTcpSyn) {
        ack_owed_ = true;  // a challenge ACK, nothing else
        return;
    }
    if (r.bytes && !world_.quiet() && dice().per_mille(world_.faults().refuse)) {
        world_.coverage.add(k_refused);  // no memory for it, after the switch has seen it
        return;
    }
    tcp_bth bth;
    const bool has_bth = tcp_bth_find(r.tcp.options.data(), r.tcp.option_bytes, r.tcp.seq, r.bytes,
                                      &bth, nullptr) == TCP_BTH_OK;
    const std::uint32_t ack = sender_.stream.offset(r.tcp.ack);
    if (!sender_.plausible(ack) && ack > sender_.sent())
        return;
    if (has_bth && sender_.plausible(ack) &&
        (bth.flags & (TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK) || !r.bytes))
        hint(bth);
    std::vector<Range> sack;
    for (const auto& [begin, end] : r.truth.sack)
        sack.push_back({begin, end});
    if (sender_.plausible(ack))
        sender_.acked(ack, std::uint32_t{r.tcp.window} << peer().settings().wscale, sack);
    const Stream& in = peer().sender_.stream;
    if (r.bytes)
        take_data(std::move(r), has_bth ? &bth : nullptr);
    else if (in.offset(r.tcp.seq) + 1 == tcp_.next())
        ack_owed_ = true;
    if (!dead_ && attached_)
        qp_.run();
    if (dead_)
        return;
    read_plain();
    if (ack_owed_ && dice().percent(50))
        send_ack();
    sender_.send();
}

void End::hint(const tcp_bth& bth) {
    if (bth.flags & TCP_BTH_F_RTR)
        rtr_seen_ = rtr_owed_ = ack_owed_ = true;
    if (bth.flags & TCP_BTH_F_RTR_ACK)
        rtr_acked_ = true;
}

void End::take_data(Received&& r, const tcp_bth* bth) {
    const std::uint64_t side = static_cast<std::uint64_t>(side_);
    const Stream& in = peer().sender_.stream;
    Skb skb;
    skb.at = in.offset(r.tcp.seq), skb.len = r.bytes;
    skb.decrypted = r.placed;
    skb.tampered = r.truth.tampered;
    skb.data = std::move(r.data);
    if (bth) {
        skb.mapped = true;
        tqp_map_fill(&skb.map, bth, r.bytes);
    }
    ack_owed_ = true;
    if (skb.at > in.end() || skb.len > in.end() - skb.at)
        world_.violation("end {}.{} got bytes at {} that were never sent", {number_, side, skb.at});
    if (!tcp_.acceptable(skb.at, skb.len))
        return;
    if (!skb.decrypted && std::memcmp(skb.data.data(), in.bytes.data() + skb.at, skb.len) != 0)
        world_.violation("end {}.{} TCP takes wrong bytes at {} + {}",
                         {number_, side, skb.at, skb.len});
    // What TCP has already it cuts off; it may have come as payload.
    const std::uint32_t fresh = std::max(skb.at, std::min(tcp_.next(), skb.at + skb.len));
    if (skb.decrypted && !skb.tampered && !settings().hostile &&
        !in.all(fresh, skb.at + skb.len - fresh, kByteWritten))
        world_.violation("end {}.{} bytes at {} + {} are called placed, but were not written",
                         {number_, side, skb.at, skb.len});
    // Also a genuine option of another cut of the same message: with it ver 0
    // names another end.
    if (r.truth.tampered)
        exempt();
    bleached_ |= r.truth.bleached;
    tcp_.accept(std::move(skb));
    if (world_.quiet())
        return;
    if (dice().per_mille(world_.faults().renege))
        tcp_.renege();
    if (dice().per_mille(world_.faults().collapse))
        tcp_.collapse();
}

// recv(): bytes before the first message.
void End::read_plain() {
    if (qp_.started())
        return;
    while (const Skb* skb = tcp_.front()) {
        if (attached_ && skb->mapped)
            return;
        if (skb->decrypted)
            world_.violation("end {}.{} plain bytes at {} were placed",
                             {number_, static_cast<std::uint64_t>(side_), skb->at});
        world_.coverage.add(k_plain_bytes, skb->end() - tcp_.copied());
        tcp_.read(skb->end() - tcp_.copied());
        if (tcp_.copied() > peer().sender_.stream.plain)
            exempt();  // a first message without any option: no number need be missing
    }
}

}  // namespace sim
