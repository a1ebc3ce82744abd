#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sockets with ULP tcp_qp_stream, beside plain ones: stream_cases.py CASE[:ARGUMENT]...  Prints one line for each case; exit 0 only if all hold."""

import ctypes
import errno
import hashlib
import json
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing

TCP_ULP = 31
NAME = b"tcp_qp_stream"
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
BULK = 1 << 20  # acknowledged; then a socket has large pages
LIMIT_S = 30
IDLE_LIMIT_S = 10  # of 2 to 4; left to the kernel it was about 20 in a quiet guest
REFUSED = (errno.ENOENT, errno.EEXIST, errno.EINVAL, errno.EPERM, errno.ENOTCONN)


def with_ulp(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.SOL_TCP, TCP_ULP, NAME)
    return sock


def ulp_of(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.SOL_TCP, TCP_ULP, 16).rstrip(b"\0")


def pair(ulp: bool = True, family: int = socket.AF_INET) -> tuple[socket.socket, socket.socket]:
    """Who connects, and what was accepted."""
    with closing(socket.socket(family)) as listener:
        if ulp:
            with_ulp(listener)
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen()
        ours = socket.socket(family)
        if ulp:
            with_ulp(ours)
        ours.connect(listener.getsockname())
        theirs = listener.accept()[0]
    for sock in (ours, theirs):
        sock.settimeout(LIMIT_S)
    return ours, theirs


def bulk_pairs() -> Iterator[tuple[bool, socket.socket, socket.socket]]:
    """A plain pair and one with the ULP, of which the first end blocks and has moved enough to have large pages."""
    for ulp in (False, True):
        ours, theirs = pair(ulp)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # else it may grow until all fits into it
        warm(ours, theirs)
        ours.setblocking(True)
        yield ulp, ours, theirs


