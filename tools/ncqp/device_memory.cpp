// SPDX-License-Identifier: BSD-3-Clause
#include "device_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/accelerator.hpp"
#include "base/pool.hpp"
#include "pattern.hpp"

namespace ncqp {
namespace {

constexpr uint64_t kPageBytes = 4096;

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// No processor touches it: /dev/nupa_accel0 makes the pattern and compares.
class Hbm final : public DeviceMemory {
public:
    Hbm(const tcpqp::Context& context, uint64_t bytes) {
        dmabuf_ = accelerator_.allocate(bytes);
        mr_ = tcpqp::Mr(context, dmabuf_.get(), 0, whole_pages(bytes), 0, IBV_ACCESS_LOCAL_WRITE);
        if (!mr_)
            tcpqp::throw_errno(
                "register memory of the accelerator (EOPNOTSUPP: the interface's switch does not "
                "reach it)");
    }
    void pattern(uint64_t at, uint64_t bytes, uint32_t period, uint64_t start) override {
        accelerator_.pattern({dmabuf_.get(), at}, bytes, period, start);
    }
    // How many bytes at @a and at @b are equal before the first that is not; throws.
    uint64_t equal(uint64_t a, uint64_t b, uint64_t bytes) {
        return accelerator_.compare({dmabuf_.get(), a}, {dmabuf_.get(), b}, bytes);
    }

private:
    tcpqp::Accelerator accelerator_;
};

// A dma-buf that this program maps: it makes the pattern and compares.
class Mapped : public DeviceMemory {
public:
    ~Mapped() override {
        if (at_ != MAP_FAILED)
            ::munmap(at_, bytes_);
    }
    void pattern(uint64_t at, uint64_t bytes, uint32_t period, uint64_t start) override {
        for (uint64_t i = 0; i < bytes; i++)
            data()[at + i] = static_cast<std::byte>((start + i + 1) % period);
    }
    [[nodiscard]] std::byte* mapped() const noexcept override { return data(); }

protected:
    explicit Mapped(uint64_t bytes) : bytes_(whole_pages(bytes)) {}
    // Maps @fd, and registers what dmabuf_ is.
    void map(const tcpqp::Context& context, int fd, const char* what) {
        at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at_ == MAP_FAILED)
            tcpqp::throw_errno(std::string("map ") + what);
        iova_ = reinterpret_cast<uint64_t>(at_);
        mr_ = tcpqp::Mr(context, dmabuf_.get(), 0, bytes_, iova_, IBV_ACCESS_LOCAL_WRITE);
        if (!mr_)
            tcpqp::throw_errno(std::string("register ") + what);
    }
    [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }

private:
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(at_); }

    uint64_t bytes_;
    void* at_ = MAP_FAILED;
};

// Pages of this machine behind a dma-buf: what a program without an accelerator can try.
class Udmabuf final : public Mapped {
public:
    Udmabuf(const tcpqp::Context& context, uint64_t size) : Mapped(size) {
        const tcpqp::Fd memfd(::memfd_create("ncqp", MFD_ALLOW_SEALING | MFD_CLOEXEC));
        if (!memfd || ::ftruncate(memfd.get(), static_cast<off_t>(bytes())) < 0 ||
            ::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK) < 0)
            tcpqp::throw_errno("make a memfd");
        make(memfd.get());
        map(context, memfd.get(), "a udmabuf");
    }

private:
    void make(int memfd) {
        const tcpqp::Fd device(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
        if (!device)
            tcpqp::throw_errno("/dev/udmabuf");
        udmabuf_create request{};
        request.memfd = static_cast<uint32_t>(memfd);
        request.flags = UDMABUF_FLAGS_CLOEXEC;
        request.size = bytes();
        dmabuf_ = tcpqp::Fd(::ioctl(device.get(), UDMABUF_CREATE, &request));
        if (!dmabuf_)
            tcpqp::throw_errno("make a udmabuf");
    }
};

// A lease of the switch's pool.
class Pooled final : public Mapped {
public:
    Pooled(const tcpqp::Context& context, uint64_t size) : Mapped(size) {
        dmabuf_ = tcpqp::Pool().allocate(size);
        map(context, dmabuf_.get(), "memory of the pool");
    }
};

