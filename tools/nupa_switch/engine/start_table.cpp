// SPDX-License-Identifier: BSD-3-Clause
#include "start_table.hpp"

#include "disorder.hpp"

namespace nupa {

namespace {

// @known gets to know @said, of the same message.
bool agree_extents(Extent& known, const Extent& said) noexcept {
    if (said.start != known.start)
        return false;
    if (known.ends)
        return said.ends ? said.reach == known.reach : !seq_after(said.reach, known.reach);
    if (said.ends)
        known = said;
    return true;
}

}  // namespace

template <std::size_t kMax>
bool OrderedStarts<kMax>::agree(std::uint16_t msn, const Extent& extent) noexcept {
    Entry& e = entries_[msn % kMax];
    if (e.used && e.msn == msn)
        return agree_extents(e.extent, extent);
    const bool newer = static_cast<std::int16_t>(msn - e.msn) > 0;
    if (e.used && !(newer && seq_after(extent.start, e.extent.start)))
        return false;
    e = {extent, msn, true};
    return true;
}

bool StartTable::agree_write(std::uint16_t msn, std::uint32_t target,
                             std::uint32_t start) noexcept {
    Write& e = writes_[msn % kStartsMax];
    if (e.used && e.msn == msn && e.target == target)
        return e.start == start;
    if (e.used && seq_after(e.start, start))
        return false;
    e = {start, target, msn, true};
    return true;
}

bool StartTable::agree(MsnSpace space, std::uint16_t msn, std::uint32_t target,
                       const Extent& extent) noexcept {
    switch (space) {
        case MsnSpace::kUntagged:
            return untagged_.agree(msn, extent);
        case MsnSpace::kReadResponse:
            return responses_.agree(msn, extent);
        case MsnSpace::kWrite:
            break;
    }
    return agree_write(msn, target, extent.start);
}

}  // namespace nupa
