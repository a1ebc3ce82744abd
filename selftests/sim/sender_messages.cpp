// SPDX-License-Identifier: BSD-3-Clause
// From the plan and the peer's requests to messages of the stream, as wqe.c,
// requester.c and responder.c.
#include <tcp_qp/tcp_bth_operands.h>
#include <algorithm>
#include <array>
#include <cstring>

#include "end.hpp"
#include "sender.hpp"
#include "world.hpp"
extern "C" {
#include "wire/targets.h"
}

namespace sim {

void Sender::draw_bytes(std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; i += 8) {
        const std::uint64_t bits = end_.world().dice.bits();
        for (std::uint32_t b = 0; b < std::min(8u, n - i); b++)
            stream.bytes.push_back(static_cast<std::byte>(bits >> (8 * b)));
    }
    stream.state.resize(stream.end());
    sacked_.resize(stream.end());
}

// ---- messages ----

bool Sender::post() {
    if (!tqp_msglog_next(&log_))
        return false;
    if (!responses_.empty()) {  // the peer waits for them
        post_response();
        return true;
    }
    if (planned_ >= std::min(allowed_, plan_.size()))
        return false;
    const Planned& p = plan_[planned_];
    if (p.verb == Verb::kRead || p.verb == Verb::kAtomic) {
        if (!end_.reads().room())
            return false;
        planned_++;
        post_request(p);
        return true;
    }
    Buffer* buffer = free_buffer();
    if (!buffer)
        return false;
    if (post_mixed())
        return true;
    planned_++;
    post_payload(p, *buffer);
    return true;
}

// As tx/train_mixed.c: SENDs or WRITEs of the plan, behind a table of their lengths and targets.
// Not those that must be placed: a table that TCP cuts is the host's alone.
bool Sender::post_mixed() {
    Dice& dice = end_.world().dice;
    const bool writes = plan_[planned_].verb == Verb::kWrite;
    if (!end_.takes_trains() ||
        !(writes ? end_.uneven_writes() : end_.world().settings().mixed_trains()) ||
        allowed_ == plan_.size() || !dice.percent(40))
        return false;
    const std::uint32_t n = writes ? mixed_writes() : mixed_sends();
    if (n < 2)
        return false;
    post_table(writes, 2 + dice.below(n - 1));
    while (mixed_.left) {
        post_payload(plan_[planned_++], *free_buffer());
        mixed_.left--, mixed_.place++;
    }
    end_.world().coverage.add(writes ? k_write_mixed_trains : k_mixed_trains);
    return true;
}

// How many could be of it.
std::uint32_t Sender::mixed_sends() const {
    const auto free = static_cast<std::size_t>(
        std::ranges::count_if(buffers_, [](const Buffer& b) { return !b.busy; }));
    const std::size_t most = std::min<std::size_t>(free, tqp_msglog_room(&log_) - 1);
    const std::size_t end = std::min(allowed_, plan_.size());
    const Verb verb = plan_[planned_].verb;
    std::uint32_t n = 0;
    while (n < most && planned_ + n < end && plan_[planned_ + n].verb == verb &&
           plan_[planned_ + n].length)
        n++;
    return n;
}

// The same, as far as none lies over another, and their targets.
std::uint32_t Sender::mixed_writes() {
    const std::uint32_t most = mixed_sends();
    Message m{};
    tqp_targets all;
    targets_.clear();
    for (std::uint32_t i = 0; i < most; i++) {
        m.opcode = TCP_BTH_OP_WRITE_ONLY, m.length = plan_[planned_ + i].length, m.bad = false;
        const std::uint32_t key = m.rkey;
        aim(m);
        if (i == 0)
            tqp_targets_begin(&all, table_.data(), m.rkey);
        if (m.bad || (i && m.rkey != key) || !tqp_targets_add(&all, m.length, m.va))
            break;
        targets_.push_back(m.va);
    }
    return static_cast<std::uint32_t>(targets_.size());
}

void Sender::post_table(bool writes, std::uint32_t messages) {
    Message m = writes ? next_message(TCP_BTH_OP_TARGETS, tcp_bth_targets_bytes(messages))
                       : next_message(TCP_BTH_OP_LENGTHS, messages * TCP_BTH_LENGTHS_ENTRY_BYTES);
    m.msn = writes ? msn_.write : msn_.untagged;
    draw_bytes(m.length);
    mixed_ = {messages, stream.seq(m.at) + m.length, {}, 0};
    auto* to = reinterpret_cast<std::uint8_t*>(stream.bytes.data() + m.at);
    if (writes)
        std::memcpy(to, table_.data(), m.length);
    tcp_bth_mixed_begin(&mixed_.all);
    if (writes)
        tcp_bth_targets_begin(&mixed_.all, tcp_bth_get32(to));
    for (std::uint32_t i = 0; i < messages; i++) {
        const std::uint32_t length = plan_[planned_ + i].length;
        if (writes) {
            tcp_bth_targets_add(&mixed_.all, length, targets_[i]);
            continue;
        }
        tcp_bth_put32(to + std::size_t{i} * TCP_BTH_LENGTHS_ENTRY_BYTES, length);
        tcp_bth_mixed_add(&mixed_.all, length);
    }
    mixed_.left = 0;  // the table itself is none of them
    commit(m);
    mixed_.left = messages;
}

