# SPDX-License-Identifier: BSD-3-Clause
"""Others that read a connection while a receive waits with its memory posted: each byte is read once, and nobody is told that there is none."""

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import sys
import threading

from stream_connection import BLOCK, KIB, LIMIT_S, Connection, Memory, Receive, checked, expected, libc, wait_until

SPLICED_ROUNDS, SPLICED_BYTES = 2, 32 * KIB  # of one pipe
ZEROCOPY_ROUNDS, ZEROCOPY_BYTES, TCP_ZEROCOPY_RECEIVE = 8, 64 * KIB, 35
ZEROCOPY = struct.Struct("<QII")  # where, how many bytes, how many to be received otherwise
ZEROCOPY_SILENT_MAX = 20  # answers that bytes wait for neither, in a row
CHANCE_MAX = 6  # bytes that are another reader's by chance


def is_shared(sent: bytes, *readers: bytes) -> bool:
    """Is @sent what two readers had between them, each of it in its order?  By chance a few bytes of one look like the other's next ones."""
    seen, todo = set(), [(0, 0)]
    while todo:
        had = todo.pop()
        if had in seen:
            continue
        seen.add(had)
        at = sum(had)
        if at == len(sent):
            return had == tuple(map(len, readers))
        for which, reader in enumerate(readers):
            alike = common(sent, at, reader, had[which])
            for count in range(max(1, alike - CHANCE_MAX), alike + 1):
                todo.append((had[0] + count, had[1]) if which == 0 else (had[0], had[1] + count))
    return False


def common(one: bytes, at: int, other: bytes, begin: int) -> int:
    """How many bytes are the same from there on."""
    low, high = 0, min(len(one) - at, len(other) - begin)
    while low < high:
        middle = (low + high + 1) // 2
        if one[at + low : at + middle] == other[begin + low : begin + middle]:
            low = middle
        else:
            high = middle - 1
    return low


def check_shared(connection: Connection, at: int, receive: Receive, memory: Memory, parts: list[bytes]) -> None:
    """Of all that was asked for from @at on, each byte was received, or is another reader's, who takes the rest now."""
    sent = connection.at - at
    rest = sent - receive.end() - sum(map(len, parts))
    if rest:
        parts.append(connection.sock.recv(rest, socket.MSG_WAITALL))
    if not is_shared(expected(at, sent), memory.bytes(), b"".join(parts)):
        sys.exit(f"of {sent} bytes some are wrong or lost: {BLOCK} were received, and otherwise {[len(part) for part in parts]}")


def check_met(connection: Connection, rescued: int) -> None:
    if connection.counters()["rx_rescued_bytes"] == rescued:
        sys.exit("the other reader met nothing that was placed: nothing was shown")


class Splices(threading.Thread):
    """Splices what comes, until it is told to stop and gets some once more."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(daemon=True)
        self.sock, self.stops, self.parts = connection.sock, False, []
        self.out, self.into = os.pipe()
        self.start()

    def run(self) -> None:
        while not self.stops and (count := os.splice(self.sock.fileno(), self.into, SPLICED_BYTES)):
            self.parts.append(os.read(self.out, count))

    def check(self) -> None:
        if not self.is_alive() and not self.stops:
            sys.exit(f"splice() says that the stream has ended, or failed, after {sum(map(len, self.parts))} bytes")


def spliced(connection: Connection) -> None:
    """Beside a receive that waits with its memory posted: splice() never says that the stream has ended, and each byte is read once."""
    memory = Memory(BLOCK)
    before = connection.counters()["rx_rescued_bytes"]
    for _ in range(SPLICED_ROUNDS):
        connection.warm(memory)
        at, receive, splices = connection.at, Receive(connection, memory.view()), Splices(connection)
        while receive.is_alive():
            connection.ask(SPLICED_BYTES)
            wait_until(lambda: connection.has_read() or not splices.is_alive(), "all is read")
            splices.check()
        splices.stops = True
        connection.ask(1)
        splices.join(LIMIT_S)
        check_shared(connection, at, receive, memory, splices.parts)
    check_met(connection, before)


class Zerocopy:
    """Reads by TCP_ZEROCOPY_RECEIVE, and by recv() what that says is to be read so."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.sock, self.parts, self.silent = connection, connection.sock, [], 0
        self.address = checked(libc.mmap(None, ZEROCOPY_BYTES, mmap.PROT_READ, mmap.MAP_SHARED, self.sock.fileno(), 0))

    def read(self) -> None:
        asked = ctypes.create_string_buffer(ZEROCOPY.pack(self.address, ZEROCOPY_BYTES, 0), ZEROCOPY.size)
        size, before = ctypes.c_uint(ZEROCOPY.size), self.connection.waiting()
        checked(libc.getsockopt(self.sock.fileno(), socket.SOL_TCP, TCP_ZEROCOPY_RECEIVE, asked, ctypes.byref(size)))
        _, mapped, other = ZEROCOPY.unpack(asked.raw)
        if mapped:
            self.parts.append(ctypes.string_at(self.address, mapped))
        elif other:
            with contextlib.suppress(BlockingIOError):  # the other reader was first
                self.parts.append(self.sock.recv(other, socket.MSG_DONTWAIT))
        elif before and before == self.connection.waiting():
            self.silent += 1
            if self.silent > ZEROCOPY_SILENT_MAX:
                sys.exit(f"{before} bytes wait, and TCP_ZEROCOPY_RECEIVE says nothing of them")
            return
        self.silent = 0


def zerocopied(connection: Connection) -> None:
    """Beside a receive that waits with its memory posted and gets no processor: who maps is told what is to be received."""
    memory = Memory(BLOCK)
    connection.warm(memory)
    before, at, receive = connection.counters()["rx_rescued_bytes"], connection.at, connection.half(memory)
    was, one = os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}
    os.sched_setscheduler(receive.native_id, os.SCHED_IDLE, os.sched_param(0))
    for thread in (0, receive.native_id):
        os.sched_setaffinity(thread, one)
    zerocopy = Zerocopy(connection)
    for _ in range(ZEROCOPY_ROUNDS):
        connection.ask(ZEROCOPY_BYTES)
        wait_until(lambda: zerocopy.read() or connection.has_read(), "all is read")
    os.sched_setaffinity(0, was)
    connection.rest(receive)
    check_shared(connection, at, receive, memory, zerocopy.parts)
    check_met(connection, before)
