// SPDX-License-Identifier: BSD-3-Clause
// What the placement engine may write, said once more and in another way: a
// mirror of guest memory that changes only as the rules allow.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <tcp_qp/nupa_hw.h>
#include <tcp_qp/tcp_bth_mixed.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/host_memory.hpp"
#include "engine/placement.hpp"
#include "frame.hpp"

namespace fuzz {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kLowPages = 16, kHighPages = 4;  // two regions, as q35 has
inline constexpr std::uint64_t kHighAt = std::uint64_t{1} << 32;
inline constexpr std::uint32_t kReach = 1u << 25;  // sequence numbers chosen around a flow's start

// Guest memory twice: the engine writes one, the model the other.
class Memory {
public:
    Memory();
    const nupa::HostMemory& host() const { return host_; }
    void reset();  // after check()
    // Both copies.  Ignored outside.
    void write(std::uint64_t addr, std::span<const std::uint8_t> bytes);
    template <class T>
    void put(std::uint64_t addr, T v) {
        write(addr, {reinterpret_cast<const std::uint8_t*>(&v), sizeof v});
    }
    // The mirror's byte; null outside guest memory.
    const std::uint8_t* mirror(std::uint64_t addr) const;
    // The mirror alone, as a rule allows; false outside guest memory.
    bool allow(std::uint64_t addr, std::uint8_t byte);
    template <class T>
    T read(std::uint64_t addr) {
        T v{};
        for (std::size_t i = 0; i < sizeof v; i++) {
            const std::uint8_t* p = mirror(addr + i);
            require(p, "the engine read outside guest memory");
            reinterpret_cast<std::uint8_t*>(&v)[i] = *p;
        }
        return v;
    }
    void check_touched();  // equal in the pages written since the last call?
    void check() const;    // equal everywhere?

private:
    struct Region {
        std::uint64_t addr, bytes;
        std::unique_ptr<std::uint8_t[], decltype(&std::free)> real, mirror;
        unsigned first_page;  // its bit in the sets
        bool contains(std::uint64_t a) const { return a >= addr && a - addr < bytes; }
    };
    using Pages = std::uint32_t;  // a set
    static_assert(kLowPages + kHighPages <= 32);
    void touch(const Region& r, std::uint64_t from, std::size_t bytes);
    template <class Visit>
    void each(Pages pages, Visit visit) const;

    std::vector<Region> regions_;
    Pages touched_ = 0, dirty_ = ~Pages{0};  // since check_touched(), since reset()
    nupa::HostMemory host_;
};

struct ModelMr {
    nupa_cmd_mr cmd;
    std::vector<std::uint64_t> pages;
    // Guest address of byte @addr of the region.
    std::uint64_t at(std::uint64_t addr) const;
};

// A ring of its application's, which its host and the switch both move: of completions or of
// receives that are shared.
struct ModelQueue {
    std::uint64_t ctl;
    std::uint32_t mask;
    std::uint32_t flags;  // of a completion queue
    std::uint32_t sge_max, log2_bytes;
    std::vector<std::uint64_t> pages;
};

struct ModelQp {
    nupa_cmd_qp cmd;
    unsigned flow = 0;
    std::uint32_t qpn = 0;
    std::vector<std::uint64_t> rq_pages;
    bool has_tsval = false;
    std::uint32_t tsval = 0;  // of what was completed last
    // Sequence numbers relative to rcv_nxt - kReach; no bounds are checked once
    // a sequence number from anywhere was used, since then they may wrap.
    bool anywhere = false;
    std::uint64_t acked = kReach;                   // by the host
    std::uint64_t edge = kReach;                    // right edge, or beyond by what was passed up
    std::map<std::uint64_t, std::uint64_t> placed;  // begin to end
    // LENGTHS and TARGETS that went up to the host, by what they announced.
    struct Announced {
        std::uint32_t start;
        std::uint16_t msn;
        bool writes;
        std::vector<std::uint8_t> table;
    };
    std::vector<Announced> announced;

    std::uint64_t relative(std::uint32_t seq) const { return seq - cmd.rcv_nxt + kReach; }
};

class Model {
public:
    explicit Model(Memory& memory) : memory_(memory) {}
    void reset() { mrs.clear(), qps.clear(), cqs.clear(), srqs.clear(); }

    void registered(std::uint32_t key, const nupa_cmd_mr& cmd);
    void created(std::uint32_t qpn, unsigned flow, const nupa_cmd_qp& cmd);
    void created(std::uint32_t id, const nupa_cmd_cq& cmd);
    void created(std::uint32_t id, const nupa_cmd_srq& cmd);
    // May it go?  Not while a QP names it.
    bool cq_destroyed(std::uint32_t id);
    bool srq_destroyed(std::uint32_t id);
    ModelQp* find(unsigned flow);
    // The host sent this: moves what may still be placed.
    void host_sent(ModelQp& qp, const Frame& f);
    // The engine's answer for @f, whose payload is @payload; writes the mirror.
    void received(ModelQp& qp, const nupa::Packet& packet, const nupa::Decision& d);