Sender::Buffer* Sender::free_buffer() noexcept {
    const auto free =
        std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& b) { return !b.busy; });
    return free == buffers_.end() ? nullptr : &*free;
}

Message Sender::next_message(std::uint8_t opcode, std::uint32_t length) {
    Message m{};
    m.at = stream.end();
    m.length = length;
    m.stream_bytes = tqp_msg_stream_bytes(length);
    m.opcode = opcode;
    m.clean = allowed_ == plan_.size();
    m.receive = kNoReceive;
    return m;
}

void Sender::post_payload(const Planned& p, Buffer& buffer) {
    Dice& dice = end_.world().dice;
    Message m = next_message(p.verb == Verb::kSend    ? TCP_BTH_OP_SEND_ONLY
                             : p.verb == Verb::kWrite ? TCP_BTH_OP_WRITE_ONLY
                                                      : TCP_BTH_OP_WRITE_ONLY_IMM,
                             p.length);
    bool pretends = false;
    if (m.write() && mixed_.left) {
        m.va = targets_[mixed_.place];
        m.rkey = tcp_bth_get32(table_.data());
    } else if (m.write()) {
        pretends = p.verb == Verb::kWrite && !m.clean && dice.per_mille(end_.settings().bad_access);
        pretends ? pretend(m) : aim(m);
    } else if (mixed_.left) {
        // a plain one, like all of the train's
    } else if (end_.connection().one_sided && window_ && !m.clean && dice.percent(5)) {
        m.opcode = TCP_BTH_OP_SEND_ONLY_INV;
        m.imm = end_.peer().exposed().window().key;
        window_ = false;
    } else if (dice.percent(end_.connection().trains ? 5 : 30)) {
        m.opcode = TCP_BTH_OP_SEND_ONLY_IMM;
    }
    if (m.opcode == TCP_BTH_OP_SEND_ONLY_IMM || m.opcode == TCP_BTH_OP_WRITE_ONLY_IMM)
        m.imm = static_cast<std::uint32_t>(dice.bits());
    if (p.untagged())
        m.receive = receives_++;
    if (!pretends)
        m.msn = p.untagged() ? msn_.untagged++ : msn_.write++;
    draw_bytes(m.stream_bytes);
    end_.host().ram.store(buffer.addr, std::span(stream.bytes).subspan(m.at, m.length));
    buffer = {buffer.addr, stream.messages.size(), true};
    commit(m);
}

// A response that nobody asked for, or once more the last one.
void Sender::pretend(Message& m) {
    end_.world().coverage.add(k_bad_responses);
    m.bad = true;
    m.opcode = TCP_BTH_OP_READ_RESPONSE_ONLY;
    const auto last = std::find_if(stream.messages.rbegin(), stream.messages.rend(),
                                   [](const Message& r) { return r.source_key != 0; });
    if (last == stream.messages.rend()) {
        m.va = end_.peer().exposed().target().va, m.rkey = end_.peer().exposed().target().key;
        return;
    }
    // .. or another one that its slot in the shadow could be taken for
    const bool same = end_.world().dice.percent(50);
    m.msn = static_cast<std::uint16_t>(last->msn + (same ? 0 : NUPA_READS_MAX));
    m.va = last->va, m.rkey = last->rkey;
    m.length = last->length, m.stream_bytes = last->stream_bytes;
}

// Where a WRITE goes; sometimes to where it must not.
void Sender::aim(Message& m) {
    Dice& dice = end_.world().dice;
    Exposed& peer = end_.peer().exposed();
    Place place = peer.target();
    if (window_ && !m.clean && m.length <= peer.window().bytes && dice.percent(15)) {
        place = peer.window();
        end_.world().coverage.add(k_window_writes);
    }
    if (!m.clean && dice.per_mille(end_.settings().bad_access)) {
        m.bad = m.length != 0;  // of an empty one no key is looked at
        place = wrong(true);
        m.va = place.key == peer.target().key ? peer.outside(m.length) : place.va;
    } else if (!follow_train(m, place)) {
        m.va = place.va + dice.below(static_cast<std::uint32_t>(place.bytes - m.length + 1));
    }
    m.rkey = place.key;
}

