// SPDX-License-Identifier: BSD-3-Clause
#include "disorder.hpp"

#include <algorithm>

namespace nupa {

bool Disorder::seen(std::uint32_t seq, std::uint32_t bytes) const noexcept {
    if (seq_before(seq, next_))
        return true;
    const std::uint32_t end = seq + bytes;
    for (std::size_t i = 0; i < count_; i++)
        if (seq_before(seq, blocks_[i].end) && seq_before(blocks_[i].begin, end))
            return true;
    return false;
}

bool Disorder::record(std::uint32_t seq, std::uint32_t bytes) noexcept {
    const std::uint32_t end = seq + bytes;
    if (!seq_after(end, next_))
        return false;
    if (!seq_after(seq, next_)) {
        next_ = end;
        absorb();
        return false;
    }
    if (insert(seq, end))
        return false;
    if (resyncing_) {  // only what no block holds moves the mark, or loss could do so for ever
        distrust(end);
        return false;
    }
    resyncing_ = true;
    resync_ = seq_after(end, blocks_[count_ - 1].end) ? end : blocks_[count_ - 1].end;
    return true;
}

void Disorder::raise(std::uint32_t seq) noexcept {
    if (!seq_after(seq, next_))
        return;
    next_ = seq;
    absorb();
}

void Disorder::distrust(std::uint32_t seq) noexcept {
    if (!seq_after(seq, next_) || (resyncing_ && !seq_after(seq, resync_)))
        return;
    resyncing_ = true;
    resync_ = seq;
}

// Union with the blocks it touches.  False: a new block is needed and there is none.
bool Disorder::insert(std::uint32_t begin, std::uint32_t end) noexcept {
    std::size_t first = 0;
    while (first < count_ && seq_before(blocks_[first].end, begin))
        first++;
    std::size_t last = first;
    for (; last < count_ && !seq_after(blocks_[last].begin, end); last++) {
        if (seq_before(blocks_[last].begin, begin))
            begin = blocks_[last].begin;
        if (seq_after(blocks_[last].end, end))
            end = blocks_[last].end;
    }
    if (first == last) {
        if (count_ == blocks_.size())
            return false;
        std::move_backward(blocks_.begin() + first, blocks_.begin() + count_,
                           blocks_.begin() + count_ + 1);
        count_++;
    } else {
        std::move(blocks_.begin() + last, blocks_.begin() + count_, blocks_.begin() + first + 1);
        count_ -= static_cast<std::uint32_t>(last - first - 1);
    }
    blocks_[first] = {begin, end};
    return true;
}

// E moved: blocks that it reached are part of what lies before it.
void Disorder::absorb() noexcept {
    std::size_t gone = 0;
    for (; gone < count_ && !seq_after(blocks_[gone].begin, next_); gone++)
        if (seq_after(blocks_[gone].end, next_))
            next_ = blocks_[gone].end;
    std::move(blocks_.begin() + gone, blocks_.begin() + count_, blocks_.begin());
    count_ -= static_cast<std::uint32_t>(gone);
    if (resyncing_ && !seq_before(next_, resync_))
        resyncing_ = false;
}

}  // namespace nupa
