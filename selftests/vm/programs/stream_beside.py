# SPDX-License-Identifier: BSD-3-Clause
"""Others that read a connection while a receive waits with its memory posted: each byte is read once, and nobody is told that there is none."""

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator

from stream_connection import BLOCK, KIB, LIMIT_S, Connection, Memory, Receive, checked, expected, libc, wait_until

ATTEMPTS_MAX = 12
SPLICED_ROUNDS, SPLICED_BYTES = 2, 32 * KIB  # of one pipe
ZEROCOPY_ROUNDS, ZEROCOPY_BYTES, TCP_ZEROCOPY_RECEIVE = 8, 64 * KIB, 35
ZEROCOPY = struct.Struct("<QII")  # where, how many bytes, how many to be received otherwise
ZEROCOPY_COPIED = struct.Struct("<QIIIiQiI")  # the same; what waits, an error, where else to copy, how many bytes, flags
ZEROCOPY_SILENT_MAX = 20  # answers that bytes wait for neither, in a row
SHORT_BYTES = 64 * KIB
SO_PEEK_OFF, PEEK_ROUNDS, PEEK_PARTS, PEEK_LIMIT_S = 42, 2, 3, 10
PEEKS = tuple((flags, *how) for flags in (socket.MSG_DONTWAIT, socket.MSG_WAITALL) for how in ((1, False), (3, True)))  # flags, how many, by SO_PEEK_OFF
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


def until_met(connection: Connection, attempt: Callable[[], None], least: int = 1) -> None:
    """Attempts, until the other reader met what was placed: who is first is for the scheduler to say."""
    rescued = connection.counters()["rx_rescued_bytes"]
    for done in range(1, ATTEMPTS_MAX + 1):
        attempt()
        if done >= least and connection.counters()["rx_rescued_bytes"] != rescued:
            return
    check_met(connection, rescued)


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

    def attempt() -> None:
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

    until_met(connection, attempt, SPLICED_ROUNDS)


def splices(connection: Connection, reset: bool) -> bool:
    """What was placed, without a wait or behind a reset.  False: the other reader was first."""
    memory, (out, into) = Memory(BLOCK), os.pipe()
    connection.warm(memory)
    at, receive = connection.at, connection.half(memory)
    with without_processor(receive):
        connection.ask(SPLICED_BYTES, reset=reset)
        wait_until(connection.is_closed if reset else connection.has_come, "what was asked for came")
        met = connection.waiting() == SPLICED_BYTES
        os.set_blocking(connection.sock.fileno(), reset)
        try:
            parts = [os.read(out, os.splice(connection.sock.fileno(), into, SPLICED_BYTES))] if met else []
        except OSError as error:
            sys.exit(f"of {SPLICED_BYTES} bytes that wait splice() says {error}")
        os.set_blocking(connection.sock.fileno(), True)
    if not reset:
        connection.ask(BLOCK // 2)
        check_shared(connection, at, receive, memory, parts)
        return met
    connection.compare(b"".join(parts), at + BLOCK // 2)
    receive.end()
    try:
        sys.exit(f"behind a reset: {len(connection.sock.recv(1))} bytes")
    except ConnectionResetError:
        return met


def spliced_at_once(connection: Connection) -> None:
    """Beside a receive that gets no processor: splice() finds what was placed, also if it does not wait, and before the reset behind it."""
    for reset in (False, True):
        for _ in range(ATTEMPTS_MAX):
            if splices(Connection(*connection.sock.getpeername()[:2]), reset):
                break
        else:
            sys.exit("the other reader always was first: nothing was shown")


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


@contextlib.contextmanager
def without_processor(receive: Receive) -> Iterator[None]:
    """The receiver's thread gets one only where this one waits: both have the same, and this one goes first."""
    was, one = os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}
    os.sched_setscheduler(receive.native_id, os.SCHED_IDLE, os.sched_param(0))
    for thread in (0, receive.native_id):
        os.sched_setaffinity(thread, one)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, was)


