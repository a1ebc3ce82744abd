// SPDX-License-Identifier: BSD-3-Clause
#include "ports/tap/tap_port.hpp"

#include "engine/transmit.hpp"
#include "event/log.hpp"

namespace nupa::daemon {
namespace {

constexpr size_t kTcpDataOffsetAt = 12;

// Linux writes what it wants done as a virtio-net header; our rings say it as a nupa_tx_ctx.
// @frame holds everything the header points at, or the context is refused later.
nupa_tx_ctx context_of(const VnetHeader& head, std::span<const uint8_t> frame) noexcept {
    nupa_tx_ctx ctx{};
    ctx.bufs = 1;
    ctx.bytes = static_cast<uint32_t>(frame.size());
    if (head.flags & VnetHeader::kNeedsCsum) {
        ctx.flags = NUPA_TX_F_CSUM;
        ctx.csum_start = head.csum_start;
        ctx.csum_offset = head.csum_offset;
    }
    const uint8_t gso = head.gso_type & static_cast<uint8_t>(~VnetHeader::kGsoEcn);
    if (gso == VnetHeader::kGsoNone)
        return ctx;
    ctx.flags |= gso == VnetHeader::kGsoTcp4 ? NUPA_TX_F_TSO4 : NUPA_TX_F_TSO6;
    if (head.gso_type & VnetHeader::kGsoEcn)
        ctx.flags |= NUPA_TX_F_ECN;
    ctx.mss = head.gso_size;
    const size_t offset_at = head.csum_start + kTcpDataOffsetAt;
    if (offset_at < frame.size())
        ctx.header_bytes = static_cast<uint16_t>(head.csum_start + (frame[offset_at] >> 4) * 4);
    return ctx;
}

}  // namespace

TapPort::TapPort(const PortContext& context, const std::string& name, const std::string& ifname,
                 uint16_t id)
    : Port(name, id, MacTable::Kind::kUplink),
      epoll_(context.epoll),
      fabric_(context.fabric),
      ifname_(ifname),
      device_(ifname),
      buffers_(kTapFramesPerTurn * TapDevice::kFrameMaxBytes) {
    context.epoll.add(device_.fd(), *this);
}

bool TapPort::read_frame(std::span<uint8_t> buffer) noexcept {
    VnetHeader head{};
    const size_t bytes = device_.read(head, buffer);
    if (!bytes)
        return false;
    const std::span<const uint8_t> frame = buffer.first(bytes);
    const Bytes whole = std::as_bytes(frame);
    if (packet_from_tx(packet_, context_of(head, frame), {&whole, 1}) != TxError::kOk) {
        stats().add(NUPA_STAT_tx_drop_invalid);
        return true;
    }
    packet_.ingress = id();
    fabric_.forward(*this, packet_, TxRewrite{});
    if (packet_.owned)
        fabric_.flush();  // the next packet frees these bytes
    return true;
}

void TapPort::handle(uint32_t /*what*/, uint32_t /*events*/) noexcept {
    for (size_t i = 0; i < kTapFramesPerTurn; i++)
        if (!read_frame(
                {buffers_.data() + i * TapDevice::kFrameMaxBytes, TapDevice::kFrameMaxBytes}))
            break;
    fabric_.flush();
    if (!device_.gone())
        return;
    epoll_.remove(device_.fd());  // it would be ready for ever
    log_line("nupa_switch: {}: interface {} has gone", name(), ifname_);
}

void TapPort::deliver(Packet& segment) noexcept {
    segment.fill_checksums();
    std::array<iovec, 1 + kPayloadSpansMax> parts;
    size_t count = 0;
    parts[count++] = {segment.header.data(), segment.at.header_bytes};
    for (const Bytes& piece : segment.payload.pieces())
        parts[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    stats().add(NUPA_STAT_rx_segments);
    if (!device_.write({parts.data(), count})) {
        stats().add(NUPA_STAT_rx_drop_no_buffer);
        return;
    }
    stats().add(NUPA_STAT_rx_packets);
    stats().add(NUPA_STAT_rx_bytes, segment.bytes());
}

}  // namespace nupa::daemon
