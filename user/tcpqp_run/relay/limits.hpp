// SPDX-License-Identifier: BSD-3-Clause
// Every bound of tcpqp-run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tcpqp::run {

constexpr size_t kLinksMax = 4096;       // relayed connections at a time; further ones stay TCP
constexpr size_t kLinkDescriptors = 16;  // of the relay, for each of them: so many are spared
constexpr size_t kOpeningMax = 128;      // of these, with a thread that waits for the peer
constexpr size_t kPlainPeersMax = 4096;  // addresses that are remembered as plain
constexpr size_t kRefusedMax = 1024;     // connections that failed, whose error may be asked for
constexpr std::chrono::seconds kPlainPeerTime{60};
constexpr std::chrono::seconds kLingerTime{10};  // of a closed link whose bytes are under way
constexpr std::chrono::milliseconds kLingerStep{5};
constexpr uint32_t kBufferBytes = 65536;  // of a link's messages
constexpr uint32_t kBuffers = 16;         // for each direction, at most
constexpr uint32_t kFirstBuffers = 2;     // ... before they are needed
constexpr size_t kPlainBytes = 65536;     // of a link without a queue pair, for each direction
constexpr int kAutoOpenMs = 1000;         // for the peer's queue pair
constexpr int kForcedOpenMs = 10000;
constexpr int kProgramBytes = 1 << 20;  // that wait for the program, where the system allows
constexpr int kRoundsMax = 16;          // of one link before another's turn
constexpr int kEventsMax = 64;
constexpr int kBacklog = 1024;
constexpr size_t kAskersMax = 1024;  // that have not sent their request yet

}  // namespace tcpqp::run
