// SPDX-License-Identifier: BSD-3-Clause
// A host without a kernel: plugs into a switch port as QEMU's ivshmem device
// would, owns "guest RAM", and drives the rings of nupa_hw.h from a test.
//
// Every wait has the time limit kWaitMs and throws std::runtime_error past it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ivshmem_peer.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::testing {

inline constexpr uint64_t kPageBytes = 4096;

using Bytes = std::vector<uint8_t>;

struct TxOptions {
    uint16_t flags = 0;  // NUPA_TX_F_*
    uint16_t mss = 0;
    uint16_t header_bytes = 0;
    uint16_t csum_start = 0;
    uint16_t csum_offset = 0;
    size_t split_at = 0;   // header buffer's bytes; 0: one buffer
    size_t buf_bytes = 0;  // payload is cut in buffers of this size; 0: one buffer
};

struct RxPacket {
    nupa_rx_comp comp{};
    Bytes header;   // of the slot
    Bytes payload;  // of the fill buffers; empty when placed

    [[nodiscard]] Bytes whole() const {
        Bytes all = header;
        all.insert(all.end(), payload.begin(), payload.end());
        return all;
    }
};

struct QueueShape {
    uint32_t tx_entries = 1024;
    uint32_t fill_entries = 512;
    uint32_t comp_entries = 512;
    uint32_t buf_bytes = 4096;
    uint32_t flags = 0;  // NUPA_RXQ_F_*
    uint32_t long_entries = 0;
    uint32_t long_buf_bytes = 0;
    uint32_t longs = 0;  // long buffers that the switch is given at a time; 0: as many as entries
    uint32_t tx_flags = 0;  // NUPA_TXQ_F_*
};

class FakePort {
public:
    // Creates the memory file @ram of @ram_bytes and connects to @socket.
    FakePort(const std::string& socket, const std::string& ram, uint64_t ram_bytes);
    FakePort(const FakePort&) = delete;
    FakePort& operator=(const FakePort&) = delete;
    ~FakePort();

    // Guest RAM.  alloc() never gives memory back.
    uint64_t alloc(uint64_t bytes, uint64_t align = kPageBytes);
    void set_alloc_at(uint64_t gpa) { next_gpa_ = gpa; }
    uint8_t* ram(uint64_t gpa) const;
    template <class T>
    T* at(uint64_t gpa) const {
        return reinterpret_cast<T*>(ram(gpa));
    }

    // BAR2 and doorbells, for tests that break the rules.
    nupa_regs* regs() const { return reinterpret_cast<nupa_regs*>(bar2_); }
    nupa_admin_ctl* admin_ctl() const {
        return reinterpret_cast<nupa_admin_ctl*>(bar2_ + NUPA_BAR2_ADMIN_AT);
    }
    nupa_ring_ctl* txq(unsigned q) const {
        return reinterpret_cast<nupa_ring_ctl*>(bar2_ + NUPA_BAR2_TXQ_AT) + q;
    }
    nupa_rxq_ctl* rxq(unsigned q) const {
        return reinterpret_cast<nupa_rxq_ctl*>(bar2_ + NUPA_BAR2_RXQ_AT) + q;
    }
    void ring_doorbell(unsigned vector);
    [[nodiscard]] int interrupt_fd(unsigned vector) const { return interrupts_[vector]; }
    // Interrupts taken on @vector since the last call.
    uint64_t take_interrupts(unsigned vector);

    // Life cycle.
    void enable();
    void disable();
    void wait_until(const std::function<bool()>& done, unsigned vector, const char* what);
    [[nodiscard]] uint32_t status() const;

    // Admin.
    nupa_admin_comp admin(const nupa_admin_cmd& cmd);
    nupa_admin_status admin_status(const nupa_admin_cmd& cmd);
    void must(const nupa_admin_cmd& cmd);  // throws unless NUPA_OK
    void create_queues(unsigned q, const QueueShape& shape = {});
    void set_rx_mode(uint32_t flags, const std::array<uint8_t, 6>& mac, uint32_t mtu = 1500,
                     uint16_t hold_us = 0, uint32_t run4_max_bytes = 0);
    std::vector<uint64_t> stats();
    std::vector<uint64_t> qp_stats(uint32_t qpn);

    // Data.
    void send(unsigned q, const Bytes& frame, const TxOptions& options = {});
    void stage(unsigned q, const Bytes& frame,
               const TxOptions& options = {});  // send without prod and doorbell
    void publish(unsigned q);
    void wait_sent(unsigned q);
    // The next packet of queue @q; throws when none comes in kWaitMs.
    RxPacket receive(unsigned q);
    std::optional<RxPacket> try_receive(unsigned q);
    void refill(unsigned q, uint32_t count);
    void refill_long(unsigned q, uint32_t count);

    std::array<uint8_t, 6> mac() const;

    struct TxRing {
        uint64_t ring = 0;
        uint32_t entries = 0;
        uint32_t prod = 0;  // staged
        uint32_t published = 0;
    };
    struct Fill {
        uint64_t ring = 0, bufs = 0;
        uint32_t entries = 0, buf_bytes = 0;
        uint32_t prod = 0, next = 0;
    };
    struct RxRing {
        uint64_t comps = 0, slots = 0;
        uint32_t comp_entries = 0, comp_cons = 0;
        Fill fill, longs;
    };
    TxRing& tx(unsigned q) { return tx_[q]; }
    RxRing& rx(unsigned q) { return rx_[q]; }
    void disconnect();

private:
    std::vector<uint64_t> stats(uint16_t op, uint32_t id, uint32_t count);
    Fill make_fill(uint32_t entries, uint32_t buf_bytes);
    void put_buffers(Fill& fill, uint32_t count, uint32_t& shown);
    void take_buffers(Fill& fill, uint32_t count, size_t& left, Bytes& payload);
    void handshake(const std::string& socket);
    void map_ram(const std::string& ram, uint64_t bytes);

    int socket_ = -1;
    int ram_fd_ = -1;
    uint8_t* ram_ = nullptr;
    uint64_t ram_bytes_ = 0;
    uint64_t next_gpa_ = kPageBytes;
    uint8_t* bar2_ = nullptr;
    std::array<int, NUPA_VECTORS> doorbells_{};
    std::array<int, NUPA_VECTORS> interrupts_{};
    uint64_t admin_ring_ = 0, admin_comps_ = 0;
    uint32_t admin_prod_ = 0;
    std::array<TxRing, NUPA_QUEUE_PAIRS_MAX> tx_{};
    std::array<RxRing, NUPA_QUEUE_PAIRS_MAX> rx_{};
    std::string ram_path_;
};

}  // namespace nupa::testing
