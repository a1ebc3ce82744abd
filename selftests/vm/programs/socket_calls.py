#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random sequences of socket calls on a plain pair and on one with ULP tcp_qp_stream must say the same: socket_calls.py FIRST-END [options].

A seed is a sequence.  After each call all that was sent has been acknowledged, so that no answer depends on time, whatever the network loses.
Nobody acknowledges a reset: with --lossy a sequence ends with the first disconnect, or before the first send to an end that has shut down
both ways, which answers with a reset.  Without loss it ends before such a send if that is long: it sees the reset after sixteen segments,
which are not equally long.
The first difference of a seed ends it, and is printed with the calls that led there; exit 0 only if there is none.
"""

import argparse
import ctypes
import errno
import fcntl
import os
import random
import select
import socket
import struct
import sys
import termios
import time
import traceback
import zlib
from collections.abc import Callable

from stream_cases import LIMIT_S, MSG_ZEROCOPY, SO_ZEROCOPY, TCP_ULP, pair, pattern, warm

STEPS = 60
SHOWN = 12  # calls before a difference
RESET_S = 0.05  # until the other end has heard of it, if it does
SIZES = (1, 100, 4096, 32 << 10, 70_000, 200_000, 600_000)
ROOM = 16 << 20  # for all that a sequence sends
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32
INFO_BYTES, INFO_UNACKED_AT, INFO_NOTSENT_AT = 256, 24, 144  # struct tcp_info
SETTLE_S = 0.002
LONG_SEND = 1_000_000  # about sixteen segments
BYTES = pattern(1, 4 << 20)  # cut anywhere: to make bytes takes longer than to send them
Answer = object

SET = (
    (socket.SOL_TCP, socket.TCP_NODELAY, 1), (socket.SOL_TCP, socket.TCP_NODELAY, 0), (socket.SOL_TCP, socket.TCP_CORK, 0),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1), (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10),
    (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1), (socket.SOL_SOCKET, SO_ZEROCOPY, 1), (socket.SOL_SOCKET, SO_ZEROCOPY, 0),
    (socket.SOL_TCP, socket.TCP_MAXSEG, 1000), (socket.SOL_TCP, TCP_ULP, b"no such"), (socket.SOL_TCP, TCP_ULP, b"tcp_qp"),
    (socket.SOL_TCP, TCP_ULP, b"mptcp"), (socket.IPPROTO_IPV6, 1, socket.AF_INET), (socket.IPPROTO_IP, socket.IP_TOS, 16),
    (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)), (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0)),
)  # fmt: skip
READ = (
    (socket.SOL_SOCKET, socket.SO_ERROR), (socket.SOL_SOCKET, socket.SO_TYPE), (socket.SOL_SOCKET, socket.SO_DOMAIN),
    (socket.SOL_SOCKET, socket.SO_RCVLOWAT), (socket.SOL_SOCKET, socket.SO_ACCEPTCONN), (socket.SOL_SOCKET, SO_ZEROCOPY),
    (socket.SOL_TCP, socket.TCP_NODELAY), (socket.SOL_TCP, socket.TCP_CORK), (socket.SOL_SOCKET, socket.SO_OOBINLINE),
)  # fmt: skip
SEND_FLAGS = (0, 0, 0, socket.MSG_EOR, socket.MSG_DONTWAIT, socket.MSG_MORE, MSG_ZEROCOPY, socket.MSG_DONTWAIT | socket.MSG_MORE)
RECV_FLAGS = (0, 0, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_WAITALL)


class End:
    """One end of a connection, with what its calls need."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sent = 0  # bytes of the pattern
        self.lent: list[bytes] = []  # to the kernel, by MSG_ZEROCOPY: until it is acknowledged it may be sent again from where it lies
        self.copy: socket.socket | None = None
        sock.setblocking(True)
        for name in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
            sock.setsockopt(socket.SOL_SOCKET, name, ROOM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 10_000))

    def next(self, size: int) -> slice:
        """Of BYTES: what it sends next."""
        begin = self.sent % (len(BYTES) - size)
        self.sent += size
        return slice(begin, begin + size)

    def bytes(self, size: int) -> bytes:
        return BYTES[self.next(size)]


def seen(data: bytes) -> tuple[int, int]:
    return len(data), zlib.crc32(data)


def do_send(end: End, size: int, flags: int) -> Answer:
    data = end.bytes(size)
    if flags & MSG_ZEROCOPY:
        end.lent.append(data)
    return end.sock.send(data, flags)


def do_sendmsg(end: End, sizes: tuple[int, ...]) -> Answer:
    return end.sock.sendmsg([end.bytes(size) for size in sizes])


def do_urgent(end: End, size: int) -> Answer:
    return end.sock.send(end.bytes(size), socket.MSG_OOB)


