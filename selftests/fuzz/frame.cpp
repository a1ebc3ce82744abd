// SPDX-License-Identifier: BSD-3-Clause
#include <tcp_qp/tcp_bth_option.h>

#include "frame.hpp"

namespace fuzz {

namespace {

void put16(std::uint8_t* p, std::uint32_t v) {
    p[0] = static_cast<std::uint8_t>(v >> 8), p[1] = static_cast<std::uint8_t>(v);
}

// Four bytes at a time in host order (RFC 1071, section 2): most of a fuzzer's time would go here.
std::uint32_t sum(const std::uint8_t* p, std::size_t n, std::uint32_t s = 0) {
    std::uint64_t total = 0;
    std::uint32_t word = 0;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        std::memcpy(&word, p, sizeof word);
        total += word;
    }
    word = 0;
    std::memcpy(&word, p, n);
    total += word;
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    total = s + __builtin_bswap16(static_cast<std::uint16_t>(total));
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return static_cast<std::uint32_t>(total);
}

constexpr std::size_t kPatternBytes = 10000, kPatternShift = 16;

// What all patterns are cut from.
std::array<std::uint8_t, kPatternBytes + 256 * kPatternShift> make_pattern() {
    std::array<std::uint8_t, kPatternBytes + 256 * kPatternShift> bytes;
    for (std::uint32_t i = 0, x = 1; i < bytes.size(); i++, x = x * 1664525 + 1013904223)
        bytes[i] = static_cast<std::uint8_t>(x >> 24);
    return bytes;
}

void addresses(const Frame& f, std::uint8_t* source, std::uint8_t* target) {
    const nupa_flow flow = flow_of(f.flow);
    const std::size_t n = flow.family == 4 ? 4 : 16;
    std::memcpy(f.reverse ? target : source, flow.saddr, n);
    std::memcpy(f.reverse ? source : target, flow.daddr, n);
}

}  // namespace

nupa_flow flow_of(unsigned n) {
    nupa_flow f{};
    f.family = n % 2 ? 6 : 4;
    f.sport = __builtin_bswap16(static_cast<std::uint16_t>(1000 + n));
    f.dport = __builtin_bswap16(2000);
    f.saddr[0] = f.daddr[0] = n % 2 ? 0xfd : 10;
    f.saddr[3] = 1, f.daddr[3] = 2;
    return f;
}

void Frame::set_option(const tcp_bth& b, unsigned at) {
    const unsigned bytes = tcp_bth_opt_bytes(&b);
    at = std::min<unsigned>(at, static_cast<unsigned>(options.size()) - bytes);
    options.fill(1);
    tcp_bth_build(options.data() + at, &b);
    options_bytes = static_cast<std::uint8_t>((at + bytes + 3) / 4 * 4);
}

std::vector<std::uint8_t> Frame::build() const {
    const bool v6 = flow % 2;
    const std::size_t l4 = l4_at(), tcp_bytes = 20 + options_bytes + payload.size();
    std::vector<std::uint8_t> v(l4 + tcp_bytes);
    std::copy(to.begin(), to.end(), v.begin());
    std::copy(from.begin(), from.end(), v.begin() + 6);
    put16(&v[12], v6 ? 0x86dd : 0x0800);
    std::uint8_t* ip = &v[14];
    std::uint32_t pseudo = 6 + static_cast<std::uint32_t>(tcp_bytes);
    if (v6) {
        ip[0] = static_cast<std::uint8_t>(0x60 | tos >> 4),
        ip[1] = static_cast<std::uint8_t>(tos << 4);
        put16(ip + 4, static_cast<std::uint32_t>(tcp_bytes));
        ip[6] = 6, ip[7] = 64;
        addresses(*this, ip + 8, ip + 24);
        pseudo = sum(ip + 8, 32, pseudo);
    } else {
        ip[0] = 0x45, ip[1] = tos;
        put16(ip + 2, static_cast<std::uint32_t>(20 + tcp_bytes));
        put16(ip + 6, fragment);
        ip[8] = 64, ip[9] = 6;
        addresses(*this, ip + 12, ip + 16);
        put16(ip + 10, ~sum(ip, 20) & 0xffff);
        pseudo = sum(ip + 12, 8, pseudo);
    }
    std::uint8_t* tcp = &v[l4];
    const nupa_flow f = flow_of(flow);
    std::memcpy(tcp, reverse ? &f.dport : &f.sport, 2);
    std::memcpy(tcp + 2, reverse ? &f.sport : &f.dport, 2);
    tcp_bth_put32(tcp + 4, seq), tcp_bth_put32(tcp + 8, ack);
    tcp[12] = static_cast<std::uint8_t>((20 + options_bytes) / 4 << 4), tcp[13] = flags;
    put16(tcp + 14, window);
    std::copy_n(options.begin(), options_bytes, tcp + 20);
    std::copy(payload.begin(), payload.end(), tcp + 20 + options_bytes);
    if (checksum)
        put16(tcp + 16, ~sum(tcp, tcp_bytes, pseudo) & 0xffff);
    return v;
}

