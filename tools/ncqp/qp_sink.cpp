// SPDX-License-Identifier: BSD-3-Clause
#include "qp_sink.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "buffer_ring.hpp"
#include "mr_windows.hpp"

namespace ncqp {
namespace {

// The switch writes payload where it belongs in the file; nobody copies.
class MappedSink final : public Sink {
public:
    MappedSink(const tcpqp::Context& context, Output& output, Verifier& verifier, FileWindow window,
               uint64_t total, uint64_t msg_bytes)
        : output_(output),
          verifier_(verifier),
          window_(std::move(window)),
          total_(total),
          msg_bytes_(msg_bytes),
          windows_(context, window_.data(), total, msg_bytes, IBV_ACCESS_LOCAL_WRITE) {
        uint32_t unused = 0;
        error_ = windows_.key_at(0, unused);
    }
    [[nodiscard]] bool usable() const noexcept { return error_ == 0; }

    std::optional<tcpqp::Work> next(Status& why) noexcept override {
        if (exhausted())
            return std::nullopt;
        uint32_t lkey = 0;
        if (int error = windows_.key_at(posted_, lkey); error != 0) {
            why =
                Status::failure(fmt::format("register the output file: {}", std::strerror(error)));
            return std::nullopt;
        }
        const uint32_t n = size_at(posted_);
        const tcpqp::Work work{0, window_.data() + posted_, n, lkey, 0};
        posted_ += n;
        return work;
    }

    [[nodiscard]] bool exhausted() const noexcept override { return posted_ == total_; }

    Status landed(uint64_t bytes) noexcept override {
        // a short message would leave a hole, since the next buffer is already posted
        if (bytes != size_at(landed_))
            return Status::failure(
                fmt::format("the peer broke the protocol: a message of {} bytes, not {}", bytes,
                            size_at(landed_)));
        if (Status s = verifier_.file(output_, landed_, bytes); !s.ok())
            return s;
        landed_ += bytes;
        windows_.retire_below(landed_);
        return {};
    }

    bool read_oldest(std::span<std::byte> out) noexcept override {
        return output_.read_back(landed_, out);
    }
    [[nodiscard]] const char* name() const noexcept override { return "mapping"; }

private:
    [[nodiscard]] uint32_t size_at(uint64_t offset) const noexcept {
        return static_cast<uint32_t>(std::min(msg_bytes_, total_ - offset));
    }

    Output& output_;
    Verifier& verifier_;
    FileWindow window_;
    uint64_t total_;
    uint64_t msg_bytes_;
    MrWindows windows_;
    int error_ = 0;
    uint64_t posted_ = 0;
    uint64_t landed_ = 0;
};

class RingSink final : public Sink {
public:
    RingSink(const tcpqp::Context& context, Output& output, Verifier& verifier, uint64_t msg_bytes,
             DeviceKind device, uint32_t& depth)
        : output_(output), verifier_(verifier), ring_(context, msg_bytes, depth, device) {
        depth = ring_.slots();
    }

    std::optional<tcpqp::Work> next(Status&) noexcept override {
        if (posted_ - landed_ == ring_.slots())
            return std::nullopt;
        const std::span<std::byte> slot =
            ring_.slot(static_cast<uint32_t>(posted_++ % ring_.slots()));
        return tcpqp::Work{0, slot.data(), static_cast<uint32_t>(slot.size()), ring_.lkey(), 0};
    }

    // the end message comes in a buffer of the ring
    [[nodiscard]] bool exhausted() const noexcept override { return false; }

    Status landed(uint64_t bytes) noexcept override {
        const std::span<std::byte> data = oldest().first(bytes);
        if (Status s = verifier_.memory(data); !s.ok())
            return s;
        if (Status s = output_.write(data); !s.ok())
            return s;
        landed_++;
        return {};
    }

    bool read_oldest(std::span<std::byte> out) noexcept override {
        std::copy_n(oldest().begin(), out.size(), out.begin());
        return true;
    }
    [[nodiscard]] const char* name() const noexcept override { return ring_.name(); }

private:
    [[nodiscard]] std::span<std::byte> oldest() const noexcept {
        return ring_.slot(static_cast<uint32_t>(landed_ % ring_.slots()));
    }

    Output& output_;
    Verifier& verifier_;
    BufferRing ring_;
    uint64_t posted_ = 0;
    uint64_t landed_ = 0;
};

}  // namespace

std::unique_ptr<Sink> make_sink(const tcpqp::Context& context, Output& output, Verifier& verifier,
                                std::optional<uint64_t> total, uint64_t msg_bytes,
                                DeviceKind device, uint32_t& depth, Status& why) {
    if (device == DeviceKind::kNone && output.mappable() && total && *total > 0) {
        why = output.reserve(*total);
        if (!why.ok())
            return nullptr;
        FileWindow window = output.map(0, *total);
        if (window.data() != nullptr) {
            auto mapped = std::make_unique<MappedSink>(context, output, verifier, std::move(window),
                                                       *total, msg_bytes);
            if (mapped->usable())
                return mapped;
        }
    }
    return std::make_unique<RingSink>(context, output, verifier, msg_bytes, device, depth);
}

}  // namespace ncqp
