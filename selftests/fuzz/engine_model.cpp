// SPDX-License-Identifier: BSD-3-Clause
#include <tcp_qp/tcp_bth_option.h>

#include "engine_model.hpp"

#include "engine/packet.hpp"

namespace fuzz {

Memory::Memory() {
    for (const auto& [addr, pages] :
         {std::pair{std::uint64_t{0}, kLowPages}, {kHighAt, kHighPages}}) {
        const std::uint64_t bytes = pages * kPageBytes;
        auto make = [bytes] {
            auto* p = static_cast<std::uint8_t*>(std::aligned_alloc(kPageBytes, bytes));
            return std::unique_ptr<std::uint8_t[], decltype(&std::free)>(p, &std::free);
        };
        regions_.push_back({addr, bytes, make(), make(), addr ? unsigned{kLowPages} : 0u});
        require(host_.add(addr, {reinterpret_cast<std::byte*>(regions_.back().real.get()), bytes}),
                "guest memory");
    }
    reset();
}

template <class Visit>
void Memory::each(Pages pages, Visit visit) const {
    for (const Region& r : regions_)
        for (std::uint64_t at = 0; at < r.bytes; at += kPageBytes)
            if (pages >> (r.first_page + at / kPageBytes) & 1)
                visit(r.real.get() + at, r.mirror.get() + at);
}

// What no one touched is zero: check() found both alike.
void Memory::reset() {
    each(dirty_, [](std::uint8_t* real, std::uint8_t* mirror) {
        std::memset(real, 0, kPageBytes);
        std::memset(mirror, 0, kPageBytes);
    });
    touched_ = dirty_ = 0;
}

void Memory::touch(const Region& r, std::uint64_t from, std::size_t bytes) {
    for (std::uint64_t page = from / kPageBytes; page <= (from + bytes - 1) / kPageBytes; page++)
        touched_ |= Pages{1} << (r.first_page + page);
    dirty_ |= touched_;
}

void Memory::write(std::uint64_t addr, std::span<const std::uint8_t> bytes) {
    for (Region& r : regions_) {
        if (bytes.empty() || !r.contains(addr))
            continue;
        const std::size_t n = std::min<std::size_t>(bytes.size(), r.bytes - (addr - r.addr));
        std::memcpy(r.real.get() + (addr - r.addr), bytes.data(), n);
        std::memcpy(r.mirror.get() + (addr - r.addr), bytes.data(), n);
        touch(r, addr - r.addr, n);
    }
}

const std::uint8_t* Memory::mirror(std::uint64_t addr) const {
    for (const Region& r : regions_)
        if (r.contains(addr))
            return r.mirror.get() + (addr - r.addr);
    return nullptr;
}

bool Memory::allow(std::uint64_t addr, std::uint8_t byte) {
    for (Region& r : regions_) {
        if (!r.contains(addr))
            continue;
        r.mirror[addr - r.addr] = byte;
        touch(r, addr - r.addr, 1);
        return true;
    }
    return false;
}

void Memory::check_touched() {
    each(touched_, [](const std::uint8_t* real, const std::uint8_t* mirror) {
        require(std::memcmp(real, mirror, kPageBytes) == 0, "guest memory is what the rules allow");
    });
    touched_ = 0;
}

void Memory::check() const {
    for (const Region& r : regions_)
        require(std::memcmp(r.real.get(), r.mirror.get(), r.bytes) == 0,
                "guest memory is what the rules allow");
}

std::uint64_t ModelMr::at(std::uint64_t addr) const {
    const std::uint64_t page = (addr >> cmd.page_shift) - (cmd.iova >> cmd.page_shift);
    return pages.at(page) + (addr & ((std::uint64_t{1} << cmd.page_shift) - 1));
}

void Model::registered(std::uint32_t key, const nupa_cmd_mr& cmd) {
    ModelMr mr{cmd, {}};
    for (std::uint64_t i = 0; i < cmd.pages; i++)
        mr.pages.push_back(memory_.read<std::uint64_t>(cmd.table_addr + 8 * i));
    require(mrs.emplace(key, mr).second, "a key is registered once");
    require(memory_.mirror(mr.at(cmd.iova)) && memory_.mirror(mr.at(cmd.iova + cmd.bytes - 1)),
            "a region lies in guest memory");
}

void Model::created(std::uint32_t qpn, unsigned flow, const nupa_cmd_qp& cmd) {
    ModelQp qp{};
    qp.cmd = cmd;
    qp.flow = flow;
    qp.qpn = qpn;
    for (std::uint64_t i = 0; i < cmd.rq_pages && !(cmd.flags & NUPA_QP_F_NO_RQ); i++)
        qp.rq_pages.push_back(memory_.read<std::uint64_t>(cmd.rq_table_addr + 8 * i));
    require(qps.emplace(qpn, qp).second, "a QP number is used once");
}

ModelQp* Model::find(unsigned flow) {
    const nupa_flow wanted = flow_of(flow);
    for (auto& [qpn, qp] : qps)
        if (std::memcmp(&qp.cmd.flow, &wanted, sizeof wanted) == 0)
            return &qp;
    return nullptr;
}

void Model::host_sent(ModelQp& qp, const Frame& f) {
    if ((f.flags & 0x16) != 0x10 || f.fragment)  // an ACK without SYN and RST
        return;
    const std::uint64_t ack = qp.relative(f.ack);
    if (ack > 4 * std::uint64_t{kReach})
        qp.anywhere = true;
    qp.acked = std::max(qp.acked, ack);
    qp.edge = std::max(qp.edge, ack + (std::uint64_t{f.window} << qp.cmd.rcv_wscale));
}

void Model::sequence(ModelQp& qp, std::uint32_t seq, std::uint32_t bytes) {
    const std::uint64_t begin = qp.relative(seq), end = begin + bytes;
    require(begin >= qp.acked, "nothing below what the host acknowledged is placed");
    require(begin >= kReach, "nothing before rcv_nxt is placed");
    require(end <= qp.edge, "nothing beyond the window is placed");
    const auto after = qp.placed.lower_bound(begin);
    require(after == qp.placed.end() || after->first >= end, "placed once");
    require(after == qp.placed.begin() || std::prev(after)->second <= begin, "placed once");
    qp.placed[begin] = end;
}

void Model::received(ModelQp& qp, const nupa::Packet& packet, const nupa::Decision& d) {
    const std::uint32_t seq = packet.at.seq, bytes = packet.payload.bytes();
    const std::uint64_t begin = qp.relative(seq);
    if (begin > 4 * std::uint64_t{kReach})
        qp.anywhere = true;
    if (d.reason == nupa::Reason::kPlacedBefore)  // and so nothing may change now
        require(
            d.has_bth && tcp_bth_is_write(d.bth.opcode) && qp.cmd.flags & NUPA_QP_F_REMOTE_WRITE,
            "only a WRITE is in memory before a later one");
    if (d.reason == nupa::Reason::kOpcode && d.has_bth &&
        tcp_bth_op(d.bth.opcode)->kind == TCP_BTH_KIND_LENGTHS)
        announced(qp, d.bth, seq, packet);
    if (d.reason == nupa::Reason::kPlaced) {
        require(bytes > 0 && !packet.at.fragment && packet.at.tcp(), "a whole data segment");
        require(!(packet.at.tcp_flags & 0x27), "no SYN, FIN, RST or URG");
        require(!packet.at.ip_csum_bad && packet.csum != nupa::Csum::kBad &&
                    packet.csum != nupa::Csum::kUnknown && packet.csum != nupa::Csum::kNone,
                "verified first");
        tcp_bth b;
        require(tcp_bth_find(packet.header.data() + packet.at.options_at, packet.at.option_bytes(),
                             seq, bytes, &b, nullptr) == TCP_BTH_OK,
                "its option parses");
        std::vector<std::uint8_t> payload(bytes);
        packet.payload.copy_to(reinterpret_cast<std::byte*>(payload.data()));
        if (!qp.anywhere)
            sequence(qp, seq, bytes);
        const bool shares = tcp_bth_is_send(b.opcode) && srq_of(qp);
        require(!shares || d.completed, "what takes a shared receive is completed");
        if (shares)
            take_turn(qp, b, seq, whole(b, bytes));
        if (tcp_bth_is_send(b.opcode))
            untagged(qp, b, payload);
        else
            tagged(qp, b, payload);
        if (d.completed) {
            require(d.completed == whole(b, bytes).count, "all messages of the segment");
            completed(qp, b, seq, bytes, shares);
            require(sends(qp, packet.at.ack) == d.sends, "what it acknowledges");
            woken(qp, d);
        }
    } else {
        require(!d.completed, "only what is placed is completed");
        require(!d.sends || (!bytes && !(packet.at.tcp_flags & 7) && packet.at.tcp_flags & 0x10),
                "acknowledged alone");
        if (d.sends)
            require(sends(qp, packet.at.ack) == d.sends, "what it acknowledges");
    }
    if (begin + bytes <= 4 * std::uint64_t{kReach})
        qp.edge = std::max(qp.edge, begin + bytes);
}

std::uint32_t Model::ring32(const std::vector<std::uint64_t>& ring, std::uint64_t offset) {
    std::uint32_t v = 0;
    for (std::uint64_t i = 0; i < 4; i++) {
        const std::uint64_t at = offset + i;
        const std::uint8_t* p = memory_.mirror(ring.at(at / kPageBytes) + at % kPageBytes);
        require(p, "the ring lies in guest memory");
        v |= std::uint32_t{*p} << (8 * i);
    }
    return v;
}

void Model::untagged(const ModelQp& qp, const tcp_bth& b,
                     const std::vector<std::uint8_t>& payload) {
    std::vector<Piece> pieces;
    if (srq_of(qp))
        shared(qp, whole(b, static_cast<std::uint32_t>(payload.size())), payload, pieces);
    else if (b.opcode == TCP_BTH_OP_MIXED_TRAIN)
        mixed(qp, b, payload, pieces);
    else if (b.opcode == TCP_BTH_OP_SEND_TRAIN)
        train(qp, b, payload, pieces);
    else
        receive(qp, b.msn, b.mbo, payload, pieces);
    for (const Piece& p : pieces)
        write(qp, p.key, NUPA_ACCESS_LOCAL_WRITE, p.addr, p.bytes);
}

void Model::announced(ModelQp& qp, const tcp_bth& b, std::uint32_t seq,
                      const nupa::Packet& packet) {
    ModelQp::Announced a{seq + packet.payload.bytes(), b.msn, b.opcode == TCP_BTH_OP_TARGETS, {}};
    a.table.resize(packet.payload.bytes());
    packet.payload.copy_to(reinterpret_cast<std::byte*>(a.table.data()));
    if (b.mbo == 0 && a.table.size() <= TCP_BTH_TABLE_MAX_BYTES)
        qp.announced.push_back(std::move(a));
}

// The messages of @a, if it is the one that the option names.
std::vector<Model::Mixed> Model::read(const ModelQp::Announced& a, const tcp_bth& b) {
    std::array<std::uint32_t, TCP_BTH_TABLE_MAX_WORDS> words{};
    tcp_bth_mixed all{};
    std::vector<Mixed> messages;
    if (a.start != b.start_seq || a.msn != b.msn || a.writes != tcp_bth_is_write(b.opcode) ||
        !(a.writes ? tcp_bth_targets_read : tcp_bth_mixed_read)(
            a.table.data(), static_cast<std::uint32_t>(a.table.size()), words.data(), &all) ||
        all.bytes != b.ext4 || all.check != b.length)
        return messages;
    for (std::uint32_t i = 0; i < all.messages; i++)
        if (a.writes)
            messages.push_back({tcp_bth_target_length(words.data(), i),
                                tcp_bth_targets_rkey(words.data()),
                                tcp_bth_target_va(words.data(), i)});
        else
            messages.push_back({tcp_bth_mixed_length(words.at(i)), 0, 0});
    return messages;
}

// By a table that the host has, too, and that is the one that the option names.
std::vector<Model::Mixed> Model::table(const ModelQp& qp, const tcp_bth& b) {
    std::vector<Mixed> messages;
    for (const ModelQp::Announced& a : qp.announced)
        if (messages = read(a, b); !messages.empty())
            break;
    require(!messages.empty(), "a mixed train is placed by its own table");
    return messages;
}

void Model::mixed(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left,
                  std::vector<Piece>& pieces) {
    const std::vector<Mixed> messages = table(qp, b);
    std::uint32_t place = 0, skip = b.mbo;
    for (; skip >= messages.at(place).length; place++)
        skip -= messages[place].length;
    for (; !left.empty(); place++, skip = 0) {
        const std::size_t n = std::min<std::size_t>(messages.at(place).length - skip, left.size());
        receive(qp, static_cast<std::uint16_t>(b.msn + place), skip, left.first(n), pieces);
        left = left.subspan(n);
    }
}

// As if each WRITE had come in a segment of its own.
void Model::write_mixed(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left) {
    require(qp.cmd.flags & NUPA_QP_F_REMOTE_WRITE, "the QP takes WRITEs");
    const std::vector<Mixed> messages = table(qp, b);
    std::uint32_t place = 0, skip = b.mbo;
    for (; skip >= messages.at(place).length; place++)
        skip -= messages[place].length;
    for (; !left.empty(); place++, skip = 0) {
        const Mixed& m = messages.at(place);
        const std::size_t n = std::min<std::size_t>(m.length - skip, left.size());
        write(qp, m.key, NUPA_ACCESS_REMOTE_WRITE, m.va + skip, left.first(n));
        left = left.subspan(n);
    }
}

// As if each message had come in a segment of its own.
void Model::train(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left,
                  std::vector<Piece>& pieces) {
    for (std::uint64_t mbo = b.mbo; !left.empty();) {
        const std::uint64_t in_message = mbo % b.length;
        const std::size_t n = std::min<std::uint64_t>(b.length - in_message, left.size());
        receive(qp, static_cast<std::uint16_t>(b.msn + mbo / b.length), in_message, left.first(n),
                pieces);
        left = left.subspan(n);
        mbo += n;
    }
}

// Where @left, bytes of message @msn from @skip on, may go.  Every piece before the first write:
// the ring itself may be the target.
void Model::receive(const ModelQp& qp, std::uint16_t msn, std::uint64_t skip,
                    std::span<const std::uint8_t> left, std::vector<Piece>& pieces) {
    const nupa_cmd_qp& c = qp.cmd;
    require(!(c.flags & NUPA_QP_F_NO_RQ), "there is a receive queue");
    const auto completed = memory_.read<std::uint32_t>(c.shadow_addr);
    const std::uint32_t posted = (ring32(qp.rq_pages, 128) - c.rq_base - completed) & c.rq_mask;
    require(std::uint16_t(msn - completed) < posted, "a receive is posted for the msn");
    const std::uint64_t wqe =
        384 + (std::uint64_t{(c.rq_base + msn) & c.rq_mask} << c.rq_log2_bytes);
    pieces_of(qp.rq_pages, wqe, c.rq_sge_max, skip, left, pieces);
}

// The same for the receive at @wqe of @ring.
void Model::pieces_of(const std::vector<std::uint64_t>& ring, std::uint64_t wqe,
                      std::uint32_t sge_max, std::uint64_t skip, std::span<const std::uint8_t> left,
                      std::vector<Piece>& pieces) {
    const std::uint32_t sges = ring32(ring, wqe + 28);
    require(sges <= sge_max, "the SGE count is in range");
    for (std::uint64_t i = 0; i < sges && !left.empty(); i++) {
        const std::uint64_t at = wqe + 40 + 16 * i;
        const std::uint64_t addr = ring32(ring, at) | std::uint64_t{ring32(ring, at + 4)} << 32;
        const std::uint32_t length = ring32(ring, at + 8);
        if (skip >= length) {
            skip -= length;
            continue;
        }
        const std::size_t n = std::min<std::uint64_t>(length - skip, left.size());
        pieces.push_back({ring32(ring, at + 12), addr + skip, left.first(n)});
        left = left.subspan(n), skip = 0;
    }
    require(left.empty(), "never beyond the posted buffer");
}

// The whole message must fit its target, whatever part of it this is.
void Model::tagged(const ModelQp& qp, const tcp_bth& b, const std::vector<std::uint8_t>& payload) {
    if (b.opcode == TCP_BTH_OP_WRITE_MIXED_TRAIN)
        return write_mixed(qp, b, payload);
    require(tcp_bth_is_tagged(b.opcode) && b.ext_bytes == TCP_BTH_RETH_BYTES, "it has a target");
    if (b.opcode == TCP_BTH_OP_WRITE_TRAIN)
        return write_train(qp, b, payload);
    const bool imm = b.opcode == TCP_BTH_OP_WRITE_LAST_IMM || b.opcode == TCP_BTH_OP_WRITE_ONLY_IMM;
    require(imm || b.mbo + payload.size() <= b.dma_length, "inside the length it names");
    if (b.opcode <= TCP_BTH_OP_WRITE_ONLY_IMM) {
        require(qp.cmd.flags & NUPA_QP_F_REMOTE_WRITE, "the QP takes WRITEs");
        write(qp, b.rkey, NUPA_ACCESS_REMOTE_WRITE, b.va + b.mbo, payload);
        return;
    }
    require(qp.cmd.flags & NUPA_QP_F_SHADOW, "the host says which READs wait");
    const auto read =
        memory_.read<nupa_qp_read>(memory_.read<nupa_qp_shadow>(qp.cmd.shadow_addr).reads_addr +
                                   b.msn % NUPA_READS_MAX * sizeof(nupa_qp_read));
    require(read.valid == (std::uint32_t{NUPA_READ_VALID} | b.msn) && read.va == b.va &&
                read.key == b.rkey && read.length == b.dma_length,
            "a READ asked for just this");
    write(qp, b.rkey, NUPA_ACCESS_LOCAL_WRITE, b.va + b.mbo, payload);
}

// As if each WRITE had come in a segment of its own.
void Model::write_train(const ModelQp& qp, const tcp_bth& b, std::span<const std::uint8_t> left) {
    require(qp.cmd.flags & NUPA_QP_F_REMOTE_WRITE, "the QP takes WRITEs");
    const std::uint64_t step = b.dma_length >> 16;
    for (std::uint64_t mbo = b.mbo; !left.empty();) {
        const std::uint64_t in_message = mbo % b.length;
        const std::size_t n = std::min<std::uint64_t>(b.length - in_message, left.size());
        write(qp, b.rkey, NUPA_ACCESS_REMOTE_WRITE,
              b.va + mbo / b.length * step * b.length + in_message, left.first(n));
        left = left.subspan(n);
        mbo += n;
    }
}

void Model::write(const ModelQp& qp, std::uint32_t key, std::uint32_t access, std::uint64_t addr,
                  std::span<const std::uint8_t> bytes) {
    const auto it = mrs.find(key);
    require(it != mrs.end(), "the key is registered");
    const ModelMr& mr = it->second;
    require(mr.cmd.pd == qp.cmd.pd, "the PD is the QP's");
    require((mr.cmd.access & access) == access, "the access is allowed");
    require(addr >= mr.cmd.iova && addr - mr.cmd.iova < mr.cmd.bytes &&
                bytes.size() <= mr.cmd.bytes - (addr - mr.cmd.iova),
            "inside its region");
    for (std::size_t i = 0; i < bytes.size(); i++) {
        require(memory_.allow(mr.at(addr + i), bytes[i]), "inside guest memory");
    }
}

}  // namespace fuzz
