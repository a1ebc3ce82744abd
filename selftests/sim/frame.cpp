// SPDX-License-Identifier: BSD-3-Clause
#include "frame.hpp"

#include <algorithm>
#include <cstring>

#include "engine/checksum.hpp"
#include "engine/endian.hpp"

namespace sim {

namespace {

constexpr std::uint16_t kEthernet = nupa::kEthernetBytes, kTcp = 20;
constexpr std::uint16_t kIpv4 = 20, kIpv6 = 40;
constexpr std::uint8_t kProtocolTcp = 6, kHops = 64;

void ipv4(std::uint8_t* ip, const nupa_flow& flow, std::uint32_t bytes) {
    ip[0] = 0x45;
    nupa::put_be16(ip + 2, static_cast<std::uint16_t>(bytes));
    ip[6] = 0x40;
    ip[8] = kHops, ip[9] = kProtocolTcp;
    std::memcpy(ip + 12, flow.saddr, 4);
    std::memcpy(ip + 16, flow.daddr, 4);
    nupa::put_be16(ip + 10, nupa::ipv4_header_checksum(ip, kIpv4));
}

void ipv6(std::uint8_t* ip, const nupa_flow& flow, std::uint32_t bytes) {
    ip[0] = 0x60;
    nupa::put_be16(ip + 4, static_cast<std::uint16_t>(bytes - kIpv6));
    ip[6] = kProtocolTcp, ip[7] = kHops;
    std::memcpy(ip + 8, flow.saddr, 16);
    std::memcpy(ip + 24, flow.daddr, 16);
}

std::uint16_t l4_of(int family) {
    return static_cast<std::uint16_t>(kEthernet + (family == 4 ? kIpv4 : kIpv6));
}

}  // namespace

nupa::FlowKey flow_of(int family, std::uint32_t connection, int to) {
    nupa::FlowKey key;
    const auto number = [&](int side) {
        return static_cast<std::uint8_t>(2 * connection + 1u + static_cast<unsigned>(side));
    };
    key.raw.family = static_cast<std::uint8_t>(family);
    const std::size_t last = family == 4 ? 3 : 15;
    key.raw.saddr[0] = key.raw.daddr[0] = family == 4 ? 10 : 0xfd;
    key.raw.saddr[last] = number(1 - to);
    key.raw.daddr[last] = number(to);
    const std::uint8_t sport[2] = {0x10, number(1 - to)}, dport[2] = {0x10, number(to)};
    std::memcpy(&key.raw.sport, sport, 2);
    std::memcpy(&key.raw.dport, dport, 2);
    return key;
}

FrameHeader build_frame(const nupa::FlowKey& flow, const TcpFields& tcp, std::uint32_t payload) {
    FrameHeader f;
    const int family = flow.raw.family;
    f.l4_at = l4_of(family);
    f.size = static_cast<std::uint16_t>(f.l4_at + kTcp + tcp.option_bytes);
    std::fill_n(f.bytes.begin(), f.size, std::uint8_t{0});
    f.bytes[0] = f.bytes[6] = 2;
    nupa::put_be16(f.bytes.data() + 12, family == 4 ? 0x0800 : 0x86dd);
    const std::uint32_t ip_bytes = f.size - kEthernet + payload;
    (family == 4 ? ipv4 : ipv6)(f.bytes.data() + kEthernet, flow.raw, ip_bytes);
    std::uint8_t* t = f.bytes.data() + f.l4_at;
    std::memcpy(t, &flow.raw.sport, 2);
    std::memcpy(t + 2, &flow.raw.dport, 2);
    nupa::put_be32(t + 4, tcp.seq);
    nupa::put_be32(t + 8, tcp.ack);
    t[12] = static_cast<std::uint8_t>((kTcp + tcp.option_bytes) / 4 << 4);
    t[13] = tcp.flags;
    nupa::put_be16(t + 14, tcp.window);
    std::copy_n(tcp.options.begin(), tcp.option_bytes, t + kTcp);
    return f;
}

TcpFields read_frame(std::span<const std::uint8_t> header, int family) {
    TcpFields tcp;
    const std::uint16_t l4 = l4_of(family);
    const std::uint8_t* t = header.data() + l4;
    tcp.seq = nupa::get_be32(t + 4);
    tcp.ack = nupa::get_be32(t + 8);
    tcp.flags = t[13];
    tcp.window = nupa::get_be16(t + 14);
    tcp.option_bytes = static_cast<std::uint8_t>((t[12] >> 4) * 4 - kTcp);
    std::copy_n(t + kTcp, tcp.option_bytes, tcp.options.begin());
    return tcp;
}

}  // namespace sim
