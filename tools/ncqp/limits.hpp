// SPDX-License-Identifier: BSD-3-Clause
// Every bound of ncqp, with its unit in the name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ncqp {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kGiB = 1024 * kMiB;

constexpr uint64_t kMessageMinBytes = 512;
constexpr uint64_t kMessageMaxBytes = 64 * kMiB;
constexpr uint64_t kMessageDefaultBytes = kMiB;
constexpr uint32_t kDepthMax = 1024;
constexpr uint32_t kDepthDefault = 16;
constexpr uint32_t kPeriodMin = 2;
constexpr uint32_t kPeriodMax = 256;
constexpr uint32_t kPeriodDefault = 251;  // generated traffic without -v; a prime

// Buffers for streams: depth is lowered until they fit.
constexpr uint64_t kRingMaxBytes = 128 * kMiB;
// The same of a device's memory (-d), less the pattern.
constexpr uint64_t kDeviceRingMaxBytes = 32 * kMiB;
// A file up to the first bound is registered whole; a larger one by windows.
constexpr uint64_t kRegisterWholeMaxBytes = kGiB;
constexpr uint64_t kRegisterWindowBytes = 256 * kMiB;

constexpr int kConnectTimeoutDefault_ms = 10000;
constexpr int kAttachTimeoutDefault_ms = 10000;
constexpr int kTimeoutMax_s = 600;
constexpr int kListenBacklog = 8;
constexpr int kProgressInterval_ms = 200;

}  // namespace ncqp
