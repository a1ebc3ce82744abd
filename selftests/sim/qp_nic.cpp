// SPDX-License-Identifier: BSD-3-Clause
// Receives that the switch completes, in turns with the host: offload/turn.c and the part of rx.c
// that goes with it; and what is right about a completion of the switch's.
#include <algorithm>
#include <utility>

#include "end.hpp"
#include "qp_receiver.hpp"
#include "world.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kWcRecv = 128, kWcRecvWriteImm = 129, kWcWithImm = 2;

}  // namespace

// ---- the host ----

// The switch's counts become the host's.
void QpReceiver::sync() {
    const std::uint32_t receives = ring_.completed() - known_.completed;
    const std::uint32_t writes = ring_.turn_word(offsetof(nupa_qp_shadow, writes)) - known_.writes;
    ring_.skip(receives);
    next_.untagged = static_cast<std::uint16_t>(next_.untagged + receives);
    next_.write = static_cast<std::uint16_t>(next_.write + writes);
    known_.completed += receives;
    known_.writes += writes;
}

// How many bytes from the next one on are of messages that the switch has completed.
std::uint32_t QpReceiver::done_ahead() const {
    const Stream& in = end_.peer().sender().stream;
    const std::uint32_t done = ring_.turn_word(offsetof(nupa_qp_shadow, done));
    const std::uint32_t ahead = done - in.seq(end_.tcp().copied());
    return static_cast<std::int32_t>(ahead) > 0 ? ahead : 0;
}

void QpReceiver::skip() {
    const std::uint32_t n = std::min(done_ahead(), end_.tcp().next() - end_.tcp().copied());
    sync();
    placed_bytes_ += n;
    end_.world().coverage.add(k_placed_bytes, n);
    end_.tcp().read(n);
    ring_.consumed(end_.peer().sender().stream.seq(end_.tcp().copied()));
}

void QpReceiver::take_turn() {
    ring_.put_turn_word(offsetof(nupa_qp_shadow, turn), NUPA_TURN_HOST);
    sync();
    given_ = done_ahead() != 0;
    end_.world().coverage.add(k_turns_taken);
}

void QpReceiver::give_turn() {
    if (!end_.settings().completes || !end_.has_context() || given_ || !started_ || msg_.active ||
        have_wqe_ || end_.dead() || end_.tcp().front())
        return;
    given_ = true;
    known_.writes = seen_.writes = next_.write;
    ring_.put_turn_word(offsetof(nupa_qp_shadow, writes), known_.writes);
    ring_.put_turn_word(offsetof(nupa_qp_shadow, done),
                        end_.peer().sender().stream.seq(end_.tcp().copied()));
    ring_.put_turn_word(offsetof(nupa_qp_shadow, turn), NUPA_TURN_SWITCH);
}

// The context is gone; what it completed is not.
void QpReceiver::turn_over() {
    if (given_)
        take_turn();
}

void QpReceiver::taken() { taken_.push_back(next_receive_++); }

// Another queue pair of the host's: what comes of its message does not matter here.
void QpReceiver::taken_by_others() {
    if (!end_.attached() || end_.world().quiet() || !ring_.posted())
        return;
    ring_.take();
    others_++;
    end_.world().coverage.add(k_shared_by_others);
    const std::size_t r = next_receive_++;
    if (r >= receives_.size())  // a hostile producer index
        return;
    receives_[r].state = Receive::State::kReturned;
    poison(places_[receives_[r].place]);
    places_[receives_[r].place].busy = false;
}

// Other processors: one of them writes to the queue, or looks for work, just now.
void QpReceiver::disturb() {
    if (!end_.settings().completes)
        return;
    disturbed_++;
    tell_awaits();
    tell_sends();
    cq_.own(disturbed_ % 16 == 5);
    if (shared())
        ring_.own(disturbed_ % 16 == 11);
    if (shared() && disturbed_ % 8 == 6)
        taken_by_others();
    if (disturbed_ % 32 == 9 && given_)
        take_turn();
}

