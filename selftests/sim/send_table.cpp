// SPDX-License-Identifier: BSD-3-Clause
#include "send_table.hpp"

namespace sim {

namespace {

constexpr std::size_t kInvisible = 4;  // one in so many completes without anybody seeing it
constexpr std::uint32_t kWcSend = 0, kWcWrite = 1;

std::uint32_t wc_opcode(const Message& m) { return m.write() ? kWcWrite : kWcSend; }

}  // namespace

void SendTable::heard(std::uint32_t una) {
    while (!entries_.empty() && entries_.front().end <= una && !cq_.owned()) {
        if (word(offsetof(nupa_qp_sends, completed)) == heard_) {
            seen_ = heard_ + 1;
            ram_.put(at_ + offsetof(nupa_qp_sends, completed), seen_);
            cq_.post();
        }
        cq_.wake();
        entries_.pop_front();
        heard_++;
        cq_.polled(heard_);
    }
}

// Behind one that is not there, nobody adds any: they are completed in order.
void SendTable::post(const Stream& out, std::uint32_t una) {
    for (; next_ < out.messages.size() && entries_.size() < NUPA_SENDS_MAX; next_++) {
        const Message& m = out.messages[next_];
        if (m.at + m.stream_bytes <= una)
            continue;
        if (next_ % kInvisible == 0 || !(tcp_bth_is_send(m.opcode) || m.write()))
            return;
        add(out, next_);
    }
}

void SendTable::add(const Stream& out, std::size_t message) {
    const Message& m = out.messages[message];
    const Entry entry{message, m.at + m.stream_bytes};
    const std::uint64_t to =
        at_ + offsetof(nupa_qp_sends, send) + posted_ % NUPA_SENDS_MAX * sizeof(nupa_qp_send);
    ram_.put(to, nupa_qp_send{name(message), out.seq(entry.end), m.length, wc_opcode(m), 0});
    ram_.put(at_ + offsetof(nupa_qp_sends, posted), ++posted_);
    entries_.push_back(entry);
}

const char* SendTable::judge(const Stream& out, std::uint32_t held, bool completed) {
    judged_ = word(offsetof(nupa_qp_sends, completed)) - seen_;
    if (!judged_)
        return cq_.agrees() ? nullptr : "end {}.{} message {}: a send that nobody counts";
    if (judged_ > posted_ - seen_)
        return "end {}.{} message {}: more sends are completed than there are";
    if (!completed)
        return "end {}.{} message {}: a send is completed by what is not completed itself";
    if (cq_.owned())
        return "end {}.{} message {}: a send is completed in a queue that is the host's";
    for (std::uint32_t i = 0; i < judged_; i++)
        if (const char* wrong = judge_one(entries_[seen_++ - heard_], out, held))
            return wrong;
    ram_.accept(at_ + offsetof(nupa_qp_sends, completed), sizeof(std::uint32_t));
    return cq_.agrees() ? nullptr : "end {}.{} message {}: not as many sends as are counted";
}

const char* SendTable::judge_one(const Entry& entry, const Stream& out, std::uint32_t held) {
    const Message& m = out.messages[entry.message];
    const ib_uverbs_wc wc = cq_.taken();
    if (entry.end > held)
        return "end {}.{} message {}: a send is completed that the peer does not have";
    if (wc.wr_id != name(entry.message) || wc.status || wc.byte_len != m.length ||
        wc.opcode != wc_opcode(m) || wc.wc_flags)
        return "end {}.{} message {}: a send completes otherwise";
    return nullptr;
}

}  // namespace sim
