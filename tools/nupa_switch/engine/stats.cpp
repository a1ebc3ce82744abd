// SPDX-License-Identifier: BSD-3-Clause
#include "stats.hpp"

namespace nupa {

#define NUPA_STAT_NAME(name) #name,
static constexpr const char* kStatNames[] = {NUPA_STATS(NUPA_STAT_NAME)};
static constexpr const char* kQpStatNames[] = {NUPA_QP_STATS(NUPA_STAT_NAME)};
#undef NUPA_STAT_NAME

const char* stat_name(std::size_t which) noexcept {
    return which < std::size(kStatNames) ? kStatNames[which] : nullptr;
}

const char* qp_stat_name(std::size_t which) noexcept {
    return which < std::size(kQpStatNames) ? kQpStatNames[which] : nullptr;
}

}  // namespace nupa
