// SPDX-License-Identifier: BSD-3-Clause
// Where the receiver's bytes go: standard output, mapped if it is a file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "pattern.hpp"
#include "status.hpp"

namespace ncqp {

// A shared writable mapping of part of a file; only the kernel and the device touch it.
class FileWindow {
public:
    FileWindow() = default;
    FileWindow(FileWindow&& other) noexcept { swap(other); }
    FileWindow& operator=(FileWindow&& other) noexcept {
        swap(other);
        return *this;
    }
    ~FileWindow();

    // On failure data() is null and errno is set.
    FileWindow(int fd, uint64_t offset, uint64_t bytes) noexcept;
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

private:
    void swap(FileWindow& other) noexcept;
    void* map_ = nullptr;
    size_t map_bytes_ = 0;
    std::byte* data_ = nullptr;
};

class Output {
public:
    Status open();

    // A regular file that may be written by mapping.
    [[nodiscard]] bool mappable() const noexcept { return static_cast<bool>(file_); }

    // The file gets room for @bytes of the transfer; a full disk is told here.
    Status reserve(uint64_t bytes) noexcept;
    // Bytes [offset, offset + bytes) of the transfer; reserve() them first.
    [[nodiscard]] FileWindow map(uint64_t offset, uint64_t bytes) noexcept;
    // Do both for the first @bytes, before a peer waits for it; map() then has it ready.
    Status prepare(uint64_t bytes) noexcept;

    // Next bytes of the transfer, for streams and for files that can't be mapped.
    Status write(std::span<const std::byte> data) noexcept;

    // Bytes of the mapped file as any reader sees them; false if they are not there any more.
    [[nodiscard]] bool read_back(uint64_t offset, std::span<std::byte> into) const noexcept;

    // Why the kernel could not write into the mapping (EFAULT).
    Status explain_fault() const noexcept;

    // Cut the file behind @received bytes, and tell delayed write errors.
    Status finish(uint64_t received) noexcept;

private:
    int fd_ = 1;
    tcpqp::Fd file_;          // the same file, opened for reading too, as a shared mapping needs
    uint64_t base_ = 0;       // where the transfer starts in the file
    uint64_t old_bytes_ = 0;  // of the file before us
    uint64_t reserved_ = 0;
    bool allocated_ = true;  // blocks are there: no delayed error can come
    FileWindow prepared_;
    uint64_t prepared_bytes_ = 0;
};

// Checks what was received, from memory or as it lies in the file.
class Verifier {
public:
    void expect(uint32_t period) { check_.emplace(period); }
    [[nodiscard]] bool wanted() const noexcept { return check_.has_value(); }
    [[nodiscard]] uint32_t period() const noexcept { return check_ ? check_->period() : 0; }

    Status memory(std::span<const std::byte> data) noexcept;
    Status file(const Output& output, uint64_t offset, uint64_t bytes) noexcept;

private:
    std::optional<PatternCheck> check_;
    std::vector<std::byte> scratch_;
};

}  // namespace ncqp
