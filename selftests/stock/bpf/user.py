#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A user's process that knows the helper's protocol, and abuses it: does what it is told, a line of JSON each.

user.py UID HELPER UNCONNECT: becomes UID (0: stays root).  Commands are the methods of User, {"do": NAME, ...}; answers {"ok": VALUE} or {"errno": N}.
"""

import errno
import json
import mmap
import os
import resource
import socket
import struct
import subprocess
import sys
import time

LIMIT_S = 60
LEVEL, START, STOP = 0x5150, 1, 2
ABI = 4
SLOT_BYTES, TX_AT = 229568, 164032  # struct tcpqp_bpf_slot
TX_NEXT, SND_NXT, RCV_NXT, TX_WRITTEN, TX_BARE = 4, 64, 68, 84, 92
SEND_ONLY_IMM = 0x05
ALL = 0xFFFFFFFF  # bytes of a message that holds every sequence number
ETH_P_ALL = 3
REQUEST = struct.pack("=II", ABI, 0)


class Refused(OSError):
    pass


def letter_to(helper: str, data: bytes, fds: list[int]) -> socket.socket:
    """Sent, and not answered yet."""
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.settimeout(LIMIT_S)
    asked.connect(helper)
    if data:
        socket.send_fds(asked, [data], fds) if fds else asked.send(data)
    return asked


def answer(asked: socket.socket) -> tuple[int, int]:
    """The slot's map and its ring."""
    with asked:
        reply, fds, *_ = socket.recv_fds(asked, 8, 3)
    if len(reply) != 8:
        raise Refused(errno.ECONNRESET, "no answer")
    abi, error = struct.unpack("=Ii", reply)
    assert abi == ABI and len(fds) == (0 if error else 2), (reply, fds)
    if error:
        raise Refused(-error, os.strerror(-error))
    return fds[0], fds[1]


class User:
    def __init__(self, helper: str, unconnect: str) -> None:
        self.helper, self.unconnect = helper, unconnect
        self.connections: dict[str, socket.socket] = {}
        self.slots: dict[str, mmap.mmap] = {}
        self.kept: list = []
        self.wire: socket.socket | None = None

    # ---- sockets ----
    def listen(self, name: str, port: int = 0) -> int:
        self.connections[name] = socket.create_server(("", port), backlog=1024)
        return self.connections[name].getsockname()[1]

    def accept_and_close(self, name: str) -> None:
        """For good: so whoever closes is done at once."""
        while True:
            self.connections[name].accept()[0].close()

    def connect(self, name: str, address: str, port: int, source: int = 0) -> int:
        known = self.connections.setdefault(name, socket.socket())
        if source:
            known.bind(("", source))
        known.settimeout(LIMIT_S)
        known.connect((address, port))
        return known.getsockname()[1]

    def disconnect(self, name: str) -> None:
        """connect(AF_UNSPEC)."""
        number = self.connections[name].fileno()
        if error := subprocess.run([self.unconnect, str(number)], pass_fds=[number], check=False).returncode:
            raise OSError(error, os.strerror(error))

    def close(self, name: str) -> None:
        self.connections.pop(name).close()

    def send(self, name: str, text: str) -> None:
        self.connections[name].sendall(text.encode())

    def fill(self, name: str) -> int:
        """Until the peer, who does not read, and TCP have no room."""
        total, this = 0, self.connections[name]
        this.setblocking(False)
        this.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        try:
            while True:
                total += this.send(bytes(65536))
        except BlockingIOError:
            return total

    # ---- the helper ----
    def ask(self, name: str, helper: str = "", slot: str = "") -> None:
        """@helper: another one's socket; @slot: the name of what it answers."""
        fds = answer(letter_to(helper or self.helper, REQUEST, [self.connections[name].fileno()]))
        self.slots[slot or name] = mmap.mmap(fds[0], SLOT_BYTES)
        for fd in fds:
            os.close(fd)

    def ask_for_many(self, address: str, port: int, most: int) -> int:
        """Connections that are admitted before one is refused."""
        for n in range(most):
            self.connect(f"many{n}", address, port)
            try:
                for fd in answer(letter_to(self.helper, REQUEST, [self.connections[f"many{n}"].fileno()])):
                    os.close(fd)
            except Refused as e:
                assert e.errno in (errno.EDQUOT, errno.ENOSPC), e
                return n
        return most

    def hoard(self, address: str, port: int, most: int) -> int:
        """Memory of connections that are over, until one more is refused."""
        for n in range(most):
            self.connect("hoarder", address, port)
            try:
                self.kept.append(answer(letter_to(self.helper, REQUEST, [self.connections["hoarder"].fileno()])))
            except Refused as e:
                assert e.errno in (errno.EDQUOT, errno.ENOSPC), e
                return n
            finally:
                self.close("hoarder")
        return most

    def drop_hoard(self) -> None:
        for fds in self.kept:
            for fd in fds:
                os.close(fd)
        self.kept.clear()

    def drop_many(self) -> None:
        for name in [n for n in self.connections if n.startswith("many")]:
            self.connections.pop(name).close()

    def say_nothing(self, count: int) -> None:
        self.kept += [letter_to(self.helper, b"", []) for _ in range(count)]

    def leave_lingering(self, name: str, seconds: int) -> None:
        """The helper has the last descriptor of a socket whose close() waits; it must not take it before we are done."""
        this = self.connections.pop(name)
        this.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
        self.kept.append(letter_to(self.helper, REQUEST, [this.fileno()]))
        this.close()

    def time_to_ask(self, name: str) -> float:
        before = time.monotonic()
        self.ask(name)
        return time.monotonic() - before

    # ---- its slot ----
    def start(self, name: str, option: int = START) -> None:
        self.connections[name].setsockopt(LEVEL, option, 0)

    def word(self, name: str, at: int) -> int:
        return struct.unpack_from("=I", self.slots[name], at)[0]

    def describe_all(self, name: str, imm: int) -> None:
        """One message, with an immediate, that any segment is a part of."""
        struct.pack_into("=IIIHBB", self.slots[name], TX_AT, 0, ALL, imm, 0, SEND_ONLY_IMM, 0)
        struct.pack_into("=I", self.slots[name], TX_NEXT, 1)

    # ---- what is on the wire ----
    def watch(self) -> None:
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))

    def seen(self, port: int, needle: str) -> list[int]:
        """Of TCP segments from @port since watch(): all, and those whose options have these bytes."""
        self.wire.setblocking(False)
        counts = [0, 0]
        try:
            while True:
                packet = self.wire.recv(65536)
                tcp = packet[(packet[0] & 15) * 4 :]
                if packet[9] == socket.IPPROTO_TCP and int.from_bytes(tcp[:2], "big") == port:
                    counts[0] += 1
                    counts[1] += bytes.fromhex(needle) in tcp[20 : (tcp[12] >> 4) * 4]
        except BlockingIOError:
            return counts


def main() -> None:
    uid, helper, unconnect = int(sys.argv[1]), *sys.argv[2:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    user = User(helper, unconnect)
    print(json.dumps({"ok": os.getuid()}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            said = {"ok": getattr(user, order.pop("do"))(**order)}
        except OSError as e:
            said = {"errno": e.errno}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
