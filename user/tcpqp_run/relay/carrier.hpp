// SPDX-License-Identifier: BSD-3-Clause
// What carries a link's bytes to the peer: a queue pair, or the TCP socket itself.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "base/fd.hpp"
#include "relay/stats.hpp"
#include "tcpqp.h"

namespace tcpqp::run {

// How a step ended.
enum class Step : uint8_t {
    kMoved,    // try again
    kBlocked,  // until a descriptor says so
    kEnd,      // of this direction
    kReset,    // the side that bytes come from, or go to, is gone: no clean end
};

class Carrier {
public:
    virtual ~Carrier() = default;
    // From the program to the peer, and back.  @program is the relay's end of its socket pair.
    virtual Step up(int program) noexcept = 0;
    virtual Step down(int program) noexcept = 0;
    // Before a sleep.
    virtual void refresh() noexcept {}
    // The program's last byte was taken.  False: the peer can't be told.
    virtual bool finish_up() noexcept = 0;
    [[nodiscard]] virtual bool has_sent_all() noexcept = 0;
    // Does the peer say that it ends by bytes?
    [[nodiscard]] virtual bool ends_in_stream() const noexcept { return false; }
    // The peer's bytes that nobody will read.
    [[nodiscard]] virtual bool has_unread() noexcept = 0;
    // The peer gets a reset.
    virtual void reset() noexcept = 0;
    [[nodiscard]] virtual int fd() noexcept = 0;
};

// @conn is taken over.
std::unique_ptr<Carrier> carry_by_queue_pair(tcpqp_conn* conn, Stats& stats);
// @socket must outlive it.
std::unique_ptr<Carrier> carry_by_tcp(int socket);

// To the program: bytes it took, 0 with @blocked or @gone.
struct Given {
    size_t bytes = 0;
    bool blocked = false;
};
// What a program that does not read any more leaves is thrown away, as a TCP that was shut down
// does.
Given give_program(int program, const void* data, size_t bytes) noexcept;

}  // namespace tcpqp::run
