// SPDX-License-Identifier: BSD-3-Clause
// The sending half of an end: send buffers, the kernel's message log, and a
// modelled TCP that cuts and repeats as it likes.
#pragma once

#include <cstdint>
#include <vector>

#include "stream.hpp"
#include "tcp_receiver.hpp"

extern "C" {
#include "msglog.h"
}

namespace sim {

class End;

class Sender {
public:
    Sender(End& end, std::vector<std::uint32_t> lengths);

    // Application: the next message of the plan.  False: no buffer, or the log is full.
    bool post();
    // Messages of the plan that may be posted now.
    void allow(std::size_t messages) noexcept { allowed_ = messages; }
    bool all_acked() const noexcept { return una_ == stream.end(); }
    const std::vector<std::uint32_t>& lengths() const noexcept { return lengths_; }

    // TCP: an ACK of stream offset @ack with a right edge, then what can be sent.
    void acked(std::uint32_t ack, std::uint32_t window_bytes, const std::vector<Range>& sack);
    bool plausible(std::uint32_t ack) const noexcept { return ack >= una_ && ack <= highest_; }
    std::uint32_t sent() const noexcept { return highest_; }
    void send();
    void tick();
    // The connection is gone: buffers are the application's again.
    void drop();

    Stream& stream;

private:
    struct Buffer {
        std::uint64_t addr;
        std::size_t message;
        bool busy;
    };

    std::uint32_t piece(std::uint32_t at, std::uint32_t limit);
    void emit(std::uint32_t at, std::uint32_t len);
    void release();
    void repair();
    void timeout();
    void persist();
    void overrun();
    const std::byte* bytes_at(std::uint32_t at) const;

    End& end_;
    std::vector<std::uint32_t> lengths_;
    std::size_t allowed_ = 0;
    std::vector<tqp_msg_rec> records_;
    tqp_msglog log_{};
    std::vector<Buffer> buffers_;
    std::uint16_t msn_;
    std::uint32_t una_ = 0, next_ = 0, highest_ = 0, right_edge_ = 0;
    std::vector<bool> sacked_;
    std::uint64_t rto_at_ = 0, repaired_at_ = 0;
    std::uint32_t rto_us_;
};

}  // namespace sim
