// SPDX-License-Identifier: BSD-3-Clause
// Where the sender's bytes come from: a pattern, a regular file, or a stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "options.hpp"
#include "pattern.hpp"
#include "status.hpp"

namespace ncqp {

class Input {
public:
    enum class Kind { kGenerated, kFile, kStream };

    Input() = default;
    ~Input();
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    Status open(const Options& options);

    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] std::optional<uint64_t> total() const noexcept { return total_; }
    [[nodiscard]] uint32_t period() const noexcept { return pattern_ ? pattern_->period() : 0; }

    // kGenerated: msg_bytes of the stream from @offset on.
    [[nodiscard]] const std::byte* generated(uint64_t offset) const noexcept {
        return pattern_->at(offset);
    }
    [[nodiscard]] std::span<std::byte> pattern_memory() noexcept { return pattern_->memory(); }
    // kFile: the whole content, mapped.  Only the kernel and the device may
    // touch it, for the file can shrink; empty if it can't be mapped.
    [[nodiscard]] std::span<std::byte> mapped() const noexcept { return {mapped_, mapped_bytes_}; }
    [[nodiscard]] uint64_t file_offset() const noexcept { return offset_; }

    // Bytes read now into @into (0: end of input).  Fills it as far as that
    // needs no waiting, so that what a user typed leaves at once.
    Status read(std::span<std::byte> into, size_t& got) noexcept;

    // kFile, at the end: is the file as long as it was?
    Status unchanged() const noexcept;
    // Leave the shared file offset where a reader would have left it.
    void seek_end() const noexcept;

private:
    Status open_file(uint64_t bytes);

    Kind kind_ = Kind::kStream;
    int fd_ = 0;
    std::optional<uint64_t> total_;
    std::optional<Pattern> pattern_;
    uint64_t offset_ = 0;  // of the first byte in the file
    void* map_ = nullptr;
    size_t map_bytes_ = 0;
    std::byte* mapped_ = nullptr;
    size_t mapped_bytes_ = 0;
};

}  // namespace ncqp
