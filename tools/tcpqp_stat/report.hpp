// SPDX-License-Identifier: BSD-3-Clause
// A connection, from whichever place it is known, as a line or as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qps.hpp"
#include "sockets.hpp"

namespace tcpqp::stat {

struct Line {
    // engine "stock?": a guess, and "stream": a socket with that ULP; neither is a queue pair
    QueuePair qp;
    std::optional<Socket> socket;  // none: of another network namespace, or gone
    std::string process;
};

struct Choice {
    bool unconnected = false;  // queue pairs without a connection, too
    bool stock = true;
};

// What there is now.  Throws std::system_error.
std::vector<Line> look(const Choice& choice);

std::string as_table(const std::vector<Line>& lines);
std::string as_json(const std::vector<Line>& lines);

}  // namespace tcpqp::stat
