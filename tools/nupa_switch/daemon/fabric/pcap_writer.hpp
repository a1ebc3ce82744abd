// SPDX-License-Identifier: BSD-3-Clause
// A capture file of one port: every wire segment that enters or leaves it.
//
// The switch never waits for it.  Of a file whose reader is slow (a FIFO) whole records are left
// out, and counted.  A file that takes no more (a full disk) ends with its last whole record.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "event/fd.hpp"

namespace nupa::daemon {

class PcapWriter {
public:
    static constexpr uint32_t kSnapBytes = 256 << 10;  // more than any frame has
    static constexpr size_t kWriteBytes = 64 << 10;    // at a time
    static constexpr size_t kBacklogMaxBytes = 1 << 20;

    // Throws std::system_error.
    explicit PcapWriter(std::string path);
    PcapWriter(const PcapWriter&) = delete;
    PcapWriter& operator=(const PcapWriter&) = delete;
    ~PcapWriter();

    void write(uint64_t unix_time_ns, std::span<const uint8_t> frame) noexcept;
    // Makes what was written visible in the file; called when the switch goes idle.  False: it
    // takes no more, and the log says why.
    bool flush() noexcept;
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    // Is that the same file?
    [[nodiscard]] bool is(const std::string& path) const noexcept;

private:
    void end(int error) noexcept;

    std::string path_;
    Fd fd_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    bool regular_ = false;
    std::vector<uint8_t> backlog_;  // whole records, the first of which may be partly written
    size_t written_ = 0;            // bytes of backlog_
    uint64_t file_bytes_ = 0;       // written before backlog_: whole records
    uint64_t lost_ = 0;             // records
    int error_ = 0;                 // why it takes no more
};

}  // namespace nupa::daemon