class Reader(threading.Thread):
    """Reads until the end; counts, and hashes."""

    def __init__(self, sock: socket.socket, pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.sock, self.pause_s, self.hash, self.bytes = sock, pause_s, hashlib.sha256(), 0
        self.start()

    def run(self) -> None:
        while data := self.sock.recv(1 << 18):
            self.hash.update(data)
            self.bytes += len(data)
            time.sleep(self.pause_s)


def warm(ours: socket.socket, theirs: socket.socket) -> None:
    """Until what was acknowledged makes it a bulk socket's."""
    data = bytes(BULK)
    sender = threading.Thread(target=lambda: ours.sendall(data))
    sender.start()
    left = BULK
    while left:
        left -= len(theirs.recv(left))
    sender.join()


def shown() -> list[dict]:
    """Connections, as tcpqp-stat has them of sock_diag."""
    program = os.path.join(os.environ["BUILD"], "cmake/tools/tcpqp_stat/tcpqp-stat")
    return json.loads(subprocess.run([program, "--json"], stdout=subprocess.PIPE, check=True).stdout)


def large_bytes(sock: socket.socket) -> int:
    """What was copied into large pages."""
    local = f":{sock.getsockname()[1]}"
    return sum(line.get("tx_large_bytes", 0) for line in shown() if line["local"].endswith(local))


def pattern(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


SIZES = (1, 4095, 32 << 10, 100_001, 262_144, (1 << 20) - 1, 1 << 20, 3_000_017)


def case_bytes() -> None:
    """Sends of all sizes, slow and quick readers, IPv4 and IPv6: the same bytes, most of them by large pages."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for pause_s in (0.0, 0.002):
            ours, theirs = pair(family=family)
            reader, sent, total = Reader(theirs, pause_s), hashlib.sha256(), 0
            for seed, size in enumerate(SIZES + SIZES[::-1]):
                data = pattern(seed, size)
                ours.sendall(data)
                sent.update(data)
                total += size
            large = large_bytes(ours)
            ours.close()
            reader.join(LIMIT_S)
            assert (reader.bytes, reader.hash.digest()) == (total, sent.digest()), (family, pause_s, reader.bytes, total)
            assert large > total / 4, (family, pause_s, large, total)


def pool_bytes(sock: socket.socket) -> int:
    local = f":{sock.getsockname()[1]}"
    return sum(line.get("pool_bytes", 0) for line in shown() if line["local"].endswith(local))


def case_idle_pages() -> None:
    """An idle socket has no large pages: also not those whose packets were read on another CPU, which the kernel keeps for that of the sender."""
    ours, theirs = pair()
    warm(ours, theirs)
    mine = os.sched_getaffinity(0)
    sender, reader = sorted(mine)[:2]
    for _ in range(4):
        os.sched_setaffinity(0, {sender})
        ours.setblocking(False)
        left = ours.send(bytes(BULK))
        os.sched_setaffinity(0, {reader})
        while left:
            left -= len(theirs.recv(left))
    assert pool_bytes(ours) > 0
    until = time.monotonic() + IDLE_LIMIT_S
    while held := pool_bytes(ours):
        assert time.monotonic() < until, f"{held} bytes are held by an idle socket"
        time.sleep(0.1)
    os.sched_setaffinity(0, mine)


def case_inherited() -> None:
    ours, theirs = pair()
    assert (ulp_of(ours), ulp_of(theirs)) == (NAME, NAME)
    with closing(socket.socket()) as plain:
        assert ulp_of(plain) == b""
        plain.bind(("127.0.0.1", 0))
        plain.listen()
        with closing(socket.create_connection(plain.getsockname())):
            assert ulp_of(plain.accept()[0]) == b""
        with closing(socket.create_connection(with_ulp(plain).getsockname())):
            assert ulp_of(plain.accept()[0]) == NAME
    with closing(with_ulp(socket.socket())) as twice:
        refused(lambda: with_ulp(twice), errno.EEXIST)


def refused(act, *numbers: int) -> None:
    try:
        act()
    except OSError as e:
        assert e.errno in numbers, e
        return
    raise AssertionError(f"not refused: {numbers}")


def case_disconnect_and_listen() -> None:
    """connect(AF_UNSPEC) of a socket that has pages, which then listens: what it accepts has the ULP, and no pages of its parent's."""
    ours, theirs = pair()
    warm(ours, theirs)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.connect(ours.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16) == 0
    ours.bind(("127.0.0.1", 0))
    ours.listen()
    with closing(socket.create_connection(ours.getsockname())) as other:
        child = ours.accept()[0]
        child.settimeout(LIMIT_S)
        other.settimeout(LIMIT_S)
        assert ulp_of(child) == NAME
        warm(child, other)
        warm(other, child)
    child.close()
    ours.close()


def case_time_limit() -> None:
    """SO_SNDTIMEO: of one send() what went within the limit, however many pages it took."""
    for ulp, ours, _ in bulk_pairs():
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300_000))
        begun = time.monotonic()
        sent = ours.send(bytes(64 << 20))
        took = time.monotonic() - begun
        assert 0 < sent < 64 << 20 and 0.2 < took < 10, (ulp, sent, took)
        refused(lambda: [ours.send(bytes(1 << 20)) for _ in range(32)], errno.EAGAIN)  # once the peer's window is full


def case_signal() -> None:
    """A signal ends a send() that waits: with what was sent."""
    for ulp, ours, _ in bulk_pairs():
        libc = ctypes.CDLL(None, use_errno=True)
        libc.send.restype = ctypes.c_ssize_t
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.siginterrupt(signal.SIGALRM, True)
        data, sent = bytes(64 << 20), []
        while not sent or sent[-1] > 0:  # the peer's window grows once or twice
            assert len(sent) < 10, sent
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            sent.append(libc.send(ours.fileno(), data, ctypes.c_size_t(len(data)), 0))
        assert 0 < sent[0] < len(data) and ctypes.get_errno() == errno.EINTR, (ulp, sent, ctypes.get_errno())


