// SPDX-License-Identifier: BSD-3-Clause
#include "placement.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <array>

#include "icrc.hpp"
#include "payload_reader.hpp"

namespace nupa {

namespace {

// Checked pieces of destination, in the order of the message's bytes.
class Target {
public:
    Reason add(const MrTable& mrs, std::uint32_t key, std::uint32_t pd, std::uint64_t addr,
               std::uint64_t bytes, std::uint32_t access) noexcept {
        return add(mrs, key, pd, {addr, bytes, 0, bytes}, access);
    }
    // A part of a message that may be placed only if all of it may.
    struct Part {
        std::uint64_t addr, length;   // of the message
        std::uint64_t offset, bytes;  // of the part in it; offset + bytes <= length
    };
    Reason add(const MrTable& mrs, std::uint32_t key, std::uint32_t pd, const Part& part,
               std::uint32_t access) noexcept {
        const Mr* mr = mrs.find(key);
        if (!mr)
            return Reason::kKey;
        if (count_ == kPiecesMax)
            return Reason::kBounds;
        const Reason reason = mr->check(pd, part.addr, part.length, access);
        if (reason == Reason::kPlaced)
            pieces_[count_++] = {mr, part.addr + part.offset, part.bytes};
        return reason;
    }

    void fill(const Payload& payload) const noexcept;

private:
    struct Piece {
        const Mr* mr;
        std::uint64_t addr, bytes;
    };
    std::size_t count_ = 0;
    std::array<Piece, kPiecesMax> pieces_;
};

// Rising on both sides; a run is as long as source and destination allow.
void Target::fill(const Payload& payload) const noexcept {
    PayloadReader reader(payload);
    for (std::size_t i = 0; i < count_; i++) {
        Piece piece = pieces_[i];
        while (piece.bytes) {
            std::span<std::byte> to = piece.mr->run(piece.addr, piece.bytes);
            piece.addr += to.size(), piece.bytes -= to.size();
            reader.read(to);
        }
    }
}

bool is_write(std::uint8_t opcode) noexcept { return tcp_bth_is_write(opcode); }

bool is_train(const tcp_bth& b) noexcept { return tcp_bth_is_even_train(b.opcode); }

bool is_mixed(const tcp_bth& b) noexcept { return tcp_bth_is_mixed_train(b.opcode); }

// Where message number @place of a train of WRITEs goes.
std::uint64_t train_target(const tcp_bth& b, std::uint32_t place) noexcept {
    return b.va + std::uint64_t{place} * tcp_bth_train_step(b.dma_length) * b.length;
}

// Where the first message begins of which a segment of @bytes has some, and where the last one.
// @mixed: the table of a mixed train.
struct Starts {
    std::uint32_t first, last;
};
Starts starts_in(const tcp_bth& b, const MixedTrain* mixed, std::uint32_t bytes) noexcept {
    if (mixed)
        return {b.start_seq + mixed->at[mixed->message(b.mbo)],
                b.start_seq + mixed->at[mixed->message(b.mbo + bytes - 1)]};
    if (!is_train(b) || b.length == 0)
        return {b.start_seq, b.start_seq};
    return {b.start_seq + b.mbo / b.length * b.length,
            b.start_seq + (b.mbo + bytes - 1) / b.length * b.length};
}

// Calls @visit(place, offset, bytes) for each message of train @b that has some of the @bytes of
// payload, until it returns false: what was returned last.
template <class Visit>
bool each_message(const tcp_bth& b, std::uint32_t bytes, Visit&& visit) noexcept {
    if (b.length == 0)  // as the option's parser has it, too: a peer's zero must not end the switch
        return false;
    std::uint32_t place = b.mbo / b.length, offset = b.mbo % b.length;
    for (; bytes; place++, offset = 0) {
        const std::uint32_t n = std::min(b.length - offset, bytes);
        if (!visit(place, offset, n))
            return false;
        bytes -= n;
    }
    return true;
}

// The same of a mixed train: @visit(place, start in the train, offset, bytes).
template <class Visit>
bool each_mixed(const MixedTrain& train, const tcp_bth& b, std::uint32_t bytes,
                Visit&& visit) noexcept {
    std::uint32_t place = train.message(b.mbo), offset = b.mbo - train.at[place];
    for (; bytes; place++, offset = 0) {
        const std::uint32_t left = train.at[place + 1] - train.at[place] - offset;
        const std::uint32_t n = std::min(left, bytes);
        if (!visit(place, train.at[place], offset, n))
            return false;
        bytes -= n;
    }
    return true;
}

// An empty message's one stream byte belongs to no buffer.
bool placeable(const tcp_bth& b) noexcept {
    if (is_mixed(b))
        return true;  // once its table is known
    if (b.ver == 1 && b.length == 0)
        return false;
    return tcp_bth_is_send(b.opcode) ||
           (tcp_bth_is_tagged(b.opcode) && b.ext_bytes == TCP_BTH_RETH_BYTES);
}

// An immediate takes the field's place where the opcode says so.
bool has_dma_length(std::uint8_t opcode) noexcept {
    return tcp_bth_op(opcode)->ext != TCP_BTH_EXT_RETH_IMM;
}

// Tells tagged messages of one number apart.
std::uint32_t target_mark(std::uint64_t va, std::uint32_t rkey) noexcept {
    return static_cast<std::uint32_t>(va) ^ static_cast<std::uint32_t>(va >> 32) ^ rkey;
}

// The placement checks of one segment.
class PlacementChecks {
public:
    PlacementChecks(QpContext& qp, const MrTable& mrs, const Packet& packet,
                    Decision& decision) noexcept
        : qp_(qp),
          mrs_(mrs),
          packet_(packet),
          d_(decision),
          seq_(packet.at.seq),
          bytes_(packet.payload.bytes()) {}

