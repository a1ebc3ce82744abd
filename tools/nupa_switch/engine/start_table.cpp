// SPDX-License-Identifier: BSD-3-Clause
#include "start_table.hpp"

#include "disorder.hpp"

namespace nupa {

bool StartTable::agree_untagged(std::uint16_t msn, std::uint32_t start) noexcept {
    Untagged& e = untagged_[msn % kStartsMax];
    if (e.used && e.msn == msn)
        return e.start == start;
    const bool newer = static_cast<std::int16_t>(msn - e.msn) > 0;
    if (e.used && !(newer && seq_after(start, e.start)))
        return false;
    e = {start, msn, true};
    return true;
}

bool StartTable::agree(MsnSpace space, std::uint16_t msn, std::uint32_t target,
                       std::uint32_t start) noexcept {
    if (space == MsnSpace::kUntagged)
        return agree_untagged(msn, start);
    // Interleaved families must not evict each other at every step.
    const std::size_t spread = static_cast<std::size_t>(space) * (kStartsMax / 4);
    Entry& e = entries_[(msn + spread) % kStartsMax];
    if (e.used && e.space == space && e.msn == msn && e.target == target)
        return e.start == start;
    if (e.used && seq_after(e.start, start))
        return false;
    e = {start, target, msn, space, true};
    return true;
}

}  // namespace nupa
