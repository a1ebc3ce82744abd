// SPDX-License-Identifier: BSD-3-Clause
// Who owns which range of a pool of memory.  Pure: the memory itself is elsewhere.
//
//   free --begin--> coming --granted--> leased --leave--> leaving --freed--> free
//                     ^                  |                  ^
//                     +--take-- offered <+ offer            |
//                                  +---------leave----------+
//
// A range that comes or leaves is nobody's to use: it is being zeroed, or what is in it moves to
// who took it.  Nor is one that is offered.
#pragma once

#include <tcp_qp/nupa_pool_hw.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace nupa {

class Leases {
public:
    using Owner = std::uint16_t;  // a port's id
    enum class State : std::uint8_t { kComing, kLeased, kLeaving, kOffered };
    struct Lease {
        std::uint64_t bytes;
        Owner owner;
        State state;
        std::uint32_t regions;    // memory regions of its owner's port that are in it
        std::uint64_t token = 0;  // while it is offered
    };
    struct Taken {
        std::uint64_t at;
        Owner from;
    };

    // @bytes: whole pages.
    explicit Leases(std::uint64_t bytes) noexcept : bytes_(bytes), free_bytes_(bytes) {}

    // @owner may lease @share_bytes at a time; 0: an equal part, of all who joined.  Who did not
    // join may have all.
    void join(Owner owner, std::uint64_t share_bytes = 0) { owners_[owner].share = {share_bytes}; }
    std::uint64_t share(Owner owner) const noexcept;
    // More than is left of @owner's share.
    bool over_share(Owner owner, std::uint64_t bytes) const noexcept;
    // The first free range of @bytes comes: where it lies.  Empty: there is none, it is more than
    // @owner's share or one lease too many, or @bytes are not whole pages.
    std::optional<std::uint64_t> begin(Owner owner, std::uint64_t bytes) noexcept;
    void granted(std::uint64_t at) noexcept;
    // NUPA_ACCEL_OK: it leaves, and nothing covers it any more.  With a @token: if it is offered
    // under that.
    int leave(Owner owner, std::uint64_t at, std::uint64_t token = 0) noexcept;
    // NUPA_ACCEL_OK: it is offered under @token, and nothing covers it any more.
    int offer(Owner owner, std::uint64_t at, std::uint64_t token) noexcept;
    // NUPA_ACCEL_OK: the lease of @bytes that is offered so comes to @owner.
    int take(Owner owner, std::uint64_t token, std::uint64_t bytes, Taken& taken) noexcept;
    // leave() of all that are leased or offered, at once; no region is in them.
    void leave_all(Owner owner) noexcept;
    void freed(std::uint64_t at) noexcept;
    // Those of @owner, whatever their state: nobody's at once.  Their memory is gone with the
    // owner's, and no region is in them.
    void drop(Owner owner) noexcept;

    // Does all of it belong to leases of @owner?  bytes > 0.
    bool covers(Owner owner, std::uint64_t at, std::uint64_t bytes) const noexcept;
    // The one lease of @owner that holds all of it.
    std::optional<std::uint64_t> holding(Owner owner, std::uint64_t at,
                                         std::uint64_t bytes) const noexcept;
    // A region is in the lease at @at, or no more.
    void pin(std::uint64_t at) noexcept { leases_.find(at)->second.regions++; }
    void unpin(std::uint64_t at) noexcept { leases_.find(at)->second.regions--; }
    // The owner's regions are all gone.
    void unpin_all(Owner owner) noexcept;
    bool pinned(Owner owner) const noexcept;

    // The first of @owner that leaves; empty: none does.
    std::optional<std::uint64_t> leaving(Owner owner) const noexcept;
    std::uint64_t bytes() const noexcept { return bytes_; }
    std::uint64_t free_bytes() const noexcept { return free_bytes_; }
    const std::map<std::uint64_t, Lease>& all() const noexcept { return leases_; }

private:
    using At = std::map<std::uint64_t, Lease>::const_iterator;
    // One of @owner that is leased or offered; nullptr: none begins there.
    Lease* whole(Owner owner, std::uint64_t at) noexcept;
    // The lease of @owner, for use, that has the byte at @at; end(): none.
    At find(Owner owner, std::uint64_t at) const noexcept;
    std::optional<std::uint64_t> gap(std::uint64_t bytes, std::uint64_t align) const noexcept;

    std::uint64_t bytes_;
    std::uint64_t free_bytes_;
    std::map<std::uint64_t, Lease> leases_;  // by where they begin
    struct Holder {
        std::optional<std::uint64_t> share;  // empty: it did not join
        std::uint64_t bytes = 0;             // of its leases, whatever their state
        std::uint32_t leases = 0;
    };
    std::map<Owner, Holder> owners_;
};

}  // namespace nupa
