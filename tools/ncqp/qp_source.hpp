// SPDX-License-Identifier: BSD-3-Clause
// Messages to send, in registered memory.
#pragma once

#include <cstdint>
#include <memory>

#include "input.hpp"
#include "options.hpp"
#include "status.hpp"
#include "verbs/context.hpp"
#include "verbs/qp.hpp"

namespace ncqp {

class Source {
public:
    enum class Next { kMessage, kWait, kEnd, kFailed };

    virtual ~Source() = default;
    // kMessage: @work is filled.  kWait: input has nothing now (see wait_fd()).  kFailed: @why.
    virtual Next next(tcpqp::Work& work, Status& why) noexcept = 0;
    // The oldest message that next() gave is sent and acknowledged.
    virtual void sent() noexcept = 0;
    [[nodiscard]] virtual int wait_fd() const noexcept { return -1; }
    [[nodiscard]] virtual const char* name() const noexcept = 0;
};

// The best that the input allows: pages of the mapped file, the pattern, or
// buffers, the latter two in memory of a @device if there is one.  @depth bounds the buffers in
// flight and is lowered if they would be too much memory.  Throws std::system_error.
[[nodiscard]] std::unique_ptr<Source> make_source(const tcpqp::Context& context, Input& input,
                                                  uint64_t msg_bytes, DeviceKind device,
                                                  uint32_t& depth);

}  // namespace ncqp
