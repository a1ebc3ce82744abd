// SPDX-License-Identifier: BSD-3-Clause
// Where --stats, and what --verbs has to say, may go.  A daemon closes its standard error, and the
// number then is another file's: lines go to the file that tcpqp-run had there, or nowhere.
#pragma once

#include <sys/stat.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace tcpqp::run {

inline constexpr const char* kStatsVariable = "TCPQP_RUN_STATS";
inline constexpr const char* kVerbsVariable = "TCPQP_RUN_VERBS";  // the same for --verbs

struct StatsPlace {
    uint64_t device = 0, inode = 0;  // none: no file

    [[nodiscard]] bool is_at(int fd) const noexcept {
        struct stat now {};
        return inode != 0 && ::fstat(fd, &now) == 0 && now.st_dev == device && now.st_ino == inode;
    }
};

// "DEVICE:INODE"
inline bool parse(const char* text, StatsPlace& place) noexcept {
    return std::sscanf(text, "%" SCNu64 ":%" SCNu64, &place.device, &place.inode) == 2;
}

}  // namespace tcpqp::run
