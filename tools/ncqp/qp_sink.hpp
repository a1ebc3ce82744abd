// SPDX-License-Identifier: BSD-3-Clause
// Receive buffers: parts of the output file itself, or a ring that is written out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "options.hpp"
#include "output.hpp"
#include "status.hpp"
#include "verbs/context.hpp"
#include "verbs/qp.hpp"

namespace ncqp {

class Sink {
public:
    virtual ~Sink() = default;

    // The next receive to post; empty: none now.  Fails with @why.
    virtual std::optional<tcpqp::Work> next(Status& why) noexcept = 0;
    // All data receives were given out: the end message needs a buffer of its own.
    [[nodiscard]] virtual bool exhausted() const noexcept = 0;
    // The oldest posted receive holds @bytes of data.
    virtual Status landed(uint64_t bytes) noexcept = 0;
    // The oldest posted receive holds a message of ncqp itself; false: it can't be read.
    virtual bool read_oldest(std::span<std::byte> out) noexcept = 0;
    [[nodiscard]] virtual const char* name() const noexcept = 0;
};

// The file itself if @total is known and its pages can be pinned, else buffers, in
// memory of a @device if there is one, which this program can map.  @why tells a full disk.  @depth
// may be lowered.  Throws std::system_error.
[[nodiscard]] std::unique_ptr<Sink> make_sink(const tcpqp::Context& context, Output& output,
                                              Verifier& verifier, std::optional<uint64_t> total,
                                              uint64_t msg_bytes, DeviceKind device,
                                              uint32_t& depth, Status& why);

}  // namespace ncqp