def case_reset_in_mid_send() -> None:
    """The call that sent bytes tells of them; the next tells of the reset, the third of the broken pipe."""
    for ulp, ours, theirs in bulk_pairs():
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        threading.Timer(0.5, theirs.close).start()
        sent = ours.send(bytes(64 << 20))
        assert 0 < sent < 64 << 20, (ulp, sent)
        refused(lambda: ours.send(bytes(1 << 20)), errno.ECONNRESET)
        refused(lambda: ours.send(bytes(1 << 20)), errno.EPIPE)


def case_not_blocking() -> None:
    """send() of a non-blocking socket with epoll, edge-triggered, until all is there."""
    for ulp, ours, theirs in bulk_pairs():
        ours.setblocking(False)
        reader, data, at = Reader(theirs, 0.001), pattern(7, 20_000_003), 0
        with closing(select.epoll()) as epoll:
            epoll.register(ours, select.EPOLLOUT | select.EPOLLET)
            while at < len(data):
                try:
                    at += ours.send(memoryview(data)[at:])
                except BlockingIOError:
                    assert epoll.poll(LIMIT_S), f"no edge after {at} bytes"
        ours.close()
        reader.join(LIMIT_S)
        assert reader.hash.digest() == hashlib.sha256(data).digest(), ulp


def case_other_ways_to_send() -> None:
    """MSG_ZEROCOPY, sendfile(), MSG_OOB and MSG_MORE between large sends: all in order."""
    ours, theirs = pair()
    reader, sent = Reader(theirs), hashlib.sha256()
    kept = []  # what MSG_ZEROCOPY sends from is the kernel's until the end
    ours.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    fd = os.memfd_create("sent")
    os.write(fd, pattern(1, 700_000))
    for turn in range(6):
        for flags, size in ((0, 600_000), (MSG_ZEROCOPY, 300_000), (socket.MSG_MORE, 200_000), (0, 10), (MSG_ZEROCOPY, 40_000), (0, 50_000)):
            data = pattern(turn * 100 + size, size)
            kept.append(data)
            left = memoryview(data)
            while left:
                left = left[ours.send(left, flags):]
            sent.update(data)
        offset = 0
        while offset < 700_000:
            offset += os.sendfile(ours.fileno(), fd, offset, 700_000 - offset)
        sent.update(pattern(1, 700_000))
    ours.shutdown(socket.SHUT_WR)
    reader.join(LIMIT_S)
    assert reader.hash.digest() == sent.digest()


def case_yields() -> None:
    """Another ULP takes its place; one that is refused leaves it where it was."""
    ours, theirs = pair()
    warm(ours, theirs)
    refused(lambda: ours.setsockopt(socket.SOL_TCP, TCP_ULP, b"no such"), errno.ENOENT)
    refused(lambda: ours.setsockopt(socket.SOL_TCP, TCP_ULP, b"tcp_qp"), errno.EPERM)
    refused(lambda: ours.setsockopt(socket.SOL_TCP, TCP_ULP, NAME), errno.EEXIST)
    assert ulp_of(ours) == NAME
    warm(ours, theirs)
    if subprocess.run(["modprobe", "-q", "tls"], check=False).returncode == 0:
        ours.setsockopt(socket.SOL_TCP, TCP_ULP, b"tls")
        assert ulp_of(ours) == b"tls"
        warm(ours, theirs)
        with closing(with_ulp(socket.socket())) as fresh:
            refused(lambda: fresh.setsockopt(socket.SOL_TCP, TCP_ULP, b"tls"), errno.ENOTCONN)
            assert ulp_of(fresh) == NAME
    else:
        print("# no tls module")


def case_ipv6_becomes_ipv4() -> None:
    with closing(with_ulp(socket.socket())) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ours = with_ulp(socket.socket(socket.AF_INET6))
        ours.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        theirs = listener.accept()[0]
    warm(ours, theirs)
    ours.setsockopt(socket.IPPROTO_IPV6, 1, socket.AF_INET)  # IPV6_ADDRFORM
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET and ulp_of(ours) == NAME
    ours.settimeout(LIMIT_S)
    theirs.settimeout(LIMIT_S)
    warm(ours, theirs)


