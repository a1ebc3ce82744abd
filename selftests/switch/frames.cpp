// SPDX-License-Identifier: BSD-3-Clause
#include "frames.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <cstring>

namespace nupa::testing {
namespace {

constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kTcpBytes = 20;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolUdp = 17;

void put16(Bytes& b, uint32_t v) {
    b.push_back(static_cast<uint8_t>(v >> 8));
    b.push_back(static_cast<uint8_t>(v));
}

void put32(Bytes& b, uint32_t v) {
    put16(b, v >> 16);
    put16(b, v & 0xffff);
}

void append(Bytes& b, const uint8_t* data, size_t n) { b.insert(b.end(), data, data + n); }

uint32_t sum16(const uint8_t* p, size_t n, uint32_t sum = 0) {
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += static_cast<uint32_t>(p[i] << 8 | p[i + 1]);
    if (n & 1)
        sum += static_cast<uint32_t>(p[n - 1] << 8);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

uint32_t pseudo_sum(const uint8_t* ip, bool v6, uint8_t protocol, size_t l4_bytes) {
    uint32_t sum = v6 ? sum16(ip + 8, 32) : sum16(ip + 12, 8);
    sum +=
        protocol + static_cast<uint32_t>(l4_bytes >> 16) + static_cast<uint32_t>(l4_bytes & 0xffff);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

void put_address6(Bytes& b, uint32_t last) {
    static constexpr uint8_t kPrefix[12] = {0xfd};
    append(b, kPrefix, sizeof(kPrefix));
    put32(b, last);
}

void put_ip(Bytes& b, const TcpFrame& f, uint8_t protocol, size_t l4_bytes) {
    if (f.v6) {
        put32(b, 6u << 28 | static_cast<uint32_t>(f.ecn) << 20);
        put16(b, static_cast<uint32_t>(l4_bytes > 65535 ? 0 : l4_bytes));
        b.push_back(protocol);
        b.push_back(64);
        put_address6(b, f.saddr);
        put_address6(b, f.daddr);
        return;
    }
    size_t at = b.size();
    b.push_back(0x45);
    b.push_back(f.ecn);
    size_t total = kIpv4Bytes + l4_bytes;
    put16(b, static_cast<uint32_t>(total > 65535 ? 0 : total));
    put32(b, 0x4000);  // id 0, don't fragment
    b.push_back(64);
    b.push_back(protocol);
    put16(b, 0);
    put32(b, f.saddr);
    put32(b, f.daddr);
    uint32_t sum = ~sum16(b.data() + at, kIpv4Bytes);
    b[at + 10] = static_cast<uint8_t>(sum >> 8);
    b[at + 11] = static_cast<uint8_t>(sum);
}

uint32_t get16(const uint8_t* p) { return static_cast<uint32_t>(p[0] << 8 | p[1]); }
uint32_t get32(const uint8_t* p) { return get16(p) << 16 | get16(p + 2); }

}  // namespace

size_t header_bytes(const TcpFrame& f) {
    return kEthernetBytes + (f.v6 ? kIpv6Bytes : kIpv4Bytes) + kTcpBytes + f.options.size();
}

Bytes build_ethernet(const Mac& dst, const Mac& src, uint16_t type, const Bytes& payload) {
    Bytes b;
    append(b, dst.data(), 6);
    append(b, src.data(), 6);
    put16(b, type);
    append(b, payload.data(), payload.size());
    return b;
}

Bytes build_tcp(const TcpFrame& f, bool checksum) {
    Bytes b = build_ethernet(f.dst, f.src, f.v6 ? 0x86dd : 0x0800, {});
    size_t l4_bytes = kTcpBytes + f.options.size() + f.payload.size();
    put_ip(b, f, kProtocolTcp, l4_bytes);
    size_t l4 = b.size();
    put16(b, f.sport);
    put16(b, f.dport);
    put32(b, f.seq);
    put32(b, f.ack);
    b.push_back(static_cast<uint8_t>((kTcpBytes + f.options.size()) / 4 << 4));
    b.push_back(f.flags);
    put16(b, f.window);
    put32(b, 0);  // checksum, urgent
    append(b, f.options.data(), f.options.size());
    append(b, f.payload.data(), f.payload.size());
    uint32_t sum = pseudo_sum(b.data() + kEthernetBytes, f.v6, kProtocolTcp, l4_bytes);
    if (checksum)
        sum = ~sum16(b.data() + l4, l4_bytes, sum);
    b[l4 + 16] = static_cast<uint8_t>(sum >> 8);
    b[l4 + 17] = static_cast<uint8_t>(sum);
    return b;
}

TxOptions offload(const TcpFrame& f, uint16_t mss) {
    TxOptions o;
    o.flags = NUPA_TX_F_CSUM;
    o.csum_start = static_cast<uint16_t>(header_bytes(f) - kTcpBytes - f.options.size());
    o.csum_offset = 16;
    o.split_at = header_bytes(f);
    o.buf_bytes = 64 << 10;  // the largest burst has 17 of them
    if (mss) {
        o.flags |= f.v6 ? NUPA_TX_F_TSO6 : NUPA_TX_F_TSO4;
        o.mss = mss;
        o.header_bytes = static_cast<uint16_t>(header_bytes(f));
    }
    return o;
}

std::optional<TcpFrame> parse_tcp(const Bytes& frame) {
    TcpFrame f;
    if (frame.size() < kEthernetBytes + kIpv4Bytes + kTcpBytes)
        return std::nullopt;
    std::memcpy(f.dst.data(), frame.data(), 6);
    std::memcpy(f.src.data(), frame.data() + 6, 6);
    uint32_t type = get16(frame.data() + 12);
    const uint8_t* ip = frame.data() + kEthernetBytes;
    f.v6 = type == 0x86dd;
    if (!f.v6 && type != 0x0800)
        return std::nullopt;
    if ((f.v6 ? ip[6] : ip[9]) != kProtocolTcp)
        return std::nullopt;
    f.ecn = f.v6 ? ip[1] >> 4 & 3 : ip[1] & 3;
    f.saddr = get32(ip + (f.v6 ? 20 : 12));
    f.daddr = get32(ip + (f.v6 ? 36 : 16));
    size_t l4 = kEthernetBytes + (f.v6 ? kIpv6Bytes : kIpv4Bytes);
    const uint8_t* t = frame.data() + l4;
    f.sport = static_cast<uint16_t>(get16(t));
    f.dport = static_cast<uint16_t>(get16(t + 2));
    f.seq = get32(t + 4);
    f.ack = get32(t + 8);
    size_t tcp_bytes = static_cast<size_t>(t[12] >> 4) * 4;
    f.flags = t[13];
    f.window = static_cast<uint16_t>(get16(t + 14));
    if (tcp_bytes < kTcpBytes || l4 + tcp_bytes > frame.size())
        return std::nullopt;
    f.options.assign(t + kTcpBytes, t + tcp_bytes);
    size_t l4_bytes = f.v6 ? get16(ip + 4) : get16(ip + 2) - kIpv4Bytes;
    if (get16(ip + (f.v6 ? 4 : 2)) == 0)
        l4_bytes = frame.size() - l4;
    size_t end = std::min(frame.size(), l4 + l4_bytes);
    f.payload.assign(frame.begin() + static_cast<long>(l4 + tcp_bytes),
                     frame.begin() + static_cast<long>(end));
    return f;
}

bool checksums_right(const Bytes& frame) {
    const uint8_t* ip = frame.data() + kEthernetBytes;
    bool v6 = get16(frame.data() + 12) == 0x86dd;
    if (!v6 && sum16(ip, kIpv4Bytes) != 0xffff)
        return false;
    size_t l4 = kEthernetBytes + (v6 ? kIpv6Bytes : kIpv4Bytes);
    size_t l4_bytes = v6 ? get16(ip + 4) : get16(ip + 2) - kIpv4Bytes;
    if (l4 + l4_bytes > frame.size())
        return false;
    return sum16(frame.data() + l4, l4_bytes, pseudo_sum(ip, v6, v6 ? ip[6] : ip[9], l4_bytes)) ==
           0xffff;
}

Bytes build_udp(const Mac& dst, const Mac& src, const Bytes& payload) {
    TcpFrame addresses;
    Bytes b = build_ethernet(dst, src, 0x0800, {});
    size_t l4_bytes = 8 + payload.size();
    put_ip(b, addresses, kProtocolUdp, l4_bytes);
    size_t l4 = b.size();
    put16(b, 7);
    put16(b, 9);
    put16(b, static_cast<uint32_t>(l4_bytes));
    put16(b, 0);
    append(b, payload.data(), payload.size());
    uint32_t sum = ~sum16(b.data() + l4, l4_bytes,
                          pseudo_sum(b.data() + kEthernetBytes, false, kProtocolUdp, l4_bytes));
    b[l4 + 6] = static_cast<uint8_t>(sum >> 8);
    b[l4 + 7] = static_cast<uint8_t>(sum);
    return b;
}

Bytes pattern(size_t bytes, uint32_t seed) {
    Bytes b(bytes);
    uint32_t x = seed * 2654435761u + 1;
    for (uint8_t& byte : b) {
        x = x * 1664525u + 1013904223u;
        byte = static_cast<uint8_t>(x >> 24);
    }
    return b;
}

Bytes bth_option(const tcp_bth& bth) {
    Bytes b(tcp_bth_opt_bytes(&bth));
    tcp_bth_build(b.data(), &bth);
    return b;
}

std::optional<tcp_bth> find_bth(const TcpFrame& f) {
    tcp_bth bth{};
    if (tcp_bth_find(f.options.data(), static_cast<unsigned>(f.options.size()), f.seq,
                     static_cast<uint32_t>(f.payload.size()), &bth, nullptr) != TCP_BTH_OK)
        return std::nullopt;
    return bth;
}

}  // namespace nupa::testing
