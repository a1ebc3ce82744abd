// SPDX-License-Identifier: BSD-3-Clause
#include "output.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "limits.hpp"
#include "stop.hpp"

namespace ncqp {
namespace {

constexpr size_t kReadBackBytes = 256 * kKiB;

Status fail_output(int error) {
    const char* hint = error == ENOSPC || error == EDQUOT ? "; free some space"
                       : error == EPIPE                   ? "; its reader has gone"
                       : error == EFBIG                   ? "; see `ulimit -f`"
                                                          : "";
    return Status::failure(fmt::format("write standard output: {}{}", std::strerror(error), hint));
}

}  // namespace

FileWindow::FileWindow(int fd, uint64_t offset, uint64_t bytes) noexcept {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t skip = offset % page;
    void* map = ::mmap(nullptr, bytes + skip, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                       static_cast<off_t>(offset - skip));
    if (map == MAP_FAILED)
        return;
    map_ = map;
    map_bytes_ = bytes + skip;
    data_ = static_cast<std::byte*>(map) + skip;
}

FileWindow::~FileWindow() {
    if (map_ != nullptr)
        ::munmap(map_, map_bytes_);
}

void FileWindow::swap(FileWindow& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
    std::swap(data_, other.data_);
}

Status Output::open() {
    struct stat st {};
    const int flags = ::fcntl(fd_, F_GETFL);
    if (flags < 0 || ::fstat(fd_, &st) != 0)
        return Status::failure(fmt::format("standard output: {}", std::strerror(errno)));
    if ((flags & O_ACCMODE) == O_RDONLY)
        return Status::failure("standard output is not open for writing");
    if (!S_ISREG(st.st_mode))
        return {};
    const off_t at = ::lseek(fd_, 0, SEEK_CUR);
    if (at < 0)
        return {};
    old_bytes_ = static_cast<uint64_t>(st.st_size);
    base_ = flags & O_APPEND ? old_bytes_ : static_cast<uint64_t>(at);
    // `> file` opens for writing only; the magic link opens the very same inode again
    file_.reset(::open(fmt::format("/proc/self/fd/{}", fd_).c_str(), O_RDWR | O_CLOEXEC));
    return {};
}

Status Output::reserve(uint64_t bytes) noexcept {
    if (bytes <= reserved_)
        return {};
    if (bytes > INT64_MAX - base_)
        return fail_output(EFBIG);
    const auto from = static_cast<off_t>(base_ + reserved_);
    const auto more = static_cast<off_t>(bytes - reserved_);
    int error = 0;
    do {
        error = ::fallocate(file_.get(), 0, from, more) == 0 ? 0 : errno;
    } while (error == EINTR && !stop_requested());
    if (error == EINTR)
        return interrupted();
    if (error == EOPNOTSUPP) {
        allocated_ = false;
        error =
            base_ + bytes <= old_bytes_ || ::ftruncate(file_.get(), from + more) == 0 ? 0 : errno;
    }
    if (error != 0)
        return fail_output(error);
    reserved_ = bytes;
    return {};
}

FileWindow Output::map(uint64_t offset, uint64_t bytes) noexcept {
    if (offset == 0 && bytes != 0 && bytes == std::exchange(prepared_bytes_, 0))
        return std::move(prepared_);
    return {file_.get(), base_ + offset, bytes};
}

Status Output::prepare(uint64_t bytes) noexcept {
    if (Status s = reserve(bytes); !s.ok())
        return s;
    prepared_ = map(0, bytes);
    prepared_bytes_ = prepared_.data() != nullptr ? bytes : 0;
    return {};
}

Status Output::write(std::span<const std::byte> data) noexcept {
    while (!data.empty()) {
        const ssize_t n = ::write(fd_, data.data(), data.size());
        if (stop_requested())
            return interrupted();
        if (n < 0 && errno == EAGAIN) {
            if (Status s = wait_fd(fd_, POLLOUT, -1, "standard output"); !s.ok())
                return s;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_output(n < 0 ? errno : ENOSPC);
        data = data.subspan(static_cast<size_t>(n));
    }
    return {};
}

bool Output::read_back(uint64_t offset, std::span<std::byte> into) const noexcept {
    while (!into.empty()) {
        const ssize_t n =
            ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(base_ + offset));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        offset += static_cast<uint64_t>(n);
        into = into.subspan(static_cast<size_t>(n));
    }
    return true;
}

Status Output::explain_fault() const noexcept {
    struct stat st {};
    if (::fstat(file_.get(), &st) == 0 && static_cast<uint64_t>(st.st_size) < base_ + reserved_)
        return Status::failure("the output file was truncated by someone else during the transfer");
    return fail_output(ENOSPC);
}

Status Output::finish(uint64_t received) noexcept {
    if (reserved_ == 0)
        return {};
    struct stat st {};
    const uint64_t want = std::max(old_bytes_, base_ + received);
    if (::fstat(file_.get(), &st) != 0)
        return fail_output(errno);
    if (static_cast<uint64_t>(st.st_size) < base_ + received)
        return explain_fault();
    if (static_cast<uint64_t>(st.st_size) > want &&
        ::ftruncate(file_.get(), static_cast<off_t>(want)) != 0)
        return fail_output(errno);
    ::lseek(fd_, static_cast<off_t>(base_ + received), SEEK_SET);
    if (!allocated_ && ::fdatasync(file_.get()) != 0)
        return fail_output(errno);
    return {};
}

Status Verifier::memory(std::span<const std::byte> data) noexcept {
    if (!check_)
        return {};
    const std::optional<uint64_t> wrong = check_->check(data);
    if (!wrong)
        return {};
    return Status::failure(fmt::format("validation failed: byte {} is not the pattern of period {}",
                                       *wrong, period()));
}

Status Verifier::file(const Output& output, uint64_t offset, uint64_t bytes) noexcept {
    if (!check_)
        return {};
    scratch_.resize(kReadBackBytes);
    while (bytes > 0) {
        const auto n = static_cast<size_t>(std::min<uint64_t>(bytes, kReadBackBytes));
        const std::span<std::byte> piece(scratch_.data(), n);
        if (!output.read_back(offset, piece))
            return output.explain_fault();
        if (Status s = memory(piece); !s.ok())
            return s;
        offset += n;
        bytes -= n;
    }
    return {};
}

}  // namespace ncqp
