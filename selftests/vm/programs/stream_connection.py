# SPDX-License-Identifier: BSD-3-Clause
"""A connection to stream_posts.py's server, and receives of it that wait with their memory posted."""

import ctypes
import fcntl
import json
import mmap
import os
import random
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import ClassVar

TCP_ULP = 31
NAME = b"tcp_qp_stream"
KIB, MIB = 1 << 10, 1 << 20
PERIOD = 1048573
BLOCK = MIB
RECVFROM = "45"
LIMIT_S = 60
WARM_MAX = 20
BYTES_RECEIVED, BYTES_RECEIVED_AT = struct.Struct("<Q"), 128  # struct tcp_info
CLOSED = 7  # TCP_CLOSE
REQUEST = struct.Struct("<QQ?H?")  # from where, how many, whether an urgent byte follows, how many bytes that come with the request, whether a reset

MREMAP_MAYMOVE, MREMAP_FIXED, MAP_FIXED = 1, 2, 0x10
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTNEED = 14, 15, 4

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.recv.restype = ctypes.c_ssize_t
libc.recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.pkey_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int)
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

    CALL = RECVFROM

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
                return call.read().split()[0] == self.CALL
        except (FileNotFoundError, IndexError):
            return False

    def end(self) -> int:
        self.join(LIMIT_S)
        if self.is_alive():
            sys.exit("the receive did not end")
        return self.got


class Interruptible(Receive):
    """A receive that a signal ends: Python's own would begin again."""

    def run(self) -> None:
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.into))
        self.got = libc.recv(self.connection.sock.fileno(), at, len(self.into), self.flags)
        self.error = ctypes.get_errno() if self.got < 0 else 0


class Connection:
    def __init__(self, address: str, port: int, segment: int = 0, ulp: bytes = NAME) -> None:
        """@segment: the largest that may come, in bytes; 0: as the path has it. @ulp: empty: a plain socket."""
        self.sock = socket.socket()
        if segment:
            self.sock.setsockopt(socket.SOL_TCP, socket.TCP_MAXSEG, segment)
        self.sock.connect((address, port))
        if ulp:
            self.sock.setsockopt(socket.SOL_TCP, TCP_ULP, ulp)
        self.at = 0  # what was asked for

    def ask(self, count: int, urgent: bool = False, back: bytes = b"", reset: bool = False) -> None:
        """@back: bytes that the server sends behind that, as they are."""
        self.sock.sendall(REQUEST.pack(self.at, count, urgent, len(back), reset) + back)
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

    def waiting(self) -> int:
        """Bytes that wait in the kernel."""
        return struct.unpack("i", fcntl.ioctl(self.sock, termios.FIONREAD, bytes(4)))[0]

    def has_come(self) -> bool:
        """All that was asked for."""
        info = self.sock.getsockopt(socket.SOL_TCP, socket.TCP_INFO, BYTES_RECEIVED.size + BYTES_RECEIVED_AT)
        return BYTES_RECEIVED.unpack_from(info, BYTES_RECEIVED_AT)[0] == self.at

    def is_closed(self) -> bool:
        return self.sock.getsockopt(socket.SOL_TCP, socket.TCP_INFO, 1)[0] == CLOSED

    def has_read(self) -> bool:
        """All that was asked for has come, and no byte of it waits in the kernel."""
        return self.has_come() and not self.waiting()

    def rest(self, receive: Receive) -> None:
        self.ask(BLOCK // 2)
        if receive.end() != BLOCK:
            sys.exit(f"{receive.got} bytes of {BLOCK}, error {receive.error}")
