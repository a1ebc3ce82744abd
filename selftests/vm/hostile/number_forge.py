# SPDX-License-Identifier: BSD-3-Clause
"""
Listens for connections by number, and is ready for the first queue pair that connects, but never has heard that it is: when it says
so, the connection is reset.  Other queue pairs get no answer.  Says "ready" when it listens: root, one argument, the port.
"""

import socket
import struct
import sys
from pathlib import Path

from harness.segments import Interface, Segment

NETDEV = "nupa0"
HELLO, HEAD = struct.Struct(">16sBBHHHIII"), struct.Struct("!BBHBBHIII")
ACK = 0x10
VER1, RTR, RTR_ACK, ACKNOWLEDGE = 1, 0x10, 0x20, 0x11
HEARD_S = 1.0


def flags_of(segment: Segment) -> int:
    """Of its tcp_bth option."""
    at = segment.options.find(b"\x51\x50")
    return segment.options[at + 2] if at >= 0 else 0


def heard(tap: Interface, sport: int, flag: int) -> Segment | None:
    """The peer's next segment that has the flag."""
    while segment := tap.hear(HEARD_S):
        if segment.sport == sport and flags_of(segment) & flag:
            return segment
    return None


def seem_ready(tap: Interface, to: bytes, sport: int) -> None:
    said = heard(tap, sport, RTR)
    if not said:
        return
    option = HEAD.pack(253, HEAD.size, 0x5150, VER1 | RTR, ACKNOWLEDGE, 0, said.ack, 0, 0)
    tap.send(to, Segment(said.dst, said.src, said.dport, said.sport, said.ack, said.seq + len(said.payload), ACK, said.window, option, b""))
    heard(tap, sport, RTR_ACK)


def main() -> None:
    tap = Interface(NETDEV, bytes.fromhex(Path(f"/sys/class/net/{NETDEV}/address").read_text().strip().replace(":", "")))
    first, others = 0, []
    with socket.create_server(("", int(sys.argv[1]))) as server:
        print("ready", flush=True)
        while True:
            link, (address, sport) = server.accept()
            *head, dest, src, _ = HELLO.unpack(link.recv(HELLO.size, socket.MSG_WAITALL))
            first = first or src
            if src != first:
                others.append(link)
                continue
            link.sendall(HELLO.pack(*head, src, dest, 0))
            neighbour = next(line.split()[3] for line in Path("/proc/net/arp").read_text().splitlines() if line.split()[0] == address)
            seem_ready(tap, bytes.fromhex(neighbour.replace(":", "")), sport)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.close()


main()
