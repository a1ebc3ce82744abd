// SPDX-License-Identifier: BSD-3-Clause
// The head of a UD datagram, kernel/tcp_qp/wire/ud_wire.c, the kernel's own source: for any bytes
// no read beyond the head, and what is accepted is in bounds and the same when it is built again.
#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "input.hpp"

extern "C" {
#include "wire/ud_wire.h"
}

namespace {

using fuzz::require;

void accepted(std::span<const std::uint8_t> datagram, const tqp_ud_head& head) {
    std::array<std::uint8_t, TQP_UD_HEAD_BYTES> again;

    require(head.bytes == datagram.size() - TQP_UD_HEAD_BYTES, "the datagram's length");
    require(head.bytes <= TQP_UD_PAYLOAD_MAX_BYTES, "at most the largest MTU");
    require(head.dest_qpn <= TQP_UD_QPN_MAX && head.src_qpn <= TQP_UD_QPN_MAX, "QPNs of 24 bits");
    require(tqp_ud_has_immediate(&head) || head.imm == 0, "no immediate without its opcode");
    tqp_ud_build(again.data(), &head);
    require(std::equal(again.begin(), again.end(), datagram.begin()), "build(parse(x)) == x");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // what is read of it is the head, and a copy of exactly that shows reads beyond
    const std::size_t first = std::min<std::size_t>(size, TQP_UD_HEAD_BYTES);
    auto copy = std::make_unique<std::uint8_t[]>(first);
    tqp_ud_head head;

    std::copy_n(data, first, copy.get());
    if (tqp_ud_parse(copy.get(), static_cast<std::uint32_t>(size), &head) == 0)
        accepted({data, size}, head);
    return 0;
}