def short(connection: Connection) -> None:
    """Beside a receive that gets no processor: who reads what there is gets all of it, what was placed and what came behind it."""
    memory = Memory(BLOCK)

    def attempt(flags: int) -> None:
        parts: list[bytes] = []
        connection.warm(memory)
        at, receive = connection.at, connection.half(memory)
        with without_processor(receive):
            connection.ask(SHORT_BYTES)
            wait_until(connection.has_come, "what was asked for came")
            with contextlib.suppress(BlockingIOError):  # the other reader was first
                parts.append(connection.sock.recv(1, socket.MSG_DONTWAIT))
            connection.ask(SHORT_BYTES)
            wait_until(connection.has_come, "what was asked for came")
            waiting = connection.waiting()
            if waiting == 2 * SHORT_BYTES - 1:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, waiting)
                parts.append(connection.sock.recv(waiting, flags))
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                if len(parts[1]) != waiting:
                    sys.exit(f"of {waiting} bytes that wait a call with flags {flags:#x} gave {len(parts[1])}")
        connection.ask(BLOCK // 2)
        check_shared(connection, at, receive, memory, parts)

    for flags in (0, socket.MSG_DONTWAIT):
        until_met(connection, lambda flags=flags: attempt(flags))


class CopiedZerocopy(Zerocopy):
    """It gives a buffer, too, where TCP may copy all that waits if that is little."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.buffer = ctypes.create_string_buffer(2 * ZEROCOPY_BYTES)

    def read(self) -> None:
        where, count = ctypes.addressof(self.buffer), len(self.buffer)
        asked = ctypes.create_string_buffer(ZEROCOPY_COPIED.pack(self.address, ZEROCOPY_BYTES, 0, 0, 0, where, count, 0), ZEROCOPY_COPIED.size)
        size = ctypes.c_uint(ZEROCOPY_COPIED.size)
        checked(libc.getsockopt(self.sock.fileno(), socket.SOL_TCP, TCP_ZEROCOPY_RECEIVE, asked, ctypes.byref(size)))
        _, mapped, other, waiting, error, _, copied, _ = ZEROCOPY_COPIED.unpack(asked.raw)
        if error or copied < 0 or waiting > self.connection.at:
            sys.exit(f"TCP_ZEROCOPY_RECEIVE: error {error}, {copied} bytes copied, {waiting} wait")
        if mapped:
            self.parts.append(ctypes.string_at(self.address, mapped))
        if copied:
            self.parts.append(self.buffer.raw[:copied])
        elif other and not mapped:
            with contextlib.suppress(BlockingIOError):  # the other reader was first
                self.parts.append(self.sock.recv(other, socket.MSG_DONTWAIT))


def zerocopied(connection: Connection, way: type[Zerocopy] = Zerocopy) -> None:
    """Beside a receive that waits with its memory posted and gets no processor: who maps is told what is to be received."""
    memory = Memory(BLOCK)

    def attempt() -> None:
        connection.warm(memory)
        at, receive = connection.at, connection.half(memory)
        with without_processor(receive):
            zerocopy = way(connection)
            for _ in range(ZEROCOPY_ROUNDS):
                connection.ask(ZEROCOPY_BYTES)
                wait_until(lambda: zerocopy.read() or connection.has_read(), "all is read")
        connection.rest(receive)
        check_shared(connection, at, receive, memory, zerocopy.parts)

    until_met(connection, attempt)


def zerocopied_and_copied(connection: Connection) -> None:
    zerocopied(connection, CopiedZerocopy)


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """TimeoutError from a call that waits for too long."""

    def ends(*_: object) -> None:
        raise TimeoutError

    was = signal.signal(signal.SIGALRM, ends)
    signal.setitimer(signal.ITIMER_REAL, PEEK_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)


class Peeks:
    """PEEKs of all that waits, in parts; each is what a socket says that received nothing without a copy."""

    def __init__(self, connection: Connection, flags: int, parts: int, offset: bool) -> None:
        self.connection, self.flags, self.parts, self.offset = connection, flags | socket.MSG_PEEK, parts, offset
        self.shown = 0

    def set_offset(self, offset: int) -> None:
        self.connection.sock.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, offset)

    def peek(self) -> bool:
        """Of the bytes that wait now; true: nobody read meanwhile, so they were compared."""
        waiting = self.connection.waiting()
        if waiting < self.parts:
            return False
        if self.offset:
            self.set_offset(0)
        counts = [waiting // self.parts] * (self.parts - 1) if self.offset else []
        counts.append(waiting - sum(counts))
        got, at = b"", self.connection.at - waiting
        with contextlib.suppress(BlockingIOError, TimeoutError), in_time():  # the other reader was first
            for count in counts:
                got += self.connection.sock.recv(count, self.flags)
        if self.offset:
            self.set_offset(-1)
        if self.connection.waiting() != waiting:
            return False
        if len(got) != waiting:
            sys.exit(f"of {waiting} bytes that wait PEEKs of {counts} gave {len(got)}")
        self.connection.compare(got, at)
        self.shown += 1
        return True


def peeked(connection: Connection) -> None:
    """Beside a receive that gets no processor: who PEEKs gets all that waits, what was placed and what was not."""
    memory = Memory(BLOCK)
    for flags, parts, offset in PEEKS:
        peeks = Peeks(connection, flags, parts, offset)

        def attempt(peeks: Peeks = peeks) -> None:
            connection.warm(memory)
            at, receive = connection.at, connection.half(memory)
            with without_processor(receive):
                for _ in range(PEEK_PARTS):
                    connection.ask(ZEROCOPY_BYTES)
                    wait_until(lambda: connection.has_come(), "what was asked for came")
                    peeks.peek()
            connection.ask(BLOCK // 2 - PEEK_PARTS * ZEROCOPY_BYTES)
            receive.end()
            connection.compare(memory.bytes(), at)

        until_met(connection, attempt, PEEK_ROUNDS)
        for _ in range(ATTEMPTS_MAX):
            if not peeks.shown:
                attempt()
        if not peeks.shown:
            sys.exit("the receiver always was first: nothing was shown")
