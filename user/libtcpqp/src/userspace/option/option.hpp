// SPDX-License-Identifier: BSD-3-Clause
// Option framing of one queue pair: what is sent, what came, and who the peer is.
#pragma once

#include <tcp_qp/tcp_bth.h>

#include <memory>

#include "userspace/frames/frame.hpp"
#include "userspace/option/announcer.hpp"
#include "userspace/option/boundaries.hpp"
#include "userspace/option/pause.hpp"

namespace tcpqp::stock {

class Option {
public:
    // As Slot::open().
    static std::unique_ptr<Option> open(int socket, uint32_t& reason);
    Option(std::unique_ptr<Slot> slot, int socket) noexcept;

    // ---- before the framing is known ----
    void announce_hello() noexcept;
    // A module's end said that it can receive.  If not yet, there will be a wakeup.
    [[nodiscard]] bool module_is_ready() noexcept;
    // Readable when there are.
    [[nodiscard]] int wakeup_fd() const noexcept { return slot_->wakeup_fd(); }
    void stop() const noexcept { slot_->stop(); }

    // ---- option framing from here on ----
    // @peer_is_stock: its hello of kFrameBytes was read, else there is none.
    void begin(bool peer_is_stock) noexcept;
    // For one more message, and may the SEND of @msn be one?  If not there will be a wakeup,
    // or it is time for a look at looks_at().
    [[nodiscard]] bool has_room() noexcept;
    [[nodiscard]] bool may_send(uint16_t msn) noexcept;
    [[nodiscard]] Pause::Clock::time_point looks_at() const noexcept {
        return std::min(for_room_.at(), for_credit_.at());
    }
    // ... not, as a stock end has given no credit: that comes as bytes, so not after its FIN.
    [[nodiscard]] bool is_starved() const noexcept { return starved_; }
    void announce(uint16_t msn, const tcpqp_work& work) noexcept;
    // An ACKNOWLEDGE is due: credit, at first that we saw the peer's rtr, or a request for credit.
    [[nodiscard]] bool control_is_due() const noexcept { return owes_credit() || asks(); }
    void announce_control() noexcept;
    // The last message: @failed of the peer's is why.  Its payload is written to @operands.
    [[nodiscard]] bool announce_terminate(const tcpqp_bpf_message& failed,
                                          std::byte* operands) noexcept;
    void took(uint32_t bytes) noexcept { tx_.took(bytes); }
    [[nodiscard]] Boundaries& boundaries() noexcept { return rx_; }

private:
    [[nodiscard]] uint16_t limit() const noexcept;
    [[nodiscard]] bool module_said_rtr() const noexcept;
    [[nodiscard]] bool has_credit(uint16_t msn) const noexcept;
    [[nodiscard]] bool sees_credit(uint16_t msn) noexcept;
    [[nodiscard]] bool may_probe(uint16_t msn) noexcept;
    [[nodiscard]] bool owes_credit() const noexcept;
    [[nodiscard]] bool asks() const noexcept;

    std::unique_ptr<Slot> slot_;
    Announcer tx_;
    Boundaries rx_;
    uint16_t control_msn_ = 0;
    uint16_t advertised_ = 0;  // last limit sent
    bool peer_is_stock_ = false;
    bool rtr_owed_ = false;
    bool starved_ = false;  // a message waits for credit of a stock end's
    bool asked_ = false;    // that end was asked for credit
    uint32_t requests_ = 0;
    Pause for_room_;
    Pause for_credit_;  // of a module's
};

// What the two hellos say.
enum class Framing : uint8_t { kStream, kOption, kNone };
[[nodiscard]] Framing agree(const Frame& ours, const Frame& peers) noexcept;
// What TCPQP_FRAMING asks for.
enum class Wish : uint8_t { kAny, kStream, kOption };
[[nodiscard]] bool framing_from_environment(Wish& wish) noexcept;

}  // namespace tcpqp::stock
