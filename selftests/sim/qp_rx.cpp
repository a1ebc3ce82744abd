// SPDX-License-Identifier: BSD-3-Clause
// What tcp_qp does with TCP's receive queue: rx.c, message.c, responder.c and requester.c
// around the kernel's own rxmsg.c.
#include <tcp_qp/tcp_bth_operands.h>
#include <algorithm>
#include <cstring>
#include <numeric>

#include "end.hpp"
#include "qp_receiver.hpp"
#include "world.hpp"

namespace sim {

void QpReceiver::violation(const char* text) {
    end_.world().violation(text, {end_.number(), static_cast<std::uint64_t>(end_.side()), done_});
}

const Message* QpReceiver::truth() const {
    const Stream& in = end_.peer().sender().stream;
    return end_.rules_broken_ || done_ >= in.messages.size() ? nullptr : &in.messages[done_];
}

// A response that comes twice has the same option in ver 0: whoever merges segments
// may make one of both, which is as bad.
bool QpReceiver::bad_message() const {
    const Message* m = truth();
    if (!m || m->bad)
        return m;
    const Stream& in = end_.peer().sender().stream;
    const Message* next = done_ + 1 < in.messages.size() ? m + 1 : nullptr;
    return next && next->bad && next->opcode == m->opcode && next->msn == m->msn;
}

void QpReceiver::attached() {
    ring_.consumed(end_.peer().sender().stream.seq(end_.tcp().copied()));
}

void QpReceiver::run() {
    const Skb* skb;
    while (!end_.dead() && (skb = end_.tcp().front())) {
        if (given_) {
            if (done_ahead())
                skip();
            else
                take_turn();
            continue;
        }
        const std::uint32_t off = end_.tcp().copied() - skb->at;
        const std::uint32_t bytes = step(*skb, off);
        if (!bytes)
            return;
        end_.tcp().read(bytes);
        ring_.consumed(end_.peer().sender().stream.seq(end_.tcp().copied()));
    }
    give_turn();
}

std::uint32_t QpReceiver::step(const Skb& skb, std::uint32_t off) {
    const tqp_skb_map* map = tqp_map_at(&train_, skb.mapped ? &skb.map : nullptr,
                                        end_.peer().sender().stream.seq(end_.tcp().copied()));
    if (!msg_.active && !map && !started_)
        return 0;
    if (!msg_.active && !begin(map))
        return 0;
    if (!tqp_rx_msg_learn(&msg_, map, &next_)) {
        end_.fail(k_protocol_errors);
        return 0;
    }
    if (!msg_.done && !admit())
        return 0;
    const std::uint32_t bytes = tqp_rx_msg_share(&msg_, skb.len - off);
    if (!room(bytes)) {
        end_.world().coverage.add(k_stalls);
        return 0;
    }
    if (!take(skb, off, bytes))
        return 0;
    if (tqp_rx_msg_take(&msg_, bytes) && !finish())
        return 0;
    return bytes;
}

bool QpReceiver::begin(const tqp_skb_map* map) {
    const std::uint32_t seq = end_.peer().sender().stream.seq(end_.tcp().copied());
    if (!tqp_rx_msg_begin(&msg_, map, seq, &next_)) {
        end_.fail(k_protocol_errors);
        return false;
    }
    started_ = true;
    end_.rtr_seen_ = end_.rtr_acked_ = true;
    return true;
}

bool QpReceiver::admit() {
    switch (msg_.kind) {
        case TCP_BTH_KIND_WRITE:
            if (!msg_.length_known) {
                end_.fail(k_protocol_errors);
                return false;
            }
            if (!end_.settings().refuses_writes &&
                (!msg_.length ||
                 end_.exposed().reach(msg_.rkey, msg_.va, msg_.length, NUPA_ACCESS_REMOTE_WRITE)))
                return true;
            if (end_.settings().refuses_writes)
                end_.world().coverage.add(k_writes_refused);
            end_.fail(k_access_errors);
            return false;
        case TCP_BTH_KIND_READ_RESPONSE:
        case TCP_BTH_KIND_ATOMIC_RESPONSE:
            if (end_.reads().expected(msg_))
                return true;
            end_.fail(k_protocol_errors);
            return false;
        default:
            return true;
    }
}

bool QpReceiver::take_wqe() {
    if (have_wqe_)
        return true;
    if (!ring_.posted())
        return false;
    wqe_ = ring_.take();
    if (shared())
        taken();
    return have_wqe_ = true;
}

bool QpReceiver::room(std::uint32_t bytes) {
    if (msg_.kind == TCP_BTH_KIND_SEND)
        return take_wqe();
    if (msg_.kind != TCP_BTH_KIND_WRITE || !tqp_rx_msg_untagged(&msg_))
        return true;
    return msg_.done + bytes != tqp_msg_stream_bytes(msg_.length) || take_wqe();
}

bool QpReceiver::take(const Skb& skb, std::uint32_t off, std::uint32_t bytes) {
    if (tqp_rx_msg_empty(&msg_))
        return true;
    if (msg_.kind <= TCP_BTH_KIND_READ_RESPONSE)
        return payload(skb, off, bytes);
    const bool lengths = msg_.kind == TCP_BTH_KIND_LENGTHS;
    const std::span<std::byte> to =
        lengths ? std::as_writable_bytes(std::span(lengths_)) : std::span<std::byte>(operands_);
    if (skb.decrypted || std::uint64_t{msg_.done} + bytes > to.size()) {
        end_.fail(k_protocol_errors);
        return false;
    }
    std::memcpy(to.data() + msg_.done, skb.data.data() + off, bytes);
    return true;
}

bool QpReceiver::payload(const Skb& skb, std::uint32_t off, std::uint32_t bytes) {
    const std::uint64_t most = std::accumulate(
        wqe_.begin(), wqe_.end(), std::uint64_t{0},
        [](std::uint64_t sum, const nupa::RecvSge& sge) { return sum + sge.length; });
    if (msg_.kind == TCP_BTH_KIND_SEND && std::uint64_t{msg_.done} + bytes > most) {
        reject(k_length_errors);
        return false;
    }
    const std::byte* from = skb.data.data() + off;
    if (!skb.decrypted && msg_.kind == TCP_BTH_KIND_SEND && !copy_receive(from, msg_.done, bytes)) {
        reject(k_protection_errors);
        return false;
    }
    if (!skb.decrypted && msg_.kind == TCP_BTH_KIND_WRITE && !copy_write(from, bytes)) {
        end_.fail(k_access_errors);
        return false;
    }
    if (!skb.decrypted && msg_.kind == TCP_BTH_KIND_READ_RESPONSE && !copy_response(from, bytes)) {
        end_.fail(k_protection_errors);
        return false;
    }
    (skb.decrypted ? placed_bytes_ : copied_bytes_) += bytes;
    end_.world().coverage.add(skb.decrypted ? k_placed_bytes : k_copied_bytes, bytes);
    return true;
}

// As place.c: the keys are looked up for each copy.
bool QpReceiver::copy_receive(const std::byte* from, std::uint32_t at, std::uint32_t bytes) {
    for (const nupa::RecvSge& sge : wqe_) {
        if (!bytes)
            break;
        if (at >= sge.length) {
            at -= sge.length;
            continue;
        }
        const std::uint32_t n = std::min(bytes, sge.length - at);
        const Region* region = host_.find(sge.lkey);
        if (!region || !region->allows(pd_of(end_), sge.addr + at, n))
            return false;
        region->runs(sge.addr + at, n, [&](std::uint64_t to, std::uint64_t run) {
            host_.ram.store(to, {from, run});
            from += run;
        });
        at = 0;
        bytes -= n;
    }
    return bytes == 0;
}

bool QpReceiver::copy_write(const std::byte* from, std::uint32_t bytes) {
    const std::uint64_t va = msg_.va + msg_.done;
    const Region* region = end_.exposed().reach(msg_.rkey, va, bytes, NUPA_ACCESS_REMOTE_WRITE);
    if (!region)
        return false;
    const Message* m = truth();
    if (m && m->write() && !m->bad && !end_.exposed().claim(*m, msg_.done, bytes))
        violation("end {}.{} message {}: copied over a later WRITE");
    region->runs(va, bytes, [&](std::uint64_t to, std::uint64_t run) {
        host_.ram.store(to, {from, run});
        from += run;
    });
    return true;
}

bool QpReceiver::copy_response(const std::byte* from, std::uint32_t bytes) {
    const std::uint64_t va = msg_.va + msg_.done;
    const Region* region = end_.reads().reach(msg_.msn, va, bytes);
    if (!region)
        return false;
    region->runs(va, bytes, [&](std::uint64_t to, std::uint64_t run) {
        host_.ram.store(to, {from, run});
        from += run;
    });
    return true;
}

// The receive completes with an error while the switch's context still lives.
void QpReceiver::reject(Counter why) {
    consume();
    end_.fail(why);
}

// The message is whole.  False: stop.
bool QpReceiver::finish() {
    if (!msg_.opcode_known || msg_.kind == TCP_BTH_KIND_TERMINATE) {
        end_.fail(k_protocol_errors);
        return false;
    }
    if (msg_.kind == TCP_BTH_KIND_SEND && msg_.opcode == TCP_BTH_OP_SEND_ONLY_INV &&
        !end_.exposed().invalidate(msg_.ext4)) {
        end_.fail(k_access_errors);
        return false;
    }
    if ((msg_.kind == TCP_BTH_KIND_READ_REQUEST || msg_.kind == TCP_BTH_KIND_ATOMIC_REQUEST) &&
        !request()) {
        end_.fail(k_access_errors);
        return false;
    }
    train_.mixed.entries = lengths_.data();
    if (msg_.kind == TCP_BTH_KIND_LENGTHS &&
        (msg_.msn != (msg_.opcode == TCP_BTH_OP_TARGETS ? next_.write : next_.untagged) ||
         !tqp_mixed_begin(&train_.mixed, msg_.opcode, msg_.msn, msg_.start_seq + msg_.length,
                          msg_.length))) {
        end_.fail(k_protocol_errors);
        return false;
    }
    check_message();
    if ((msg_.kind == TCP_BTH_KIND_READ_RESPONSE || msg_.kind == TCP_BTH_KIND_ATOMIC_RESPONSE) &&
        !response())
        return false;
    if (tqp_rx_msg_untagged(&msg_)) {
        consume();
    } else {
        tqp_rx_msg_count(&msg_, &next_);
        msg_.active = false;
    }
    done_++;
    return true;
}

// Checked, and an atomic executed, when it is received in order.
bool QpReceiver::request() {
    const auto* operands = reinterpret_cast<const std::uint8_t*>(operands_.data());
    Sender::Response response{};
    response.msn = msg_.msn;
    if (msg_.kind == TCP_BTH_KIND_ATOMIC_REQUEST) {
        response.opcode = TCP_BTH_OP_ATOMIC_ACKNOWLEDGE;
        if (!atomic(response.value))
            return false;
    } else {
        tcp_bth_read_request r;
        tcp_bth_get_read_request(operands, &r);
        response.opcode = TCP_BTH_OP_READ_RESPONSE_ONLY;
        response.source = {r.rkey, r.va, r.length};
        response.sink = {r.sink_key, r.sink_va, r.length};
        if (r.length && !end_.exposed().reach(r.rkey, r.va, r.length, NUPA_ACCESS_REMOTE_READ))
            return false;
    }
    end_.sender().respond(response);
    return true;
}

bool QpReceiver::atomic(std::uint64_t& before) {
    tcp_bth_atomic_request r;
    tcp_bth_get_atomic_request(reinterpret_cast<const std::uint8_t*>(operands_.data()), &r);
    const Region* region = r.va % sizeof before ? nullptr
                                                : end_.exposed().reach(r.rkey, r.va, sizeof before,
                                                                       NUPA_ACCESS_REMOTE_ATOMIC);
    if (!region)
        return false;
    region->runs(r.va, sizeof before, [&](std::uint64_t at, std::uint64_t) {
        before = host_.ram.get<std::uint64_t>(at);
        if (msg_.opcode == TCP_BTH_OP_FETCH_ADD)
            host_.ram.put(at, before + r.swap_add);
        else if (before == r.compare)
            host_.ram.put(at, r.swap_add);
    });
    return true;
}

// False: the sink is gone.
bool QpReceiver::response() {
    const Read read = *end_.reads().expected(msg_);
    if (read.atomic) {
        const std::uint64_t value =
            tcp_bth_get64(reinterpret_cast<const std::uint8_t*>(operands_.data()));
        const Region* region = end_.reads().reach(read.msn, read.va, sizeof value);
        if (!region) {
            end_.fail(k_protection_errors);
            return false;
        }
        // who executes it may have been told another operation by a changed option
        if (truth() && !end_.peer().rules_broken_ && value != read.value)
            violation("end {}.{} message {}: an atomic was not executed once, in its order");
    }
    end_.reads().done(read.msn);
    return true;
}

void QpReceiver::consume() {
    tqp_rx_msg_count(&msg_, &next_);
    ring_.complete();
    cq_.post();
    known_.completed++;
    seen_.completed++;
    note_completed(completed_++);
    msg_.active = false;
    have_wqe_ = false;
}

// Before anyone may use its buffer for something else.
void QpReceiver::check_message() {
    World& world = end_.world();
    world.coverage.add(k_messages);
    world.log.add(world.now(), "end {}.{} completes message {} opcode {} msn {} bytes {}",
                  {end_.number(), static_cast<std::uint64_t>(end_.side()), done_, msg_.opcode,
                   msg_.msn, msg_.done});
    if (end_.settings().hostile || end_.rules_broken_)
        return;
    const Message* m = truth();
    if (!m)
        violation("end {}.{} completes message {} that was never sent");
    if (m->bad)
        violation("end {}.{} message {} was obeyed, although its sender has no right to it");
    if (msg_.msn != m->msn || msg_.length != m->length || msg_.done != m->length ||
        msg_.opcode != m->opcode || msg_.ext4 != m->imm)
        end_.world().violation(
            "end {}.{} message {} is {} + {} opcode {} immediate {}, and completes otherwise",
            {end_.number(), static_cast<std::uint64_t>(end_.side()), done_, m->at, m->length,
             m->opcode, m->imm});
    count(*m);
    if (m->payload())
        check_payload(*m);
}

void QpReceiver::count(const Message& m) {
    Coverage& coverage = end_.world().coverage;
    if (m.length == 0)
        coverage.add(k_empty_messages);
    switch (m.opcode) {
        case TCP_BTH_OP_SEND_ONLY_IMM:
            return coverage.add(k_immediates);
        case TCP_BTH_OP_SEND_ONLY_INV:
            return coverage.add(k_invalidates);
        case TCP_BTH_OP_WRITE_ONLY:
            return coverage.add(k_writes);
        case TCP_BTH_OP_WRITE_ONLY_IMM:
            return coverage.add(k_write_immediates);
        case TCP_BTH_OP_READ_RESPONSE_ONLY:
            return coverage.add(k_reads);
        case TCP_BTH_OP_ATOMIC_ACKNOWLEDGE:
            return coverage.add(k_atomics);
        default:
            return;
    }
}

// A peer that answers a READ twice, with the same name, may write to its sink
// what it likes as long as the READ waits.
bool QpReceiver::overwritten_by_peer(const Message& m) const {
    if (m.opcode != TCP_BTH_OP_READ_RESPONSE_ONLY)
        return false;
    const Stream& in = end_.peer().sender().stream;
    return std::ranges::any_of(in.messages, [&](const Message& other) {
        return other.bad && other.opcode == m.opcode && other.msn == m.msn && other.va == m.va &&
               other.length == m.length && in.any(other.at, other.length, kBytePlaced);
    });
}

void QpReceiver::check_payload(const Message& m) {
    payload_bytes_ += m.length;
    if (placed_bytes_ + copied_bytes_ != payload_bytes_)
        violation("end {}.{} message {}: placed + copied is not delivered");
    check_bytes(m);
}

void QpReceiver::check_bytes(const Message& m) {
    if (m.receive != kNoReceive && receive_of(m.receive) >= receives_.size())
        violation("end {}.{} message {} completes without a receive");
    if (m.write()) {
        if (m.length && host_.find(key_of(end_, kTargetRegion)) && !end_.exposed().covered(m))
            violation("end {}.{} message {}: a WRITE is done, and not all of it is there");
        return;
    }
    if (tcp_bth_is_send(m.opcode) && !receives_[receive_of(m.receive)].good)
        return;  // part of its buffer is the application's again
    if (!tcp_bth_is_send(m.opcode) && !host_.find(key_of(end_, kSinkRegion)))
        return;
    if (overwritten_by_peer(m))
        return;
    const std::byte* bytes = end_.peer().sender().stream.bytes.data() + m.at;
    const std::byte* expected = bytes;
    for (const Run& run : place(done_, 0, m.length)) {
        if (std::memcmp(host_.ram.at(run.addr), expected, run.bytes) != 0)
            violation("end {}.{} message {} arrived with wrong bytes");
        expected += run.bytes;
    }
    if (expected != bytes + m.length)
        violation("end {}.{} message {} is longer than its buffer");
}

}  // namespace sim