def send_until(sock: socket.socket, size: int, over: threading.Event) -> None:
    data = bytes([size % 251]) * size
    try:
        while not over.is_set():
            sock.sendall(data)
    except OSError as e:
        assert e.errno in (errno.EPIPE, errno.ECONNRESET, errno.EBADF), e


def disturb_until(sock: socket.socket, names: tuple[bytes, ...], over: threading.Event) -> None:
    """Tries ULPs, and to listen."""
    acts = [lambda name=name: sock.setsockopt(socket.SOL_TCP, TCP_ULP, name) for name in names] + [sock.listen]
    while not over.is_set():
        for act in acts:
            try:
                act()
            except OSError as e:
                assert e.errno in REFUSED, e


def case_threads() -> None:
    """Several senders on one socket, while other threads try ULPs, listen and shut it down: nothing hangs."""
    for turn in range(4):
        ours, theirs = pair()
        reader, over = Reader(theirs), threading.Event()
        names = (b"no such", b"tcp_qp", NAME) + ((b"tls",) if turn % 2 else ())
        threads = [threading.Thread(target=send_until, args=(ours, size, over)) for size in (32 << 10, 300_000, 1 << 20)]
        threads += [threading.Thread(target=disturb_until, args=(ours, names, over)) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        over.set()
        if turn % 3 == 0:
            ours.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        ours.close()
        reader.join(LIMIT_S)
        assert reader.bytes and not reader.is_alive()


def case_listener_and_disturbers() -> None:
    """Connections without end to a listener whose ULP other threads try to change."""
    listener = with_ulp(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            refused(lambda: listener.setsockopt(socket.SOL_TCP, TCP_ULP, b"no such"), errno.EEXIST)

    disturbers = [threading.Thread(target=disturb) for _ in range(2)]
    for thread in disturbers:
        thread.start()
    for _ in range(1000):
        with closing(socket.create_connection(listener.getsockname())) as other, closing(listener.accept()[0]) as child:
            assert ulp_of(child) == NAME
            child.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    over.set()
    for thread in disturbers:
        thread.join(LIMIT_S)


def case_listeners_get_it() -> None:
    """Listeners that are given the ULP while connections come: each child has it whole, or not at all."""
    for _ in range(20):
        with closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(256)
            others: list[socket.socket] = []
            over = threading.Event()

            def connect(to: tuple, kept: list[socket.socket], over: threading.Event) -> None:
                while not over.is_set() and len(kept) < 200:
                    kept.append(socket.create_connection(to))

            connector = threading.Thread(target=connect, args=(listener.getsockname(), others, over))
            connector.start()
            time.sleep(0.01)
            with_ulp(listener)
            time.sleep(0.01)
            over.set()
            connector.join(LIMIT_S)
            children = [listener.accept()[0] for _ in others]
            assert {ulp_of(child) for child in children} <= {b"", NAME}
            for child, data in zip(children, (pattern(1, 40_000),) * 3):
                child.sendall(data)
            for end in (*children, *others):
                end.close()


def free_kib() -> int:
    return int(re.search(r"MemFree: +(\d+)", open("/proc/meminfo").read())[1])


def total_kib() -> int:
    return int(re.search(r"MemTotal: +(\d+)", open("/proc/meminfo").read())[1])


def case_bounded() -> None:
    """100 sockets whose peers read nothing, and then are idle: their pages are bounded, and go back."""
    pairs = [pair() for _ in range(100)]
    for ours, theirs in pairs:
        warm(ours, theirs)
        ours.setblocking(False)
    for ours, _ in pairs:
        try:
            while True:
                ours.send(bytes(1 << 20))
        except BlockingIOError:
            pass
    assert free_kib() > total_kib() / 8, (free_kib(), total_kib())
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def main() -> int:
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    failed = 0
    for name in sys.argv[1:] or cases:
        case, *args = name.split(":")
        try:
            cases[case](*args)
            print("ok", name, flush=True)
        except Exception:
            failed += 1
            print("not ok", name, traceback.format_exc(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
