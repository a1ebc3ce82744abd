#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
What may happen to a receive whose memory is posted, and to that memory between two receives:

  stream_posts.py serve PORT
  stream_posts.py receive ADDRESS PORT CASE...

The server sends what it is asked for: each byte is a function of its position, and none is zero.  So it is known when a receive
waits with its memory posted, and nothing comes before it is told to.  Each case receives into pages of 4 KiB by MSG_WAITALL, first
until its memory is pinned from one call to the next, and says what was placed.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import resource
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import ClassVar, NoReturn

TCP_ULP = 31
SIOCATMARK = 0x8905
NAME = b"tcp_qp_stream"
KIB, MIB = 1 << 10, 1 << 20
PAGE = 4096
PERIOD = 1048573
BLOCK = MIB
HUGE = 2 * MIB
RECVFROM = "45"
LIMIT_S = 60
WARM_MAX = 20
RECONNECTS = 6
SPLICED_ROUNDS, SPLICED_BYTES = 2, 32 * KIB  # of one pipe
ZEROCOPY_ROUNDS, ZEROCOPY_BYTES, TCP_ZEROCOPY_RECEIVE = 8, 64 * KIB, 35
ZEROCOPY = struct.Struct("<QII")  # where, how many bytes, how many to be received otherwise
CHANCE_MAX = 6
ZEROCOPY_SILENT_MAX = 20  # answers that bytes wait for neither, in a row
BYTES_RECEIVED, BYTES_RECEIVED_AT = struct.Struct("<Q"), 128  # struct tcp_info
URGENT_BYTE = b"!"
REQUEST = struct.Struct("<QQ?")  # from where, how many, whether an urgent byte follows

MREMAP_MAYMOVE, MREMAP_FIXED, MAP_FIXED = 1, 2, 0x10
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTNEED = 14, 15, 4

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def pattern() -> bytes:
    values = bytes(range(1, 256)) + b"\x01"
    return random.Random(20).randbytes(PERIOD).translate(values) * 3


WHOLE = pattern()


