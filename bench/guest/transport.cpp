// SPDX-License-Identifier: BSD-3-Clause
#include "transport.hpp"

#include <stdexcept>

namespace nupa::bench {

std::unique_ptr<Transport> make_transport(TransportArgs args) {
    const std::string& name = args.spec.transport;
    if (name == "tcp")
        return make_tcp(std::move(args));
    if (name == "zerocopy")
        return make_zerocopy(std::move(args));
    if (name == "uring" || name == "uring_zc")
        return make_uring(std::move(args));
    if (name == "rxe_send" || name == "rxe_write")
        return make_rxe(std::move(args));
    if (name.starts_with("software") || name.starts_with("offload"))
        return make_qp(std::move(args));
    throw std::invalid_argument("there is no transport '" + name + "'");
}

}  // namespace nupa::bench