// TCP has heard of ACKs that the switch may have seen before, and the next sends are under way.
void QpReceiver::tell_sends() {
    sends_.own(disturbed_ % 16 == 9);
    if (disturbed_ % 3 == 0)
        sends_.heard(end_.sender().una());
    sends_.post(end_.sender().stream, end_.sender().una());
    if (end_.settings().quiet && disturbed_ % 8 == 2)
        sends_.wait();
}

// Sends that complete visibly are under way, in every second connection; who has answered late
// says so; and somebody falls asleep.
void QpReceiver::tell_awaits() {
    if (!end_.settings().quiet)
        return;
    ring_.put_turn_word(offsetof(nupa_qp_shadow, awaits),
                        end_.number() % 2 && !end_.sender().all_acked());
    ring_.put_turn_word(offsetof(nupa_qp_shadow, later), end_.number() % 4 != 3);
    if (disturbed_ % 64 == 3)
        ring_.put_turn_word(offsetof(nupa_qp_shadow, late), ++late_);
    if (disturbed_ % 4 == 1)
        cq_.wait();
}

// ---- what is right ----

// The engine has seen @segment, and says what it did.
void QpReceiver::judge_completed(const Truth& segment, const nupa::Decision& decision) {
    const std::uint32_t count = decision.completed;
    if (!end_.settings().completes)
        return;
    judge_sends(segment, decision);
    if (shared() && !count && decision.reason == nupa::Reason::kPlaced &&
        tcp_bth_is_send(decision.bth.opcode))
        violation("end {}.{} message {}: a SEND is in a shared queue's receive that it has not");
    if (shared() && ring_.owned() && decision.reason == nupa::Reason::kNoReceive)
        end_.world().coverage.add(k_shared_owned);
    if (!given_) {
        if (count)
            violation("end {}.{} message {} is completed by the switch out of turn");
        return;
    }
    const std::uint32_t receives = ring_.completed() - seen_.completed;
    const std::uint32_t writes = ring_.turn_word(offsetof(nupa_qp_shadow, writes)) - seen_.writes;
    if (receives + writes != count)
        violation("end {}.{} message {}: the switch says that it completed others than it did");
    if (count == 0)
        return;
    end_.world().coverage.add(k_switch_completions, count);
    if (ring_.turn_word(offsetof(nupa_qp_shadow, turn)) != NUPA_TURN_SWITCH)
        violation("end {}.{} message {} is completed by the switch out of turn");
    if (receives && cq_.owned())
        violation("end {}.{} message {} is completed in a queue that is the host's");
    if (receives && shared() && ring_.owned())
        violation("end {}.{} message {} has a receive of a queue that is the host's");
    if (segment.tampered)
        end_.exempt();
    seen_ = {seen_.completed + receives, seen_.writes + writes};
    ring_.accept_turn();
    if (shared() && !ring_.taken(receives))
        violation("end {}.{} message {}: other receives were taken than were completed");
    if (shared()) {
        end_.world().coverage.add(k_shared_completions, receives);
        end_.world().coverage.add(k_shared_trains, receives > 1);
    }
    for (std::uint32_t i = 0; i < count; i++)
        judge_one(segment, i < receives);
    if (!cq_.agrees())
        violation("end {}.{} message {}: not as many completions as were written");
    const Stream& in = end_.peer().sender().stream;
    if (ring_.turn_word(offsetof(nupa_qp_shadow, done)) != in.seq(segment.at + segment.len))
        violation("end {}.{} message {}: another end of what is completed");
}

void QpReceiver::judge_sends(const Truth& segment, const nupa::Decision& decision) {
    if (const char* wrong = sends_.judge(end_.sender().stream, end_.peer().tcp().next(),
                                         decision.completed || !segment.len))
        violation(wrong);
    if (decision.sends != sends_.judged())
        violation("end {}.{} message {}: the switch says that it completed other sends");
    end_.world().coverage.add(k_switch_sends, sends_.judged());
}

// Of a completed run the host takes bytes and no option, and may join it to the one before.
void QpReceiver::judge_run(std::uint32_t end, bool completed) {
    if (completed &&
        static_cast<std::int32_t>(ring_.turn_word(offsetof(nupa_qp_shadow, done)) - end) < 0)
        violation("end {}.{} message {}: a run is called completed, and its end is not");
}