    std::map<std::uint32_t, ModelMr> mrs;
    std::map<std::uint32_t, ModelQp> qps;
    std::map<std::uint32_t, ModelQueue> cqs, srqs;

private:
    using Pieces = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // MR address, bytes
    struct Piece {
        std::uint32_t key;
        std::uint64_t addr;
        std::span<const std::uint8_t> bytes;
    };
    void announced(ModelQp& qp, const tcp_bth& b, std::uint32_t seq, const nupa::Packet& packet);
    // One message of a mixed train.
    struct Mixed {
        std::uint32_t length, key;  // WRITEs only: key and address
        std::uint64_t va;
    };
    static std::vector<Mixed> read(const ModelQp::Announced& a, const tcp_bth& b);
    static std::vector<Mixed> table(const ModelQp& qp, const tcp_bth& b);
    void mixed(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left,
               std::vector<Piece>& pieces);
    void write_mixed(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left);
    void train(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left,
               std::vector<Piece>& pieces);
    void receive(const ModelQp& qp, std::uint16_t msn, std::uint64_t skip,
                 std::span<const std::uint8_t> left, std::vector<Piece>& pieces);
    void pieces_of(const std::vector<std::uint64_t>& ring, std::uint64_t wqe, std::uint32_t sge_max,
                   std::uint64_t skip, std::span<const std::uint8_t> left,
                   std::vector<Piece>& pieces);
    void untagged(const ModelQp& qp, const tcp_bth& b, const std::vector<std::uint8_t>& payload);
    void write_train(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left);
    void tagged(const ModelQp& qp, const tcp_bth& b, const std::vector<std::uint8_t>& payload);
    void write(const ModelQp& qp, std::uint32_t key, std::uint32_t access, std::uint64_t addr,
               std::span<const std::uint8_t> bytes);
    void sequence(ModelQp& qp, std::uint32_t seq, std::uint32_t bytes);
    std::uint32_t ring32(const std::vector<std::uint64_t>& ring, std::uint64_t offset);

    // ---- completions (completion_model.cpp) ----
    // Whole messages of one segment.
    struct Whole {
        std::uint32_t count = 0, length = 0;
        std::uint16_t msn = 0;
        bool takes_receives = false;
    };
    static Whole whole(const tcp_bth& b, std::uint32_t bytes);
    std::vector<std::uint64_t> pages_at(std::uint64_t table, std::uint32_t pages);
    const ModelQueue* srq_of(const ModelQp& qp) const;
    std::uint64_t field(const ModelQp& qp, std::size_t offset) const {
        return qp.cmd.shadow_addr + offset;
    }
    template <class T>
    void allow(std::uint64_t addr, T v) {
        for (std::size_t i = 0; i < sizeof v; i++)
            require(memory_.allow(addr + i, reinterpret_cast<const std::uint8_t*>(&v)[i]),
                    "inside guest memory");
    }
    void allow32(const std::vector<std::uint64_t>& ring, std::uint64_t offset, std::uint32_t v) {
        allow(ring.at(offset / kPageBytes) + offset % kPageBytes, v);
    }
    // A segment that is completed: the turn, then the queues, then what the host sees of it.
    void take_turn(const ModelQp& qp, const tcp_bth& b, std::uint32_t seq, const Whole& all);
    void take(const ModelQp& qp, const Whole& all);
    void shared(const ModelQp& qp, const Whole& all, std::span<const std::uint8_t> left,
                std::vector<Piece>& pieces);
    void tell(const ModelQp& qp, const tcp_bth& b, const Whole& all);
    void give_turn(ModelQp& qp, const tcp_bth& b, std::uint32_t done, const Whole& all);
    void completed(ModelQp& qp, const tcp_bth& b, std::uint32_t seq, std::uint32_t bytes,
                   bool begun);
    bool own(const ModelQueue& queue);
    std::uint32_t room(const ModelQueue& cq);
    void put(const ModelQueue& cq, std::uint32_t place, const ib_uverbs_wc& wc);
    void give(const ModelQueue& cq, std::uint32_t count);
    nupa_qp_send send_at(const ModelQp& qp, std::uint32_t number);
    // How many.
    std::uint32_t sends(const ModelQp& qp, std::uint32_t ack);
    std::uint32_t sends_before(const ModelQp& qp, std::uint32_t ack);
    void woken(const ModelQp& qp, const nupa::Decision& d);

    Memory& memory_;
};

}  // namespace fuzz
