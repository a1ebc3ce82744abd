// SPDX-License-Identifier: BSD-3-Clause
// Memory regions and queue pairs of a fake port: handmade page tables, a handmade
// rxe receive ring, and the kernel's shadow.
#pragma once

#include <rdma/ib_user_verbs.h>

#include "fake_port.hpp"
#include "frames.hpp"

namespace nupa::testing {

// Registered memory whose pages lie apart and backwards, so that a wrong page shows.
class FakeMr {
public:
    FakeMr(FakePort& port, uint32_t key, uint64_t iova, uint64_t bytes, uint32_t pd,
           uint32_t access);

    [[nodiscard]] Bytes read(uint64_t offset, size_t bytes) const;
    void fill(uint8_t value);
    [[nodiscard]] uint32_t key() const { return key_; }
    [[nodiscard]] uint64_t iova() const { return iova_; }
    void deregister();

private:
    [[nodiscard]] uint8_t* byte(uint64_t offset) const;

    FakePort& port_;
    uint32_t key_;
    uint64_t iova_;
    uint64_t bytes_;
    std::vector<uint64_t> pages_;
};

struct QpShape {
    uint32_t qpn = 17;
    uint32_t pd = 5;
    uint32_t flags = NUPA_QP_F_REMOTE_WRITE | NUPA_QP_F_SHADOW;
    uint32_t rq_entries = 64;
    uint32_t rq_base = 0;
    uint8_t wscale = 7;
    uint32_t cq = 0;   // with NUPA_QP_F_COMPLETE
    uint32_t srq = 0;  // with NUPA_QP_F_SRQ: nothing is posted to the queue pair itself
};

// A receive ring, as applications post to.
class FakeRing {
public:
    FakeRing(FakePort& port, uint32_t entries, uint32_t base);

    // A receive of one or more SGEs, which its application calls @wr_id.
    void post(const std::vector<std::pair<uint64_t, uint32_t>>& sges, uint32_t lkey,
              uint64_t wr_id = 0);
    [[nodiscard]] uint32_t consumed() const;  // ring index behind the last that was used
    [[nodiscard]] uint32_t mask() const { return mask_; }
    [[nodiscard]] uint32_t pages() const { return static_cast<uint32_t>(pages_.size()); }
    [[nodiscard]] uint64_t write_table() const;

private:
    FakePort& port_;
    uint32_t mask_;
    uint64_t ring_ = 0;
    uint32_t producer_;
    std::vector<uint64_t> pages_;
};

// A completion queue of one page, which the switch writes to.
class FakeCq {
public:
    FakeCq(FakePort& port, uint32_t id, uint32_t flags);

    // Somebody may sleep from now on: what a kernel says before it looks at the ring once more.
    void wait();
    [[nodiscard]] bool waiting() const;
    [[nodiscard]] uint32_t completions() const;  // as the application sees them
    [[nodiscard]] ib_uverbs_wc completion(uint32_t index) const;
    void poll();  // takes all of them
    nupa_admin_status destroy();

private:
    [[nodiscard]] nupa_cq_ctl& ctl() const { return *port_.at<nupa_cq_ctl>(ctl_); }

    FakePort& port_;
    uint32_t id_;
    uint64_t ring_ = 0, ctl_ = 0;
};

// A shared receive queue that the switch takes from.
class FakeSrq {
public:
    FakeSrq(FakePort& port, uint32_t id, uint32_t entries);

    FakeRing ring;
    [[nodiscard]] uint32_t index() const;  // as its kernel sees it
    void own(bool host);                   // the host takes receives, or nobody does
    nupa_admin_status destroy();

private:
    [[nodiscard]] nupa_srq_ctl& ctl() const { return *port_.at<nupa_srq_ctl>(ctl_); }

    FakePort& port_;
    uint32_t id_;
    uint64_t ctl_ = 0;
};

class FakeQp {
public:
    // @incoming: any frame as this port will receive it; its flow and seq count.
    FakeQp(FakePort& port, const TcpFrame& incoming, const QpShape& shape = {});

    // Posts a receive of one or more SGEs.
    void post(const std::vector<std::pair<uint64_t, uint32_t>>& sges, uint32_t lkey) {
        ring_.post(sges, lkey);
    }
    void complete(uint32_t messages);
    // From @seq on the switch may complete, with NUPA_QP_F_COMPLETE.
    void give_turn(uint32_t seq);
    void take_turn();
    void have_room();  // as the kernel says of both ends
    // All payload delivered before @seq was copied.
    void consume(uint32_t seq);  // as the kernel does: the shadow first
    nupa_admin_status destroy();
    [[nodiscard]] uint64_t stat(nupa_qp_stat which) const {
        return port_.qp_stats(shape_.qpn)[which];
    }
    // The command, for tests that spoil it.
    [[nodiscard]] static nupa_admin_cmd command(const TcpFrame& incoming, const QpShape& shape);

private:
    FakePort& port_;
    QpShape shape_;
    FakeRing ring_;
    uint64_t shadow_ = 0;
    uint32_t completed_ = 0;
};

// A message's segment (or whole burst) in ver 1.
TcpFrame send_message(TcpFrame base, uint16_t msn, Bytes payload, bool timestamps = true);
TcpFrame write_message(TcpFrame base, uint16_t msn, Bytes payload, uint64_t va, uint32_t rkey);
// A pure ACK from the receiver of @f back to its sender: advertises the window.
TcpFrame ack_of(const TcpFrame& f, uint32_t ack);

}  // namespace nupa::testing
