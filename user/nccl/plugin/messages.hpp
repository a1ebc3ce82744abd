// SPDX-License-Identifier: BSD-3-Clause
// What plugins on two hosts tell each other.  Little endian, as every host that NCCL runs on.
//   handle    listener -> connector, by NCCL's bootstrap; untrusted all the same
//   hello     connector -> listener, first on each connection
//   reply     listener -> connector, then the queue pair begins
//   announce  receiver -> sender, a SEND for each irecv(): its buffers are posted
//   grant     receiver -> sender: so many eager messages of one tag may come without that
//   credit    receiver -> sender: so many more
//   recall    receiver -> sender: no more of them, and stop once what is announced has its sends
//   stop      sender -> receiver, an empty SEND without immediate: the last eager message is
//             before it
//   skip      sender -> receiver, the same, for each eager buffer that stays before
//             announced ones
// Data are SENDs without a header; the immediate says which receive they are meant for.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "nccl/plugin/limits.hpp"

namespace tcpqp::nccl {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kMagic = 0x51544e43;  // "CNTQ"
inline constexpr uint16_t kProtocolVersion = 3;
using Nonce = std::array<uint8_t, 16>;

struct Endpoint {
    std::array<uint8_t, 16> address;  // IPv4: mapped (::ffff:a.b.c.d)
    uint16_t port;
};

struct Handle {
    uint32_t magic;
    uint16_t version;
    uint8_t rails;
    uint8_t reserved;
    Nonce nonce;
    std::array<Endpoint, kRailsMax> at;
};
static_assert(sizeof(Handle) == 96 && sizeof(Handle) <= kHandleBytes);

enum class Carrier : uint8_t { kStock = 0, kModule = 1 };

struct Hello {
    uint32_t magic;
    uint16_t version;
    uint8_t rail;
    uint8_t rails;
    Nonce nonce;
    uint64_t comm;  // the connector's number for all of its rails
    uint8_t can_module;
    uint8_t must_module;  // TCPQP_ENGINE names a kernel engine
    uint8_t reserved[6];
};
static_assert(sizeof(Hello) == 40);

enum class Answer : uint8_t { kYes = 0, kNoEngine = 1 };

struct Reply {
    uint32_t magic;
    uint16_t version;
    Answer answer;
    Carrier carrier;
};
static_assert(sizeof(Reply) == 8);

struct AnnouncedReceive {
    uint32_t bytes;
    int32_t tag;
};

enum class Kind : uint8_t { kAnnounce = 0, kGrant = 1, kCredit = 2, kRecall = 3 };

struct Announce {
    uint32_t sequence;  // of all that the receiver says
    Kind kind;
    uint8_t count;  // of @receives
    uint8_t taken;  // announce: bit i: an eager message was receive i's
    uint8_t skips;  // announce: eager buffers before these receives
    // grant, credit: one, with the number of messages in @bytes; recall: none
    std::array<AnnouncedReceive, kGroupMax> receives;
};
static_assert(sizeof(Announce) == 72);
constexpr size_t announce_bytes(uint32_t count) noexcept {
    return offsetof(Announce, receives) + count * sizeof(AnnouncedReceive);
}

// Of an announcement's sequence; of eager messages, which are counted on their own: entry 0.
constexpr uint32_t immediate_of(uint32_t sequence, uint32_t entry) noexcept {
    return sequence << 3 | entry;
}

// Where the part of a receive of @capacity bytes lies that travels on @rail; begin == end: nothing.
struct Stripe {
    size_t begin, end;
};
// Both ends compute it from the receive, which the sender knows from the announcement.
class Striping {
public:
    constexpr Striping(size_t capacity, uint32_t rails, uint32_t sequence) noexcept
        : capacity_(capacity), first_(sequence % rails), count_(1), step_(capacity) {
        if (rails > 1 && capacity >= rails * kStripeMinBytes) {
            first_ = 0;
            count_ = rails;
            step_ = (capacity / rails + kStripeAlignBytes - 1) & ~(kStripeAlignBytes - 1);
        }
    }
    [[nodiscard]] constexpr uint32_t first() const noexcept { return first_; }
    [[nodiscard]] constexpr uint32_t count() const noexcept { return count_; }
    // The @i-th stripe, of rail first() + @i, of a message of @bytes.
    [[nodiscard]] constexpr Stripe at(uint32_t i, size_t bytes) const noexcept {
        const size_t begin = i * step_ < bytes ? i * step_ : bytes;
        const size_t next = i + 1 == count_ ? capacity_ : (i + 1) * step_;
        return {begin, next < bytes ? next : bytes};
    }

private:
    size_t capacity_;
    uint32_t first_, count_;
    size_t step_;
};

}  // namespace tcpqp::nccl
