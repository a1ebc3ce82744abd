// SPDX-License-Identifier: BSD-3-Clause
// Rings as a process sees them: mapped, remapped, filled with work requests that could be meant,
// and written over with what is not.
#include <rdma/rdma_user_rxe.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

// struct rxe_queue_buf, in bytes
constexpr size_t kProducerAt = 128, kConsumerAt = 256, kEntriesAt = 384;
// inline data or SGEs; in C++ a flexible array in a union has an offset of its own
constexpr size_t kPayloadAt =
    offsetof(rxe_send_wqe, dma) + offsetof(rxe_dma_info, reserved) + sizeof(uint32_t);
constexpr size_t kReceiveSgesAt =
    offsetof(rxe_recv_wqe, dma) + offsetof(rxe_dma_info, reserved) + sizeof(uint32_t);
constexpr uint32_t kStormTurns = 3000;
constexpr uint32_t kOpcodes[] = {0, 0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9};  // of IB_UVERBS_WR_*
constexpr uint32_t kBindWindow = 8;

uint32_t& word(uint8_t* at) { return *reinterpret_cast<uint32_t*>(at); }
uint32_t load(uint8_t* at) { return __atomic_load_n(&word(at), __ATOMIC_ACQUIRE); }
void store(uint8_t* at, uint32_t value) { __atomic_store_n(&word(at), value, __ATOMIC_RELEASE); }

// A ring that is mapped, and where.
struct Mapped {
    Ring ring;
    uint8_t* at;
};

template <typename Wanted>
std::optional<Mapped> find(Player& p, Wanted wanted) {
    const size_t first = p.place();
    for (size_t i = 0; i < p.world.rings.size(); i++) {
        const size_t at = (first + i) % p.world.rings.size();
        const auto ring = p.world.rings.look(at);
        if (ring && wanted(*ring))
            return Mapped{*ring, p.world.ring_space.slot(at)};
    }
    return std::nullopt;
}

std::optional<Mapped> mapped(Player& p, std::optional<RingKind> kind = std::nullopt) {
    return find(p, [&](const Ring& r) { return !kind || r.kind == *kind; });
}

std::optional<Mapped> mapped_of(Player& p, const QueuePair& qp, RingKind kind) {
    return find(
        p, [&](const Ring& r) { return r.kind == kind && r.fd == qp.fd && r.qp == qp.handle; });
}

rxe_sge piece(Player& p, int fd) {
    const auto r = p.pick(p.world.regions, fd);
    if (!r || p.dice.one_in(64))
        return {p.dice.wild(), static_cast<uint32_t>(p.dice.wild()),
                static_cast<uint32_t>(p.dice.wild())};
    const uint64_t offset = p.dice.one_in(2) ? 0 : p.dice.below(r->bytes);
    const uint64_t most = p.dice.one_in(32) ? UINT32_MAX : r->bytes - offset;
    const uint64_t wanted = p.dice.below(p.dice.one_in(4) ? 200000 : 5000);
    return {r->address + offset, static_cast<uint32_t>(std::min(wanted, most)), r->lkey};
}

void target(Player& p, rxe_send_wqe& w) {
    const auto r = p.pick(p.world.regions);
    const auto window = p.pick(p.world.windows);
    if (!r)
        return;
    if (w.wr.opcode == kBindWindow) {
        w.wr.wr.mw.addr = r->address;
        w.wr.wr.mw.length = p.dice.one_in(3) ? 0 : r->bytes;
        w.wr.wr.mw.mr_lkey = r->lkey;
        w.wr.wr.mw.mw_rkey = window ? window->key : 0;
        w.wr.wr.mw.rkey = w.wr.wr.mw.mw_rkey ^ p.dice.below(256);
        w.wr.wr.mw.access = p.dice.flags(6);
        return;
    }
    const uint32_t key = window && p.dice.one_in(4) ? window->key : r->rkey;
    const uint64_t address = r->address + (p.dice.one_in(2) ? 0 : p.dice.below(r->bytes));
    if (w.wr.opcode == 5 || w.wr.opcode == 6) {
        w.wr.wr.atomic.remote_addr = address & ~uint64_t{7};
        w.wr.wr.atomic.rkey = key;
        w.wr.wr.atomic.compare_add = p.dice.wild();
        return;
    }
    if (w.wr.opcode == 7 || w.wr.opcode == 9)
        w.wr.ex.invalidate_rkey = key;
    w.wr.wr.rdma.remote_addr = address;
    w.wr.wr.rdma.rkey = key;
}

void target_datagram(Player& p, rxe_send_wqe& w) {
    const auto qp = p.pick(p.world.qps);
    const auto handle = p.pick(p.world.handles);
    w.wr.opcode = p.dice.one_in(16) ? w.wr.opcode : 2 + p.dice.below(2);
    w.wr.wr.ud.remote_qpn = qp && !p.dice.one_in(8) ? qp->number : p.dice.below(1 << 25);
    w.wr.wr.ud.remote_qkey = p.dice.one_in(8) ? static_cast<uint32_t>(p.dice.wild()) : kQkey;
    w.wr.wr.ud.ah_num = handle && !p.dice.one_in(16) ? handle->number : p.dice.below(16);
}