// A WRITE goes where the train before it leads, if that is in @place.
bool Sender::follow_train(Message& m, const Place& place) {
    Dice& dice = end_.world().dice;
    if (!train_.open || train_.opcode != m.opcode || train_.length != m.length ||
        train_.rkey != place.key || !dice.percent(80))
        return false;
    const std::uint64_t step = train_.place ? train_.step : 1 + dice.below(3);
    const std::uint64_t va = train_.va + step * m.length;
    if (va < place.va || va + m.length > place.va + place.bytes)
        return false;
    m.va = va;
    return true;
}

// A key without the right, or the right one, for an address outside.
Place Sender::wrong(bool write) {
    Dice& dice = end_.world().dice;
    Exposed& peer = end_.peer().exposed();
    end_.world().coverage.add(k_bad_requests);
    if (dice.percent(40))
        return write ? peer.target() : peer.source();
    std::vector<Place> all = peer.wrong(write);
    if (!window_)
        all.push_back(peer.window());
    return all[dice.below(static_cast<std::uint32_t>(all.size()))];
}

// What a READ or an atomic asks for.
Place Sender::ask(const Planned& p, bool& bad) {
    Dice& dice = end_.world().dice;
    Exposed& peer = end_.peer().exposed();
    const bool atomic = p.verb == Verb::kAtomic;
    Place place = atomic ? peer.counter() : peer.source();
    bad = p.length && allowed_ != plan_.size() && dice.per_mille(end_.settings().bad_access);
    if (!bad) {
        place.va += dice.below(static_cast<std::uint32_t>(place.bytes - p.length + 1));
        return place;
    }
    Place other = wrong(false);
    if (atomic && (other.key == peer.target().key || other.va % 8))
        other = {Host::kNoKey, place.va, place.bytes};
    if (other.key == peer.source().key && !atomic)
        other.va += other.bytes - p.length + 1 + dice.below(p.length);
    return other;
}

void Sender::post_request(const Planned& p) {
    const bool atomic = p.verb == Verb::kAtomic, swap = atomic && end_.world().dice.percent(50);
    Message m = next_message(swap     ? TCP_BTH_OP_CMP_SWAP
                             : atomic ? TCP_BTH_OP_FETCH_ADD
                                      : TCP_BTH_OP_READ_REQUEST,
                             atomic ? std::uint32_t{TCP_BTH_ATOMIC_REQUEST_BYTES}
                                    : std::uint32_t{TCP_BTH_READ_REQUEST_BYTES});
    m.msn = msn_.request++;
    const Place place = ask(p, m.bad);
    const Read& read = end_.reads().begin(m.msn, p.length, atomic, counter_);
    std::array<std::uint8_t, TCP_BTH_OPERANDS_MAX_BYTES> operands{};
    if (atomic) {
        const std::uint64_t change = end_.world().dice.bits();
        const tcp_bth_atomic_request request{place.va, place.key, change, swap ? counter_ : 0};
        tcp_bth_put_atomic_request(operands.data(), &request);
        counter_ = swap ? change : counter_ + change;
    } else {
        const tcp_bth_read_request request{place.va, place.key, p.length, read.va, read.key};
        tcp_bth_put_read_request(operands.data(), &request);
    }
    draw_bytes(m.length);
    std::memcpy(stream.bytes.data() + m.at, operands.data(), m.length);
    commit(m);
}

void Sender::post_response() {
    const Response response = responses_.front();
    responses_.pop_front();
    const bool read = response.opcode == TCP_BTH_OP_READ_RESPONSE_ONLY;
    Message m =
        next_message(response.opcode, read ? static_cast<std::uint32_t>(response.source.bytes)
                                           : std::uint32_t{TCP_BTH_ATOMIC_RESPONSE_BYTES});
    m.msn = response.msn;
    draw_bytes(m.stream_bytes);
    if (read) {
        m.va = response.sink.va, m.rkey = response.sink.key;
        m.source_va = response.source.va, m.source_key = response.source.key;
    } else {
        tcp_bth_put64(reinterpret_cast<std::uint8_t*>(stream.bytes.data() + m.at), response.value);
    }
    stream.messages.push_back(m);
    if (read && m.length)
        std::ranges::copy(bytes_at(m.at, m.length), stream.bytes.begin() + m.at);
    stream.messages.pop_back();
    commit(m);
}

