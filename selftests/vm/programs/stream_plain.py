# SPDX-License-Identifier: BSD-3-Clause
"""What receives say that wait with their memory posted, or meet what was placed, held against a plain socket's."""

import contextlib
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from stream_beside import check_met, check_shared, without_processor
from stream_connection import BLOCK, KIB, Connection, Memory, wait_until
from stream_window import room, small_room

T = TypeVar("T")
TIMEVAL = struct.Struct("@ll")
LIMIT_S, LATE_S = 4, 2  # of a call; until some of its bytes come
LARGE = 256 * KIB  # TQP_PLACE_MIN_BYTES
SMALL = 64 * KIB  # that is not posted
ROUNDS_MAX = 20
TCP_INQ, SO_TIMESTAMP = 36, 29


def limit(connection: Connection, seconds: int) -> None:
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(seconds, 0))


def timed_call(connection: Connection, late: int, *into: memoryview) -> tuple[int, float]:
    """Bytes and seconds of a call with a time limit: @late bytes come after some of it, and no others."""
    limit(connection, LIMIT_S)
    timer = threading.Timer(LATE_S, connection.ask, (late,))
    begin = time.monotonic()
    timer.start()
    try:
        got = connection.sock.recvmsg_into(into, 0, socket.MSG_WAITALL)[0]
    except BlockingIOError:
        got = 0
    seconds = time.monotonic() - begin
    timer.join()
    limit(connection, 0)
    return got, seconds


def check_time(what: str, got: tuple[int, float], want: tuple[int, float]) -> None:
    print(f"{what}: {got[0]} bytes in {got[1]:.2f} s, of a plain socket {want[0]} in {want[1]:.2f} s", flush=True)
    if got[0] != want[0] or got[1] > want[1] + LATE_S / 2:
        sys.exit(f"a call with a limit of {LIMIT_S} s, {what}")


def plain(connection: Connection) -> Connection:
    return Connection(*connection.sock.getpeername()[:2], ulp=b"")


def timed(connection: Connection) -> None:
    """Into two buffers, of which the second is too small to be posted: there is one time limit for both."""
    memory, small = Memory(BLOCK), Memory(SMALL)
    want = timed_call(plain(connection), LARGE, memory.view(0, LARGE), small.view())
    connection.warm(memory)
    at, posts = connection.at, connection.counters()["rx_posts"]
    got = timed_call(connection, LARGE, memory.view(0, LARGE), small.view())
    if connection.counters()["rx_posts"] == posts:
        sys.exit("nothing was posted: nothing was shown")
    connection.compare(memory.bytes(0, LARGE), at)
    check_time("the first of two buffers is posted", got, want)


def beside(connection: Connection, call: Callable[[], tuple[bytes, T]]) -> T:
    """What @call says, beside a receive that waits with its memory posted and gets no processor.  It reads SMALL bytes, unless the other is first."""
    memory = Memory(BLOCK)
    before = connection.counters()["rx_rescued_bytes"]
    for _ in range(ROUNDS_MAX):
        connection.warm(memory)
        at, receive = connection.at, connection.half(memory)
        with without_processor(receive):
            got, said = call()
        connection.ask(BLOCK // 2)
        receive.end()
        check_shared(connection, at, receive, memory, [got])
        if len(got) == SMALL:
            break
    check_met(connection, before)
    return said


def timed_beside(connection: Connection) -> None:
    """There is one time limit, whoever's memory the bytes were placed in."""
    small = Memory(2 * SMALL)
    want = timed_call(plain(connection), SMALL, small.view())

    def call() -> tuple[bytes, tuple[int, float]]:
        got = timed_call(connection, SMALL, small.view())
        return small.bytes(0, got[0]), got

    check_time("another reader's memory is posted", beside(connection, call), want)


def told(connection: Connection, count: int, flags: int) -> tuple[bytes, list[str]]:
    """A call's bytes, and what it says of them."""
    got, control, _, _ = connection.sock.recvmsg(count, 256, flags)
    said = []
    for level, kind, value in control:
        if (level, kind) == (socket.SOL_TCP, TCP_INQ):
            said.append(f"{struct.unpack('i', value)[0]} bytes wait")
        elif (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMP):
            seconds = TIMEVAL.unpack(value)[0]
            said.append("came just now" if 0 <= time.time() - seconds < 30 else f"came at {seconds}")
        else:
            said.append(f"{level}, {kind}")
    return got, said


TOLD = ((SMALL, socket.MSG_PEEK), (SMALL // 2, 0), (SMALL // 4, socket.MSG_WAITALL), (SMALL // 4, socket.MSG_DONTWAIT))


def told_of(connection: Connection) -> tuple[bytes, list[list[str]]]:
    """Of bytes that wait, in calls of several kinds."""
    sock = connection.sock
    for level, option in ((socket.SOL_TCP, TCP_INQ), (socket.SOL_SOCKET, SO_TIMESTAMP)):
        sock.setsockopt(level, option, 1)
    time.sleep(0.1)  # the kernel begins to stamp packets a little later
    limit(connection, LIMIT_S)  # the other reader may be first
    connection.ask(SMALL)
    wait_until(connection.has_come, "what was asked for came")
    calls: list[tuple[bytes, list[str]]] = []
    with contextlib.suppress(BlockingIOError):
        for count, flags in TOLD:  # what was read before the one that fails counts, too
            calls.append(told(connection, count, flags | socket.MSG_DONTWAIT * (flags != socket.MSG_WAITALL)))
    for level, option in ((socket.SOL_TCP, TCP_INQ), (socket.SOL_SOCKET, SO_TIMESTAMP)):
        sock.setsockopt(level, option, 0)
    limit(connection, 0)
    return b"".join(got for got, _ in calls[1:]), [said for _, said in calls]


def ancillary(connection: Connection) -> None:
    """TCP_INQ and SO_TIMESTAMP say what they say of a plain socket."""
    _, want = told_of(plain(connection))
    said = beside(connection, lambda: told_of(connection))
    if said != want:
        sys.exit(f"calls that met what was placed said\n{said}\nof a plain socket\n{want}")


FULL = 24  # blocks: more than waits for who posts, and less than TCP has room for
TOLD_S, STOPS = 0.15, 7  # in which the peer goes on that was told; one that asks does so at growing intervals, and may do so by chance


def stopped(connection: Connection, memory: Memory, own: int) -> float:
    """A reader that stops: in what time its peer goes on, once the window is TCP's own again."""
    small = small_room(connection, memory, own)
    at = connection.at
    connection.ask(FULL * BLOCK)
    wait_until(lambda: room(connection) > small, "the room is TCP's own again")
    begin, waited = time.monotonic(), connection.waiting()
    wait_until(lambda: connection.waiting() > waited, "the peer goes on")
    seconds = time.monotonic() - begin
    print(f"room for {small}, {waited} waited, then room for {room(connection)}; the peer went on after {seconds:.3f} s", flush=True)
    for part in range(FULL):
        connection.left(memory, BLOCK, at + part * BLOCK)
    return seconds


def offered(connection: Connection) -> None:
    """The peer is told of the room, and does not have to ask."""
    memory = Memory(BLOCK)
    connection.warm(memory)
    own = room(connection)
    if statistics.median(stopped(connection, memory, own) for _ in range(STOPS)) > TOLD_S:
        sys.exit("the peer was not told")
