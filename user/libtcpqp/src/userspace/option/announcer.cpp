// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/option/announcer.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>

namespace tcpqp::stock {
namespace {

uint32_t stream_bytes(const tcpqp_bpf_message& m) noexcept {
    return std::max<uint32_t>(m.length, 1);
}

}  // namespace

bool Announcer::has_room() noexcept {
    if (next_ - first_ == TCPQP_BPF_TX_ENTRIES)
        retire();
    return next_ - first_ != TCPQP_BPF_TX_ENTRIES;
}

// The program told of it while it had the socket's lock, which SIOCINQ takes and
// SIOCOUTQ does not.
bool Announcer::has_room_by_wakeup() noexcept {
    int unread = 0;
    ::ioctl(socket_, SIOCINQ, &unread);
    return has_room();
}

// Of what is acknowledged no segment leaves any more.
void Announcer::retire() noexcept {
    int unacked = 0;
    if (::ioctl(socket_, SIOCOUTQ, &unacked) != 0)
        return;
    const uint32_t acked = handed_ - static_cast<uint32_t>(unacked);
    while (first_ != next_) {
        const tcpqp_bpf_message& m = shared_.tx[first_ % TCPQP_BPF_TX_ENTRIES];
        if (static_cast<int32_t>(acked - (m.seq + stream_bytes(m))) < 0)
            break;
        first_++;
    }
    __atomic_store_n(&shared_.tx_first, first_, __ATOMIC_RELAXED);
    // before any of these entries is written anew: the program looks at tx_first after an entry
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

void Announcer::announce(tcpqp_bpf_message m) noexcept {
    m.seq = seq_;
    seq_ += stream_bytes(m);
    shared_.tx[next_++ % TCPQP_BPF_TX_ENTRIES] = m;
    __atomic_store_n(&shared_.tx_next, next_, __ATOMIC_RELEASE);
}

}  // namespace tcpqp::stock
