# SPDX-License-Identifier: BSD-3-Clause
"""A peer made by hand, on the switch's uplink, that sends messages before the other side's attach is through, or none.

It opens the connection, and is told when attach begins.  Until it hears rtr, which attach sends in the end, it sends one message
after the other, as no honest peer does.  Each must be in the receive that completes for it, whoever put it there.
"""

import random
import struct
import subprocess
import time

import pytest

from harness.guests import Failed, Guests
from harness.segments import Interface, Segment
from vm.raw_sender import ACK, FIN, NEEDS, RST, SYN, TAP, mac_of  # the same guests

pytestmark = pytest.mark.needs(NEEDS)

PROGRAM = "$BUILD/cmake/selftests/vm/hostile/attach_attacks --case early --engine offload"
UNREADY = "$BUILD/cmake/selftests/vm/hostile/attach_attacks --case unready"
PORT = 7610
MAC, ADDRESS = bytes.fromhex("020a4d000032"), (10, 77, 0, 50)
LIMIT_S = 60
ROUNDS = 4
MESSAGES, BYTES = 192, 64  # as in attach_attacks_early.cpp
EARLY_MAX = 64
PAUSE_S = 0.001
UNTOLD_S = 5.0  # then it goes on without having heard rtr
REPEAT_S = 0.3
WINDOW = 64000
MSS = struct.pack("!BBH", 2, 4, 1448)
SEND_ONLY, ACKNOWLEDGE = 0x04, 0x11
VER1, RTR, RTR_ACK = 1, 0x10, 0x20


def _option(flags: int, opcode: int, msn: int, seq: int, length: int, extension: bytes = b"") -> bytes:
    """tcp_bth ver 1 without timestamps."""
    return struct.pack("!BBHBBHII", 253, 16 + len(extension), 0x5150, VER1 | flags, opcode, msn, seq & 0xFFFFFFFF, length) + extension


def _flags(segment: Segment) -> int:
    """Of its tcp_bth option, without the version."""
    at = segment.options.find(b"\x51\x50")
    return segment.options[at + 2] & ~3 if at >= 0 else 0


class Peer:
    """One connection."""

    def __init__(self, out: Interface, to: bytes, sport: int, limit_s: float) -> None:
        self._out, self._to, self._until = out, to, time.monotonic() + limit_s
        self._next = Segment(bytes(ADDRESS), bytes((10, 77, 0, 1)), sport, PORT, random.getrandbits(32), 0, SYN, WINDOW, b"", b"")
        self._first, self._sent, self._acknowledged = self._next.seq + 1, [], 0
        self.told, self.ended, self.early = False, False, 0

    def _hear(self, limit_s: float) -> Segment | None:
        if time.monotonic() > self._until:
            raise Failed(f"the other side is silent: {len(self._sent)} messages sent, {self._acknowledged} bytes acknowledged")
        heard = self._out.hear(limit_s)
        if not heard or heard.dport != self._next.sport:
            return None
        if heard.flags & ACK:
            self._acknowledged = (heard.ack - self._first) & 0xFFFFFFFF
        if not heard.flags & SYN and heard.payload and heard.seq == self._next.ack:
            self._next = self._next.but(ack=heard.seq + len(heard.payload))
        self.told |= bool(_flags(heard) & RTR)
        self.ended |= bool(heard.flags & (FIN | RST))
        return heard

    def _send(self, **changes) -> None:
        self._out.send(self._to, self._next.but(**changes))

    def connect(self) -> None:
        """Returns when the other side said that it attaches, or has ended."""
        heard = None
        while not heard or not heard.flags & SYN:
            self._send(options=MSS)
            heard = self._hear(REPEAT_S)
            if self.ended:
                return
        self._next = self._next.but(seq=self._first, ack=heard.seq + 1, flags=ACK)
        self._send()
        while self._next.ack == heard.seq + 1 and not self.ended:
            self._hear(REPEAT_S)

    def _message(self) -> None:
        number = len(self._sent)
        self._sent.append(self._next.but(options=_option(0, SEND_ONLY, number, self._next.seq, BYTES), payload=bytes([number]) * BYTES))
        self._out.send(self._to, self._sent[-1])
        self._next = self._next.but(seq=self._next.seq + BYTES)

    def _settle(self) -> None:
        """Everything that was sent is acknowledged."""
        while self._acknowledged < len(self._sent) * BYTES and not self.ended:
            if not self._hear(REPEAT_S):
                for segment in self._sent[self._acknowledged // BYTES :]:
                    self._out.send(self._to, segment)

    def messages(self) -> None:
        until = time.monotonic() + UNTOLD_S
        while not self.told and not self.ended and time.monotonic() < until:
            if len(self._sent) < EARLY_MAX:
                self._message()
            self._hear(PAUSE_S)
        self.early = len(self._sent)
        self._settle()
        self._send(options=_option(RTR | RTR_ACK, ACKNOWLEDGE, 0, self._next.seq, 0, bytes(4)))
        while len(self._sent) < MESSAGES and not self.ended:
            self._message()
        self._settle()

    def hear_alone(self) -> None:
        """Its rtr is acknowledged, and it hears none."""
        while not self.ended:
            if self._hear(REPEAT_S):
                self._send(options=_option(RTR_ACK, ACKNOWLEDGE, 0, self._next.seq, 0, bytes(4)))

    def end(self) -> None:
        while not self.ended:
            self._send(options=_option(RTR | RTR_ACK, ACKNOWLEDGE, 0, self._next.seq, 0, bytes(4)))  # TCP does not repeat it
            self._hear(REPEAT_S)
        self._send(flags=RST | ACK)


def test_messages_before_attach_is_through(t: Guests) -> None:
    subprocess.run(["ip", "link", "set", TAP, "up"], check=True)
    t.run(0, f"ip neigh replace {'.'.join(map(str, ADDRESS))} lladdr {MAC.hex(':')} dev nupa0")
    before, early = t.switch_stats(0)["placed_segments"], []
    job = t.start(0, f"{PROGRAM} --port {PORT} --rounds {ROUNDS}", LIMIT_S)
    t.wait_listening(0, PORT)
    out = Interface(TAP, MAC)
    try:
        for sport in random.sample(range(20000, 30000), ROUNDS):
            peer = Peer(out, mac_of(t, 0), sport, LIMIT_S)
            peer.connect()
            peer.messages()
            peer.end()
            early.append(peer.early)
            if job.done:
                break
    finally:
        out.close()
    result = job.wait()
    if not result.ok:
        raise Failed(f"{result.stderr} (sent before rtr: {early})")
    print(f"# messages sent before rtr: {early}")
    placed = t.switch_stats(0)["placed_segments"] - before
    t.check(placed >= (MESSAGES - EARLY_MAX) * ROUNDS // 2, f"only {placed} segments were placed: no test")


def test_rtr_is_acknowledged_and_none_comes(t: Guests) -> None:
    """An attach that does not wait for it ends at its time limit."""
    subprocess.run(["ip", "link", "set", TAP, "up"], check=True)
    t.run(0, f"ip neigh replace {'.'.join(map(str, ADDRESS))} lladdr {MAC.hex(':')} dev nupa0")
    job = t.start(0, f"{UNREADY} --port {PORT}", LIMIT_S)
    t.wait_listening(0, PORT)
    out = Interface(TAP, MAC)
    try:
        peer = Peer(out, mac_of(t, 0), random.randrange(20000, 30000), LIMIT_S)
        peer.connect()
        peer.hear_alone()
        peer.end()
    finally:
        out.close()
    result = job.wait()
    t.check(result.ok, result.stderr)
