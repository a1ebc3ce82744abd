// SPDX-License-Identifier: BSD-3-Clause
// The baseline: send() and recv() on an ordinary blocking socket.
#pragma once

#include <vector>

#include "round.hpp"
#include "sockets.hpp"

namespace perf {

class Plain final : public Transport {
public:
    Plain(Socket socket, uint32_t bytes_max);
    Sample ask(const Round& round) override;
    void serve(const Round& round) override;

private:
    Sample send_stream(const Round& round);
    Sample ping(const Round& round);
    void sink(const Round& round);

    Socket socket_;
    std::vector<char> buffer_;
};

}  // namespace perf