def do_sendfile(end: End, size: int, offset: int) -> Answer:
    fd = os.memfd_create("sent")
    try:
        os.write(fd, end.bytes(size + offset))
        return os.sendfile(end.sock.fileno(), fd, offset, size)
    finally:
        os.close(fd)


def do_splice_to(end: End, size: int) -> Answer:
    out, into = os.pipe()
    try:
        size = os.write(into, end.bytes(min(size, 60_000)))
        return os.splice(out, end.sock.fileno(), size)
    finally:
        os.close(out)
        os.close(into)


def do_recv(end: End, size: int, flags: int) -> Answer:
    return seen(end.sock.recv(size, flags)) if not flags & socket.MSG_TRUNC else len(end.sock.recv(size, flags))


def do_recv_urgent(end: End) -> Answer:
    return seen(end.sock.recv(1, socket.MSG_OOB))


def do_splice_from(end: End, size: int) -> Answer:
    """All that there is, though a pipe takes it in parts."""
    out, into = os.pipe()
    data = b""
    try:
        while len(data) < size and (n := os.splice(end.sock.fileno(), into, min(size - len(data), 32 << 10), flags=os.SPLICE_F_NONBLOCK)):
            data += os.read(out, n)
    except OSError:
        if not data:
            raise
    finally:
        os.close(out)
        os.close(into)
    return seen(data)


def do_poll(end: End) -> Answer:
    poll = select.poll()
    poll.register(end.sock, select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDHUP)
    return [events for _, events in poll.poll(0)]


def do_waiting(end: End) -> Answer:
    return struct.unpack("i", fcntl.ioctl(end.sock, termios.FIONREAD, bytes(4)))[0]


def do_shutdown(end: End, how: int) -> Answer:
    return end.sock.shutdown(how)


def do_set(end: End, *option) -> Answer:
    return end.sock.setsockopt(*option)


def do_get(end: End, *option) -> Answer:
    return end.sock.getsockopt(*option)


def do_disconnect(end: End) -> Answer:
    libc = ctypes.CDLL(None, use_errno=True)
    answer = libc.connect(end.sock.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16) and ctypes.get_errno()
    time.sleep(RESET_S)
    return answer


def do_listen(end: End) -> Answer:
    return end.sock.listen(1)


def do_dup(end: End) -> Answer:
    end.copy, end.sock = end.sock, end.sock.dup()
    return None


def do_child(end: End, size: int) -> Answer:
    """The same socket in a child."""
    data = end.bytes(size)
    child = os.fork()
    if not child:
        try:
            os._exit(0 if end.sock.send(data) == size else 1)
        except OSError as e:
            os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Other:
    """Another process, which sends by sockets that it is passed."""

    def __init__(self) -> None:
        self.ask, theirs = socket.socketpair()
        if os.fork():
            theirs.close()
            return
        self.ask.close()
        while True:
            question, fds = socket.recv_fds(theirs, 16, 1)[:2]
            if not question:
                os._exit(0)
            theirs.send(struct.pack("q", self.send(fds[0], slice(*struct.unpack("qq", question)))))

    @staticmethod
    def send(fd: int, what: slice) -> int:
        with socket.socket(fileno=fd) as sock:
            try:
                return sock.send(BYTES[what])
            except OSError as e:
                return -e.errno


other: Other | None = None  # each worker's


def do_elsewhere(end: End, size: int) -> Answer:
    """The same socket in another process, which it is passed to."""
    what = end.next(size)
    socket.send_fds(other.ask, [struct.pack("qq", what.start, what.stop)], [end.sock.fileno()])
    return struct.unpack("q", other.ask.recv(8))[0]


def plan(dice: random.Random, length: int) -> list[tuple[int, Callable[..., Answer], tuple]]:
    """(end, call, arguments).  Rare calls end much: so there are few of them, and none in most sequences."""
    common: list[tuple[Callable[..., Answer], Callable[[], tuple]]] = [
        (do_send, lambda: (dice.choice(SIZES), dice.choice(SEND_FLAGS))), (do_send, lambda: (dice.choice(SIZES[3:]), 0)),
        (do_sendmsg, lambda: (tuple(dice.choice(SIZES) for _ in range(dice.randint(1, 3))),)),
        (do_sendfile, lambda: (dice.choice(SIZES), dice.randint(0, 5000))), (do_splice_to, lambda: (dice.choice(SIZES),)),
        (do_recv, lambda: (dice.randint(1, 300_000), dice.choice(RECV_FLAGS))), (do_recv, lambda: (dice.randint(1, 1 << 20), 0)),
        (do_splice_from, lambda: (dice.randint(1, 200_000),)), (do_poll, tuple), (do_waiting, tuple),
        (do_set, lambda: dice.choice(SET)), (do_get, lambda: dice.choice(READ)), (do_elsewhere, lambda: (dice.choice(SIZES),)),
    ]  # fmt: skip
    rare: list[tuple[Callable[..., Answer], Callable[[], tuple]]] = [
        (do_child, lambda: (dice.choice(SIZES),)), (do_urgent, lambda: (dice.choice(SIZES),)), (do_recv_urgent, tuple), (do_dup, tuple),
        (do_shutdown, lambda: (dice.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)),)), (do_disconnect, tuple), (do_listen, tuple),
    ]  # fmt: skip
    steps = []
    for _ in range(length):
        call, args = dice.choice(rare if dice.random() < 0.04 else common)
        steps.append((dice.randrange(2), call, args()))
    return steps


