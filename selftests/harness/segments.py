# SPDX-License-Identifier: BSD-3-Clause
"""TCP segments by hand: read from a capture or an interface, changed, given right checksums, sent from an interface."""

import dataclasses
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

ETHERNET_BYTES = 14
ETHERTYPE_IPV4 = 0x0800
ETH_P_ALL = 3
FRAME_BYTES_MAX = 1 << 16
PCAP_HEAD_BYTES = 24
PCAP_RECORD = struct.Struct("<IIII")


def _sum16(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) & ~1])) + (data[-1] << 8 if len(data) & 1 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclasses.dataclass(frozen=True)
class Segment:
    """One IPv4 TCP segment without IP options."""

    src: bytes
    dst: bytes
    sport: int
    dport: int
    seq: int
    ack: int
    flags: int
    window: int
    options: bytes
    payload: bytes
    urgent: int = 0

    @staticmethod
    def parse(frame: bytes) -> "Segment | None":
        if len(frame) < ETHERNET_BYTES + 40 or frame[12:14] != struct.pack("!H", ETHERTYPE_IPV4) or frame[14] != 0x45 or frame[23] != 6:
            return None
        ip = frame[ETHERNET_BYTES : ETHERNET_BYTES + struct.unpack("!H", frame[16:18])[0]]
        tcp = ip[20:]
        sport, dport, seq, ack, offset, flags, window = struct.unpack("!HHIIBBH", tcp[:16])
        head = (offset >> 4) * 4
        return Segment(ip[12:16], ip[16:20], sport, dport, seq, ack, flags, window, tcp[20:head], tcp[head:])

    def but(self, **changes) -> "Segment":
        if "seq" in changes:
            changes["seq"] &= 0xFFFFFFFF
        return dataclasses.replace(self, **changes)

    def packet(self) -> bytes:
        options = self.options + b"\x01" * (-len(self.options) % 4)
        head = struct.pack("!HHIIBBHHH", self.sport, self.dport, self.seq, self.ack, (20 + len(options)) // 4 << 4, self.flags, self.window, 0, self.urgent)
        tcp = head + options + self.payload
        check = _sum16(self.src + self.dst + struct.pack("!HH", 6, len(tcp)) + tcp)
        tcp = tcp[:16] + struct.pack("!H", check) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + self.src + self.dst
        return ip[:10] + struct.pack("!H", _sum16(ip)) + ip[12:] + tcp


def captured(path: Path) -> Iterator[Segment]:
    data = path.read_bytes()
    at = PCAP_HEAD_BYTES
    while at + PCAP_RECORD.size <= len(data):
        length = PCAP_RECORD.unpack_from(data, at)[2]
        at += PCAP_RECORD.size
        segment = Segment.parse(data[at : at + length])
        if segment:
            yield segment
        at += length


class Interface:
    """Frames out of @name, from its own MAC: the switch must learn no one else's.  Or from @mac, whose frames are heard: this machine
    takes none of them for its own."""

    def __init__(self, name: str, mac: bytes = b"") -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((name, ETH_P_ALL if mac else 0))
        self.mac = mac or self._socket.getsockname()[4]
        self.sent = 0

    def hear(self, limit_s: float) -> Segment | None:
        """The next segment to us within @limit_s."""
        until = time.monotonic() + limit_s
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                frame = self._socket.recv(FRAME_BYTES_MAX)
            except TimeoutError:
                return None
            if frame[:6] == self.mac and (segment := Segment.parse(frame)):
                return segment
        return None

    def send(self, to: bytes, segment: Segment) -> None:
        self._socket.send(to + self.mac + struct.pack("!H", ETHERTYPE_IPV4) + segment.packet())
        self.sent += 1

    def close(self) -> None:
        self._socket.close()
