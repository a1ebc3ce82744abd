// SPDX-License-Identifier: BSD-3-Clause
// Messages by reference, between hosts of one pool of memory: a message's lease changes hands, and
// what TCP carries is a head that names it (docs/cxl-mode.md).
//
// Every message of such a connection begins with a head.  What follows it is the message's bytes,
// or, of one by reference, nothing.  A lease that is offered is nobody's until the peer takes it;
// its descriptor here, which would withdraw the offer, is kept until the peer says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tcpqp {

enum class HeadKind : uint8_t {
    kHello = 1,  // number: the sender's pool, 0: none; the first of each end
    kInline,     // the message is behind the head
    kReference,  // number: the token of a lease of lease_bytes, which begins with the message
    kTaken,      // number: how many of the peer's leases were taken, modulo 2^64
};

struct Head {
    HeadKind kind;
    uint32_t flags;  // TCPQP_F_IMM
    uint32_t imm;
    uint32_t length;  // of the message
    uint64_t number;
    uint64_t lease_bytes;
};

inline constexpr size_t kHeadBytes = 32;  // of the wire: little endian, in the order above

void write_head(const Head& head, std::byte* to) noexcept;
// Empty: no end of ours writes such a head, in front of @behind bytes.
std::optional<Head> read_head(const std::byte* from, size_t behind) noexcept;

// A lease of ours, mapped; not copied.
class MappedLease {
public:
    MappedLease() = default;
    // Takes @fd over; map() follows.
    MappedLease(int fd, size_t bytes) noexcept : bytes_(bytes), fd_(fd) {}
    MappedLease(MappedLease&& other) noexcept { swap(other); }
    MappedLease& operator=(MappedLease&& other) noexcept {
        MappedLease old;
        old.swap(other);
        swap(old);
        return *this;
    }
    MappedLease(const MappedLease&) = delete;
    MappedLease& operator=(const MappedLease&) = delete;
    ~MappedLease();

    explicit operator bool() const noexcept { return at_ != nullptr; }
    [[nodiscard]] std::byte* data() const noexcept { return at_; }
    [[nodiscard]] size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    // Its memory has gone with what was in it; zeroes are in its place.
    [[nodiscard]] bool is_lost() const noexcept { return at_ != nullptr && fd_ < 0; }
    // False: there is no room, with errno; it may be tried again.
    bool map() noexcept;
    // Its descriptor alone is left; the caller's to close.
    int unmap() noexcept;
    // Its place shows @fd's memory from here on; takes @fd over.  It is lost if @fd is negative, or
    // can't be mapped.
    void replace(int fd) noexcept;

private:
    void swap(MappedLease& other) noexcept;

    std::byte* at_ = nullptr;
    size_t bytes_ = 0;
    int fd_ = -1;
};

// One connection's; its lock is the connection's.
class Handover {
public:
    // Of messages of @buffer_bytes at most; keeps @spare leases for later ones.  Without a pool
    // all are sent inline.
    Handover(size_t buffer_bytes, uint32_t spare);
    ~Handover();
    Handover(const Handover&) = delete;
    Handover& operator=(const Handover&) = delete;

    [[nodiscard]] uint64_t pool() const noexcept { return pool_; }  // 0: none
    void hear(const Head& hello) noexcept;
    [[nodiscard]] bool heard() const noexcept { return heard_; }

    // For a message that may go by reference; empty: it will be sent inline.
    MappedLease obtain() noexcept;
    // A message of @length pays as a reference.
    [[nodiscard]] bool pays(const MappedLease& lease, size_t length) const noexcept;
    // True: the peer may take it, and @head says how: leave() or withdraw() follows.  Else the
    // lease is as it was, or lost.
    bool offer(MappedLease& lease, Head& head) noexcept;
    // The peer is told of the offer.
    void leave(MappedLease& lease) noexcept;
    // It is not: the lease is as it was, in its place, or lost.
    void withdraw(MappedLease& lease, const Head& head) noexcept;
    // What the peer offers; a negative errno: it is gone, or there is no room for it.  Then @lease
    // may have it already, for the next try.
    int take(const Head& head, MappedLease& lease) noexcept;
    // It is of no more use here.
    void keep(MappedLease lease) noexcept;
    // False: the peer took more than there were.
    bool peer_took(uint64_t count) noexcept;

    [[nodiscard]] bool all_taken() const noexcept { return offered_.empty(); }
    [[nodiscard]] uint64_t taken() const noexcept { return taken_; }  // of the peer's
    [[nodiscard]] uint64_t tx_bytes() const noexcept { return tx_bytes_; }
    [[nodiscard]] uint64_t rx_bytes() const noexcept { return rx_bytes_; }

private:
    const size_t lease_bytes_;
    const uint32_t spare_max_;
    int device_ = -1;
    uint64_t pool_ = 0;
    bool heard_ = false;
    bool same_pool_ = false;
    std::vector<MappedLease> spare_;
    std::deque<int> offered_;  // descriptors, oldest first
    uint64_t peer_took_ = 0;
    uint64_t taken_ = 0;
    uint64_t tx_bytes_ = 0, rx_bytes_ = 0;  // of messages by reference
};

}  // namespace tcpqp
