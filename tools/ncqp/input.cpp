// SPDX-License-Identifier: BSD-3-Clause
#include "input.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "stop.hpp"

namespace ncqp {
namespace {

bool readable_now(int fd) noexcept {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 0) > 0 && (p.revents & POLLIN) != 0;
}

}  // namespace

Input::~Input() {
    if (map_ != nullptr)
        ::munmap(map_, map_bytes_);
}

Status Input::open(const Options& options) {
    if (options.bytes) {
        kind_ = Kind::kGenerated;
        total_ = options.bytes;
        pattern_.emplace(options.period != 0 ? options.period : kPeriodDefault, options.msg_bytes);
        return {};
    }
    struct stat st {};
    if (::fstat(fd_, &st) != 0)
        return Status::failure(fmt::format("standard input: {}", std::strerror(errno)));
    if (S_ISDIR(st.st_mode))
        return Status::failure("standard input is a directory");
    const off_t at = S_ISREG(st.st_mode) ? ::lseek(fd_, 0, SEEK_CUR) : -1;
    // files of /proc and /sys say 0 and have content: they are read as streams
    if (at < 0 || st.st_size == 0) {
        // a larger pipe means fewer, larger messages; harmless where it is refused
        ::fcntl(fd_, F_SETPIPE_SZ, static_cast<int>(kMiB));
        return {};
    }
    kind_ = Kind::kFile;
    offset_ = static_cast<uint64_t>(at);
    return open_file(at < st.st_size ? static_cast<uint64_t>(st.st_size - at) : 0);
}

Status Input::open_file(uint64_t bytes) {
    total_ = bytes;
    if (bytes == 0)
        return {};
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t skip = offset_ % page;
    void* map = ::mmap(nullptr, bytes + skip, PROT_READ, MAP_SHARED, fd_,
                       static_cast<off_t>(offset_ - skip));
    if (map == MAP_FAILED)
        return {};  // then it is read()
    map_ = map;
    map_bytes_ = bytes + skip;
    mapped_ = static_cast<std::byte*>(map) + skip;
    mapped_bytes_ = bytes;
    ::madvise(map_, map_bytes_, MADV_SEQUENTIAL);
    return {};
}

Status Input::read(std::span<std::byte> into, size_t& got) noexcept {
    got = 0;
    while (got < into.size()) {
        const ssize_t n = ::read(fd_, into.data() + got, into.size() - got);
        if (n > 0)
            got += static_cast<size_t>(n);
        if (n == 0)
            break;
        if (n < 0 && stop_requested())
            return interrupted();
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno != EINTR)
            return Status::failure(fmt::format("read standard input: {}", std::strerror(errno)));
        if (kind_ == Kind::kStream && !readable_now(fd_))
            break;
    }
    return {};
}

Status Input::unchanged() const noexcept {
    struct stat st {};
    if (kind_ != Kind::kFile)
        return {};
    if (::fstat(fd_, &st) != 0)
        return Status::failure(fmt::format("standard input: {}", std::strerror(errno)));
    if (static_cast<uint64_t>(st.st_size) >= offset_ + *total_)
        return {};
    return Status::failure(
        fmt::format("the input file was truncated from {} to {} bytes while it was sent",
                    offset_ + *total_, st.st_size));
}

void Input::seek_end() const noexcept {
    if (kind_ == Kind::kFile)
        ::lseek(fd_, static_cast<off_t>(offset_ + *total_), SEEK_SET);
}

}  // namespace ncqp
