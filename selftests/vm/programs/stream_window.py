# SPDX-License-Identifier: BSD-3-Clause
"""What the receive window is of a socket whose readers posted their memory, beside what it would be if they had not."""

import socket
import sys
import time

from stream_connection import BLOCK, Connection, Memory, wait_until

IDLE_S = 2  # TQP_WINDOW_IDLE_MS, twice
SMALL = 600  # bytes of a segment that is not full
SEGMENT = 1448  # of one that is, on nupa0
SMALL_SEGMENT = 600  # at the most, with its options
OFFERED = 48  # buffers: more than the peer was told it may send, before anything was posted
ROUNDS_MAX = 24


def clamp(connection: Connection) -> int:
    return connection.sock.getsockopt(socket.SOL_TCP, socket.TCP_WINDOW_CLAMP)


def room(connection: Connection) -> int:
    """As TCP has it: SO_RCVBUF says what was set, doubled."""
    return connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def message(connection: Connection, count: int) -> None:
    """In a segment of its own, read."""
    at = connection.at
    connection.ask(count)
    wait_until(lambda: connection.waiting() == count, "a message came")
    connection.compare(connection.sock.recv(count), at)


def post_much(connection: Connection, memory: Memory) -> None:
    """More than the peer was told it may send."""
    at = connection.at
    connection.ask(OFFERED * BLOCK)
    for begin in range(0, OFFERED * BLOCK, BLOCK):
        connection.left(memory, BLOCK, at + begin)


def small_room(connection: Connection, memory: Memory, own: int) -> int:
    """Posts until the room is a good deal less than TCP's @own: it is for what is read in two round trips, which seem long at first."""
    for _ in range(ROUNDS_MAX):
        post_much(connection, memory)
        if (small := room(connection)) <= own * 2 // 3:
            return small
    sys.exit(f"the room was {own} bytes, and never small: nothing was shown")


def remeasured(connection: Connection) -> None:
    """TCP looks anew how much memory segments take while the room is small: what it makes of that goes by its own room afterwards."""
    memory, own = Memory(BLOCK), room(connection)
    connection.warm(memory)
    small = small_room(connection, memory, own)
    for count in (SMALL, SMALL, SEGMENT):
        message(connection, count)
    narrowed = clamp(connection)
    time.sleep(IDLE_S)
    own, then = room(connection), clamp(connection)
    print(f"{small} bytes of room for a window of {narrowed}; {own} for one of {then}", flush=True)
    if then < narrowed * (own / small) * 0.9:
        sys.exit(f"there is room of {own} bytes again, and the window stays that of {small}, {then}")


def narrow(connection: Connection) -> None:
    """Segments that take so much memory that TCP's own room is for less than may wait: that stays as it is."""
    other = Connection(*connection.sock.getpeername()[:2], SMALL_SEGMENT)
    memory = Memory(BLOCK)
    message(other, SMALL_SEGMENT // 2)
    message(other, SMALL_SEGMENT - 12)
    was, least = room(other), room(other)
    window = clamp(other)
    other.warm(memory)
    for _ in range(8):
        other.whole(memory)
        least = min(least, room(other))
    if not other.counters()["rx_posts"]:
        sys.exit("nothing was posted: nothing was shown")
    if least < was:
        sys.exit(f"the room was {was} for a window of {window}, and {least} while receives were posted")