void fill_send(Player& p, const Mapped& m, uint32_t index) {
    alignas(8) std::array<uint8_t, kPayloadAt + 4 * sizeof(rxe_sge)> room{};
    auto& w = *reinterpret_cast<rxe_send_wqe*>(room.data());
    w.wr.wr_id = p.dice.next();
    w.wr.opcode = p.dice.one_in(64) ? static_cast<uint32_t>(p.dice.wild()) : p.dice.of(kOpcodes);
    w.wr.send_flags = p.dice.one_in(4) ? p.dice.flags(6) : 2;
    w.wr.ex.imm_data = static_cast<uint32_t>(p.dice.next());
    m.ring.type == kDatagram ? target_datagram(p, w) : target(p, w);
    w.dma.num_sge = p.dice.one_in(8) ? p.dice.below(5) : 1;
    for (uint32_t i = 0; i < std::min(w.dma.num_sge, 4u); i++) {
        rxe_sge sge = piece(p, m.ring.fd);
        if (w.wr.opcode == 5 || w.wr.opcode == 6)
            sge.length = 8;
        w.dma.length += sge.length;
        std::memcpy(&room[kPayloadAt + i * sizeof sge], &sge, sizeof sge);
    }
    if (p.dice.one_in(32))
        w.dma.length = static_cast<uint32_t>(p.dice.wild());
    const size_t slot = size_t{1} << m.ring.log2_slot;
    std::memcpy(m.at + kEntriesAt + (index & m.ring.mask) * slot, room.data(),
                std::min(slot, room.size()));
}

void fill_receive(Player& p, const Mapped& m, uint32_t index) {
    alignas(8) std::array<uint8_t, kReceiveSgesAt + 2 * sizeof(rxe_sge)> room{};
    auto& w = *reinterpret_cast<rxe_recv_wqe*>(room.data());
    w.wr_id = p.dice.next();
    w.dma.num_sge = p.dice.one_in(8) ? p.dice.below(4) : 1;
    for (uint32_t i = 0; i < std::min(w.dma.num_sge, 2u); i++) {
        const rxe_sge sge = piece(p, m.ring.fd);
        w.dma.length += sge.length;
        std::memcpy(&room[kReceiveSgesAt + i * sizeof sge], &sge, sizeof sge);
    }
    const size_t slot = size_t{1} << m.ring.log2_slot;
    std::memcpy(m.at + kEntriesAt + (index & m.ring.mask) * slot, room.data(),
                std::min(slot, room.size()));
}

int post(Player& p, const Mapped& m) {
    p.note(m.ring.fd, m.ring.qp);
    const int fault = guarded([&] {
        const uint32_t producer = load(m.at + kProducerAt), consumer = load(m.at + kConsumerAt);
        uint32_t room = (consumer - producer - 1) & m.ring.mask;
        room = std::min(room, 1 + p.dice.below(p.dice.one_in(8) ? 64 : 4));
        for (uint32_t i = 0; i < room; i++)
            m.ring.kind == RingKind::kSend ? fill_send(p, m, producer + i)
                                           : fill_receive(p, m, producer + i);
        store(m.at + kProducerAt, (producer + room) & m.ring.mask);
    });
    return fault || p.dice.one_in(8) ? fault : doorbell(m.ring.fd, m.ring.qp);
}

int op_post(Player& p) {
    const RingKind kind = p.dice.one_in(3) ? RingKind::kReceive : RingKind::kSend;
    const auto qp = p.pick(p.world.qps);
    const auto m = qp && !p.dice.one_in(8) ? mapped_of(p, *qp, kind) : mapped(p, kind);
    return m ? post(p, *m) : kNothing;
}

// Takes completions, or says that it has.
int op_take(Player& p) {
    const auto m = mapped(p, RingKind::kCompletion);
    if (!m)
        return kNothing;
    return guarded([&] {
        store(m->at + kConsumerAt,
              p.dice.one_in(8) ? static_cast<uint32_t>(p.dice.wild()) : load(m->at + kProducerAt));
    });
}

int op_scribble(Player& p) {
    const auto m = mapped(p);
    if (!m)
        return kNothing;
    const auto r = p.pick(p.world.regions);
    return guarded([&] {
        for (uint32_t i = 0, n = 1 + p.dice.below(64); i < n; i++) {
            const uint32_t where = p.dice.below(8);
            const size_t at = where == 0   ? kProducerAt
                              : where == 1 ? kConsumerAt
                              : where == 2 ? p.dice.below(kEntriesAt / 4) * 4
                                           : p.dice.below(m->ring.bytes / 4) * 4;
            const uint32_t what = p.dice.below(4);
            store(m->at + at, what == 0 ? static_cast<uint32_t>(p.dice.wild())
                              : what == 1 && r
                                  ? (p.dice.one_in(2) ? r->lkey : static_cast<uint32_t>(r->address))
                                  : p.dice.below(64));
        }
    });
}

