// SPDX-License-Identifier: BSD-3-Clause
// The memory of one end that its peer may reach: a region for WRITEs and
// atomics, a window on it, a region for READs; and which WRITE each byte is from.
#pragma once

#include <cstdint>
#include <vector>

#include "host.hpp"
#include "stream.hpp"

namespace sim {

class End;

// A place in an end's memory, as its application told the peer.
struct Place {
    std::uint32_t key;
    std::uint64_t va, bytes;
};

class Exposed {
public:
    explicit Exposed(End& end);

    // ---- what the peer was told ----
    Place target() const noexcept { return target_; }
    Place window() const noexcept { return window_; }
    Place source() const noexcept { return source_; }
    Place counter() const noexcept { return counter_; }  // 8 bytes, for atomics
    // Keys that give no right to WRITE (or to READ), with an address that would fit.
    std::vector<Place> wrong(bool write) const;
    // An address from which @length bytes do not fit the target: before, behind, over its end or
    // 2^64.
    std::uint64_t outside(std::uint32_t length) const;

    // ---- application ----
    void deregister(std::uint32_t key);
    void poison();  // the QP is gone
    bool source_live() const noexcept { return host().find(source_.key) != nullptr; }

    // ---- kernel: as tqp_key_mr() and tqp_mw_invalidate() ----
    const Region* reach(std::uint32_t key, std::uint64_t va, std::uint64_t bytes,
                        std::uint32_t access) const noexcept;
    bool invalidate(std::uint32_t key) noexcept;

    // ---- truth ----
    // Bytes [offset, offset + n) of WRITE @m get there now.  False: a later WRITE's are there.
    bool claim(const Message& m, std::uint32_t offset, std::uint32_t n);
    // Is every byte of WRITE @m there, or a later WRITE's in its place?
    bool covered(const Message& m) const noexcept;
    // Someone changed an option on its way: WRITEs may be anywhere here.
    void spoil() noexcept { spoiled_ = true; }

private:
    Host& host() const noexcept;
    void fill(std::uint32_t key);

    End& end_;
    Place target_{}, window_{}, source_{}, counter_{}, stale_{};
    bool window_bound_ = false, spoiled_ = false;
    std::vector<std::uint32_t> owner_;  // by offset in the target: 1 + stream offset of its byte
};

}  // namespace sim
