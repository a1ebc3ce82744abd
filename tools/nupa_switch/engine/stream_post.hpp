// SPDX-License-Identifier: BSD-3-Clause
// Where the bytes of a stream belong while a reader waits for them (struct nupa_post).
#pragma once

#include <tcp_qp/nupa_post_hw.h>
#include <cstdint>

#include "host_memory.hpp"
#include "packet.hpp"
#include "reason.hpp"

namespace nupa {

class StreamPost {
public:
    // Without NUPA_QP_F_STREAM nothing is ever posted.  @memory outlives it.
    nupa_admin_status init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept;

    bool stream() const noexcept { return post_ != nullptr; }
    // How many bytes from @seq on are posted, at this moment.
    std::uint32_t posted(std::uint32_t seq) const noexcept;
    // Puts @payload, which begins at @seq, where the post says, all of it or nothing.  Meanwhile
    // the host does not get its memory back, and after it nothing of it is written.
    Reason place(std::uint32_t seq, const Payload& payload) noexcept;

private:
    struct Window {
        std::uint32_t seq, bytes, offset;
    };
    // What the host wrote, each field read once.  False: no such post could be.
    bool read(Window& window) const noexcept;
    Reason fill(std::uint32_t seq, const Payload& payload) noexcept;

    const HostMemory* memory_ = nullptr;
    nupa_post* post_ = nullptr;
    const std::uint64_t* pages_ = nullptr;
    std::uint32_t pages_max_ = 0;
};

}  // namespace nupa
