// SPDX-License-Identifier: BSD-3-Clause
// Option framing of one queue pair: what is sent, what came, and who the peer is.
#pragma once

#include <tcp_qp/tcp_bth.h>

#include <chrono>
#include <memory>

#include "stock/frame.hpp"
#include "stock/option/announcer.hpp"
#include "stock/option/boundaries.hpp"

namespace tcpqp::stock {

class Option {
public:
    // As Slot::open().
    static std::unique_ptr<Option> open(int socket, uint32_t& reason);
    Option(std::unique_ptr<Slot> slot, int socket) noexcept;

    // ---- before the framing is known ----
    void announce_hello() noexcept;
    // A module's end said that it can receive.
    [[nodiscard]] bool module_is_ready() const noexcept;
    void stop() const noexcept { slot_->stop(); }

    // ---- option framing from here on ----
    // @peer_is_stock: its hello of kFrameBytes was read, else there is none.
    void begin(bool peer_is_stock) noexcept;
    [[nodiscard]] bool has_room() noexcept { return tx_.has_room(); }
    // May the SEND of @msn be announced and sent?
    [[nodiscard]] bool may_send(uint16_t msn) noexcept;
    void announce(uint16_t msn, const tcpqp_work& work) noexcept;
    // An ACKNOWLEDGE is owed: credits, and at first that we saw the peer's rtr.
    [[nodiscard]] bool owes_control() const noexcept;
    void announce_control() noexcept;
    // The last message: @failed of the peer's is why.  Its payload is written to @operands.
    [[nodiscard]] bool announce_terminate(const tcpqp_bpf_message& failed,
                                          std::byte* operands) noexcept;
    void took(uint32_t bytes) noexcept { tx_.took(bytes); }
    [[nodiscard]] Boundaries& boundaries() noexcept { return rx_; }

private:
    [[nodiscard]] uint16_t limit() const noexcept;
    [[nodiscard]] bool has_credit(uint16_t msn) const noexcept;

    std::unique_ptr<Slot> slot_;
    Announcer tx_;
    Boundaries rx_;
    uint16_t control_msn_ = 0;
    uint16_t advertised_ = 0;  // last limit sent
    bool peer_is_stock_ = false;
    bool rtr_owed_ = false;
    bool waiting_ = false;  // for a module's credit
    std::chrono::steady_clock::time_point probe_at_;
};

// What the two hellos say.
enum class Framing : uint8_t { kStream, kOption, kNone };
[[nodiscard]] Framing agree(const Frame& ours, const Frame& peers) noexcept;
// What TCPQP_FRAMING asks for.
enum class Wish : uint8_t { kAny, kStream, kOption };
[[nodiscard]] bool framing_from_environment(Wish& wish) noexcept;

}  // namespace tcpqp::stock