// Every entry is the same, cheap request, and the producer stays ahead while others ring.
int op_storm(Player& p) {
    const auto qp = p.pick(p.world.qps);
    const auto m = qp ? mapped_of(p, *qp, RingKind::kSend) : std::nullopt;
    if (!m)
        return kNothing;
    return guarded([&] {
        for (uint32_t i = 0; i <= std::min(m->ring.mask, 1023u); i++) {
            fill_send(p, *m, i);
            auto& w = *reinterpret_cast<rxe_send_wqe*>(m->at + kEntriesAt +
                                                       (size_t{i} << m->ring.log2_slot));
            w.wr.opcode = kBindWindow;
            target(p, w);
            w.wr.wr.mw.length = 0;
            w.wr.send_flags = 0;
        }
        for (uint32_t i = 0; i < kStormTurns; i++) {
            store(m->at + kProducerAt, (load(m->at + kConsumerAt) - 1) & m->ring.mask);
            if (i % 256 == 0)
                (void)doorbell(m->ring.fd, m->ring.qp);
        }
    });
}

// What the kernel says of a mapping that it once gave.
int op_remap(Player& p) {
    const size_t at = p.dice.below(p.world.ring_space.slots());
    uint8_t* where = p.world.ring_space.slot(at);
    const size_t bytes = 4096u << p.dice.below(4);
    p.note(static_cast<int64_t>(at), static_cast<int64_t>(bytes));
    static constexpr int kAdvice[] = {MADV_DONTNEED, MADV_FREE,     MADV_REMOVE,
                                      MADV_DONTFORK, MADV_DOFORK,   MADV_PAGEOUT,
                                      MADV_COLD,     MADV_HUGEPAGE, MADV_MERGEABLE};
    switch (p.dice.below(6)) {
        case 0:
            return result(madvise(where, bytes, p.dice.of(kAdvice)));
        case 1:
            return result(mprotect(where, bytes, static_cast<int>(p.dice.below(8))));
        case 2: {  // over another one
            uint8_t* to = p.world.ring_space.slot(p.dice.below(p.world.ring_space.slots()));
            return map_at(p, to, bytes, [&] {
                return mremap(where, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                              to);
            });
        }
        case 3:
            return mremap(where, bytes, bytes * 2, 0) == MAP_FAILED ? errno : 0;
        case 4:
            return result(mlock(where, bytes));
        default:  // unmapped, but the address stays ours
            (void)p.world.rings.take(at);
            return map_at(p, where, p.world.ring_space.slot_bytes(), [&] {
                return mmap(where, p.world.ring_space.slot_bytes(), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            });
    }
}

// An offset that nobody gave us.
int op_map_any(Player& p) {
    const auto c = p.pick(p.world.contexts);
    if (!c)
        return kNothing;
    const size_t at = p.dice.below(p.world.ring_space.slots());
    const uint64_t offset =
        p.dice.one_in(4) ? p.dice.wild() & ~uint64_t{4095} : uint64_t{4096} * p.dice.below(256);
    const size_t bytes =
        p.dice.one_in(8) ? p.world.ring_space.slot_bytes() : 4096u << p.dice.below(4);
    p.note(c->fd, static_cast<int64_t>(offset), static_cast<int64_t>(bytes));
    const int kind = p.dice.one_in(4) ? MAP_PRIVATE : MAP_SHARED;
    uint8_t* where = p.world.ring_space.slot(at);
    const int rights = static_cast<int>(p.dice.below(8));
    return map_at(p, where, bytes, [&] {
        return mmap(where, bytes, rights, kind | MAP_FIXED, c->fd, static_cast<off_t>(offset));
    });
}

constexpr Op kOps[] = {
    {"ring_post", 60, op_post},  {"ring_take", 12, op_take},  {"ring_scribble", 8, op_scribble},
    {"ring_storm", 1, op_storm}, {"ring_remap", 2, op_remap}, {"ring_map_any", 1, op_map_any},
};

}  // namespace

void map_ring(Player& p, Ring ring) {
    Arena& space = p.world.ring_space;
    if (!ring.bytes || ring.bytes > space.slot_bytes() || p.dice.one_in(16))
        return;
    const size_t at = p.dice.below(space.slots());
    if (map_at(p, space.slot(at), ring.bytes, [&] {
            return mmap(space.slot(at), ring.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        ring.fd, static_cast<off_t>(ring.offset));
        }))
        return;
    std::optional<Ring> kept;
    if (!guarded([&] {
            ring.log2_slot = std::min(load(space.slot(at)), 12u);
            ring.mask = load(space.slot(at) + 4);
        }) &&
        kEntriesAt + ((uint64_t{ring.mask} + 1) << ring.log2_slot) <= ring.bytes)
        kept = ring;
    p.world.rings.put(at, kept);
}

int post_to(Player& p, const QueuePair& qp, RingKind kind) {
    const auto m = mapped_of(p, qp, kind);
    return m ? post(p, *m) : kNothing;
}

std::span<const Op> ring_ops() { return kOps; }

}  // namespace nupa::fuzz
