// SPDX-License-Identifier: BSD-3-Clause
// Every bound of the engine that is not already part of the device ABI.
#pragma once

#include <tcp_qp/nupa_hw.h>
#include <tcp_qp/tcp_bth.h>
#include <cstddef>
#include <cstdint>

namespace nupa {

inline constexpr std::size_t kHeaderMaxBytes = NUPA_TX_HEADER_MAX_BYTES;
inline constexpr std::size_t kPayloadSpansMax = NUPA_TX_FRAGS_MAX;
inline constexpr std::size_t kMemoryRegionsMax = 8;

inline constexpr std::uint32_t kMssMinBytes = 8;  // Linux tcp_min_snd_mss (48) less the options
inline constexpr std::uint32_t kEthernetBytes = 14;
inline constexpr std::uint32_t kIpv6Bytes = 40;
inline constexpr std::uint32_t kJumboHeaderBytes = 8;  // hop-by-hop, with a jumbo payload length
inline constexpr std::uint16_t kTcpCheckAt = 16;
inline constexpr std::uint32_t kVlanBytes = 4;
// A frame that is not a burst.
inline constexpr std::uint32_t kFrameMaxBytes = NUPA_MTU_MAX + kEthernetBytes + kVlanBytes;
inline constexpr std::uint32_t kSegmentsMax = 65535;  // of one burst; gso_segs is 16 bits

inline constexpr std::size_t kBlocksMax = 64;        // out-of-order blocks of one flow
inline constexpr std::size_t kStartsMax = 64;        // messages whose start is remembered, per QP
inline constexpr std::size_t kMixedTrainsMax = 4;    // whose lengths are remembered, per QP
inline constexpr std::uint8_t kWindowScaleMax = 14;  // RFC 7323
inline constexpr std::uint32_t kFragmentReachBytes = 65535;  // a reassembled datagram's longest

// Pieces of memory that one segment may be placed in: SGEs of a message, or of a train's messages.
inline constexpr std::size_t kPiecesMax = 1024;
// Whole messages of a train that are placed as one run: with two SGEs each they still fit.
inline constexpr std::uint32_t kTrainRunMessagesMax = kPiecesMax / 2 - 2;

// A smaller rest of a stream's post is not worth cutting a burst for.
inline constexpr std::uint32_t kPostRunMinBytes = 64 << 10;

inline constexpr std::uint32_t kRqMaskMax = 32767;  // msn arithmetic needs < 32768
inline constexpr std::uint8_t kRqLog2Min = 6;       // element sizes of the rxe ABI
inline constexpr std::uint8_t kRqLog2Max = 12;
inline constexpr std::uint8_t kMrPageShiftMin = 12;
inline constexpr std::uint8_t kMrPageShiftMax = 30;

inline constexpr std::uint32_t kIpLengthMaxBytes = 65535;
// One merged, placed packet with its header.
inline constexpr std::uint32_t kPlacedRunMaxBytes = NUPA_PLACED_RUN_MAX_BYTES;
// What may be placed before TCP hears of it, at first and at most.
inline constexpr std::uint32_t kAckStretchFirstBytes = 64 << 10;
inline constexpr std::uint32_t kAckStretchMaxBytes = 4 << 20;
inline constexpr std::uint32_t kAckQuietBytes = 4 << 20;   // in order, before anything waits again
inline constexpr std::uint32_t kAckDelayBytes = 2 * 1460;  // two segments, RFC 5681
inline constexpr std::uint32_t kAckLaterBytes = 5 * 1460;  // half an initial window, RFC 6928
inline constexpr std::uint32_t kDeliveredBuffersMax = NUPA_RX_BUFS_PER_PACKET_MAX;

// Packets of one transmit ring that are looked at before the first of them is sent.
inline constexpr std::size_t kLookaheadMax = 16;

inline constexpr std::uint16_t kNoPort = UINT16_MAX;
// How far behind the newest acknowledgement a peer's segment may be, as when it was overtaken.  RFC
// 5961 5.2 says the largest window the peer has offered, which is not known here.
inline constexpr std::uint32_t kAckBehindMaxBytes = 1 << 20;
inline constexpr std::uint32_t kUnackedMaxBytes = 1 << 30;  // RFC 7323's largest window

// Of one port.  All of it is given back in one go when its host resets it, so the counts bound a
// time, too.
inline constexpr std::size_t kQpsMaxDefault = 131072;
inline constexpr std::size_t kMrsMaxDefault = 1 << 18;
inline constexpr std::size_t kPortMemoryDefaultBytes = 256 << 20;

}  // namespace nupa
