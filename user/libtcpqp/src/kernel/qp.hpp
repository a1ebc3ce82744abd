// SPDX-License-Identifier: BSD-3-Clause
// A verbs queue pair on the caller's socket.
#pragma once

#include <vector>

#include "kernel/cq.hpp"
#include "verbs/attach.hpp"
#include "verbs/qp.hpp"
#include "verbs/send_ring.hpp"

namespace tcpqp::module {

// The application's ids of posted work; completions come in order.
class Ids {
public:
    explicit Ids(uint32_t depth) : ids_(depth) {}
    [[nodiscard]] size_t room() const noexcept { return ids_.size() - (next_ - oldest_); }
    [[nodiscard]] uint32_t slot(size_t ahead) const noexcept {
        return static_cast<uint32_t>((next_ + ahead) % ids_.size());
    }
    void push(uint64_t id) noexcept { ids_[next_++ % ids_.size()] = id; }
    uint64_t pop(uint32_t slot) noexcept {
        oldest_++;
        return ids_[slot % ids_.size()];
    }

private:
    std::vector<uint64_t> ids_;
    uint64_t next_ = 0;
    uint64_t oldest_ = 0;
};

class Qp final : public tcpqp_qp {
public:
    // Throws std::system_error.
    Qp(Cq& cq, const QpRequest& request);
    ~Qp() override;

    // Gives it the socket.  0 or a negative errno, with the reason.
    int attach(const QpRequest& request, uint32_t engine, uint32_t& reason) noexcept;

    int post_send(std::span<const tcpqp_work> works) noexcept override;
    int post_recv(std::span<const tcpqp_work> works) noexcept override;
    int cancel() noexcept override;
    [[nodiscard]] bool ended() noexcept override;
    int query(tcpqp_qp_info& info) noexcept override;

    // The cq's lock is held.  Fills id and opcode: a failed work completion tells
    // no opcode, so our cookies do.
    void completed(const ibv_wc& wc, tcpqp_completion& out) noexcept;
    [[nodiscard]] uint32_t number() const noexcept { return qp_.get()->qp_num; }

private:
    Attached attach_in_time(const QpRequest& request, tcp_qp_attach_req r) noexcept;
    int post_first(std::span<const tcpqp_work> works) noexcept;
    // Number posted, no doorbell; lock held.
    int fill_receives(std::span<const tcpqp_work> works) noexcept;
    int fill_sends(std::span<const tcpqp_work> works) noexcept;
    // The doorbell for @posted of @works, or its error; lock held.
    int tell(std::span<const tcpqp_work> works, int posted) noexcept;

    Cq& cq_;
    QueuePair qp_;
    SendRing ring_;
    Ids sends_;
    Ids receives_;
    bool ended_ = false;
    uint32_t reason_ = TCPQP_REASON_NONE;
};

}  // namespace tcpqp::module
