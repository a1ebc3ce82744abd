// SPDX-License-Identifier: BSD-3-Clause
#include "mr_windows.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "limits.hpp"

namespace ncqp {

MrWindows::MrWindows(const tcpqp::Context& context, std::byte* base, uint64_t bytes,
                     uint64_t msg_bytes, int access) noexcept
    : context_(context),
      base_(base),
      bytes_(bytes),
      window_bytes_(bytes <= kRegisterWholeMaxBytes ? bytes
                                                    : kRegisterWindowBytes / msg_bytes * msg_bytes),
      access_(access) {}

MrWindows::Registered MrWindows::make(uint64_t index) const noexcept {
    const uint64_t at = index * window_bytes_;
    Registered r;
    r.mr = tcpqp::Mr(context_, base_ + at, std::min(window_bytes_, bytes_ - at), access_);
    if (!r.mr)
        r.error = errno != 0 ? errno : EIO;
    return r;
}

void MrWindows::prefetch(uint64_t index) noexcept {
    if (index * window_bytes_ >= bytes_)
        return;
    try {
        next_ = std::async(std::launch::async, [this, index] { return make(index); });
    } catch (const std::system_error&) {
        // no thread to be had: key_at() registers it when it is needed
    }
}

int MrWindows::key_at(uint64_t offset, uint32_t& lkey) noexcept {
    const uint64_t index = offset / window_bytes_;
    while (index >= first_ + live_.size()) {
        const uint64_t missing = first_ + live_.size();
        Registered r = next_.valid() ? next_.get() : make(missing);
        if (r.error != 0)
            return r.error;
        live_.push_back(std::move(r.mr));
        prefetch(missing + 1);
    }
    lkey = live_[index - first_].lkey();
    return 0;
}

void MrWindows::retire_below(uint64_t offset) noexcept {
    while (!live_.empty() && (first_ + 1) * window_bytes_ <= offset) {
        live_.pop_front();
        first_++;
    }
}

}  // namespace ncqp
