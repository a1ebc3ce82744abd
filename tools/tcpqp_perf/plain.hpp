// SPDX-License-Identifier: BSD-3-Clause
// The baseline: send() and recv() on an ordinary blocking socket, into the same buffers in the
// same order as the queue pair's: one that is always the same would stay in the caches.
#pragma once

#include <span>
#include <vector>

#include "round.hpp"
#include "sockets.hpp"

namespace perf {

class Plain final : public Transport {
public:
    // @receives: one or more of @bytes_max each.
    Plain(Socket socket, std::span<std::byte> receives, uint32_t bytes_max);
    Sample ask(const Round& round) override;
    void serve(const Round& round) override;

private:
    Sample send_stream(const Round& round);
    Sample ping(const Round& round);
    void sink(const Round& round);
    // Where the next message goes.
    std::byte* next() noexcept;

    Socket socket_;
    std::span<std::byte> receives_;
    uint32_t stride_;
    size_t at_ = 0;
    std::vector<std::byte> buffer_;  // sent, and all that is no message
};

}  // namespace perf
