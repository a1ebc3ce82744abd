// SPDX-License-Identifier: BSD-3-Clause
// Builds frames byte by byte, with nothing of the engine's own code but the
// wire header's builder, so that both can be wrong only independently.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_bth_option.h>
#include "engine/packet.hpp"

namespace test {

using ByteVector = std::vector<std::byte>;

inline std::uint16_t reference_checksum(const std::vector<std::uint8_t>& bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); i++)
        sum += i % 2 ? bytes[i] : static_cast<std::uint32_t>(bytes[i]) << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

inline ByteVector pattern(std::size_t n, std::uint32_t seed = 1) {
    ByteVector v(n);
    for (std::size_t i = 0; i < n; i++)
        v[i] = static_cast<std::byte>((i * 2654435761u + std::size_t{seed} * 40503u) >> 13);
    return v;
}

inline std::vector<std::uint8_t> bth_option(const tcp_bth& b) {
    std::vector<std::uint8_t> o(tcp_bth_opt_bytes(&b));
    tcp_bth_build(o.data(), &b);
    return o;
}

// One TCP frame in the making.
struct TcpFrame {
    int family = 4;
    std::uint8_t src = 1, dst = 2;  // last byte of 10.0.0.x or fd00::x
    std::uint16_t sport = 1000, dport = 2000;
    std::uint32_t seq = 0, ack = 0;
    std::uint8_t flags = nupa::kTcpAck;
    std::uint16_t window = 1000;
    std::uint8_t tos = 0;
    std::uint8_t ttl = 64;
    std::uint16_t id = 7;
    std::uint16_t fragment = 0x4000;  // DF
    bool vlan = false;
    bool checksum = true;  // fill the TCP checksum
    int length_error = 0;  // added to the IP length
    std::vector<std::uint8_t> options;
    ByteVector payload;

    std::size_t l3() const { return vlan ? 18 : 14; }
    std::size_t l4() const { return l3() + (family == 4 ? 20 : 40); }
    std::size_t header_bytes() const { return l4() + 20 + (options.size() + 3) / 4 * 4; }

    static void put16(std::vector<std::uint8_t>& v, std::size_t at, std::uint32_t x) {
        v[at] = static_cast<std::uint8_t>(x >> 8), v[at + 1] = static_cast<std::uint8_t>(x);
    }
    static void put32(std::vector<std::uint8_t>& v, std::size_t at, std::uint32_t x) {
        put16(v, at, x >> 16), put16(v, at + 2, x & 0xffff);
    }

    ByteVector build() const {
        std::vector<std::uint8_t> v(header_bytes());
        v[0] = 2, v[5] = dst, v[6] = 2, v[11] = src;
        if (vlan)
            put16(v, 12, 0x8100), put16(v, 14, 5);
        put16(v, l3() - 2, family == 4 ? 0x0800 : 0x86dd);
        const std::size_t tcp_bytes = header_bytes() - l4() + payload.size();
        std::vector<std::uint8_t> pseudo;
        if (family == 4)
            ipv4(v, tcp_bytes, pseudo);
        else
            ipv6(v, tcp_bytes, pseudo);
        tcp(v);
        for (const std::byte b : payload)
            v.push_back(static_cast<std::uint8_t>(b));
        if (checksum) {
            pseudo.insert(pseudo.end(), v.begin() + static_cast<std::ptrdiff_t>(l4()), v.end());
            put16(v, l4() + 16, reference_checksum(pseudo));
        }
        ByteVector out(v.size());
        std::memcpy(out.data(), v.data(), v.size());
        return out;
    }

private:
    void ipv4(std::vector<std::uint8_t>& v, std::size_t tcp_bytes,
              std::vector<std::uint8_t>& pseudo) const {
        const std::size_t ip = l3();
        v[ip] = 0x45, v[ip + 1] = tos;
        put16(
            v, ip + 2,
            static_cast<std::uint32_t>(20 + tcp_bytes) + static_cast<std::uint32_t>(length_error));
        put16(v, ip + 4, id), put16(v, ip + 6, fragment);
        v[ip + 8] = ttl, v[ip + 9] = 6;
        put32(v, ip + 12, 0x0a000000u | src), put32(v, ip + 16, 0x0a000000u | dst);
        put16(v, ip + 10,
              reference_checksum({v.begin() + static_cast<std::ptrdiff_t>(ip),
                                  v.begin() + static_cast<std::ptrdiff_t>(ip) + 20}));
        pseudo.assign(v.begin() + static_cast<std::ptrdiff_t>(ip) + 12,
                      v.begin() + static_cast<std::ptrdiff_t>(ip) + 20);
        pseudo.insert(pseudo.end(), {0, 6, static_cast<std::uint8_t>(tcp_bytes >> 8),
                                     static_cast<std::uint8_t>(tcp_bytes)});
    }

    void ipv6(std::vector<std::uint8_t>& v, std::size_t tcp_bytes,
              std::vector<std::uint8_t>& pseudo) const {
        const std::size_t ip = l3();
        v[ip] = static_cast<std::uint8_t>(0x60 | tos >> 4),
        v[ip + 1] = static_cast<std::uint8_t>(tos << 4);
        put16(v, ip + 4,
              static_cast<std::uint32_t>(tcp_bytes) + static_cast<std::uint32_t>(length_error));
        v[ip + 6] = 6, v[ip + 7] = ttl;
        v[ip + 8] = 0xfd, v[ip + 23] = src, v[ip + 24] = 0xfd, v[ip + 39] = dst;
        pseudo.assign(v.begin() + static_cast<std::ptrdiff_t>(ip) + 8,
                      v.begin() + static_cast<std::ptrdiff_t>(ip) + 40);
        pseudo.insert(pseudo.end(), {0, static_cast<std::uint8_t>(tcp_bytes >> 16),
                                     static_cast<std::uint8_t>(tcp_bytes >> 8),
                                     static_cast<std::uint8_t>(tcp_bytes), 0, 0, 0, 6});
    }

    void tcp(std::vector<std::uint8_t>& v) const {
        const std::size_t t = l4();
        put16(v, t, sport), put16(v, t + 2, dport);
        put32(v, t + 4, seq), put32(v, t + 8, ack);
        v[t + 12] = static_cast<std::uint8_t>((header_bytes() - t) / 4 << 4), v[t + 13] = flags;
        put16(v, t + 14, window);
        for (std::size_t i = 0; i < options.size(); i++)
            v[t + 20 + i] = options[i];
        for (std::size_t i = options.size(); i % 4; i++)
            v[t + 20 + i] = 1;
    }
};

// A frame with the packet that points into it.
struct Wire {
    ByteVector bytes;
    nupa::Packet packet;
    nupa::ParseError error;

    explicit Wire(ByteVector frame, nupa::ParseMode mode = nupa::ParseMode::kWire)
        : bytes(std::move(frame)) {
        const nupa::Bytes all{bytes.data(), bytes.size()};
        error = packet.assign({&all, 1}, mode);
    }
    explicit Wire(const TcpFrame& frame) : Wire(frame.build()) {}
    Wire(const Wire&) = delete;
};

inline ByteVector bytes_of(const nupa::Packet& p) {
    ByteVector out(p.bytes());
    p.write_to(out.data());
    return out;
}

inline ByteVector payload_of(const nupa::Packet& p) {
    ByteVector out(p.payload.bytes());
    p.payload.copy_to(out.data());
    return out;
}

}  // namespace test
