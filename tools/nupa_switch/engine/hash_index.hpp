// SPDX-License-Identifier: BSD-3-Clause
// Hash to number: buckets of a cache line, filled from the front; what finds its bucket full goes
// to the next one with room.
//
// A slot is 8 bytes, so that 100,000 of them stay in a second level cache.  It has no key: what a
// number stands for knows its own name, and whoever finds it reads it next in any case.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "large_array.hpp"
#include "prefetch.hpp"

namespace nupa {

class HashIndex {
public:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    // The number under @hash of which @named says that it is the one, or kNone.
    template <class Named>
    std::uint32_t find(std::uint32_t hash, Named&& named) const noexcept {
        if (count_ == 0)
            return kNone;
        hash |= kUsed;
        for (std::size_t b = home(hash);; b = after(b)) {
            const Bucket& bucket = buckets_[b];
            for (unsigned same = bucket.same(hash); same; same &= same - 1)
                if (const std::uint32_t n = bucket.number[std::countr_zero(same)]; named(n))
                    return n;
            if (!bucket.full())
                return kNone;
        }
    }
    // What find() will probably say, or kNone; no name is looked at.
    std::uint32_t guess(std::uint32_t hash) const noexcept {
        return find(hash, [](std::uint32_t) { return true; });
    }

    void prefetch(std::uint32_t hash) const noexcept {
        if (count_)
            nupa::prefetch(&buckets_[home(hash)]);
    }

    // The next insert() finds room.  May throw std::bad_alloc; nothing has changed then.
    void make_room() {
        if ((count_ + 1) * 8 > buckets_.size() * kSlots * 7)
            grow();
    }
    // @number is not in it; make_room() went before.
    void insert(std::uint32_t hash, std::uint32_t number) noexcept {
        put(hash | kUsed, number);
        count_++;
    }
    // @number is in it, under @hash.
    void erase(std::uint32_t hash, std::uint32_t number) noexcept;

    std::size_t size() const noexcept { return count_; }
    void clear() noexcept {
        buckets_.clear();
        count_ = 0;
    }

private:
    static constexpr std::uint32_t kUsed = 1u << 31;  // set in the hash of a slot in use
    static constexpr std::size_t kSlots = 8;
    static constexpr std::size_t kBucketsMin = 8;

    struct alignas(64) Bucket {
        std::array<std::uint32_t, kSlots> hash;  // 0: free, and all behind it
        std::array<std::uint32_t, kSlots> number;

        // A bit for each slot under @key: no branch for a processor to guess wrong.
        unsigned same(std::uint32_t key) const noexcept {
            using Lanes = std::uint32_t __attribute__((vector_size(16)));
            Lanes a, b;
            std::memcpy(&a, hash.data(), sizeof a);
            std::memcpy(&b, hash.data() + kSlots / 2, sizeof b);
            a = (a == key) & Lanes{1, 2, 4, 8};
            b = (b == key) & Lanes{16, 32, 64, 128};
            const Lanes bits = a | b;
            return bits[0] | bits[1] | bits[2] | bits[3];
        }
        bool full() const noexcept { return hash[kSlots - 1]; }
        // The last one takes the place of @slot.
        void remove(std::size_t slot) noexcept {
            std::size_t last = kSlots - 1;
            while (!hash[last])
                last--;
            hash[slot] = hash[last], number[slot] = number[last];
            hash[last] = 0;
        }
    };

    std::size_t home(std::uint32_t hash) const noexcept { return hash & (buckets_.size() - 1); }
    std::size_t after(std::size_t b) const noexcept { return (b + 1) & (buckets_.size() - 1); }
    // How far @b lies behind @a.
    std::size_t distance(std::size_t a, std::size_t b) const noexcept {
        return (b - a) & (buckets_.size() - 1);
    }
    void put(std::uint32_t hash, std::uint32_t number) noexcept;
    void grow();

    LargeArray<Bucket> buckets_;
    std::size_t count_ = 0;
};

}  // namespace nupa
