// SPDX-License-Identifier: BSD-3-Clause
#include "qp_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "buffer_ring.hpp"
#include "mr_windows.hpp"
#include "stop.hpp"

namespace ncqp {
namespace {

// No processor touches the payload: the device reads the file's own pages.
class MappedSource final : public Source {
public:
    MappedSource(const tcpqp::Context& context, const Input& input, uint64_t msg_bytes)
        : data_(input.mapped()),
          msg_bytes_(msg_bytes),
          windows_(context, data_.data(), data_.size(), msg_bytes, 0) {
        uint32_t unused = 0;
        error_ = windows_.key_at(0, unused);
    }
    [[nodiscard]] bool usable() const noexcept { return error_ == 0; }

    Next next(tcpqp::Work& work, Status& why) noexcept override {
        if (at_ == data_.size())
            return Next::kEnd;
        const auto n = static_cast<uint32_t>(std::min<uint64_t>(msg_bytes_, data_.size() - at_));
        uint32_t lkey = 0;
        if (int error = windows_.key_at(at_, lkey); error != 0) {
            why = Status::failure(fmt::format("register the input file: {}", std::strerror(error)));
            return Next::kFailed;
        }
        work = {0, data_.data() + at_, n, lkey, 0};
        at_ += n;
        return Next::kMessage;
    }

    void sent() noexcept override {
        done_ = std::min<uint64_t>(done_ + msg_bytes_, data_.size());
        windows_.retire_below(done_);
    }
    [[nodiscard]] const char* name() const noexcept override { return "mapping"; }

private:
    std::span<std::byte> data_;
    uint64_t msg_bytes_;
    MrWindows windows_;
    int error_ = 0;
    uint64_t at_ = 0;
    uint64_t done_ = 0;
};

// One registered pattern serves every message: each starts at its own phase.
class PatternSource final : public Source {
public:
    PatternSource(const tcpqp::Context& context, Input& input, uint64_t msg_bytes)
        : input_(input), msg_bytes_(msg_bytes) {
        const std::span<std::byte> memory = input.pattern_memory();
        mr_ = tcpqp::Mr(context, memory.data(), memory.size(), 0);
        if (!mr_)
            tcpqp::throw_errno("register memory (see `ulimit -l`)");
    }

    Next next(tcpqp::Work& work, Status&) noexcept override {
        if (at_ == *input_.total())
            return Next::kEnd;
        const auto n = static_cast<uint32_t>(std::min<uint64_t>(msg_bytes_, *input_.total() - at_));
        work = {0, const_cast<std::byte*>(input_.generated(at_)), n, mr_.lkey(), 0};
        at_ += n;
        return Next::kMessage;
    }
    void sent() noexcept override {}
    [[nodiscard]] const char* name() const noexcept override { return "generated"; }

private:
    Input& input_;
    uint64_t msg_bytes_;
    tcpqp::Mr mr_;
    uint64_t at_ = 0;
};

// Streams, and files that can't be pinned: read into a ring of buffers.
class StreamSource final : public Source {
public:
    StreamSource(const tcpqp::Context& context, Input& input, uint64_t msg_bytes, uint32_t& depth,
                 DeviceKind device)
        : input_(input), ring_(context, msg_bytes, depth, device) {
        depth = ring_.slots();
    }

    Next next(tcpqp::Work& work, Status& why) noexcept override {
        const uint64_t left = input_.total().value_or(UINT64_MAX) - at_;
        if (ended_ || left == 0)
            return Next::kEnd;
        if (used_ == ring_.slots() || !input_ready())
            return Next::kWait;
        const std::span<std::byte> slot = ring_.slot(next_);
        size_t got = 0;
        why = input_.read(slot.first(std::min<uint64_t>(slot.size(), left)), got);
        if (why.ok() && got == 0)
            why = input_.unchanged();
        if (!why.ok())
            return Next::kFailed;
        if (got == 0) {
            ended_ = true;
            return Next::kEnd;
        }
        work = {0, slot.data(), static_cast<uint32_t>(got), ring_.lkey(), 0};
        at_ += got;
        used_++;
        next_ = (next_ + 1) % ring_.slots();
        return Next::kMessage;
    }

    void sent() noexcept override { used_--; }
    [[nodiscard]] int wait_fd() const noexcept override {
        return ended_ || used_ == ring_.slots() || input_.kind() != Input::Kind::kStream
                   ? -1
                   : input_.fd();
    }
    [[nodiscard]] const char* name() const noexcept override { return ring_.name(); }

private:
    [[nodiscard]] bool input_ready() const noexcept {
        pollfd p{input_.fd(), POLLIN, 0};
        return input_.kind() != Input::Kind::kStream || ::poll(&p, 1, 0) > 0;
    }

    Input& input_;
    BufferRing ring_;
    uint64_t at_ = 0;
    uint32_t next_ = 0;
    uint32_t used_ = 0;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<Source> make_source(const tcpqp::Context& context, Input& input, uint64_t msg_bytes,
                                    DeviceKind device, uint32_t& depth) {
    if (input.kind() == Input::Kind::kGenerated && device != DeviceKind::kNone)
        return make_device_source(context, device, input, msg_bytes);
    if (input.kind() == Input::Kind::kGenerated)
        return std::make_unique<PatternSource>(context, input, msg_bytes);
    if (!input.mapped().empty() && device == DeviceKind::kNone) {
        auto mapped = std::make_unique<MappedSource>(context, input, msg_bytes);
        if (mapped->usable())
            return mapped;
    }
    return std::make_unique<StreamSource>(context, input, msg_bytes, depth, device);
}

}  // namespace ncqp
