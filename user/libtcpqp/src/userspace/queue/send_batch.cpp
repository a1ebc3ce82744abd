// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/queue/send_batch.hpp"

#include <algorithm>
#include <cstring>

namespace tcpqp::stock {

void SendBatch::begin() noexcept {
    messages = used_ = bytes_ = 0;
    zerocopy = was_copied = in_kernel = false;
    message_ = {};
    message_.msg_iov = segments_.data();
}

bool SendBatch::has_room(const tcpqp_work& work) const noexcept {
    if (messages == 0)
        return true;
    const bool copied = work.length <= kCopyMaxBytes;
    const size_t need = kFrameBytes + (copied ? work.length : 0);
    return messages < kBatchMessages && bytes_ < kBatchBytes && !zerocopy &&
           need <= buffer_.size() - used_ && message_.msg_iovlen + 2 <= kBatchSegments;
}

void SendBatch::add(const Frame& frame, const tcpqp_work& work) noexcept {
    std::byte* at = buffer_.data() + used_;
    encode(frame, at);
    size_t own = kFrameBytes;
    const bool copied = work.length <= kCopyMaxBytes;
    if (copied && work.length != 0) {
        std::memcpy(at + kFrameBytes, work.addr, work.length);
        own += work.length;
    }
    used_ += own;
    append(at, own);
    if (!copied)
        append(work.addr, work.length);
    messages++;
}

void SendBatch::add_bare(const tcpqp_work& work) noexcept {
    if (work.length == 0)
        add_control();
    else
        append(work.addr, work.length);
    messages++;
}

void SendBatch::add_control() noexcept {
    buffer_[0] = std::byte{0};
    append(buffer_.data(), 1);
}

void SendBatch::append(const void* at, size_t count) noexcept {
    bytes_ += count;
    if (message_.msg_iovlen != 0) {
        iovec& last = segments_[message_.msg_iovlen - 1];
        if (static_cast<std::byte*>(last.iov_base) + last.iov_len == at) {
            last.iov_len += count;
            return;
        }
    }
    segments_[message_.msg_iovlen++] = {const_cast<void*>(at), count};
}

void SendBatch::advance(size_t count) noexcept {
    bytes_ -= count;
    while (count != 0) {
        iovec& first = *message_.msg_iov;
        const size_t n = std::min(count, first.iov_len);
        first.iov_base = static_cast<std::byte*>(first.iov_base) + n;
        first.iov_len -= n;
        count -= n;
        if (first.iov_len == 0 && message_.msg_iovlen > 1) {
            message_.msg_iov++;
            message_.msg_iovlen--;
        }
    }
}

}  // namespace tcpqp::stock
