// SPDX-License-Identifier: BSD-3-Clause
// A payload's bytes, from the first to the last, to one place after the other.
#pragma once

#include <cstddef>
#include <span>

#include "packet.hpp"

namespace nupa {

class PayloadReader {
public:
    // @payload stays as it is meanwhile.
    explicit PayloadReader(const Payload& payload) noexcept : source_(payload.pieces().data()) {}

    // The next @to.size() bytes, which there must be; rising on both sides.
    void read(std::span<std::byte> to) noexcept;

private:
    const Bytes* source_;
    std::size_t used_ = 0;
};

}  // namespace nupa
