#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Answers TCP segments that arrive on nupa0 with ICMP "packet too big" of the given MTU, as a router on the path would: too_big.py MTU -4|-6

It quotes each segment's first bytes, so that the sequence number is one that the sender has in flight.
"""

import socket
import struct
import sys

ETH_P = {"-4": 0x0800, "-6": 0x86DD}
ETHERNET_BYTES = 14
QUOTE_BYTES = 68
EVERY = 4  # packets; a merged one may be half a megabyte, so a short transfer has few
# This packet is acknowledged by the time; one of what follows it is in flight.
AHEAD_BYTES = (8 << 10, 32 << 10, 128 << 10, 384 << 10)


def later(packet: bytes, tcp: int, ahead: int) -> bytes:
    """The packet with the sequence number of one that is sent @ahead bytes after it."""
    (seq,) = struct.unpack_from("!I", packet, tcp + 4)
    return packet[: tcp + 4] + struct.pack("!I", (seq + ahead) & 0xFFFFFFFF) + packet[tcp + 8 : QUOTE_BYTES]


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def message4(mtu: int, packet: bytes, ahead: int) -> tuple[bytes, str]:
    body = later(packet, (packet[0] & 15) * 4, ahead)
    head = struct.pack("!BBHHH", 3, 4, 0, 0, mtu)
    return struct.pack("!BBHHH", 3, 4, checksum(head + body), 0, mtu) + body, socket.inet_ntop(socket.AF_INET, packet[12:16])


def message6(mtu: int, packet: bytes, ahead: int) -> tuple[bytes, str]:  # the kernel fills the checksum in
    return struct.pack("!BBHI", 2, 0, 0, mtu) + later(packet, 40, ahead), socket.inet_ntop(socket.AF_INET6, packet[8:24])


def is_data(family: str, packet: bytes) -> bool:
    protocol = packet[9] if family == "-4" else packet[6]
    return protocol == socket.IPPROTO_TCP and len(packet) > 500


def main() -> None:
    mtu, family = int(sys.argv[1]), sys.argv[2]
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P[family]))
    tap.bind(("nupa0", ETH_P[family]))
    if family == "-4":
        out, build = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), message4
    else:
        out, build = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6), message6
    seen = 0
    while True:
        packet = tap.recv(1 << 16)[ETHERNET_BYTES:]
        if not is_data(family, packet):
            continue
        seen += 1
        for ahead in AHEAD_BYTES if seen % EVERY == 0 else ():
            icmp, to = build(mtu, packet, ahead)
            out.sendto(icmp, (to, 0))


main()