// Only what is completed may wait for TCP, and who waits for that must be told.
void QpReceiver::judge_quiet(const nupa::Decision& decision) {
    const std::uint32_t seen = std::exchange(seen_late_, decision.completed ? late_ : seen_late_);
    const bool was_later = std::exchange(later_, decision.completed ? decision.later : later_);
    if (!decision.quiet) {
        if (decision.later)
            violation("end {}.{} message {}: what is not quiet may wait for others");
        if (decision.wakes)
            violation("end {}.{} message {}: who waits is woken, and TCP told, too");
        return;
    }
    if (!decision.completed || !end_.settings().quiet)
        violation("end {}.{} message {}: TCP is to hear later of what nobody else knows");
    if (ring_.turn_word(offsetof(nupa_qp_shadow, awaits)) && cq_.waited_for())
        violation("end {}.{} message {}: TCP is to hear later, while sends are awaited");
    if (sends_.under_way() && (cq_.waited_for() || sends_.waited_for()))
        violation("end {}.{} message {}: TCP is to hear later, while sends are slept for");
    if (sends_.judged() && sends_.waited_for())
        violation("end {}.{} message {}: nobody tells who sleeps that a send is completed");
    if (seen != late_ && (decision.later || !was_later))
        violation("end {}.{} message {}: TCP is to hear later, although it was late before");
    const bool receive = tcp_bth_takes_receive(decision.bth.opcode);
    if (receive && cq_.waited_for() != decision.wakes)
        violation("end {}.{} message {}: who waits is not woken");
    if (decision.wakes) {
        if (!cq_.woken())
            violation("end {}.{} message {}: who waits is woken twice");
        end_.world().coverage.add(k_woken);
    }
}

void QpReceiver::judge_one(const Truth& segment, bool receive) {
    const std::size_t name = receive_of(completed_);
    const ib_uverbs_wc wc = receive ? cq_.taken() : ib_uverbs_wc{};
    const Message* m = truth();
    const bool known = m && !end_.settings().hostile;
    if (known)
        judge_message(*m, segment, receive);
    if (known && receive)
        judge_entry(*m, wc, name);
    if (receive && shared())
        taken();
    if (receive)
        note_completed(completed_++);
    done_++;
}

// All of it was placed, and what is before it is completed: done_ is the next one.
void QpReceiver::judge_message(const Message& m, const Truth& segment, bool receive) {
    const Stream& in = end_.peer().sender().stream;
    if (m.at < segment.at || m.at + m.length > segment.at + segment.len)
        violation("end {}.{} message {} is completed before its time");
    if (m.bad)
        violation("end {}.{} message {} was obeyed, although its sender has no right to it");
    if (m.opcode == TCP_BTH_OP_SEND_ONLY_INV || !(tcp_bth_is_send(m.opcode) || m.write()))
        violation("end {}.{} message {} is the host's to complete");
    if (!m.length || !in.all(m.at, m.length, kBytePlaced))
        violation("end {}.{} message {} is completed, and was not placed");
    if (receive != (m.receive != kNoReceive) || (receive && m.receive != completed_))
        violation("end {}.{} message {} is completed as another kind");
    count(m);
    end_.world().coverage.add(k_messages);
    payload_bytes_ += m.length;
    check_bytes(m);
}

void QpReceiver::judge_entry(const Message& m, const ib_uverbs_wc& wc, std::size_t name) {
    const bool immediate = tcp_bth_has_immediate(m.opcode);
    if (name >= receives_.size())
        violation("end {}.{} message {} completes without a receive");
    if (wc.wr_id != ReceiveRing::name(static_cast<std::uint32_t>(name)) || wc.status ||
        wc.byte_len != m.length || wc.opcode != (m.write() ? kWcRecvWriteImm : kWcRecv) ||
        wc.wc_flags != (immediate ? kWcWithImm : 0) ||
        (immediate && wc.ex.imm_data != __builtin_bswap32(m.imm)))
        violation("end {}.{} message {} completes otherwise");
}

}  // namespace sim
