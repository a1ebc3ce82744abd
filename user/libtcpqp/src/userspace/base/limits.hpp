// SPDX-License-Identifier: BSD-3-Clause
// Every bound of the stock engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tcpqp::stock {

constexpr unsigned kRingEntriesMin = 64;
constexpr unsigned kRingEntriesMax = 4096;
constexpr size_t kStageBytes = 16384;    // read ahead of the posted receives, at most
constexpr uint32_t kDirectBytes = 4096;  // after a message this long only a header is read ahead
// Large messages that one read takes behind the first: eight places, which the kernel copies
// without asking for memory.
constexpr size_t kReachMessages = 7;
constexpr size_t kReachFrames = 3;           // the same of frames
constexpr uint32_t kReachAfter = 8;          // after so many messages of one length
constexpr size_t kBatchBufferBytes = 16384;  // headers and copied payload of one send, at most
constexpr size_t kBatchBufferMinBytes = 2048;
constexpr size_t kBatchBuffersBytes = 1 << 20;  // of a queue pair, all together
constexpr uint32_t kCopyMaxBytes = 1024;        // payload up to this is copied beside its header
constexpr size_t kBatchSegments = 64;           // iovecs of one send
constexpr size_t kBatchMessages = 256;
constexpr uint64_t kBatchBytes = uint64_t{512} * 1024;  // a send takes no further message beyond

// A thread in wait() sleeps in recv() for so long before it does in the ring: the
// longest that another thread's first completion may go unnoticed.
constexpr int kSocketWaitMs = 10;

// SENDs that a peer may send ahead in option framing: half of what there is room for,
// the rest is for a module's probes.
constexpr uint16_t kCreditMessages = 2048;
// Answers to requests for credit that wait behind messages nobody receives: two million
// messages sent meanwhile.
constexpr int32_t kAnswersUnread = 1000;
constexpr std::chrono::milliseconds kProbe{200};  // without credit of a module's
// Without room to describe a message: ACKs that wake nobody are looked for, ever more seldom.
constexpr std::chrono::milliseconds kRoomPause{200};
constexpr std::chrono::milliseconds kRoomPauseMax{3200};

// What a receiver waits for in a stream of large messages, for how long, and after how many
// messages it does again if not half of it came, ever more.
constexpr uint64_t kGatherMessages = 4;
constexpr uint64_t kGatherBytes = uint64_t{256} * 1024;
constexpr std::chrono::microseconds kGather{50};
constexpr uint32_t kGatherPauseMin = 16;
constexpr uint32_t kGatherPauseMax = 4096;
// What it waits for of a message that is longer than those, with no limit: it was promised.
constexpr size_t kHalfMax = size_t{512} * 1024;

// How long the progress thread waits for an application that has sent a moment ago.
constexpr std::chrono::milliseconds kProgressGrace{1};

}  // namespace tcpqp::stock
