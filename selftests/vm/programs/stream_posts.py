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

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from stream_beside import peeked, short, spliced, spliced_at_once, zerocopied, zerocopied_and_copied
from stream_connection import BLOCK, KIB, MADV_DONTNEED, MADV_HUGEPAGE, MIB, REQUEST, Connection, Memory, Receive, checked, expected, libc, pinned, wait_until
from stream_marks import URGENT_BYTE, urgent, urgent_and_signal, urgent_between_parts
from stream_plain import ancillary, offered, timed, timed_beside
from stream_tls import gives, keyed_meanwhile
from stream_window import narrow, remeasured

PKEY_DISABLE_WRITE = 2
SIOCOUTQ = 0x5411
RECONNECTS = 6
HUGE = 2 * MIB
PAGE = 4096


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


def locked_by_key(connection: Connection) -> None:
    """The same of memory that the thread may not write by its protection key, of which the kernel tells nobody."""
    if (key := libc.pkey_alloc(0, 0)) < 0:
        print("# no protection keys here", flush=True)
        return
    memory = Memory(BLOCK)
    checked(libc.pkey_mprotect(memory.at, memory.size, mmap.PROT_READ | mmap.PROT_WRITE, key))
    connection.warm(memory)
    kept, at = memory.bytes(), connection.at
    checked(libc.pkey_set(key, PKEY_DISABLE_WRITE))
    receive = Receive(connection, memory.view())  # its thread has the rights of this one
    connection.ask(BLOCK)
    got = receive.end()
    checked(libc.pkey_set(key, 0))
    if got or receive.error != errno.EFAULT or memory.bytes() != kept:
        sys.exit(f"a receive into memory that its key locks: {got} bytes, error {receive.error}")
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


CASES = {case.__name__: case for case in (unmapped, advised, moved, moved_meanwhile, advised_meanwhile, protected, protected_meanwhile, locked_by_key,
         forked, forked_meanwhile, overlapping, idle, many, little, urgent, urgent_and_signal, urgent_between_parts, disconnected,
         reconnected, other_ulp, keyed_meanwhile, spliced, spliced_at_once, zerocopied, zerocopied_and_copied, peeked, short, remeasured, narrow, timed,
         timed_beside, ancillary, offered)}  # fmt: skip


def answer(sock: socket.socket) -> None:
    while len(request := sock.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
        at, count, urgently, back, reset = REQUEST.unpack(request)
        while count:
            part = min(count, MIB)
            sock.sendall(expected(at, part))
            at, count = at + part, count - part
        if urgently:
            sock.send(URGENT_BYTE, socket.MSG_OOB)
        if back:
            sock.sendall(sock.recv(back, socket.MSG_WAITALL))
        if reset:
            wait_until(lambda: not struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0], "all is acknowledged")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            break
    sock.close()


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