std::vector<std::uint8_t> pattern(std::size_t n, std::uint8_t seed) {
    static const auto all = make_pattern();
    require(n <= kPatternBytes, "a pattern of that size");
    const auto from = all.begin() + seed * std::ptrdiff_t{kPatternShift};
    return {from, from + static_cast<std::ptrdiff_t>(n)};
}

// The message as a train of up to 32 shorter ones, as many as its length is a multiple of.
static void make_train(tcp_bth& b, std::uint8_t choice) {
    constexpr unsigned kLog2Max = 5;
    std::uint32_t messages = 1u << choice % (kLog2Max + 1);
    while (b.length % messages)
        messages /= 2;
    const bool writes = b.opcode == TCP_BTH_OP_WRITE_ONLY;
    b.ver = 1;
    b.opcode = writes ? TCP_BTH_OP_WRITE_TRAIN : TCP_BTH_OP_SEND_TRAIN;
    b.ext_bytes = static_cast<std::uint8_t>(tcp_bth_ext_bytes(b.opcode));
    if (writes)
        b.dma_length = tcp_bth_train_word(static_cast<std::uint16_t>(messages),
                                          static_cast<std::uint16_t>(1 + (choice >> 5)));
    else
        b.ext4 = b.length;
    b.length /= messages;
}

tcp_bth describe(Input& in, std::uint32_t start_seq, std::uint32_t mbo, std::uint32_t length,
                 std::uint16_t msn) {
    static constexpr std::uint8_t kOps[] = {
        TCP_BTH_OP_SEND_ONLY,      TCP_BTH_OP_SEND_ONLY_IMM,      TCP_BTH_OP_WRITE_ONLY,
        TCP_BTH_OP_WRITE_ONLY_IMM, TCP_BTH_OP_READ_RESPONSE_ONLY, TCP_BTH_OP_SEND_ONLY_INV,
        TCP_BTH_OP_READ_REQUEST,   TCP_BTH_OP_TERMINATE};
    const std::uint8_t how = in.u8();
    tcp_bth b{};
    b.ver = how & 1;
    b.flags = static_cast<std::uint8_t>((how & 2 ? TCP_BTH_F_TIMESTAMP : 0) |
                                        (how & 4 ? TCP_BTH_F_RTR : 0));
    b.opcode = kOps[how >> 5];
    b.ext_bytes = static_cast<std::uint8_t>(tcp_bth_ext_bytes(b.opcode));
    b.msn = msn;
    b.start_seq = start_seq;
    b.length = length;
    b.mbo = mbo;
    b.tsval = b.tsecr = 5;
    if (b.opcode == TCP_BTH_OP_SEND_ONLY && how & 8 && length)
        make_train(b, in.u8());
    else if (b.ext_bytes == TCP_BTH_EXT4_BYTES)
        b.ext4 = in.u8();
    if (b.ext_bytes == TCP_BTH_RETH_BYTES) {
        b.rkey = in.below(8);
        // often near a region's begin: the smallest has half a page
        b.va = 0x10000u * b.rkey + in.u16() % (how & 16 ? 0x1000 : 0x10000);
        b.dma_length = how & 8 ? in.u32() : length;
        if (b.opcode == TCP_BTH_OP_WRITE_ONLY && how & 8 && length && in.u8() & 1)
            make_train(b, in.u8());
    }
    if (how & 16) {  // one lie
        const std::uint32_t lie = in.u32();
        switch (in.below(6)) {
            case 0:
                b.msn = static_cast<std::uint16_t>(lie);
                break;
            case 1:
                b.start_seq += lie;
                break;
            case 2:
                b.length = lie;
                break;
            case 3:
                b.mbo = lie & 0xffffff;
                break;
            case 4:
                b.va = lie * std::uint64_t{0x100000001};
                break;
            default:
                b.opcode = lie % TCP_BTH_OP_COUNT;
        }
    }
    return b;
}

}  // namespace fuzz
