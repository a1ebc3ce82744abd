// SPDX-License-Identifier: BSD-3-Clause
// The hello of kernel/tcp_qp/wire/cm_wire.c, the kernel's own source: for any bytes a reader that
// does as told ends within the buffer, however few come at once, and what is accepted is the same
// when it is built again.
#include <algorithm>
#include <memory>
#include <vector>

#include "input.hpp"

// As C++, since these targets have no C compiler that knows the sanitizers' flags.
extern "C" {
#include "wire/cm_wire.c"
}

namespace {

using fuzz::require;

constexpr tqp_hello_kind kKinds[] = {TQP_HELLO_REQUEST, TQP_HELLO_REPLY, TQP_HELLO_NUMBER};

// A copy of exactly its size, so that reading beyond it is seen.
int parse(std::span<const std::uint8_t> bytes, tqp_hello_kind kind, tqp_hello* hello) {
    auto copy = std::make_unique<std::uint8_t[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.get());
    return tqp_hello_parse(copy.get(), static_cast<std::uint32_t>(bytes.size()), kind, hello);
}

void rebuilt(std::span<const std::uint8_t> frame, tqp_hello_kind kind, const tqp_hello& hello) {
    std::vector<std::uint8_t> again(TQP_HELLO_MAX_BYTES);
    tqp_hello_number number;

    again.resize(tqp_hello_build(again.data(), kind, &hello, frame.data() + TQP_HELLO_HEAD_BYTES));
    require(std::equal(again.begin(), again.end(), frame.begin(), frame.end()),
            "build(parse(x)) == x");
    if (kind != TQP_HELLO_NUMBER || tqp_hello_get_number(frame.data(), &number) != 0)
        return;
    again.resize(tqp_hello_build_number(again.data(), &number));
    require(std::equal(again.begin(), again.end(), frame.begin(), frame.end()), "a number's, too");
}

void read_all(std::span<const std::uint8_t> bytes, std::size_t step, tqp_hello_kind kind) {
    tqp_hello hello;
    std::size_t have = 0;

    for (;;) {
        const int missing = parse(bytes.first(have), kind, &hello);
        if (missing < 0)
            return;
        if (missing == 0)
            return rebuilt(bytes.first(have), kind, hello);
        require(have + static_cast<std::size_t>(missing) <= TQP_HELLO_MAX_BYTES,
                "within the buffer");
        const std::size_t next = have + std::min(step, static_cast<std::size_t>(missing));
        if (next > bytes.size())
            return;  // the peer closed
        have = next;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0)
        return 0;
    const std::span<const std::uint8_t> bytes(data + 1, size - 1);
    for (const tqp_hello_kind kind : kKinds)
        read_all(bytes, 1 + data[0], kind);
    return 0;
}
