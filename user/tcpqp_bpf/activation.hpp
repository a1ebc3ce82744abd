// SPDX-License-Identifier: BSD-3-Clause
// The listener that systemd made, sd_listen_fds(3): a .socket unit says who may connect, and this
// process need not be root.
#pragma once

#include "base/fd.hpp"

namespace tcpqp::bpf {

// Nothing: nobody passed one.  Throws: what was passed is no listener of the right kind, or one
// that libraries would not trust, as it is neither root's nor our own user's.
Fd passed_listener();

}  // namespace tcpqp::bpf