// One pattern serves every message: each starts at its own phase.
class DeviceSource final : public Source {
public:
    DeviceSource(const tcpqp::Context& context, DeviceKind kind, const Input& input,
                 uint64_t msg_bytes)
        : kind_(kind),
          total_(*input.total()),
          period_(input.period()),
          msg_bytes_(msg_bytes),
          memory_(make_device_memory(context, kind, msg_bytes + period_)) {
        memory_->pattern(0, msg_bytes + period_, period_, 0);
    }
    Next next(tcpqp::Work& work, Status&) noexcept override {
        if (at_ == total_)
            return Next::kEnd;
        const auto n = static_cast<uint32_t>(std::min(msg_bytes_, total_ - at_));
        work = {0, memory_->address(at_ % period_), n, memory_->lkey(), 0};
        at_ += n;
        return Next::kMessage;
    }
    void sent() noexcept override {}
    [[nodiscard]] const char* name() const noexcept override { return path_name(kind_); }

private:
    DeviceKind kind_;
    uint64_t total_;
    uint32_t period_;
    uint64_t msg_bytes_;
    std::unique_ptr<DeviceMemory> memory_;
    uint64_t at_ = 0;
};

// Slots for messages, and behind them the pattern to compare with.
class HbmSink final : public Sink {
public:
    HbmSink(const tcpqp::Context& context, uint32_t period, uint64_t total, uint64_t msg_bytes,
            uint32_t& depth)
        : period_(period),
          total_(total),
          msg_bytes_(msg_bytes),
          slots_(static_cast<uint32_t>(
              std::clamp<uint64_t>(kDeviceRingMaxBytes / slot_bytes(), 1, depth))),
          memory_(context, reference_at() + msg_bytes + period) {
        depth = slots_;
        if (period_ != 0)
            memory_.pattern(reference_at(), msg_bytes + period, period_, 0);
    }

    std::optional<tcpqp::Work> next(Status&) noexcept override {
        if (exhausted() || posted_ - landed_ == slots_)
            return std::nullopt;
        return tcpqp::Work{0, memory_.address(slot(posted_)), size_of(posted_++), memory_.lkey(),
                           0};
    }
    [[nodiscard]] bool exhausted() const noexcept override {
        return posted_ * msg_bytes_ >= total_;
    }
    Status landed(uint64_t bytes) noexcept override {
        if (bytes != size_of(landed_))
            return Status::failure(
                fmt::format("the peer broke the protocol: a message of {} bytes, not {}", bytes,
                            size_of(landed_)));
        const uint64_t start = landed_ * msg_bytes_, at = slot(landed_);
        landed_++;
        return period_ != 0 ? compare(at, start, bytes) : Status();
    }
    // A peer that breaks the protocol: its end message belongs into a receive of its own.
    bool read_oldest(std::span<std::byte>) noexcept override { return false; }
    [[nodiscard]] const char* name() const noexcept override { return path_name(DeviceKind::kHbm); }

private:
    Status compare(uint64_t at, uint64_t start, uint64_t bytes) noexcept try {
        const uint64_t right = memory_.equal(at, reference_at() + start % period_, bytes);
        if (right == bytes)
            return {};
        return Status::failure(fmt::format(
            "validation failed: byte {} is not the pattern of period {}", start + right, period_));
    } catch (const std::exception& e) {
        return Status::failure(e.what());
    }
    [[nodiscard]] uint64_t slot_bytes() const noexcept { return whole_pages(msg_bytes_); }
    [[nodiscard]] uint64_t slot(uint64_t message) const noexcept {
        return message % slots_ * slot_bytes();
    }
    [[nodiscard]] uint64_t reference_at() const noexcept { return slots_ * slot_bytes(); }
    [[nodiscard]] uint32_t size_of(uint64_t message) const noexcept {
        return static_cast<uint32_t>(std::min(msg_bytes_, total_ - message * msg_bytes_));
    }

    uint32_t period_;
    uint64_t total_;
    uint64_t msg_bytes_;
    uint32_t slots_;
    Hbm memory_;
    uint64_t posted_ = 0;  // messages
    uint64_t landed_ = 0;
};

}  // namespace

const char* path_name(DeviceKind kind) noexcept {
    switch (kind) {
        case DeviceKind::kHbm:
            return "hbm";
        case DeviceKind::kPool:
            return "pool";
        default:
            return "udmabuf";
    }
}

std::unique_ptr<DeviceMemory> make_device_memory(const tcpqp::Context& context, DeviceKind kind,
                                                 uint64_t bytes) {
    if (kind == DeviceKind::kHbm)
        return std::make_unique<Hbm>(context, bytes);
    if (kind == DeviceKind::kPool)
        return std::make_unique<Pooled>(context, bytes);
    return std::make_unique<Udmabuf>(context, bytes);
}

std::unique_ptr<Source> make_device_source(const tcpqp::Context& context, DeviceKind kind,
                                           const Input& input, uint64_t msg_bytes) {
    return std::make_unique<DeviceSource>(context, kind, input, msg_bytes);
}

std::unique_ptr<Sink> make_hbm_sink(const tcpqp::Context& context, uint32_t period, uint64_t total,
                                    uint64_t msg_bytes, uint32_t& depth) {
    return std::make_unique<HbmSink>(context, period, total, msg_bytes, depth);
}

}  // namespace ncqp