// As tqp_train_reaches(): WRITEs with one key, equally far from each other.
bool Sender::train_reaches(const Message& m) const noexcept {
    const std::uint64_t far = m.va - train_.va;
    if (m.opcode != TCP_BTH_OP_WRITE_ONLY)
        return true;
    return m.rkey == train_.rkey &&
           (train_.place ? far == std::uint64_t{train_.step} * m.length
                         : far && far % m.length == 0 && far / m.length <= UINT16_MAX);
}

// As in tx/train.c: where @m stands in its train.
std::uint16_t Sender::train_place(const Message& m) {
    const bool may = m.opcode == TCP_BTH_OP_SEND_ONLY || m.opcode == TCP_BTH_OP_WRITE_ONLY;
    const bool fits = end_.takes_trains() && may && m.length &&
                      end_.world().dice.percent(80);  // others are alone in the queue
    if (!fits || !train_.open || train_.opcode != m.opcode || train_.length != m.length ||
        !train_reaches(m)) {
        train_ = {fits, 0, m.length, m.opcode, m.rkey, 0, m.va};
        return 0;
    }
    if (train_.place++ == 0)
        train_.step = static_cast<std::uint32_t>((m.va - train_.va) / m.length);
    train_.va = m.va;
    return train_.place;
}

// The record first: TCP may send at once.
void Sender::commit(Message& m) {
    tqp_msg_rec* rec = tqp_msglog_next(&log_);
    *rec = {};
    rec->start_seq = stream.seq(m.at);
    rec->length = m.length;
    rec->msn = m.msn;
    rec->train_place = mixed_.left ? mixed_.place : train_place(m);
    rec->opcode = m.opcode;
    rec->ext_bytes = static_cast<__u8>(tcp_bth_ext_bytes(m.opcode));
    rec->ext4 = m.imm;
    rec->va = m.va;
    rec->rkey = m.rkey;
    rec->dma_length = m.opcode == TCP_BTH_OP_WRITE_ONLY_IMM ? m.imm : m.length;
    if (mixed_.left) {
        train_ = {};
        rec->mixed = true, rec->mixed_start = mixed_.start;
        rec->mixed_bytes = mixed_.all.bytes, rec->mixed_check = mixed_.all.check;
    }
    tqp_msglog_commit(&log_);
    if (m.msn == 0 && end_.settings().first_msn != 0)
        end_.world().coverage.add(k_msn_wraps);
    if (stream.seq(stream.end()) < stream.seq(m.at))
        end_.world().coverage.add(k_sequence_wraps);
    stream.messages.push_back(m);
    end_.world().log.add(end_.world().now(), "end {}.{} posts opcode {} msn {} at {} + {} to {}",
                         {end_.number(), static_cast<std::uint64_t>(end_.side()), m.opcode, m.msn,
                          m.at, m.length, m.va},
                         m.bad ? "without the right" : "");
}

bool Sender::holds(std::uint32_t key) const noexcept {
    for (const Response& r : responses_)
        if (r.source.key == key && r.source.bytes)
            return true;
    for (const Message& m : stream.messages)
        if (m.length && m.source_key == key && m.at + m.stream_bytes > una_)
            return true;
    return false;
}

std::span<const std::byte> Sender::bytes_at(std::uint32_t at, std::uint32_t len) {
    std::size_t index = stream.message_at(at);
    if (index == stream.messages.size() ||
        at + len <= stream.messages[index].at + stream.messages[index].stream_bytes)
        return bytes_in_message(at, len);
    joined_.clear();
    for (std::uint32_t n = 0; len; index++, at += n, len -= n) {
        const Message& m = stream.messages[index];
        n = std::min(len, m.at + m.stream_bytes - at);
        const std::span<const std::byte> part = bytes_in_message(at, n);
        joined_.insert(joined_.end(), part.begin(), part.end());
    }
    return joined_;
}

// Where TCP reads the bytes it sends: the application's own memory.
std::span<const std::byte> Sender::bytes_in_message(std::uint32_t at, std::uint32_t len) {
    const std::size_t index = stream.message_at(at);
    const std::span<const std::byte> truth = std::span(stream.bytes).subspan(at, len);
    if (index == stream.messages.size() || !stream.messages[index].length)
        return truth;
    const Message& m = stream.messages[index];
    const Region* source = m.source_key ? end_.host().find(m.source_key) : nullptr;
    if (source) {
        gathered_.clear();
        source->runs(m.source_va + (at - m.at), len, [&](std::uint64_t from, std::uint64_t n) {
            const std::byte* p = end_.host().ram.at(from);
            gathered_.insert(gathered_.end(), p, p + n);
        });
        return gathered_;
    }
    for (const Buffer& b : buffers_)
        if (b.busy && b.message == index)
            return {end_.host().ram.at(b.addr + (at - m.at)), len};
    return truth;
}

}  // namespace sim
