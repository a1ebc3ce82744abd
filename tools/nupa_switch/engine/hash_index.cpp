// SPDX-License-Identifier: BSD-3-Clause
#include "hash_index.hpp"

#include <algorithm>

namespace nupa {

void HashIndex::put(std::uint32_t hash, std::uint32_t number) noexcept {
    std::size_t b = home(hash);
    while (buckets_[b].full())
        b = after(b);
    const auto slot = static_cast<std::size_t>(std::countr_zero(buckets_[b].same(0)));
    buckets_[b].hash[slot] = hash, buckets_[b].number[slot] = number;
}

void HashIndex::grow() {
    LargeArray<Bucket> buckets(buckets_.empty() ? kBucketsMin : buckets_.size() * 2);
    buckets_.swap(buckets);
    for (const Bucket& bucket : buckets)
        for (std::size_t i = 0; i < kSlots && bucket.hash[i]; i++)
            put(bucket.hash[i], bucket.number[i]);
}

// What went past a bucket because it was full must not be missed when it is not.
void HashIndex::erase(std::uint32_t hash, std::uint32_t number) noexcept {
    hash |= kUsed;
    std::size_t hole = home(hash), slot;
    while ((slot = static_cast<std::size_t>(
                std::find(buckets_[hole].number.begin(), buckets_[hole].number.end(), number) -
                buckets_[hole].number.begin())) == kSlots ||
           !buckets_[hole].hash[slot])
        hole = after(hole);
    count_--;
    for (std::size_t b = hole; buckets_[b].full();) {
        b = after(b);
        const Bucket& from = buckets_[b];
        for (std::size_t i = 0; i < kSlots && from.hash[i]; i++) {
            if (distance(home(from.hash[i]), b) < distance(hole, b))
                continue;
            buckets_[hole].hash[slot] = from.hash[i], buckets_[hole].number[slot] = from.number[i];
            hole = b, slot = i;
            break;
        }
    }
    buckets_[hole].remove(slot);
}

}  // namespace nupa
