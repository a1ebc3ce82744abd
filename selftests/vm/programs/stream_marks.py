# SPDX-License-Identifier: BSD-3-Clause
"""Urgent bytes that come while a receive waits, or is between two of its parts: it ends where a plain socket's does."""

import fcntl
import signal
import socket
import struct
import sys

from stream_connection import BLOCK, KIB, MIB, Connection, Interruptible, Memory, Receive, wait_until
from stream_plain import LARGE, SMALL, limit, plain

SIOCATMARK = 0x8905
F_SETOWN_EX, F_OWNER_TID = 15, 0
URGENT_BYTE = b"!"
RECVMSG = "47"
TIMED_S = 120
LITTLE = 32 * KIB  # fits a window that has not grown


def marked(sock: socket.socket) -> bool:
    return struct.unpack("i", fcntl.ioctl(sock, SIOCATMARK, bytes(4)))[0] == 1


def take_urgent(connection: Connection) -> None:
    wait_until(lambda: marked(connection.sock), "the urgent byte is the next")
    if (byte := connection.sock.recv(1, socket.MSG_OOB)) != URGENT_BYTE:
        sys.exit(f"the urgent byte is {byte!r}")


def urgent(connection: Connection) -> None:
    """A receive ends before an urgent byte, which is read by itself; the rest follows."""
    memory = Memory(BLOCK)
    connection.warm(memory)
    at, receive = connection.at, connection.half(memory)
    connection.ask(0, urgent=True)
    if receive.end() != BLOCK // 2:
        sys.exit(f"before the urgent byte: {receive.got} bytes, error {receive.error}")
    connection.compare(memory.bytes(0, BLOCK // 2), at)
    take_urgent(connection)
    connection.whole(memory)


def signalled(connection: Connection, memory: Memory, count: int) -> tuple[int, int]:
    """A receive that has no byte yet as an urgent one comes, and tells its thread by SIGURG: what it says.  The rest is received."""
    receive = Interruptible(connection, memory.view(0, count))
    fcntl.fcntl(connection.sock, F_SETOWN_EX, struct.pack("ii", F_OWNER_TID, receive.native_id or 0))
    connection.ask(0, urgent=True)
    receive.end()
    take_urgent(connection)
    at = connection.at
    connection.ask(count)
    connection.left(memory, count, at)
    return receive.got, receive.error


def urgent_and_signal(connection: Connection) -> None:
    """Posted, and not posted but with a limit of time: SIGURG ends a call, and the urgent byte stays."""
    signal.signal(signal.SIGURG, lambda *_: None)
    memory = Memory(BLOCK)
    want = signalled(plain(connection), memory, BLOCK)
    connection.warm(memory)
    posts = connection.counters()["rx_posts"]
    posted = signalled(connection, memory, BLOCK)
    if connection.counters()["rx_posts"] == posts:
        sys.exit("nothing was posted: nothing was shown")
    limit(connection, TIMED_S)
    timed = signalled(connection, memory, SMALL)
    if not posted == timed == want:
        sys.exit(f"a call that SIGURG ends: {posted} where it was posted, {timed} with a limit of time, {want} of a plain socket")


class TwoBuffers(Receive):
    """LARGE bytes, and then what is too small to be posted."""

    CALL = RECVMSG

    def run(self) -> None:
        self.got = self.connection.sock.recvmsg_into((self.into[:LARGE], self.into[LARGE:]), 0, self.flags)[0]


PARTS = (  # a whole post; what waited, read before anything is posted; a whole buffer
    (8 * MIB, 4 * MIB, False, Receive), (LARGE + LITTLE, LITTLE, True, Receive), (LARGE + SMALL, LARGE, False, TwoBuffers),
)  # fmt: skip


def stopped(connection: Connection, memory: Memory, size: int, before: int, waits: bool, way: type[Receive]) -> int:
    """Bytes of a call that has @before bytes, where one of its parts ends, when an urgent byte is the next.  @waits: they wait as it begins."""
    at = connection.at
    if waits:
        connection.ask(before)
        wait_until(connection.has_come, "what was asked for came")
    receive = way(connection, memory.view(0, size))
    if not waits:
        connection.ask(before)
    wait_until(connection.has_read, "it is read")
    connection.ask(0, urgent=True)
    connection.ask(size - before)
    got = receive.end()
    if got != before:
        return got
    connection.compare(memory.bytes(0, got), at)
    take_urgent(connection)
    connection.left(memory, size - before, at + before)
    return got


def urgent_between_parts(connection: Connection) -> None:
    """A call that is received in several parts ends at an urgent byte wherever that comes."""
    memory = Memory(8 * MIB)
    address = connection.sock.getpeername()[:2]
    for part in PARTS:
        want = stopped(plain(connection), memory, *part)
        other = Connection(*address)
        other.whole(memory, 0, 2 * MIB)
        if (got := stopped(other, memory, *part)) != want:
            sys.exit(f"a receive of {part[0]} bytes, {part[1]} of them before an urgent byte: {got}, of a plain socket {want}")
