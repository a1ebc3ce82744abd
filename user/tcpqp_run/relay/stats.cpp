// SPDX-License-Identifier: BSD-3-Clause
#include "relay/stats.hpp"

#include "relay/plain.hpp"

namespace tcpqp::run {

void Stats::ended(const tcpqp_qp_info& info) noexcept {
    if (info.engine >= engines_.size())
        return;
    Engine& e = engines_[info.engine];
    e.connections++;
    e.sent += info.tx_bytes;
    e.received += info.rx_bytes;
    e.placed += info.rx_placed_bytes;
    e.copied += info.rx_copied_bytes;
}

void Stats::print(std::FILE* out) const {
    for (uint32_t i = 0; i < engines_.size(); i++) {
        const Engine& e = engines_[i];
        if (e.connections != 0)
            std::fprintf(out,
                         "tcpqp-run: %s: %llu connections, %llu bytes sent, %llu received, %llu "
                         "placed, %llu copied\n",
                         tcpqp_engine_name(i), 0ULL + e.connections, 0ULL + e.sent,
                         0ULL + e.received, 0ULL + e.placed, 0ULL + e.copied);
    }
    for (size_t i = 0; i < plain_.size(); i++)
        if (plain_[i] != 0)
            std::fprintf(out, "tcpqp-run: plain, %s: %llu connections\n",
                         plain_name(static_cast<Plain>(i)), 0ULL + plain_[i]);
}

}  // namespace tcpqp::run
