#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
A peer that announces an urgent byte far ahead, while the reader's memory is posted:

  stream_urgent.py receive PORT MIB
  stream_urgent.py send ADDRESS PORT MIB KIND

The sender's TCP knows nothing of it: the announcement is a segment made by hand. The receiver reads on; each byte is compared.
KIND: "right", or "wrong" as of who knows no more than addresses and ports: the receiver's TCP takes none of these.
The receiver prints JSON: bytes; how many of them were placed when it had read on, and at last.
"""

import fcntl
import json
import mmap
import random
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from harness.segments import ETHERNET_BYTES, ETHERTYPE_IPV4, Segment  # noqa: E402
from stream_place import placed  # noqa: E402

TCP_ULP, NAME = 31, b"tcp_qp_stream"
MIB = 1 << 20
FIRST_MIB = (6, 8)  # enough for a context; and so that a call begins behind it, and waits with its memory posted
MARK = 100
AHEAD = 1000
FAR = 1 << 30  # beyond each window
CHECKSUM_AT = 20 + 16  # of a packet
URG_ACK = 0x30
SIOCOUTQ, ETH_P_ALL = 0x5411, 3
PATTERN = random.Random(11).randbytes(MIB - 1)


def expected(at: int, count: int) -> bytes:
    at %= len(PATTERN)
    return (PATTERN * (count // len(PATTERN) + 2))[at : at + count]


def receive(port: int, mib: int) -> None:
    with socket.create_server(("0.0.0.0", port)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, TCP_ULP, NAME)
        sock, _ = listener.accept()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    buffer, at, counts = memoryview(mmap.mmap(-1, 4 * MIB)), 0, []
    while at < mib * MIB:
        want = min(len(buffer), mib * MIB - at)
        n = sock.recv_into(buffer, want, socket.MSG_WAITALL)
        if n == 0:
            sys.exit(f"the stream ended at {at}")
        if buffer[:n] != expected(at, n):
            sys.exit(f"wrong bytes behind {at}")
        at += n
        if at > sum(FIRST_MIB) * MIB and not counts or at == mib * MIB:
            counts.append(placed(port)["rx_placed_bytes"])
    print(json.dumps({"bytes": at, "placed": counts}))


def heard(raw: socket.socket, port: int) -> tuple[bytes, Segment]:
    """The segment of ours that bears the mark, and its link header."""
    while True:
        frame = raw.recv(1 << 17)
        segment = Segment.parse(frame)
        if segment and segment.dport == port and len(segment.payload) == MARK:
            return frame[:ETHERNET_BYTES], segment


def forged(segment: Segment, kind: str) -> list[bytes]:
    """Packets that announce an urgent byte behind @segment."""
    right = segment.but(seq=segment.seq + MARK, flags=URG_ACK, payload=b"", urgent=AHEAD)
    if kind == "right":
        return [right.packet()] * 3
    packet = bytearray(right.packet())
    packet[CHECKSUM_AT] ^= 0x55
    return [right.but(seq=right.seq + FAR).packet(), right.but(ack=(right.ack + FAR) & 0xFFFFFFFF).packet(), bytes(packet)]


def send(address: str, port: int, mib: int, kind: str) -> None:
    sock = socket.create_connection((address, port))
    at = 0
    for n in FIRST_MIB:
        sock.sendall(expected(at, n * MIB))
        at += n * MIB
        while struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, b"\0" * 4))[0]:
            time.sleep(0.01)
        time.sleep(0.5)
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    raw.bind(("nupa0", ETH_P_ALL))
    raw.settimeout(10)
    sock.sendall(expected(at, MARK))
    link, segment = heard(raw, port)
    time.sleep(0.3)
    for packet in forged(segment, kind):
        raw.send(link[:12] + struct.pack("!H", ETHERTYPE_IPV4) + packet)
        time.sleep(0.1)
    at += MARK
    while at < mib * MIB:
        n = min(MIB, mib * MIB - at)
        sock.sendall(expected(at, n))
        at += n
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1)


if sys.argv[1] == "receive":
    receive(int(sys.argv[2]), int(sys.argv[3]))
else:
    send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
