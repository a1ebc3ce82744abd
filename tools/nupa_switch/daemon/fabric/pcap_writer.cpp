// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/pcap_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "event/log.hpp"

namespace nupa::daemon {
namespace {

constexpr uint32_t kMagicNanoseconds = 0xa1b23c4d;
constexpr uint32_t kLinkTypeEthernet = 1;
constexpr mode_t kMode = 0666;

// draft-ietf-opsawg-pcap, 4 and 5: in the writer's byte order.
struct FileHead {
    uint32_t magic = kMagicNanoseconds;
    uint16_t major = 2;
    uint16_t minor = 4;
    uint32_t reserved[2] = {};
    uint32_t snap_bytes = PcapWriter::kSnapBytes;
    uint32_t link_type = kLinkTypeEthernet;
};
static_assert(sizeof(FileHead) == 24);

struct RecordHead {
    uint32_t seconds;
    uint32_t nanoseconds;
    uint32_t captured_bytes;
    uint32_t bytes;
};
static_assert(sizeof(RecordHead) == 16);

}  // namespace

PcapWriter::PcapWriter(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, kMode)) {
    struct stat st {};
    if (!fd_ || ::fstat(fd_.get(), &st) < 0)
        throw_errno("capture to " + path_ + (errno == ENXIO ? " (nobody reads it)" : ""));
    device_ = st.st_dev, inode_ = st.st_ino, regular_ = S_ISREG(st.st_mode);
    backlog_.reserve(kBacklogMaxBytes);
    const FileHead head;
    const auto* at = reinterpret_cast<const uint8_t*>(&head);
    backlog_.assign(at, at + sizeof(head));
    if (!flush()) {
        errno = error_;
        throw_errno("capture to " + path_);
    }
}

PcapWriter::~PcapWriter() {
    flush();
    if (lost_)
        log_line("nupa_switch: capture to {}: {} segments are not there, its reader was too slow",
                 path_, lost_);
}

void PcapWriter::write(uint64_t unix_time_ns, std::span<const uint8_t> frame) noexcept {
    constexpr uint64_t kNsPerSecond = 1'000'000'000;
    const auto bytes = static_cast<uint32_t>(frame.size());
    const RecordHead head{static_cast<uint32_t>(unix_time_ns / kNsPerSecond),
                          static_cast<uint32_t>(unix_time_ns % kNsPerSecond), bytes, bytes};
    if (backlog_.size() + sizeof(head) + bytes > kWriteBytes)
        flush();
    if (!fd_)
        return;
    if (backlog_.size() + sizeof(head) + bytes > kBacklogMaxBytes) {
        lost_++;
        return;
    }
    const auto* at = reinterpret_cast<const uint8_t*>(&head);
    backlog_.insert(backlog_.end(), at, at + sizeof(head));
    backlog_.insert(backlog_.end(), frame.begin(), frame.end());
}

bool PcapWriter::flush() noexcept {
    while (fd_ && written_ < backlog_.size()) {
        const ssize_t n =
            ::write(fd_.get(), backlog_.data() + written_, backlog_.size() - written_);
        if (n > 0)
            written_ += static_cast<size_t>(n);
        else if (n < 0 && errno == EAGAIN)
            return true;
        else if (n == 0 || errno != EINTR)
            end(n == 0 ? EIO : errno);
    }
    file_bytes_ += backlog_.size();
    backlog_.clear();
    written_ = 0;
    return static_cast<bool>(fd_);
}

// Of what is in the file the last record may be a part.
void PcapWriter::end(int error) noexcept {
    size_t whole = file_bytes_ == 0 ? sizeof(FileHead) : 0;
    while (whole + sizeof(RecordHead) <= written_) {
        RecordHead head;
        std::memcpy(&head, backlog_.data() + whole, sizeof(head));
        if (whole + sizeof(head) + head.captured_bytes > written_)
            break;
        whole += sizeof(head) + head.captured_bytes;
    }
    if (regular_ && ::ftruncate(fd_.get(), static_cast<off_t>(file_bytes_ + whole)) < 0)
        log_line("nupa_switch: capture to {}: its last record is not whole", path_);
    fd_.reset();
    error_ = error;
    log_line("nupa_switch: capture to {} has ended: {}", path_, std::strerror(error));
}

bool PcapWriter::is(const std::string& path) const noexcept {
    struct stat st {};
    return fd_ && ::stat(path.c_str(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
}

}  // namespace nupa::daemon
