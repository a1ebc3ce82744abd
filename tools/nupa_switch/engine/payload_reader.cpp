// SPDX-License-Identifier: BSD-3-Clause
#include "payload_reader.hpp"

#include <algorithm>

#include "copy.hpp"

namespace nupa {

void PayloadReader::read(std::span<std::byte> to) noexcept {
    while (!to.empty()) {
        const std::size_t n = std::min(to.size(), source_->size() - used_);
        copy_rising(to.data(), source_->data() + used_, n);
        to = to.subspan(n);
        used_ += n;
        if (used_ == source_->size())
            source_++, used_ = 0;
    }
}

}  // namespace nupa
