// SPDX-License-Identifier: BSD-3-Clause
#include "counters.hpp"

#include <tcp_qp/nupa_hw.h>

#include <iterator>
#include <span>

namespace nupa::ctl {
namespace {

struct Help {
    std::string_view name;
    std::string_view text;
};

// rx is towards the port's host, tx from it.
constexpr Help kPort[] = {
    {"rx_packets", "Packets that the host was given, after merging"},
    {"rx_bytes", "Bytes of those packets, with their headers"},
    {"rx_segments", "Wire segments that came for the host"},
    {"rx_merged", "Segments that became part of another one's packet"},
    {"rx_drop_no_buffer", "Segments dropped because the host had no receive buffer"},
    {"rx_drop_no_queue", "Segments dropped because the host had no receive queue"},
    {"rx_drop_filter", "Segments dropped because they were for another address"},
    {"rx_csum_bad", "Segments whose checksum was wrong"},
    {"rx_interrupts", "Interrupts that told the host of packets"},
    {"tx_packets", "Packets that the host sent, a burst counts once"},
    {"tx_bytes", "Bytes of the segments that those were cut into"},
    {"tx_segments", "Segments that the host's packets were cut into"},
    {"tx_drop_invalid", "Packets of the host that no rule allows"},
    {"tx_drop_unknown", "Packets to nobody: to itself, or the link is down"},
    {"tx_doorbells", "Doorbells that the host rang"},
    {"tx_flood", "Packets that went to all ports"},
    {"placed_segments", "Segments whose payload was written to its final address"},
    {"placed_bytes", "Payload bytes that were written to their final address"},
    {"qp_delivered_segments", "Segments of queue pairs that the host's CPU must copy"},
    {"qp_delivered_bytes", "Payload bytes of queue pairs that the host's CPU must copy"},
    {"bth_invalid", "Delivered: the tcp_bth option makes no sense"},
    {"deliver_plain", "Delivered: no tcp_bth option"},
    {"deliver_flags", "Delivered: a TCP flag that placement leaves to the host"},
    {"deliver_window", "Delivered: outside of the advertised window"},
    {"deliver_duplicate", "Delivered: bytes that came before"},
    {"deliver_disorder", "Delivered: more disorder than a context can note"},
    {"deliver_unsynced", "Delivered: not known yet where a message starts"},
    {"deliver_inconsistent", "Delivered: not as the message's other segments say"},
    {"deliver_no_receive", "Delivered: no receive was posted for the message"},
    {"deliver_key", "Delivered: no such memory key"},
    {"deliver_bounds", "Delivered: outside of the receive or region"},
    {"deliver_access", "Delivered: the memory grants no such right"},
    {"deliver_opcode", "Delivered: an operation that only the host executes"},
    {"deliver_csum", "Delivered: wrong checksum or ICRC"},
    {"fault_loss", "Injected: lost"},
    {"fault_reorder", "Injected: overtaken by later segments"},
    {"fault_duplicate", "Injected: sent twice"},
    {"fault_corrupt", "Injected: payload changed"},
    {"fault_delay", "Injected: delayed"},
    {"queue_drop", "Dropped: a queue towards the port was full"},
    {"ecn_marked", "Segments that got a congestion mark (ECN CE)"},
    {"abi_errors", "Times that the host broke the device ABI"},
    {"deliver_order", "Delivered: an earlier WRITE to that memory has not come"},
    {"fault_truncate", "Injected: cut short"},
    {"fault_bleach", "Injected: options removed"},
    {"fault_mangle", "Injected: option changed, with a right checksum"},
    {"fault_copy", "Injected: option of another segment"},
    {"drop_overtaken", "Dropped: nothing says whose, and a later WRITE is in memory"},
    {"deliver_peer", "Delivered: not from the peer's port, or acknowledges nothing of ours"},
    {"tx_drop_source", "Packets from an address that is another port's"},
    {"deliver_lengths", "Delivered: of a mixed train whose lengths or targets have not come"},
    {"tx_watch_ends", "Times that a transmit ring's watch ended: doorbells were asked for again"},
    {"tx_seen", "Times that a watch found new packets that no doorbell told of"},
    {"completed_messages", "Messages of queue pairs that the switch completed, not the host"},
    {"rx_quiet",
     "Receive completions whose interrupt waited, since TCP had nothing left to do for them"},
    {"completed_sends", "Sends of queue pairs that the switch completed, not the host"},
};
static_assert(std::size(kPort) == NUPA_STAT_COUNT);

constexpr Help kQp[] = {
    {"placed_segments", "Segments whose payload was written to its final address"},
    {"placed_bytes", "Payload bytes that were written to their final address"},
    {"delivered_segments", "Segments that the host's CPU must copy"},
    {"delivered_bytes", "Payload bytes that the host's CPU must copy"},
    {"tx_segments", "Segments that the host sent on this connection"},
    {"tx_bytes", "Payload bytes that the host sent on this connection"},
    {"refused", "Segments with a message that were not placed"},
    {"disorder_overflows", "Times that disorder was more than the context can note"},
    {"completed_messages", "Messages that the switch completed, not the host"},
};
static_assert(std::size(kQp) == NUPA_QP_STAT_COUNT);

std::string_view find(std::span<const Help> among, std::string_view name) noexcept {
    for (const Help& help : among)
        if (help.name == name)
            return help.text;
    return {};
}

}  // namespace

std::string_view port_counter_help(std::string_view name) noexcept { return find(kPort, name); }
std::string_view qp_counter_help(std::string_view name) noexcept { return find(kQp, name); }

}  // namespace nupa::ctl
