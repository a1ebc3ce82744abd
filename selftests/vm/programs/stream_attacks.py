#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a user does to sockets with ULP tcp_qp_stream, and to the kernel by them: stream_attacks.py CASE...  A line for each case; exit 0 only if
all hold.  What the kernel thinks of it is in its log."""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager

from stream_cases import LIMIT_S, NAME, TCP_ULP, free_kib, pair, total_kib, ulp_of, warm, with_ulp

LISTENERS = 100
SENDS, SEND_BYTES = 1500, 32 << 10
F_SETPIPE_SZ, PIPE_BYTES = 1031, 1 << 20
PAGE_BYTES, PAGES = 1 << 20, 8  # of a socket: TQP_STREAM_LARGE_ORDER, TQP_STREAM_BYTES_MAX
RAM_SHARE = 16  # TQP_STREAM_RAM_SHARE
IDLE_S = 0.5


@contextmanager
def beside(act) -> Iterator[None]:
    """@act in a process of its own, over and over, which has what we have open."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(8 * LIMIT_S)
            while True:
                act()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "who was beside us ended by himself"


def other_ulp(sock: socket.socket) -> None:
    """One that there is none of: the socket's own steps aside for the call."""
    try:
        sock.setsockopt(socket.SOL_TCP, TCP_ULP, b"no such")
    except OSError as e:
        assert e.errno in (errno.ENOENT, errno.EEXIST), e


def case_listens_while_it_yields() -> None:
    """listen() between the ULP's stepping aside and its return: it is back, and so have it the children, who end as sockets do."""
    shown = mmap.mmap(-1, 8)
    socks = [with_ulp(socket.socket()) for _ in range(LISTENERS)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    with beside(lambda: other_ulp(socks[struct.unpack("q", shown)[0]])):
        for i, sock in enumerate(socks):
            shown[:] = struct.pack("q", i)
            time.sleep(random.random() / 500)
            sock.listen()
    seen = []
    for sock in socks:
        with closing(socket.create_connection(sock.getsockname())), closing(sock.accept()[0]) as child:
            seen += [ulp_of(sock), ulp_of(child)]
        sock.close()
    assert set(seen) == {NAME}, f"{seen.count(b'')} of {len(seen)} sockets have none"


def case_never_zero() -> None:
    """A send() that waited while the ULP stepped aside says of bytes or of an error, never zero."""
    ours, theirs = pair()
    warm(ours, theirs)
    ours.setblocking(True)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # one send fills it: the next waits before its first byte
    theirs.setblocking(True)
    data = bytes(SEND_BYTES)
    with beside(lambda: other_ulp(ours)), beside(lambda: other_ulp(ours)), beside(lambda: theirs.recv(SEND_BYTES // 4)):
        said = [ours.send(data) for _ in range(SENDS)]
    print(f"# {sum(1 for sent in said if sent < SEND_BYTES)} of {SENDS} sends were cut short")
    assert 0 not in said, f"{said.count(0)} of {SENDS} sends said zero"


def hold_a_byte_of_each_page(pipe: int) -> None:
    """A socket's large pages, each kept by who read one byte of it into @pipe; both ends are gone then."""
    libc = ctypes.CDLL(None, use_errno=True)
    ours, theirs = pair()
    warm(ours, theirs)
    data = memoryview(bytearray(PAGE_BYTES))
    for _ in range(PAGES):
        ours.setblocking(False)
        sent = ours.send(data)
        got = libc.splice(theirs.fileno(), None, pipe, None, ctypes.c_size_t(1), 0)
        assert got == 1, (got, ctypes.get_errno())
        sent -= 1
        while sent:
            sent -= len(theirs.recv(sent))
    ours.close()
    theirs.close()


def case_pages_that_others_hold() -> None:
    """Pages count until the last byte of them is let go, whatever became of their sockets; then there are pages again."""
    before, most = free_kib(), total_kib() // RAM_SHARE
    pipes = []
    while len(pipes) * PIPE_BYTES // mmap.PAGESIZE * PAGE_BYTES >> 10 < 3 * most:
        pipes.append(os.pipe2(os.O_NONBLOCK))
        fcntl.fcntl(pipes[-1][1], F_SETPIPE_SZ, PIPE_BYTES)
    for i in range(3 * most // (PAGES * PAGE_BYTES >> 10)):
        hold_a_byte_of_each_page(pipes[i * PAGES * mmap.PAGESIZE // PIPE_BYTES][1])
    taken = before - free_kib()
    assert taken < 2 * most, f"{taken} KiB are held, of which large pages may be {most}"
    for ends in pipes:
        for end in ends:
            os.close(end)
    for _ in range(int(LIMIT_S / IDLE_S)):
        time.sleep(IDLE_S)
        if before - free_kib() < most / 2:
            return
    raise AssertionError(f"{before - free_kib()} KiB of {taken} did not come back")


def main() -> int:
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    failed = 0
    for name in sys.argv[1:] or cases:
        begun = time.monotonic()
        try:
            cases[name]()
            print(f"ok {name} # {time.monotonic() - begun:.1f} s", flush=True)
        except Exception:
            failed += 1
            print("not ok", name, traceback.format_exc(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
