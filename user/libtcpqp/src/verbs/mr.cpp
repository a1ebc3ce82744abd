// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/mr.hpp"

namespace tcpqp {

// ibv_reg_mr() is a macro that wants a constant access to choose its symbol;
// the parenthesised name is the function.
Mr::Mr(const Context& context, void* address, size_t bytes, int access) noexcept
    : mr_((ibv_reg_mr)(context.pd(), address, bytes, access)) {}

}  // namespace tcpqp
