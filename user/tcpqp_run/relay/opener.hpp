// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs in the making: a thread for each, since the module waits for the peer in the call.
#pragma once

#include <mutex>
#include <vector>

#include "base/fd.hpp"
#include "tcpqp.h"

namespace tcpqp::run {

struct Opened {
    uint64_t link = 0;
    tcpqp_conn* conn = nullptr;  // whoever takes it closes it
    int error = 0;
    uint32_t reason = TCPQP_REASON_NONE;
};

class Opener {
public:
    // Throws std::system_error.
    explicit Opener(uint32_t engine);
    // Waits for its threads: as long as a peer is waited for.
    ~Opener();

    // @socket stays the caller's, and open until the result came.  False: no thread could be had.
    [[nodiscard]] bool start(uint64_t link, int socket) noexcept;
    // Readable: results wait.
    [[nodiscard]] int fd() const noexcept { return event_.get(); }
    std::vector<Opened> take() noexcept;
    [[nodiscard]] size_t under_way() const noexcept { return under_way_; }

private:
    void run(uint64_t link, int socket) noexcept;

    const uint32_t engine_;
    Fd event_;
    std::mutex lock_;
    std::vector<Opened> done_;
    size_t under_way_ = 0;  // of the loop's thread
};

}  // namespace tcpqp::run