def expected(at: int, count: int) -> bytes:
    at %= PERIOD
    return (WHOLE * -(-(at + count) // len(WHOLE)))[at : at + count]


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > until:
            sys.exit(f"never: {what}")
        os.sched_yield()


def checked(result: int | None) -> int:
    if result is None or result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Memory:
    """Small pages at a place of its own."""

    all: ClassVar[list["Memory"]] = []

    def __init__(self, size: int, at: int = 0) -> None:
        self.size = size
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_FIXED if at else 0)
        self.at = checked(libc.mmap(at or None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0))
        self.advise(MADV_NOHUGEPAGE)
        Memory.all.append(self)

    def advise(self, advice: int) -> None:
        checked(libc.madvise(self.at, self.size, advice))

    def protect(self, rights: int) -> None:
        checked(libc.mprotect(self.at, self.size, rights))

    def free(self) -> None:
        checked(libc.munmap(self.at, self.size))

    def fresh(self) -> None:
        """Other pages at the same place."""
        self.free()
        Memory(self.size, self.at)

    def moved(self) -> "Memory":
        """Its pages at another place, and other ones here."""
        there = Memory(self.size)
        checked(libc.mremap(self.at, self.size, self.size, MREMAP_MAYMOVE | MREMAP_FIXED, there.at))
        Memory(self.size, self.at)
        return there

    def view(self, begin: int = 0, count: int = -1) -> memoryview:
        count = self.size - begin if count < 0 else count
        return memoryview((ctypes.c_ubyte * count).from_address(self.at + begin)).cast("B")

    def bytes(self, begin: int = 0, count: int = -1) -> bytes:
        return bytes(self.view(begin, count))


def pinned() -> int:
    """KiB that this process has pinned, by the kernel's count."""
    with open("/proc/self/status", encoding="ascii") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmPin")))


class Receive(threading.Thread):
    """A receive that waits."""

    def __init__(self, connection: "Connection", into: memoryview, flags: int = socket.MSG_WAITALL) -> None:
        super().__init__(daemon=True)
        self.connection, self.into, self.flags, self.got, self.error = connection, into, flags, 0, 0
        self.start()
        wait_until(self.waits, "the receiver waits")

    def run(self) -> None:
        try:
            self.got = self.connection.sock.recv_into(self.into, len(self.into), self.flags)
        except OSError as error:
            self.error = error.errno

    def waits(self) -> bool:
        try:
            with open(f"/proc/self/task/{self.native_id}/syscall", encoding="ascii") as call:
                return call.read().split()[0] == RECVFROM
        except (FileNotFoundError, IndexError):
            return False

    def end(self) -> int:
        self.join(LIMIT_S)
        if self.is_alive():
            sys.exit("the receive did not end")
        return self.got


class Connection:
    def __init__(self, address: str, port: int) -> None:
        self.sock = socket.create_connection((address, port))
        self.sock.setsockopt(socket.SOL_TCP, TCP_ULP, NAME)
        self.at = 0  # what was asked for

    def ask(self, count: int, urgent: bool = False) -> None:
        self.sock.sendall(REQUEST.pack(self.at, count, urgent))
        self.at += count

    def counters(self) -> dict:
        local = self.sock.getsockname()[1]
        for line in json.loads(os.popen(f"{os.environ['TCPQP_STAT']} --json").read()):
            if line.get("engine") == "stream" and str(line.get("local", "")).endswith(f":{local}"):
                return line
        return sys.exit("the connection is not shown")

    def placed(self) -> int:
        return self.counters()["rx_placed_bytes"]

    def whole(self, memory: Memory, begin: int = 0, count: int = BLOCK) -> None:
        """A receive of asked bytes that nothing happens to, compared."""
        at, receive = self.at, Receive(self, memory.view(begin, count))
        self.ask(count)
        if receive.end() != count:
            sys.exit(f"{receive.got} bytes of {count}, error {receive.error}")
        self.compare(memory.bytes(begin, count), at)

    def left(self, memory: Memory, count: int, at: int) -> None:
        """What was asked for before, from @at on, and may have come."""
        if count and self.sock.recv_into(memory.view(0, count), count, socket.MSG_WAITALL) != count:
            sys.exit(f"{count} bytes from {at} did not come")
        self.compare(memory.bytes(0, count), at)

    def compare(self, got: bytes, at: int) -> None:
        want = expected(at, len(got))
        if got != want:
            wrong = next(i for i in range(len(got)) if got[i] != want[i])
            sys.exit(f"byte {wrong} of {len(got)} from {at} is wrong: {got[wrong:wrong + 16].hex()} not {want[wrong:wrong + 16].hex()}")

    def warm(self, memory: Memory, begin: int = 0) -> None:
        """Until its memory stays pinned, and two calls one behind the other are placed there: so the next one is posted, too."""
        for _ in range(WARM_MAX):
            before = self.placed()
            self.whole(memory, begin)
            self.whole(memory, begin)
            if pinned() and self.placed() - before == 2 * BLOCK:
                return
        sys.exit(f"nothing was placed in memory that stays pinned: {self.counters()}")

    def half(self, memory: Memory) -> Receive:
        """A receive that has half of its bytes, in @memory, and waits for the others."""
        receive = Receive(self, memory.view(0, BLOCK))
        memory.view(0, BLOCK)[:] = bytes(BLOCK)
        self.ask(BLOCK // 2)
        wait_until(self.has_read, "the first half is read")
        return receive

    def has_read(self) -> bool:
        """All that was asked for has come, and no byte of it waits in the kernel."""
        info = self.sock.getsockopt(socket.SOL_TCP, socket.TCP_INFO, BYTES_RECEIVED.size + BYTES_RECEIVED_AT)
        waiting = struct.unpack("i", fcntl.ioctl(self.sock, termios.FIONREAD, bytes(4)))[0]
        return BYTES_RECEIVED.unpack_from(info, BYTES_RECEIVED_AT)[0] == self.at and not waiting

    def rest(self, receive: Receive) -> None:
        self.ask(BLOCK // 2)
        if receive.end() != BLOCK:
            sys.exit(f"{receive.got} bytes of {BLOCK}, error {receive.error}")


def between(connection: Connection, change: Callable[[Memory], object]) -> None:
    memory = Memory(BLOCK)
    for _ in range(2):
        connection.warm(memory)
        change(memory)
        connection.whole(memory)


def unmapped(connection: Connection) -> None:
    between(connection, Memory.fresh)


def advised(connection: Connection) -> None:
    between(connection, lambda memory: memory.advise(MADV_DONTNEED))


def moved(connection: Connection) -> None:
    """What is where the pages went stays as it is."""
    memory, kept = Memory(BLOCK), []
    for _ in range(2):
        connection.warm(memory)
        there = memory.moved()
        kept.append((there, there.bytes()))
        connection.whole(memory)
    if any(there.bytes() != what for there, what in kept):
        sys.exit("memory that was moved away was written")


def moved_meanwhile(connection: Connection) -> None:
    """From the change on nothing is written to the pages that were posted, and all that is sent then is in the new ones."""
    memory = Memory(BLOCK)
    for _ in range(2):
        connection.warm(memory)
        at, receive = connection.at, connection.half(memory)
        there = memory.moved()
        kept = there.bytes()
        connection.rest(receive)
        if there.bytes() != kept:
            sys.exit("pages were written after they had been moved away")
        connection.compare(kept[: BLOCK // 2], at)
        connection.compare(memory.bytes(BLOCK // 2), at + BLOCK // 2)


def advised_meanwhile(connection: Connection) -> None:
    memory = Memory(BLOCK)
    for _ in range(2):
        connection.warm(memory)
        at, receive = connection.at, connection.half(memory)
        memory.advise(MADV_DONTNEED)
        connection.rest(receive)
        connection.compare(memory.bytes(BLOCK // 2), at + BLOCK // 2)


def protected(connection: Connection) -> None:
    """A receive into memory that may not be written fails, and no byte is lost."""
    memory = Memory(BLOCK)
    connection.warm(memory)
    kept = memory.bytes()
    memory.protect(mmap.PROT_READ)
    at = connection.at
    receive = Receive(connection, memory.view())
    connection.ask(BLOCK)
    if receive.end() or receive.error != errno.EFAULT or memory.bytes() != kept:
        sys.exit(f"a receive into read-only memory: {receive.got} bytes, error {receive.error}")
    memory.protect(mmap.PROT_READ | mmap.PROT_WRITE)
    connection.left(memory, BLOCK, at)


def protected_meanwhile(connection: Connection) -> None:
    memory = Memory(BLOCK)
    connection.warm(memory)
    at, receive = connection.at, connection.half(memory)
    memory.protect(mmap.PROT_READ)
    connection.ask(BLOCK // 2)
    got = receive.end()
    if not BLOCK // 2 <= got < BLOCK or memory.bytes(got) != bytes(BLOCK - got):
        sys.exit(f"memory became read-only after {BLOCK // 2} bytes: {got} bytes, error {receive.error}")
    connection.compare(memory.bytes(0, got), at)
    memory.protect(mmap.PROT_READ | mmap.PROT_WRITE)
    connection.left(memory, BLOCK - got, at + got)


def child_of(memory: Memory) -> Callable[[], None]:
    """A child that has the memory as it is now; what is returned lets it write there, and compare what it had."""
    kept, (ask_in, ask_out), (say_in, say_out) = memory.bytes(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(ask_in, 1)
        same = memory.bytes() == kept
        memory.view()[:] = b"\xee" * memory.size
        os.write(say_out, b"1" if same else b"0")
        os._exit(0)

    def compare() -> None:
        os.write(ask_out, b"!")
        if os.read(say_in, 1) != b"1":
            sys.exit("the child's memory was written")
        os.waitpid(child, 0)

    return compare


def forked(connection: Connection) -> None:
    memory = Memory(BLOCK)
    for _ in range(2):
        connection.warm(memory)
        compare = child_of(memory)
        connection.whole(memory)
        kept = memory.bytes()
        compare()
        if memory.bytes() != kept:
            sys.exit("the child wrote to its parent's memory")


def forked_meanwhile(connection: Connection) -> None:
    memory = Memory(BLOCK)
    for _ in range(2):
        connection.warm(memory)
        at, receive = connection.at, connection.half(memory)
        compare = child_of(memory)
        connection.rest(receive)
        compare()
        connection.compare(memory.bytes(), at)


def overlapping(connection: Connection) -> None:
    """Two connections and threads: what only one of them has is right."""
    other = Connection(*connection.sock.getpeername()[:2])
    memory = Memory(2 * BLOCK)
    connection.warm(memory)
    other.warm(memory, BLOCK // 2)
    for _ in range(4):
        first, second = connection.at, other.at
        one, two = Receive(connection, memory.view(0, BLOCK)), Receive(other, memory.view(BLOCK // 2, BLOCK))
        memory.view()[:] = bytes(2 * BLOCK)
        connection.ask(BLOCK)
        other.ask(BLOCK)
        if (one.end(), two.end()) != (BLOCK, BLOCK):
            sys.exit(f"{one.got} and {two.got} bytes")
        connection.compare(memory.bytes(0, BLOCK // 2), first)
        other.compare(memory.bytes(BLOCK, BLOCK // 2), second + BLOCK // 2)
        if any(memory.bytes(3 * BLOCK // 2)):
            sys.exit("written behind both buffers")


def idle(connection: Connection) -> None:
    """What nobody receives into is not pinned for long."""
    connection.warm(Memory(BLOCK))
    wait_until(lambda: not pinned(), "the memory is not pinned any more")
    connection.warm(Memory(BLOCK))


def large_pages() -> Memory:
    """Pages of 2 MiB, where the system has some: posts there pay the first time."""
    memory = Memory(2 * HUGE)
    memory.at, memory.size = (memory.at + HUGE - 1) // HUGE * HUGE, HUGE
    memory.advise(MADV_HUGEPAGE)
    return memory


def many(connection: Connection) -> None:
    """More memory than may be kept: what was used last is, and the limit holds."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 * MIB, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
    memories = [large_pages() for _ in range(12)]
    most = kept = 0
    for memory in (memories[0], *memories, *memories):  # the first one makes the connection one that posts
        connection.whole(memory)
        kept = pinned()
        most = max(most, kept)
    if not 4 * MIB < most * KIB <= 6 * MIB:  # a quarter is left to others
        sys.exit(f"{most} KiB were pinned at the most, {kept} at last")
    connection.warm(memories[0])


def little(connection: Connection) -> None:
    """No more may be locked than is less than a buffer: it is copied."""
    memory = Memory(BLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (BLOCK // 2, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
    for _ in range(8):
        connection.whole(memory)
    if connection.placed() or pinned():
        sys.exit(f"{connection.placed()} bytes were placed, {pinned()} KiB are pinned")
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 * MIB, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
    connection.warm(memory)


def urgent(connection: Connection) -> None:
    """A receive ends before an urgent byte, which is read by itself; the rest follows."""
    memory = Memory(BLOCK)
    connection.warm(memory)
    at, receive = connection.at, connection.half(memory)
    connection.ask(0, urgent=True)
    if receive.end() != BLOCK // 2:
        sys.exit(f"before the urgent byte: {receive.got} bytes, error {receive.error}")
    connection.compare(memory.bytes(0, BLOCK // 2), at)
    wait_until(lambda: marked(connection.sock), "the urgent byte is the next")
    if (byte := connection.sock.recv(1, socket.MSG_OOB)) != URGENT_BYTE:
        sys.exit(f"the urgent byte is {byte!r}")
    connection.whole(memory)


def marked(sock: socket.socket) -> bool:
    return struct.unpack("i", fcntl.ioctl(sock, SIOCATMARK, bytes(4)))[0] == 1


def disconnected(connection: Connection) -> int:
    """By another thread: the receive has what came, and ends."""
    return disconnect_meanwhile(connection, lambda sock: None)


def disconnect_meanwhile(connection: Connection, then: Callable[[socket.socket], None]) -> int:
    memory = Memory(BLOCK)
    connection.warm(memory)
    at, receive = connection.at, connection.half(memory)
    placed = connection.placed()
    nobody = struct.pack("<H14x", socket.AF_UNSPEC)
    if libc.connect(connection.sock.fileno(), nobody, len(nobody)):
        sys.exit(f"connect(AF_UNSPEC): {os.strerror(ctypes.get_errno())}")
    then(connection.sock)
    if receive.end() != BLOCK // 2:
        sys.exit(f"the connection ended after {BLOCK // 2} bytes: {receive.got}, error {receive.error}")
    connection.compare(memory.bytes(0, BLOCK // 2), at)
    return placed


def reconnected(connection: Connection) -> int:
    """The same, and connected anew before the reader runs: half of all initial sequence numbers lie before what the post had."""
    peer, placed = connection.sock.getpeername(), 0
    for _ in range(RECONNECTS):
        placed += disconnect_meanwhile(connection, lambda sock: sock.connect(peer))
        connection.whole(Memory(BLOCK))
        connection.sock.close()
        connection = Connection(*peer[:2])
    return placed


def other_ulp(connection: Connection) -> int:
    """Another thread gives the socket to kernel TLS, which has no keys yet: the receive goes on as TCP's."""
    memory = Memory(BLOCK)
    connection.warm(memory)
    at, receive = connection.at, connection.half(memory)
    placed = connection.placed()
    wait_until(lambda: gives(connection.sock, b"tls"), "kernel TLS takes the socket")
    connection.rest(receive)
    connection.compare(memory.bytes(), at)
    return placed


def gives(sock: socket.socket, name: bytes) -> bool:
    """False: it has placed bytes that were not read."""
    try:
        sock.setsockopt(socket.SOL_TCP, TCP_ULP, name)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


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
        parts, sent = splices.parts, connection.at - at
        rest = sent - receive.end() - sum(map(len, parts))
        parts.append(connection.sock.recv(rest, socket.MSG_WAITALL))
        if not is_shared(expected(at, sent), memory.bytes(), b"".join(parts)):
            sys.exit(f"of {sent} bytes some are wrong or lost: {BLOCK} were received, and spliced {[len(part) for part in parts]}")
    if connection.counters()["rx_rescued_bytes"] == before:
        sys.exit("splice() met nothing that was placed: nothing was shown")


class Zerocopy:
    """Reads by TCP_ZEROCOPY_RECEIVE, and by recv() what that says is to be read so."""

    def __init__(self, connection: Connection) -> None:
        self.sock, self.parts, self.silent = connection.sock, [], 0
        self.address = checked(libc.mmap(None, ZEROCOPY_BYTES, mmap.PROT_READ, mmap.MAP_SHARED, self.sock.fileno(), 0))

    def waiting(self) -> int:
        return struct.unpack("i", fcntl.ioctl(self.sock, termios.FIONREAD, bytes(4)))[0]

    def read(self) -> None:
        asked = ctypes.create_string_buffer(ZEROCOPY.pack(self.address, ZEROCOPY_BYTES, 0), ZEROCOPY.size)
        size, before = ctypes.c_uint(ZEROCOPY.size), self.waiting()
        checked(libc.getsockopt(self.sock.fileno(), socket.SOL_TCP, TCP_ZEROCOPY_RECEIVE, asked, ctypes.byref(size)))
        _, mapped, other = ZEROCOPY.unpack(asked.raw)
        if mapped:
            self.parts.append(ctypes.string_at(self.address, mapped))
        elif other:
            with contextlib.suppress(BlockingIOError):  # the other reader was first
                self.parts.append(self.sock.recv(other, socket.MSG_DONTWAIT))
        elif before and before == self.waiting():
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
    connection.ask(BLOCK // 2)
    if receive.end() != BLOCK:
        sys.exit(f"{receive.got} bytes of {BLOCK}, error {receive.error}")
    parts, sent = zerocopy.parts, connection.at - at
    rest = sent - BLOCK - sum(map(len, parts))
    if rest:
        parts.append(connection.sock.recv(rest, socket.MSG_WAITALL))
    if not is_shared(expected(at, sent), memory.bytes(), b"".join(parts)):
        sys.exit(f"of {sent} bytes some are wrong or lost: {BLOCK} were received, and otherwise {[len(part) for part in parts]}")
    if connection.counters()["rx_rescued_bytes"] == before:
        sys.exit("nothing that was placed was met: nothing was shown")


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


CASES = {case.__name__: case for case in (unmapped, advised, moved, moved_meanwhile, advised_meanwhile, protected, protected_meanwhile,
         forked, forked_meanwhile, overlapping, idle, many, little, urgent, disconnected, reconnected, other_ulp, spliced, zerocopied)}  # fmt: skip


def answer(sock: socket.socket) -> None:
    while len(request := sock.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
        at, count, urgent = REQUEST.unpack(request)
        while count:
            part = min(count, MIB)
            sock.sendall(expected(at, part))
            at, count = at + part, count - part
        if urgent:
            sock.send(URGENT_BYTE, socket.MSG_OOB)


def serve(port: int) -> NoReturn:
    with socket.create_server(("", port)) as listener:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def receive(address: str, port: int, name: str) -> None:
    """One case; what it pinned is gone with its memory."""
    connection = Connection(address, port)
    placed = CASES[name](connection)
    print(f"ok {name}: {connection.placed() if placed is None else placed} bytes placed", flush=True)
    for memory in Memory.all:
        memory.free()
    Memory.all.clear()
    wait_until(lambda: not pinned(), "memory that is unmapped is not pinned")


def main() -> None:
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    for name in sys.argv[4:]:
        receive(sys.argv[2], int(sys.argv[3]), name)


main()
