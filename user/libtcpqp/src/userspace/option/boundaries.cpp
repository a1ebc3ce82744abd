// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/option/boundaries.hpp"

#include <algorithm>

#include "tcpqp.h"

namespace tcpqp::stock {

bool Boundaries::is_at(uint32_t seq, const tcpqp_bpf_boundary& b, tcpqp_bpf_message& m) noexcept {
    const uint32_t tag = __atomic_load_n(&b.tag, __ATOMIC_ACQUIRE);
    m = b.message;
    return (tag & TCPQP_BPF_TAG_VALID) != 0 && m.seq == seq && m.length <= TCPQP_MESSAGE_MAX_BYTES;
}

// Entries of a ring are written again, for later messages, and the tag last: while it is still
// another's, half a description may stand there.
bool Boundaries::is_of(uint16_t msn, uint32_t seq, const tcpqp_bpf_boundary& b,
                       tcpqp_bpf_message& m) noexcept {
    return __atomic_load_n(&b.tag, __ATOMIC_ACQUIRE) == (TCPQP_BPF_TAG_VALID | msn) &&
           is_at(seq, b, m);
}

Begins Boundaries::next(tcpqp_bpf_message& m) const noexcept {
    if (is_of(msn_, seq_, shared_.rx[msn_ % TCPQP_BPF_RX_ENTRIES], m))
        return Begins::kSend;
    if (is_of(control_msn_, seq_, shared_.control[control_msn_ % TCPQP_BPF_CONTROL_ENTRIES], m))
        return Begins::kControl;
    if (is_at(seq_, shared_.terminate, m))
        return Begins::kTerminate;
    if (is_at(seq_, shared_.refused, m))
        return Begins::kRefused;
    return Begins::kUnknown;
}

bool Boundaries::knows_send(uint32_t count, uint32_t bytes, tcpqp_bpf_message& m) const noexcept {
    const auto msn = static_cast<uint16_t>(msn_ + count);
    return is_of(msn, seq_ + bytes, shared_.rx[msn % TCPQP_BPF_RX_ENTRIES], m);
}

void Boundaries::pass(Begins what, const tcpqp_bpf_message& m) noexcept {
    if (what == Begins::kSend)
        msn_++;
    else if (what == Begins::kControl)
        pass_control((m.flags & TCP_BTH_F_MORE) != 0);
    skip(std::max<uint32_t>(m.length, 1));
}

void Boundaries::pass_control(bool is_request) noexcept {
    control_msn_++;
    if (is_request)
        requested_ = true;
    else
        answers_++;
}

void Boundaries::skip_hello(uint32_t bytes) noexcept {
    control_msn_++;
    skip(bytes);
}

void Boundaries::skip(uint32_t bytes) noexcept {
    seq_ += bytes;
    __atomic_store_n(&shared_.rx_seq, seq_, __ATOMIC_RELEASE);
}

}  // namespace tcpqp::stock