    // After the checksum: what to do with a segment that TCP would look at.
    Reason run() noexcept;

private:
    Reason option() noexcept;
    bool placed_before() const noexcept;
    bool unnamed_overtaken() const noexcept;
    bool sync() noexcept;
    bool consistent() noexcept;
    Extent extent() const noexcept;
    bool consistent_train() noexcept;
    bool consistent_mixed() noexcept;
    void learn() noexcept;
    Reason untagged() noexcept;
    Reason train() noexcept;
    Reason mixed() noexcept;
    Reason receive(std::uint16_t msn, std::uint64_t offset, std::uint64_t bytes) noexcept;
    Reason receive(const RecvWqe& wqe, std::uint64_t offset, std::uint64_t bytes) noexcept;
    Reason shared() noexcept;
    Reason shared_receives() noexcept;
    Reason tagged() noexcept;
    Reason write_order() const noexcept;
    Reason write_train() noexcept;
    Reason write_mixed() noexcept;

    QpContext& qp_;
    const MrTable& mrs_;
    const Packet& packet_;
    Decision& d_;
    std::uint32_t seq_;
    std::uint32_t bytes_;
    const MixedTrain* mixed_ = nullptr;  // if the segment is of one whose lengths are known
    Target target_;
};

Reason PlacementChecks::run() noexcept {
    if (packet_.at.tcp_flags & (kTcpSyn | kTcpFin | kTcpRst | kTcpUrg))
        return Reason::kFlags;
    const Reason parsed = option();
    if (parsed == Reason::kCsum)
        return parsed;
    const bool from_peer = qp_.from_peer(packet_);
    // Plain bytes at E prove as well as any that nothing escaped.
    if (from_peer && !qp_.synced && seq_ == qp_.disorder.next())
        qp_.synced = true;
    if (parsed != Reason::kPlaced)
        return unnamed_overtaken() ? Reason::kOvertaken : parsed;
    if (!qp_.in_window(seq_, bytes_))
        return Reason::kWindow;
    if (qp_.disorder.seen(seq_, bytes_))
        return placed_before() ? Reason::kPlacedBefore : Reason::kDuplicate;
    if (!from_peer)  // TCP may take it all the same, but nothing is learnt from it
        return Reason::kPeer;
    const bool may_be_placed = placeable(d_.bth);
    mixed_ = is_mixed(d_.bth) ? qp_.lengths.find(d_.bth) : nullptr;
    const bool agrees = !may_be_placed || consistent();  // remembered even if it is not placed
    if (!sync())
        return Reason::kUnsynced;
    if (qp_.disorder.resyncing())
        return Reason::kDisorder;
    if (!may_be_placed) {
        learn();
        return Reason::kOpcode;
    }
    if (is_mixed(d_.bth) && !mixed_)
        return Reason::kLengths;
    if (!agrees)
        return Reason::kInconsistent;
    if (tcp_bth_is_send(d_.bth.opcode) && qp_.completions.srq())
        return shared();
    const Reason reason = tcp_bth_is_send(d_.bth.opcode) ? untagged() : tagged();
    if (reason == Reason::kPlaced)
        target_.fill(packet_.payload);
    return reason;
}

Reason PlacementChecks::option() noexcept {
    const Headers& at = packet_.at;
    const std::uint8_t* options = packet_.header.data() + at.options_at;
    unsigned int found = 0;
    const tcp_bth_error error =
        tcp_bth_find(options, at.option_bytes(), seq_, bytes_, &d_.bth, &found);
    if (error == TCP_BTH_E_NONE)
        return Reason::kPlain;
    if (error != TCP_BTH_OK)
        return Reason::kBthInvalid;
    d_.has_bth = true;
    d_.bth_at = static_cast<std::uint16_t>(at.options_at + found);
    if (d_.bth.flags & TCP_BTH_F_ICRC &&
        icrc(options + found, options[found + 1], packet_.payload) != d_.bth.icrc)
        return Reason::kCsum;
    return Reason::kPlaced;
}

// TCP has dropped what was placed of a WRITE, and a later one is in memory
// already: the host must not copy the older bytes over it.  Nor will it copy what
// is completed: a WRITE behind that need not wait for the host.
bool PlacementChecks::placed_before() const noexcept {
    const std::uint32_t end = seq_ + bytes_;
    return placeable(d_.bth) && is_write(d_.bth.opcode) &&
           (qp_.writes.overtaken(end) || qp_.completions.finished(end));
}

// The same without an option, which a middlebox took: nobody can tell a WRITE's bytes, which must
// not be copied any more, from those of a message that the host has yet to copy.
bool PlacementChecks::unnamed_overtaken() const noexcept {
    return qp_.writes.overtaken(seq_ + bytes_);
}

// msn 0 names where the first message of its kind starts.  Peers send those
// bytes only after they saw our rtr, hence none of them escaped this context;
// what lies before may have, and is never placed.
bool PlacementChecks::sync() noexcept {
    if (qp_.synced)
        return true;
    if (d_.bth.msn != 0 || seq_after(d_.bth.start_seq, seq_))
        return false;
    if (seq_after(d_.bth.start_seq, qp_.disorder.next())) {  // WRITEs may be among these, too
        qp_.writes.delivered(qp_.disorder.next(), d_.bth.start_seq);
        qp_.writes.forget_copied(qp_.shadow);
    }
    qp_.disorder.raise(d_.bth.start_seq);
    qp_.synced = true;
    return true;
}

bool PlacementChecks::consistent() noexcept {
    const tcp_bth& b = d_.bth;
    if (is_mixed(b))
        return !mixed_ || consistent_mixed();
    if (is_train(b))
        return consistent_train();
    const MsnSpace space = tcp_bth_is_send(b.opcode) ? MsnSpace::kUntagged
                           : is_write(b.opcode)      ? MsnSpace::kWrite
                                                     : MsnSpace::kReadResponse;
    return qp_.starts.agree(space, b.msn, target_mark(b.va, b.rkey), extent());
}

// Ver 1 says how long the message is, ver 0 which segment is its last one.
Extent PlacementChecks::extent() const noexcept {
    const tcp_bth& b = d_.bth;
    if (b.ver == 1)
        return {b.start_seq, b.start_seq + b.length, true};
    const auto position = tcp_bth_op(b.opcode)->position;
    return {b.start_seq, seq_ + bytes_,
            position == TCP_BTH_POS_LAST || position == TCP_BTH_POS_ONLY};
}

bool PlacementChecks::consistent_train() noexcept {
    const tcp_bth& b = d_.bth;
    const bool writes = is_write(b.opcode);
    return each_message(b, bytes_, [&](std::uint32_t place, std::uint32_t, std::uint32_t) {
        const std::uint32_t start = b.start_seq + place * b.length;
        return qp_.starts.agree(writes ? MsnSpace::kWrite : MsnSpace::kUntagged,
                                static_cast<std::uint16_t>(b.msn + place),
                                writes ? target_mark(train_target(b, place), b.rkey) : 0,
                                {start, start + b.length, true});
    });
}

bool PlacementChecks::consistent_mixed() noexcept {
    const tcp_bth& b = d_.bth;
    const bool writes = mixed_->writes;
    return each_mixed(*mixed_, b, bytes_,
                      [&](std::uint32_t place, std::uint32_t at, std::uint32_t, std::uint32_t) {
                          return qp_.starts.agree(
                              writes ? MsnSpace::kWrite : MsnSpace::kUntagged,
                              static_cast<std::uint16_t>(b.msn + place),
                              writes ? target_mark(mixed_->va[place], mixed_->rkey) : 0,
                              {b.start_seq + at, b.start_seq + mixed_->at[place + 1], true});
                      });
}

// The table of a mixed train, whole in one segment: the host reads it, too, as TCP has it.
void PlacementChecks::learn() noexcept {
    const tcp_bth& b = d_.bth;
    const bool whole = b.mbo == 0 && (b.ver == 0 || b.length == bytes_);
    if (tcp_bth_op(b.opcode)->kind == TCP_BTH_KIND_LENGTHS && whole)
        qp_.lengths.learn(packet_.payload, b.opcode, b.msn, seq_ + bytes_, qp_.disorder.next());
}

Reason PlacementChecks::untagged() noexcept {
    if (mixed_)
        return mixed();
    return is_train(d_.bth) ? train() : receive(d_.bth.msn, d_.bth.mbo, bytes_);
}

// All of its messages in this segment, or nothing.
Reason PlacementChecks::train() noexcept {
    Reason reason = Reason::kPlaced;
    each_message(
        d_.bth, bytes_, [&](std::uint32_t place, std::uint32_t offset, std::uint32_t bytes) {
            reason = receive(static_cast<std::uint16_t>(d_.bth.msn + place), offset, bytes);
            return reason == Reason::kPlaced;
        });
    return reason;
}

Reason PlacementChecks::mixed() noexcept {
    Reason reason = Reason::kPlaced;
    each_mixed(*mixed_, d_.bth, bytes_,
               [&](std::uint32_t place, std::uint32_t, std::uint32_t offset, std::uint32_t bytes) {
                   const auto msn = static_cast<std::uint16_t>(mixed_->msn + place);
                   reason = receive(msn, offset, bytes);
                   return reason == Reason::kPlaced;
               });
    return reason;
}

// @bytes of a SEND go to the receive that its @msn names, from @offset on.
Reason PlacementChecks::receive(std::uint16_t msn, std::uint64_t offset,
                                std::uint64_t bytes) noexcept {
    if (!qp_.rq.posted(msn))
        return Reason::kNoReceive;
    RecvWqe wqe;
    return qp_.rq.read(msn, wqe) ? receive(wqe, offset, bytes) : Reason::kBounds;
}

Reason PlacementChecks::receive(const RecvWqe& wqe, std::uint64_t offset,
                                std::uint64_t bytes) noexcept {
    std::uint64_t skip = offset;
    std::uint64_t left = bytes;
    for (std::uint32_t i = 0; i < wqe.num_sge && left; i++) {
        const RecvSge& sge = wqe.sge[i];
        if (skip >= sge.length) {
            skip -= sge.length;
            continue;
        }
        const std::uint64_t n = std::min<std::uint64_t>(sge.length - skip, left);
        if (sge.addr + skip < sge.addr)
            return Reason::kBounds;
        const Reason reason =
            target_.add(mrs_, sge.lkey, qp_.pd(), sge.addr + skip, n, NUPA_ACCESS_LOCAL_WRITE);
        if (reason != Reason::kPlaced)
            return reason;
        skip = 0;
        left -= n;
    }
    return left ? Reason::kBounds : Reason::kPlaced;
}

// SENDs to an SRQ: they are completed with it, or else the host finds receives for them.
Reason PlacementChecks::shared() noexcept {
    if (bytes_ > NUPA_SRQ_BURST_MAX_BYTES || mixed_ || !qp_.completions.claim(d_.bth, seq_, bytes_))
        return Reason::kNoReceive;
    const Reason reason = shared_receives();
    if (reason == Reason::kPlaced)
        target_.fill(packet_.payload);
    d_.completed = qp_.completions.settle(d_.bth, seq_, bytes_, reason == Reason::kPlaced);
    return reason;
}

Reason PlacementChecks::shared_receives() noexcept {
    const SharedReceiveQueue& srq = *qp_.completions.srq();
    RecvWqe wqe;
    if (!is_train(d_.bth))
        return srq.read(0, wqe) ? receive(wqe, 0, bytes_) : Reason::kBounds;
    const std::uint32_t first = d_.bth.mbo / d_.bth.length;
    Reason reason = Reason::kBounds;
    each_message(
        d_.bth, bytes_, [&](std::uint32_t place, std::uint32_t offset, std::uint32_t bytes) {
            reason = srq.read(place - first, wqe) ? receive(wqe, offset, bytes) : Reason::kBounds;
            return reason == Reason::kPlaced;
        });
    return reason;
}

// WRITEs and read responses carry their own target.  A WRITE needs the right
// to write; a response needs a READ of ours that asked for just this.
Reason PlacementChecks::tagged() noexcept {
    const tcp_bth& b = d_.bth;
    if (mixed_)
        return write_mixed();
    if (is_train(b))
        return write_train();
    const std::uint64_t end = std::uint64_t{b.mbo} + bytes_;
    const std::uint64_t length = has_dma_length(b.opcode) ? b.dma_length
                                 : b.ver == 1             ? b.length
                                                          : end;
    if (end > length || (b.ver == 1 && has_dma_length(b.opcode) && b.length != length))
        return Reason::kBounds;
    const Target::Part part{b.va, length, b.mbo, bytes_};
    if (is_write(b.opcode)) {
        if (!qp_.remote_write())
            return Reason::kAccess;
        if (const Reason order = write_order(); order != Reason::kPlaced)
            return order;
        return target_.add(mrs_, b.rkey, qp_.pd(), part, NUPA_ACCESS_REMOTE_WRITE);
    }
    if (!qp_.shadow.waits(b.msn, b.va, b.rkey, b.dma_length))
        return Reason::kAccess;
    return target_.add(mrs_, b.rkey, qp_.pd(), part, NUPA_ACCESS_LOCAL_WRITE);
}

// A hole before the message may hold another WRITE to the same place.  Where the segment has
// several, a hole in the first is before the others.
Reason PlacementChecks::write_order() const noexcept {
    const Starts starts = starts_in(d_.bth, mixed_, bytes_);
    const std::uint32_t from = starts.first == starts.last ? starts.first : seq_;
    return seq_after(from, qp_.disorder.next()) || !qp_.writes.allows(starts.last, qp_.shadow)
               ? Reason::kOrder
               : Reason::kPlaced;
}

// All of its messages in this segment, or nothing; the whole of each must fit its target.
Reason PlacementChecks::write_train() noexcept {
    const tcp_bth& b = d_.bth;
    if (!qp_.remote_write())
        return Reason::kAccess;
    Reason reason = write_order();
    if (reason != Reason::kPlaced)
        return reason;
    each_message(b, bytes_, [&](std::uint32_t place, std::uint32_t offset, std::uint32_t bytes) {
        reason =
            target_.add(mrs_, b.rkey, qp_.pd(), {train_target(b, place), b.length, offset, bytes},
                        NUPA_ACCESS_REMOTE_WRITE);
        return reason == Reason::kPlaced;
    });
    return reason;
}

// The same of a mixed train.
Reason PlacementChecks::write_mixed() noexcept {
    if (!qp_.remote_write())
        return Reason::kAccess;
    Reason reason = write_order();
    if (reason != Reason::kPlaced)
        return reason;
    each_mixed(
        *mixed_, d_.bth, bytes_,
        [&](std::uint32_t place, std::uint32_t at, std::uint32_t offset, std::uint32_t bytes) {
            const std::uint32_t length = mixed_->at[place + 1] - at;
            reason =
                target_.add(mrs_, mixed_->rkey, qp_.pd(),
                            {mixed_->va[place], length, offset, bytes}, NUPA_ACCESS_REMOTE_WRITE);
            return reason == Reason::kPlaced;
        });
    return reason;
}

bool csum_proven(const Packet& packet) noexcept {
    return !packet.at.ip_csum_bad && (packet.csum == Csum::kPartial || packet.csum == Csum::kGood);
}

// What the host must copy, and what is in memory.
void remember(QpContext& qp, const Decision& d, std::uint32_t seq, std::uint32_t bytes) noexcept {
    if (!d.has_bth || d.reason == Reason::kInconsistent)  // a name that is a lie is none
        return qp.writes.delivered(seq, seq + bytes);
    if (!is_write(d.bth.opcode))
        return;
    const MixedTrain* mixed = is_mixed(d.bth) ? qp.lengths.find(d.bth) : nullptr;
    if (is_mixed(d.bth) && !mixed) {  // whose bytes these are only the host knows
        if (!d.placed())
            qp.writes.delivered(seq, seq + bytes);
        return;
    }
    const Starts starts = starts_in(d.bth, mixed, bytes);
    if (d.placed())
        return qp.writes.placed(starts.last);
    if (starts.first != starts.last)
        qp.writes.delivered(starts.first, starts.last);
    qp.writes.delivered(starts.last, seq + bytes);
}

// Marks of congestion are for TCP to see at once.
bool congested(const Packet& packet) noexcept {
    constexpr std::uint8_t kEcnMask = 3;
    return packet.at.tcp_flags & kTcpCwr || (packet.at.ip_tos & kEcnMask) == kEcnMask;
}

// So is the end of what the sender has to say.
bool urgent(const Packet& packet) noexcept {
    return packet.at.tcp_flags & kTcpPsh || congested(packet);
}

// Who may sleep until a send is completed is told by the host, unless a receive tells.
bool host_tells_of_sends(const QpContext& qp, const Decision& d) noexcept {
    return d.sends && qp.completions.send_is_waited_for(tcp_bth_takes_receive(d.bth.opcode));
}

// Who sleeps until the messages of @d are completed is woken, and TCP hears of them later.
void be_quiet(Decision& d, QpContext& qp) noexcept {
    CompletionQueue& cq = *qp.completions.cq();
    d.quiet = true;
    d.patience = qp.quiet.patience();
    d.later = qp.may_be_later();
    d.wakes = tcp_bth_takes_receive(d.bth.opcode) && cq.wake();
    d.cq = cq.id();
}

// A segment of a stream that TCP would look at.  Only what comes next is placed: a reader waits for
// just that.
Reason in_stream(QpContext& qp, const Packet& packet) noexcept {
    const std::uint32_t seq = packet.at.seq, bytes = packet.payload.bytes();
    if (packet.at.tcp_flags & (kTcpSyn | kTcpFin | kTcpRst | kTcpUrg))
        return Reason::kFlags;
    const bool next = seq == qp.disorder.next(), from_peer = qp.from_peer(packet);
    if (from_peer && next)  // so nothing behind it escaped
        qp.synced = true;
    if (!qp.in_window(seq, bytes))
        return Reason::kWindow;
    if (qp.disorder.seen(seq, bytes))
        return Reason::kDuplicate;
    if (!from_peer)
        return Reason::kPeer;
    if (!qp.synced)
        return Reason::kUnsynced;
    if (!next || !qp.in_order())
        return Reason::kDisorder;
    return qp.post.place(seq, packet.payload);
}

// Once reassembled by the host it may become up to so much data that we never saw.
void fragment(QpContext& qp, const Packet& packet) noexcept {
    if (packet.at.first_fragment && qp.plausible(packet.at.seq))
        qp.disorder.distrust(packet.at.seq + kFragmentReachBytes);
}

}  // namespace

Decision of_part(Decision decision, const Packet& part) noexcept {
    const Headers& at = part.at;
    if (decision.has_bth)
        tcp_bth_find(part.header.data() + at.options_at, at.option_bytes(), at.seq,
                     part.payload.bytes(), &decision.bth, nullptr);
    return decision;
}

// All checks of a segment in one function: what calls save and restore waits behind the copy.
[[gnu::flatten]] Decision place(QpContext& qp, const MrTable& mrs, const Packet& packet) noexcept {
    Decision d;
    d.has_qp = true;
    d.qpn = qp.qpn();
    d.stream = qp.stream();
    const Headers& at = packet.at;
    const std::uint32_t bytes = packet.payload.bytes();
    if (at.fragment) {
        fragment(qp, packet);
        d.reason = Reason::kFlags;
        return d;
    }
    if (bytes == 0) {
        if (csum_proven(packet) && qp.from_peer(packet)) {
            qp.heard(packet);
            if (!(at.tcp_flags & (kTcpSyn | kTcpRst | kTcpFin)) && at.seq == qp.disorder.next())
                d.sends = qp.completions.complete_sends(at.ack);
        }
        return d;
    }
    if (!csum_proven(packet)) {
        d.reason = Reason::kCsum;  // TCP drops it, too: nothing to remember
        return d;
    }
    qp.writes.forget_copied(qp.shadow);
    const bool whole = !qp.disorder.blocks();
    d.reason = d.stream ? in_stream(qp, packet) : PlacementChecks(qp, mrs, packet, d).run();
    if (qp.from_peer(packet))
        qp.heard(packet);
    if (d.dropped())
        return d;
    // Whatever TCP may take of this segment must not be placed again.
    if (!(at.tcp_flags & (kTcpSyn | kTcpRst)) && qp.plausible(at.seq)) {
        qp.passed_up(at.seq, bytes);
        if (!d.stream)
            remember(qp, d, at.seq, bytes);
        if (d.reason == Reason::kPlaced && !d.stream && !d.completed)
            d.completed = qp.completions.complete(qp.rq, d.bth, at.seq, bytes);
        // Who reads a stream waits for just these bytes, and TCP answers at once what is repeated.
        d.may_wait =
            d.reason == Reason::kPlaced && !d.stream && whole && !urgent(packet) && qp.may_wait();
        if (d.completed)
            d.sends = qp.completions.complete_sends(at.ack);
        if (d.completed && whole && !congested(packet) && qp.completions.cq()->says_waiting() &&
            !host_tells_of_sends(qp, d) && qp.may_be_quiet())
            be_quiet(d, qp);
        else if (d.completed)
            qp.told_at_once();
    }
    return d;
}

}  // namespace nupa
