// SPDX-License-Identifier: BSD-3-Clause
// The receive side of a QP: the application's buffers, the ring, and what
// tcp_qp does with TCP's receive queue.
#pragma once

#include <cstdint>
#include <vector>

#include "receive_ring.hpp"
#include "tcp_receiver.hpp"

extern "C" {
#include "rxmsg.h"
}

namespace sim {

class End;
class Host;

class QpReceiver {
public:
    explicit QpReceiver(End& end);

    // ---- application ----
    void turn();
    void flush();  // the QP is in error: every posted receive comes back
    void post_all();

    // ---- kernel ----
    void run();

    bool started() const noexcept { return started_; }
    std::size_t completed() const noexcept { return completed_; }
    std::size_t posted() const noexcept { return receives_.size(); }
    std::uint32_t pd() const noexcept;
    nupa_cmd_qp command() const { return ring_.cmd; }

    struct Run {
        std::uint64_t addr;  // host memory
        std::uint64_t bytes;
    };
    // May the engine write to message @index's buffer now?
    bool open(std::size_t index) const noexcept;
    // Where @bytes from @offset of message @index go; less when the buffer ends before.
    std::vector<Run> place(std::size_t index, std::uint32_t offset, std::uint32_t bytes) const;
    // May [addr, addr + bytes) of host memory be written as part of some open receive?
    bool inside_open(std::uint64_t addr, std::uint64_t bytes) const;

private:
    struct Place {
        std::size_t region;
        std::uint64_t addr;  // as the application names it
        std::uint32_t bytes;
        bool busy = false;
    };
    struct Receive {
        std::vector<nupa::RecvSge> sges;
        std::size_t place;
        bool good;  // keys and length fit
        enum class State : std::uint8_t { kPosted, kCompleted, kReturned } state;
    };

    void post();
    void poll();
    void poison(const Place& place);
    void scribble();
    void deregister();
    std::vector<nupa::RecvSge> cut(const Place& place, std::uint32_t bytes);
    std::uint32_t step(const Skb& skb, std::uint32_t off);
    bool take(const Skb& skb, std::uint32_t off, std::uint32_t bytes);
    bool copy(const std::byte* from, std::uint32_t at, std::uint32_t bytes);
    void reject(Counter why);
    void complete();
    void consume();
    void check_message(std::size_t index);

    End& end_;
    Host& host_;
    ReceiveRing ring_;
    std::vector<Place> places_;
    std::vector<Receive> receives_;
    std::size_t polled_ = 0, completed_ = 0;
    bool started_ = false;
    tqp_rx_numbers next_{};
    tqp_rx_msg msg_{};
    bool have_wqe_ = false;
    std::vector<nupa::RecvSge> wqe_;
    std::uint64_t placed_bytes_ = 0, copied_bytes_ = 0;
};

}  // namespace sim
