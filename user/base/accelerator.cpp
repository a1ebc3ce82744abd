// SPDX-License-Identifier: BSD-3-Clause
#include "base/accelerator.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <stdexcept>

namespace tcpqp {
namespace {

nupa_accel_place place(AccelPlace at) noexcept {
    return {.fd = at.fd, .reserved = 0, .offset = at.offset};
}

}  // namespace

nupa_accel_call accel_call(nupa_accel_op op, uint64_t bytes, AccelPlace to, AccelPlace from,
                           AccelPlace other) noexcept {
    nupa_accel_call call{};
    call.op = static_cast<uint16_t>(op);
    call.to = place(to);
    call.from = place(from);
    call.other = place(other);
    call.bytes = bytes;
    return call;
}

Accelerator::Accelerator(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (!fd_)
        throw_errno(path);
}

Fd Accelerator::allocate(uint64_t bytes) const {
    nupa_accel_alloc alloc{.bytes = bytes, .reserved = 0};
    Fd buffer(::ioctl(fd_.get(), NUPA_ACCEL_IOC_ALLOC, &alloc));
    if (!buffer)
        throw_errno("allocate accelerator memory");
    return buffer;
}

nupa_accel_info Accelerator::info() const {
    nupa_accel_info info{};
    if (::ioctl(fd_.get(), NUPA_ACCEL_IOC_INFO, &info) < 0)
        throw_errno("ask the accelerator");
    return info;
}

int Accelerator::submit(std::span<nupa_accel_call> calls) const noexcept {
    nupa_accel_submit submit{.calls = reinterpret_cast<uintptr_t>(calls.data()),
                             .count = static_cast<uint32_t>(calls.size()),
                             .reserved = 0};
    return ::ioctl(fd_.get(), NUPA_ACCEL_IOC_SUBMIT, &submit) < 0 ? errno : 0;
}

int Accelerator::revoke(int buffer) const noexcept {
    nupa_accel_revoke revoke{.fd = buffer, .reserved = 0};
    return ::ioctl(fd_.get(), NUPA_ACCEL_IOC_REVOKE, &revoke) < 0 ? errno : 0;
}

int Accelerator::bell(uint32_t number, int eventfd) const noexcept {
    nupa_accel_bell bell{.eventfd = eventfd, .bell = number};
    return ::ioctl(fd_.get(), NUPA_ACCEL_IOC_BELL, &bell) < 0 ? errno : 0;
}

uint64_t Accelerator::execute(nupa_accel_call call) const {
    if (const int error = submit({&call, 1}); error != 0)
        throw_errno("accelerator", error);
    if (call.status != NUPA_ACCEL_OK)
        throw std::runtime_error("accelerator: status " + std::to_string(call.status));
    return call.result;
}

void Accelerator::copy(AccelPlace to, AccelPlace from, uint64_t bytes) const {
    execute(accel_call(NUPA_ACCEL_COPY, bytes, to, from));
}

void Accelerator::fill(AccelPlace to, uint64_t bytes, uint32_t value) const {
    nupa_accel_call call = accel_call(NUPA_ACCEL_FILL, bytes, to);
    call.value = value;
    execute(call);
}

void Accelerator::pattern(AccelPlace to, uint64_t bytes, uint32_t period, uint64_t start) const {
    nupa_accel_call call = accel_call(NUPA_ACCEL_PATTERN, bytes, to);
    call.value = period;
    call.start = start;
    execute(call);
}

uint64_t Accelerator::compare(AccelPlace from, AccelPlace other, uint64_t bytes) const {
    return execute(accel_call(NUPA_ACCEL_COMPARE, bytes, {}, from, other));
}

}  // namespace tcpqp
