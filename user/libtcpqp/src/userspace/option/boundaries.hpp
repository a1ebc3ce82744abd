// SPDX-License-Identifier: BSD-3-Clause
// Which message the next byte of the received stream begins, as the BPF program saw it.
#pragma once

#include <cstdint>

#include "userspace/option/slot.hpp"

namespace tcpqp::stock {

enum class Begins : uint8_t { kUnknown, kSend, kControl, kTerminate, kRefused };

class Boundaries {
public:
    Boundaries(tcpqp_bpf_slot& shared, uint32_t seq) noexcept : shared_(shared), seq_(seq) {}

    // What begins here; @m is its description, checked.
    [[nodiscard]] Begins next(tcpqp_bpf_message& m) const noexcept;
    // Is the SEND that follows @count more, of @bytes together, known already?  @m is its
    // description, checked.
    [[nodiscard]] bool knows_send(uint32_t count, uint32_t bytes,
                                  tcpqp_bpf_message& m) const noexcept;
    // It was taken: the stream stands behind it.
    void pass(Begins what, const tcpqp_bpf_message& m) noexcept;
    // The peer's hello, its first ACKNOWLEDGE, was read as a frame of @bytes.
    void skip_hello(uint32_t bytes) noexcept;
    // SENDs passed.
    [[nodiscard]] uint16_t msn() const noexcept { return msn_; }
    // A stock peer's ACKNOWLEDGEs passed: whether one asked for credit, and how many gave it.
    [[nodiscard]] bool requested() const noexcept { return requested_; }
    void answered() noexcept { requested_ = false; }
    [[nodiscard]] uint32_t answers() const noexcept { return answers_; }

private:
    void pass_control(bool is_request) noexcept;
    void skip(uint32_t bytes) noexcept;
    [[nodiscard]] static bool is_at(uint32_t seq, const tcpqp_bpf_boundary& b,
                                    tcpqp_bpf_message& m) noexcept;
    [[nodiscard]] static bool is_of(uint16_t msn, uint32_t seq, const tcpqp_bpf_boundary& b,
                                    tcpqp_bpf_message& m) noexcept;

    tcpqp_bpf_slot& shared_;
    uint32_t seq_;
    uint16_t msn_ = 0;
    uint16_t control_msn_ = 0;
    uint32_t answers_ = 0;
    bool requested_ = false;
};

}  // namespace tcpqp::stock
