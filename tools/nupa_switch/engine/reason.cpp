// SPDX-License-Identifier: BSD-3-Clause
#include "reason.hpp"

#include <cstddef>
#include <iterator>

namespace nupa {

namespace {

struct Entry {
    const char* name;
    int stat;  // enum nupa_stat, or -1
};

constexpr Entry kEntries[] = {
    {"placed", -1},
    {"placed_before", -1},
    {"no_qp", -1},
    {"csum", NUPA_STAT_deliver_csum},
    {"flags", NUPA_STAT_deliver_flags},
    {"plain", NUPA_STAT_deliver_plain},
    {"bth_invalid", NUPA_STAT_bth_invalid},
    {"window", NUPA_STAT_deliver_window},
    {"duplicate", NUPA_STAT_deliver_duplicate},
    {"peer", NUPA_STAT_deliver_peer},
    {"unsynced", NUPA_STAT_deliver_unsynced},
    {"disorder", NUPA_STAT_deliver_disorder},
    {"opcode", NUPA_STAT_deliver_opcode},
    {"lengths", NUPA_STAT_deliver_lengths},
    {"inconsistent", NUPA_STAT_deliver_inconsistent},
    {"no_receive", NUPA_STAT_deliver_no_receive},
    {"key", NUPA_STAT_deliver_key},
    {"access", NUPA_STAT_deliver_access},
    {"bounds", NUPA_STAT_deliver_bounds},
    {"order", NUPA_STAT_deliver_order},
    {"overtaken", NUPA_STAT_drop_overtaken},
};
static_assert(std::size(kEntries) == static_cast<std::size_t>(Reason::kCount));

}  // namespace

bool reason_stat(Reason reason, nupa_stat& stat) noexcept {
    const std::size_t i = static_cast<std::size_t>(reason);
    if (i >= std::size(kEntries) || kEntries[i].stat < 0)
        return false;
    stat = static_cast<nupa_stat>(kEntries[i].stat);
    return true;
}

const char* reason_name(Reason reason) noexcept {
    const std::size_t i = static_cast<std::size_t>(reason);
    return i < std::size(kEntries) ? kEntries[i].name : "unknown";
}

}  // namespace nupa
