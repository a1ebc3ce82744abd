// SPDX-License-Identifier: BSD-3-Clause
// Every bound of the plugin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/contract/net.hpp"

namespace tcpqp::nccl {

inline constexpr uint32_t kRailsMax = 4;  // connections of a comm, one for each interface
inline constexpr uint32_t kInterfacesMax = 32;
inline constexpr uint32_t kDevicesMax = 64;  // interfaces and the virtual devices made of them
inline constexpr uint32_t kGroupsMax = kRequestsMax;
inline constexpr uint32_t kSendsMax = kRequestsMax * kGroupMax;
// Announcements on their way: the receiver has a group for each.
inline constexpr uint32_t kAnnouncesMax = 2 * kGroupsMax;
inline constexpr size_t kMessageMaxBytes = size_t{1} << 30;  // test() reports an int
inline constexpr size_t kStripeMinBytes =
    size_t{64} * 1024;                             // of a rail; shorter: one rail has all
inline constexpr size_t kStripeAlignBytes = 4096;  // never cuts a 128-byte line

// Eager messages (messages.hpp): after so many short ones in a row they need no announcement.
inline constexpr size_t kEagerBytes = 16384;
inline constexpr uint32_t kEagerAfter = 8;
inline constexpr uint32_t kEagerBuffers = 32;                 // one is for the word that ends them
inline constexpr uint32_t kEagerCredits = kEagerBuffers - 1;  // eager messages on their way
inline constexpr uint32_t kEagerReturn = kEagerCredits / 3;   // credits go back so many at once
inline constexpr uint32_t kEagerUrgent = 2 * kEagerReturn;    // so many go back, whatever waits
inline constexpr uint32_t kNotesMax = 8;                      // grants, credits and recalls

// Workers (workers.hpp).
inline constexpr size_t kLongBytes = size_t{64} * 1024;  // a worker copies these
inline constexpr size_t kLaneWorksMax = size_t{2} * kSendsMax;
inline constexpr int kWorkersMax = 64;
inline constexpr unsigned kWorkersDefaultMax = 4;
inline constexpr unsigned kProcessorsPerWorker = 4;  // unless TCPQP_THREADS says how many
inline constexpr int64_t kWorkerSpinUs = 50;         // without work, before it naps
inline constexpr int64_t kWorkerNapMaxUs = 1'000;

inline constexpr int kBacklog = 128;
inline constexpr int kAcceptsPerCallMax = 64;
inline constexpr size_t kStrangersMax = 256;  // connections to a listener that have said no hello
inline constexpr size_t kArrivalsMax = 256;   // comms of which not all rails have come
inline constexpr int kStrangerLimitMs = 10'000;
inline constexpr int kConnectLimitDefaultMs = 60'000;  // TCPQP_TIMEOUT_MS
inline constexpr int kConnectLimitMaxMs = 3'600'000;
inline constexpr int kConnectRetryMs = 100;
inline constexpr int kCloseLimitMs = 2'000;  // for bytes that TCP has not delivered yet
inline constexpr size_t kPollBatch = 32;

}  // namespace tcpqp::nccl