def outstanding(sock: socket.socket) -> bool:
    info = sock.getsockopt(socket.SOL_TCP, socket.TCP_INFO, INFO_BYTES)
    unacked, notsent = struct.unpack_from("I", info, INFO_UNACKED_AT)[0], struct.unpack_from("I", info, INFO_NOTSENT_AT)[0]
    return bool(unacked or notsent) and info[0] not in (7, 10)  # TCP_CLOSE, TCP_LISTEN


def settle(ends: tuple[End, End]) -> None:
    limit = time.monotonic() + LIMIT_S
    while any(outstanding(end.sock) for end in ends):
        assert time.monotonic() < limit, "never acknowledged"
        time.sleep(SETTLE_S)
    for end in ends:
        end.lent.clear()


def play(steps: list, ulp: bool, family: int) -> list[Answer]:
    socks = pair(ulp, family)
    warm(*socks)
    ends = (End(socks[0]), End(socks[1]))
    said: list[Answer] = []
    for at, call, args in steps:
        try:
            said.append(call(ends[at], *args))
        except OSError as e:
            said.append(errno.errorcode[e.errno])
        settle(ends)
    for end in ends:
        end.sock.close()
        if end.copy:
            end.copy.close()
    return said


SENDS = (do_send, do_sendmsg, do_sendfile, do_splice_to, do_elsewhere, do_child, do_urgent)


def until_reset(steps: list, lossy: bool) -> list:
    """What does not depend on when a reset is seen."""
    shut: list[set] = [set(), set()]
    for i, (at, call, args) in enumerate(steps):
        if call is do_shutdown:
            shut[at] |= {socket.SHUT_RD, socket.SHUT_WR} if args[0] == socket.SHUT_RDWR else {args[0]}
        if call in SENDS and len(shut[1 - at]) == 2 and (lossy or (call is do_sendmsg and sum(args[0]) >= LONG_SEND)):
            return steps[:i]
        if lossy and call is do_disconnect:
            return steps[: i + 1]
    return steps


def differs(seed: int, length: int, lossy: bool) -> tuple[bool, int]:
    """Whether it does, and how many calls were made on each pair."""
    dice = random.Random(seed)
    family = dice.choice((socket.AF_INET, socket.AF_INET6))
    steps = until_reset(plan(dice, length), lossy)
    plain, ours = (play(steps, ulp, family) for ulp in (False, True))
    if plain == ours:
        return False, len(steps)
    at = next(i for i, (a, b) in enumerate(zip(plain, ours)) if a != b)
    print(f"not ok seed {seed}: call {at} said {plain[at]} of the plain socket, and {ours[at]}", flush=True)
    for i in range(max(0, at - SHOWN), at + 1):
        print(f"    {i}: end {steps[i][0]} {steps[i][1].__name__[3:]} {steps[i][2]} -> {plain[i]}", flush=True)
    return True, at + 1


def work(seeds: range, length: int, lossy: bool, told: int) -> int:
    """In a process of its own: how many differ.  The number of calls goes to the pipe @told."""
    global other
    wrong = calls = 0
    other = Other()
    for seed in seeds:
        differ, made = differs(seed, length, lossy)
        wrong, calls = wrong + differ, calls + made
    os.write(told, struct.pack("q", calls))
    return wrong


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("seeds", metavar="FIRST-END")
    p.add_argument("--workers", type=int, default=1, help="what waits for what the network lost waits side by side")
    p.add_argument("--calls", type=int, default=STEPS, help="of a sequence, at most (default %(default)s)")
    p.add_argument("--lossy", action="store_true")
    args = p.parse_args()
    first, end = map(int, args.seeds.split("-"))
    children, (heard, told) = [], os.pipe()
    for worker in range(args.workers):
        child = os.fork()
        if not child:
            wrong = 1
            try:
                wrong = work(range(first + worker, end, args.workers), args.calls, args.lossy, told)
            except Exception:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(min(wrong, 99))
        children.append(child)
    os.close(told)
    wrong = sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)
    calls = sum(n for (n,) in struct.iter_unpack("q", os.read(heard, 8 * args.workers)))
    print(f"{'not ok' if wrong else 'ok'} {end - first} sequences, {calls} calls", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
