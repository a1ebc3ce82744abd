// SPDX-License-Identifier: BSD-3-Clause
// The truth about one direction of a connection: which byte belongs to which
// message, its value, and what became of it at the receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tcp_qp/tcp_bth.h>

namespace sim {

inline constexpr std::size_t kNoReceive = std::numeric_limits<std::size_t>::max();

struct Message {
    std::uint32_t at;            // stream offset of its first byte
    std::uint32_t length;        // bytes of payload or operands
    std::uint32_t stream_bytes;  // length, or 1 when that is 0
    std::uint32_t imm;           // immediate, or the key that a SEND takes back
    std::uint16_t msn;
    std::uint8_t opcode;  // ONLY variant
    bool bad;             // asks for what its sender has no right to
    bool clean;           // sent after all troubles
    std::size_t receive;  // the receive it takes, or kNoReceive
    std::uint64_t va;     // tagged: where it goes
    std::uint32_t rkey;
    std::uint64_t source_va;  // READ response: the sender's own memory it is read from
    std::uint32_t source_key;

    bool write() const noexcept {
        return opcode == TCP_BTH_OP_WRITE_ONLY || opcode == TCP_BTH_OP_WRITE_ONLY_IMM;
    }
    // Its bytes go to buffers: they may be placed.
    bool payload() const noexcept { return tcp_bth_is_send(opcode) || tcp_bth_is_tagged(opcode); }
};

enum : std::uint8_t {
    kBytePlaced = 1,   // the engine's present context wrote it to its buffer
    kByteHeld = 2,     // TCP has accepted it
    kByteHonest = 8,   // .. by a segment that nobody changed on its way
    kByteWritten = 4,  // some context wrote it
};

struct Stream {
    std::uint32_t isn = 0;    // sequence number of stream offset 0
    std::uint32_t plain = 0;  // bytes before the first message
    std::vector<std::byte> bytes;
    std::vector<std::uint8_t> state;  // kByte*
    std::vector<Message> messages;

    std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(bytes.size()); }
    std::uint32_t offset(std::uint32_t seq) const noexcept { return seq - isn; }
    std::uint32_t seq(std::uint32_t offset) const noexcept { return isn + offset; }
    // Index of the message that owns @offset; messages.size() when none does.
    std::size_t message_at(std::uint32_t offset) const noexcept {
        std::size_t low = 0, high = messages.size();
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (messages[middle].at + messages[middle].stream_bytes <= offset)
                low = middle + 1;
            else
                high = middle;
        }
        return low < messages.size() && messages[low].at <= offset ? low : messages.size();
    }
    bool any(std::uint32_t offset, std::uint32_t n, std::uint8_t flag) const noexcept {
        for (std::uint32_t i = offset; i < offset + n; i++)
            if (state[i] & flag)
                return true;
        return false;
    }
    bool all(std::uint32_t offset, std::uint32_t n, std::uint8_t flag) const noexcept {
        for (std::uint32_t i = offset; i < offset + n; i++)
            if (!(state[i] & flag))
                return false;
        return true;
    }
    void mark(std::uint32_t offset, std::uint32_t n, std::uint8_t flag) noexcept {
        for (std::uint32_t i = offset; i < offset + n; i++)
            state[i] |= flag;
    }
    void clear(std::uint32_t offset, std::uint32_t n, std::uint8_t flag) noexcept {
        for (std::uint32_t i = offset; i < offset + n; i++)
            state[i] &= static_cast<std::uint8_t>(~flag);
    }
};

}  // namespace sim
