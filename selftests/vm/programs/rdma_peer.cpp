// SPDX-License-Identifier: BSD-3-Clause
#include "rdma_peer.hpp"

#include <sys/socket.h>

#include <fmt/core.h>
#include <algorithm>
#include <stdexcept>

namespace nupa::programs {
namespace {

constexpr uint32_t kDepth = 64;
constexpr uint32_t kSges = 4;
constexpr size_t kScratchBytes = 4 << 20;

uint32_t key_of_the_past(const tcpqp::Context& context, const Pages& memory) {
    return memory.registered(context, IBV_ACCESS_LOCAL_WRITE | kRemoteAll).lkey();
}

}  // namespace

RdmaPeer::RdmaPeer(const tcpqp::Context& context, tcpqp::Fd socket, const Options& options)
    : context_(context),
      socket_(std::move(socket)),
      region_(options.region_bytes, options.memory),
      scratch_(kScratchBytes, options.memory),
      region_mr_(region_.registered(context, IBV_ACCESS_LOCAL_WRITE | kRemoteAll)),
      read_only_mr_(region_.registered(context, IBV_ACCESS_REMOTE_READ)),
      scratch_mr_(scratch_.registered(context, IBV_ACCESS_LOCAL_WRITE)),
      foreign_(context.get()->device),
      foreign_mr_(region_.registered(foreign_, IBV_ACCESS_LOCAL_WRITE | kRemoteAll)),
      stale_key_(key_of_the_past(context, region_)),
      cq_(context, 4 * kDepth),
      qp_(context, cq_,
          {.sends = kDepth, .receives = kDepth, .sges = kSges, .access = options.qp_access}) {
    std::ranges::fill(region_.bytes(), options.fill);
    exchange_offers();
    attach(options);
}

void RdmaPeer::exchange_offers() {
    const Offer mine{reinterpret_cast<uint64_t>(region_.bytes().data()),
                     region_.bytes().size(),
                     region_mr_.lkey(),
                     read_only_mr_.lkey(),
                     stale_key_,
                     foreign_mr_.lkey()};
    if (send(socket_.get(), &mine, sizeof mine, 0) != sizeof mine ||
        recv(socket_.get(), &peer_, sizeof peer_, MSG_WAITALL) != sizeof peer_)
        tcpqp::throw_errno("exchange offers");
}

void RdmaPeer::attach(const Options& options) {
    const tcpqp::Attached result = tcpqp::attach(context_, qp_, socket_.get(),
                                                 {.engine = options.engine,
                                                  .flags = options.wire_flags,
                                                  .timeout_ms = 10000,
                                                  .reserved = 0});
    if (result.error)
        throw std::runtime_error(fmt::format("attach: error {}, reason {}", result.error,
                                             tcpqp::reason_name(result.response.reason)));
    attached_ = result.response;
}

tcp_qp_info RdmaPeer::info() const {
    tcp_qp_info info{};
    if (int error = tcpqp::query(context_, qp_, info); error != 0)
        tcpqp::throw_errno("query the queue pair", error);
    return info;
}

void RdmaPeer::post(ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    if (int error = ibv_post_send(qp_.get(), &wr, &bad); error != 0)
        tcpqp::throw_errno("post a send", error);
}

void RdmaPeer::post_receive(uint64_t id, size_t at, uint32_t bytes) {
    const tcpqp::Work work{id, scratch_.bytes().data() + at, bytes, scratch_mr_.lkey(), 0};
    if (int error = qp_.post_receives({&work, 1}); error != 0)
        tcpqp::throw_errno("post a receive", error);
    if (int error = qp_.ring_doorbell(); error != 0)
        tcpqp::throw_errno("ring the doorbell", error);
}

std::string counters_json(const RdmaPeer& peer) {
    const tcp_qp_info i = peer.info();
    if (i.rx_placed_bytes + i.rx_copied_bytes != i.rx_delivered_bytes)
        throw std::runtime_error("placed + copied != delivered");
    return fmt::format(
        R"({{"engine": {}, "wire": {}, "delivered": {}, "placed": {}, "copied": {}, "sent": {}, "tx_segments": {}}})",
        i.engine, i.wire_version, i.rx_delivered_bytes, i.rx_placed_bytes, i.rx_copied_bytes,
        i.tx_bytes, i.tx_segments);
}

}  // namespace nupa::programs
