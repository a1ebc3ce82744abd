// SPDX-License-Identifier: BSD-3-Clause
#include "engine/engine.hpp"

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "kernel/context.hpp"
#include "userspace/queue/context.hpp"

namespace tcpqp {

int engine_from_environment(uint32_t& engine) noexcept {
    const char* word = ::secure_getenv("TCPQP_ENGINE");
    if (word == nullptr || *word == '\0')
        return 0;
    for (uint32_t e = TCPQP_ENGINE_AUTO; e <= TCPQP_ENGINE_STOCK; e++) {
        if (std::string_view(word) != tcpqp_engine_name(e))
            continue;
        engine = e;
        return 0;
    }
    return -EINVAL;
}

Made<tcpqp_context> make_context(uint32_t engine, const char* ifname, int socket) {
    if (engine == TCPQP_ENGINE_STOCK)
        return make_stock();
    Made<tcpqp_context> verbs = make_verbs(engine, ifname, socket);
    if (verbs.object || engine != TCPQP_ENGINE_AUTO)
        return verbs;
    Made<tcpqp_context> stock = make_stock();
    if (!stock.object)
        return stock;
    stock.reason = stock.object->reason = verbs.reason;
    return stock;
}

}  // namespace tcpqp
