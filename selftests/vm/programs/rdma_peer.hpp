// SPDX-License-Identifier: BSD-3-Clause
// One end of an attached queue pair with a region that the peer may use.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "completion.hpp"
#include "memory.hpp"
#include "verbs/attach.hpp"
#include "verbs/context.hpp"
#include "verbs/cq.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace nupa::programs {

constexpr int kRemoteAll =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// What a side tells the other before it attaches.
struct Offer {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint32_t key = 0;
    uint32_t read_only_key = 0;  // the same memory, REMOTE_READ alone
    uint32_t stale_key = 0;      // was deregistered
    uint32_t foreign_key = 0;    // of another protection domain
};

class RdmaPeer {
public:
    struct Options {
        uint32_t engine = TCP_QP_ENGINE_AUTO;
        uint32_t wire_flags = 0;  // TCP_QP_ATTACH_F_WIRE_*
        size_t region_bytes = 1 << 20;
        int qp_access = kRemoteAll;
        Memory memory = Memory::kPages;  // of region and scratch
        uint8_t fill = 0;                // what the region holds before the peer can know of it
    };

    // Exchanges offers over @socket, attaches.  Throws.
    RdmaPeer(const tcpqp::Context& context, tcpqp::Fd socket, const Options& options);

    [[nodiscard]] std::span<uint8_t> region() const noexcept { return region_.bytes(); }
    [[nodiscard]] std::span<uint8_t> scratch() const noexcept { return scratch_.bytes(); }
    [[nodiscard]] uint32_t scratch_key() const noexcept { return scratch_mr_.lkey(); }
    [[nodiscard]] ibv_qp* qp() const noexcept { return qp_.get(); }
    [[nodiscard]] const Offer& peer() const noexcept { return peer_; }
    [[nodiscard]] const tcp_qp_attach_resp& attached() const noexcept { return attached_; }
    [[nodiscard]] tcp_qp_info info() const;

    // Throws if the request is refused at once.
    void post(ibv_send_wr& wr);
    void post_receive(uint64_t id, size_t at, uint32_t bytes);
    [[nodiscard]] ibv_wc wait(int limit_ms = kCompletionLimitMs) {
        return next_completion(cq_, limit_ms);
    }
    // The same, awake.
    [[nodiscard]] ibv_wc spin(int limit_ms = kCompletionLimitMs) {
        return spun_completion(cq_, limit_ms);
    }

private:
    void exchange_offers();
    void attach(const Options& options);

    const tcpqp::Context& context_;
    tcpqp::Fd socket_;
    Pages region_, scratch_;
    tcpqp::Mr region_mr_, read_only_mr_, scratch_mr_;
    tcpqp::Context foreign_;  // the same device opened again: another protection domain
    tcpqp::Mr foreign_mr_;
    uint32_t stale_key_ = 0;
    tcpqp::CompletionQueue cq_;
    tcpqp::QueuePair qp_;
    Offer peer_;
    tcp_qp_attach_resp attached_{};
};

// {"engine": ..., "delivered": ..., "placed": ..., "copied": ...}; throws if they do not add up.
[[nodiscard]] std::string counters_json(const RdmaPeer& peer);

}  // namespace nupa::programs
