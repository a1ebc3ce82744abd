#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a program may expect of a TCP socket, with tcpqp-run or without: semantics.py [--listen ADDRESS PORT | --connect HOST PORT] [TEST...].

Alone it plays both ends.  SEMANTICS_ULP in the environment: the ULP that both ends must have.  Prints one line for each test; exit 0 only if all passed.
"""

import array
import asyncio
import ctypes
import errno
import fcntl
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

from actor import Actor, Director, family_of, pattern, receive, start, ulp_of

LIMIT_S = 20
BULK = 3_000_001
LIBC = ctypes.CDLL(None, use_errno=True)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_bulk_both_ways(d: Director) -> None:
    link = d.pair()
    d.tell("echo")
    data = pattern(1, BULK)
    child = os.fork()
    if child == 0:
        try:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
        finally:
            os._exit(0)
    assert receive(link, -1) == data
    assert os.waitpid(child, 0)[1] == 0
    assert d.answer()["bytes"] == BULK


def test_names_and_options(d: Director) -> None:
    d.tell("accept")
    link = socket.create_connection(d.address)
    said = d.answer()
    assert link.getpeername()[:2] == d.address, link.getpeername()
    assert list(link.getsockname()[:2]) == said["peer"] == said["asked"], said
    assert said["self"] == list(d.address)
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == family_of(d.address[0])
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    for on in (1, 0, 1):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, on)
        assert bool(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) == bool(on)
    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 500
    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == 1  # TCP_ESTABLISHED
    if wanted := os.environ.get("SEMANTICS_ULP"):
        assert (ulp_of(link), said["ulp"]) == (wanted, wanted), said
    d.ask("close")
    assert link.recv(1) == b""


def test_receive_timeout(d: Director) -> None:
    link = d.pair()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    try:
        link.recv(1)
    except BlockingIOError:
        return
    raise AssertionError("no timeout")


def readable(poller: select.poll, timeout_s: float) -> list:
    return poller.poll(timeout_s * 1000)


def test_poll_and_select(d: Director) -> None:
    link = d.pair()
    poller = select.poll()
    poller.register(link, select.POLLIN | select.POLLOUT)
    assert readable(poller, LIMIT_S) == [(link.fileno(), select.POLLOUT)]
    assert select.select([link], [link], [], LIMIT_S)[:2] == ([], [link])
    poller.modify(link, select.POLLIN)
    d.ask("send", seed=2, size=5)
    assert readable(poller, LIMIT_S) == [(link.fileno(), select.POLLIN)]
    assert select.select([link], [], [], LIMIT_S)[0] == [link]
    assert receive(link, 5) == pattern(2, 5)
    assert readable(poller, 0) == []
    poller.modify(link, select.POLLIN | select.POLLRDHUP)
    d.ask("end")
    assert readable(poller, LIMIT_S)[0][1] == select.POLLIN | select.POLLRDHUP
    assert link.recv(1) == b""


def test_epoll_level(d: Director) -> None:
    link, epoll = d.pair(), select.epoll()
    epoll.register(link, select.EPOLLIN)
    d.ask("send", seed=3, size=10)
    for left in (10, 5):
        assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLIN)], left
        assert receive(link, 5) == pattern(3, 10)[10 - left:15 - left]
    assert epoll.poll(0) == []


def test_epoll_edge(d: Director) -> None:
    link, epoll = d.pair(), select.epoll()
    epoll.register(link, select.EPOLLIN | select.EPOLLET)
    d.ask("send", seed=4, size=2)
    assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLIN)]
    assert len(link.recv(1)) == 1
    assert epoll.poll(0) == []
    d.ask("send", seed=4, size=1)
    assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLIN)]


def test_epoll_one_shot(d: Director) -> None:
    link, epoll = d.pair(), select.epoll()
    epoll.register(link, select.EPOLLIN | select.EPOLLONESHOT)
    d.ask("send", seed=5, size=2)
    assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLIN)]
    assert epoll.poll(0) == []
    epoll.modify(link, select.EPOLLIN | select.EPOLLONESHOT)
    assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLIN)]


def test_epoll_nested_and_several(d: Director) -> None:
    link, inner, outer, other = d.pair(), select.epoll(), select.epoll(), select.epoll()
    inner.register(link, select.EPOLLIN)
    other.register(link, select.EPOLLOUT)
    outer.register(inner, select.EPOLLIN)
    assert other.poll(LIMIT_S) == [(link.fileno(), select.EPOLLOUT)]
    assert outer.poll(0) == []
    d.ask("send", seed=6, size=1)
    assert outer.poll(LIMIT_S) == [(inner.fileno(), select.EPOLLIN)]
    assert inner.poll(0) == [(link.fileno(), select.EPOLLIN)]


def test_writable_when_the_peer_reads(d: Director) -> None:
    link = d.pair()
    link.setblocking(False)
    total, data = 0, bytes(65536)
    quiet_s = time.monotonic()
    while time.monotonic() - quiet_s < 0.3:
        try:
            total += link.send(data)
            quiet_s = time.monotonic()
        except BlockingIOError:
            select.select([], [link], [], 0.05)
    d.tell("receive", size=total)
    assert select.select([], [link], [], LIMIT_S)[1] == [link]
    assert d.answer()["bytes"] == total


def test_dup(d: Director) -> None:
    link = d.pair()
    d.tell("receive")
    other = link.dup()
    link.sendall(b"one")
    link.close()
    other.sendall(b"two")
    other.close()
    assert d.answer()["sha"] == sha(b"onetwo")


def test_fork(d: Director) -> None:
    """The connection ends with the last process that has it."""
    link = d.pair()
    d.tell("receive")
    go, wait = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(wait)
        os.read(go, 1)
        link.sendall(b"child")
        os._exit(0)
    link.sendall(b"parent")
    link.close()
    os.close(wait)
    assert os.waitpid(child, 0)[1] == 0
    assert d.answer()["sha"] == sha(b"parentchild")


def test_exec(d: Director) -> None:
    """Another program on it as its standard streams."""
    link = d.pair()
    with subprocess.Popen(["cat"], stdin=link, stdout=link) as cat:
        link.close()
        d.ask("send", seed=7, size=100_000)
        d.ask("end")
        assert d.ask("receive")["sha"] == sha(pattern(7, 100_000))
        assert cat.wait() == 0


def test_scm_rights(d: Director) -> None:
    link = d.pair()
    one, two = socket.socketpair()
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [link.fileno()]))])
    link.close()
    _, control, _, _ = two.recvmsg(1, 100)
    got = socket.socket(fileno=struct.unpack("i", control[0][2])[0])
    assert got.getpeername()[:2] == d.address
    got.sendall(b"passed on")
    got.close()
    assert d.ask("receive")["sha"] == sha(b"passed on")


def test_shutdown_halves(d: Director) -> None:
    link = d.pair()
    link.sendall(b"question")
    link.shutdown(socket.SHUT_WR)
    assert d.ask("receive")["sha"] == sha(b"question")
    try:
        link.send(b"x")
        raise AssertionError("sent after shutdown")
    except BrokenPipeError:
        pass
    d.tell("send", seed=8, size=200_000)  # more than buffers may hold
    d.tell("close")
    assert receive(link, -1) == pattern(8, 200_000)
    d.answer()
    d.answer()


def test_eintr(d: Director) -> None:
    link = d.pair()
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: (seen.append(1), (_ for _ in ()).throw(InterruptedError)))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        link.recv(1)
        raise AssertionError("received nothing, and returned")
    except InterruptedError:
        assert seen == [1]
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    d.ask("send", seed=9, size=3)
    assert receive(link, 3) == pattern(9, 3)


def test_peek_and_waitall(d: Director) -> None:
    link = d.pair()
    d.ask("send", seed=10, size=4)
    assert link.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL) == pattern(10, 4)
    d.tell("send", seed=11, size=300_000)  # more than buffers may hold
    assert link.recv(300_004, socket.MSG_WAITALL) == pattern(10, 4) + pattern(11, 300_000)
    d.answer()
    try:
        link.recv(1, socket.MSG_DONTWAIT)
        raise AssertionError("there was nothing")
    except BlockingIOError:
        pass


def test_addresses_of_messages(d: Director) -> None:
    """TCP takes and ignores them, and gives none."""
    link = d.pair()
    assert link.sendto(b"12", link.getpeername()) == 2
    assert link.sendmsg([b"34"], [], 0, link.getpeername()) == 2
    assert d.ask("receive", size=4)["sha"] == sha(b"1234")
    d.ask("send", seed=15, size=4)
    assert link.recvfrom(2) == (pattern(15, 4)[:2], None)
    assert link.recvmsg(2)[::3] == (pattern(15, 4)[2:], None)


def test_sendfile(d: Director) -> None:
    link = d.pair()
    with tempfile.TemporaryFile() as file:
        file.write(pattern(12, 500_000))
        file.seek(0)
        d.tell("receive")
        link.sendfile(file)
    link.close()
    assert d.answer()["sha"] == sha(pattern(12, 500_000))


def test_nonblocking_connect(d: Director) -> None:
    d.tell("accept")
    with d.unconnected() as link:
        link.setblocking(False)
        assert link.connect_ex(d.address) in (0, errno.EINPROGRESS)
        epoll = select.epoll()
        epoll.register(link, select.EPOLLOUT | select.EPOLLIN)
        assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLOUT)]
        d.answer()
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert link.getpeername()[:2] == d.address
        link.send(b"hello")
        assert d.ask("receive", size=5)["sha"] == sha(b"hello")


def test_nonblocking_connect_in_an_epoll_before(d: Director) -> None:
    """The set holds the file, and it is the same file afterwards."""
    d.tell("accept")
    with d.unconnected() as link:
        link.setblocking(False)
        twin = link.dup()
        epoll = select.epoll()
        epoll.register(link, select.EPOLLOUT | select.EPOLLIN | select.EPOLLET)
        epoll.poll(0)
        link.connect_ex(d.address)
        assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLOUT)]
        d.answer()
        d.ask("send", seed=16, size=3)
        assert epoll.poll(LIMIT_S) == [(link.fileno(), select.EPOLLIN | select.EPOLLOUT)]
        twin.setblocking(True)
        assert receive(twin, 3) == pattern(16, 3)
        twin.close()


def test_fast_open(d: Director) -> None:
    """The first send connects, by each call that can."""
    for send in (lambda s: s.sendto(b"first", socket.MSG_FASTOPEN, d.address), lambda s: s.sendmsg([b"first"], [], socket.MSG_FASTOPEN, d.address)):
        d.tell("accept")
        with d.unconnected() as link:
            assert send(link) == 5
            said = d.answer()
            assert d.ask("receive", size=5)["sha"] == sha(b"first")
            if wanted := os.environ.get("SEMANTICS_ULP"):
                assert (ulp_of(link), said["ulp"]) == (wanted, wanted), said


def test_connect_to_nothing_and_listen(d: Director) -> None:
    """AF_UNSPEC takes the connection back; the same descriptor then listens."""
    link = d.pair()
    nowhere = struct.pack("H14x", socket.AF_UNSPEC)
    assert LIBC.connect(link.fileno(), nowhere, len(nowhere)) == 0
    assert d.ask("receive") in ({"errno": errno.ECONNRESET}, {"bytes": 0, "sha": sha(b"")})
    link.bind((d.here(), 0))
    link.listen()
    with socket.create_connection((d.here(), link.getsockname()[1])) as other:
        accepted, _ = link.accept()
        with accepted:
            other.sendall(b"well")
            assert receive(accepted, 4) == b"well"


def errno_after(result: int) -> int:
    return ctypes.get_errno() if result != 0 else 0


def test_errno(d: Director) -> None:
    """What a call that succeeds leaves in it, and what one that fails says: as the kernel has it."""
    with d.unconnected() as listener, socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for one in (listener, udp):
            ctypes.set_errno(77)
            one.bind((d.here() if one is listener else "127.0.0.1", 0))
        assert LIBC.listen(listener.fileno(), 5) == 0 and ctypes.get_errno() == 77
        address = struct.pack("!HH4s8x", 0, 9, socket.inet_aton("127.0.0.1"))
        address = struct.pack("H", socket.AF_INET) + address[2:]
        assert LIBC.connect(udp.fileno(), address, 16) == 0 and ctypes.get_errno() == 77
        assert errno_after(LIBC.listen(udp.fileno(), 5)) == errno.EOPNOTSUPP
        assert errno_after(LIBC.connect(-1, address, 16)) == errno.EBADF
        assert errno_after(LIBC.connect(listener.fileno(), address, 16)) == errno.EISCONN
        assert errno_after(LIBC.connect(udp.fileno(), ctypes.c_void_p(8), 16)) == errno.EFAULT
        assert unix.connect_ex("/nonexistent/socket") == errno.ENOENT
        with open(os.devnull) as file:
            assert errno_after(LIBC.listen(file.fileno(), 5)) == errno.ENOTSOCK


def test_urgent(d: Director) -> None:
    link = d.pair()
    d.ask("urge")
    poller = select.poll()
    poller.register(link, select.POLLPRI)
    assert readable(poller, LIMIT_S)[0][1] & select.POLLPRI
    assert link.recv(1, socket.MSG_OOB) == b"!"
    assert receive(link, 2) == b"ab"


def test_low_water_and_queue(d: Director) -> None:
    link = d.pair()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 4)
    d.ask("send", seed=17, size=3)
    time.sleep(0.1)
    assert select.select([link], [], [], 0)[0] == []
    d.ask("send", seed=18, size=1)
    assert select.select([link], [], [], LIMIT_S)[0] == [link]
    assert struct.unpack("i", fcntl.ioctl(link, termios.FIONREAD, bytes(4)))[0] == 4
    assert receive(link, 4) == pattern(17, 3) + pattern(18, 1)


def test_splice(d: Director) -> None:
    """Out of the socket and into it, by a pipe."""
    link = d.pair()
    d.tell("echo")
    link.sendall(pattern(19, 60_000))
    out, into = os.pipe()
    left = 60_000
    while left:
        moved = os.splice(link.fileno(), into, left)
        left -= moved
        while moved:
            moved -= os.splice(out, link.fileno(), moved)
    link.shutdown(socket.SHUT_WR)
    assert receive(link, -1) == pattern(19, 60_000)
    assert d.answer()["bytes"] == 120_000


def test_large_sends(d: Director) -> None:
    """Of every length around a page and a megabyte, from one buffer that is written over at once."""
    link = d.pair()
    d.tell("receive")
    whole = hashlib.sha256()
    buffer = bytearray(pattern(20, 2 << 20))
    for turn, size in enumerate((1, 4095, 4096, 65535, 65537, 131072, 262145, 1 << 20, (1 << 20) + 1, 2 << 20)):
        buffer[:8] = struct.pack("Q", turn)
        link.sendall(memoryview(buffer)[:size])
        whole.update(memoryview(buffer)[:size])
    link.close()
    assert d.answer()["sha"] == whole.hexdigest()


def closed_port(d: Director) -> tuple[str, int]:
    return (d.address[0], 9)


def test_closed_port(d: Director) -> None:
    with d.unconnected() as link:
        assert link.connect_ex(closed_port(d)) == errno.ECONNREFUSED
    with d.unconnected() as link:
        link.setblocking(False)
        first = link.connect_ex(closed_port(d))
        if first == errno.EINPROGRESS:
            poller = select.poll()
            poller.register(link, select.POLLOUT)
            assert readable(poller, LIMIT_S)[0][1] & (select.POLLERR | select.POLLHUP)
            first = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            assert link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert first == errno.ECONNREFUSED, errno.errorcode[first]


def expect_reset(link: socket.socket, before: bytes = b"") -> None:
    try:
        got = receive(link, -1)
        raise AssertionError(f"an end after {len(got)} bytes")
    except ConnectionResetError:
        pass


def test_reset_by_the_peer(d: Director) -> None:
    link = d.pair()
    link.sendall(b"x")
    d.ask("receive", size=1)
    d.ask("reset")
    expect_reset(link)


def test_reset_by_us(d: Director) -> None:
    link = d.pair()
    link.sendall(b"x")
    d.ask("receive", size=1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    assert d.ask("receive") == {"errno": errno.ECONNRESET}


def test_close_with_unread_bytes(d: Director) -> None:
    link = d.pair()
    d.ask("send", seed=13, size=10)
    assert link.recv(1, socket.MSG_PEEK) != b""
    link.close()
    assert d.ask("receive") == {"errno": errno.ECONNRESET}


def test_peer_that_does_not_read_any_more(d: Director) -> None:
    link = d.pair()
    d.tell("flood")
    assert link.recv(1) == b"\0"
    link.close()
    assert d.answer()["errno"] in (errno.ECONNRESET, errno.EPIPE)


def test_asyncio(d: Director) -> None:
    async def play() -> None:
        d.tell("accept")
        reader, writer = await asyncio.open_connection(*d.address)
        d.answer()
        d.tell("echo")
        data = pattern(14, 400_000)

        async def write() -> None:
            for i in range(0, len(data), 7777):
                writer.write(data[i:i + 7777])
                await writer.drain()
            writer.write_eof()

        got, _ = await asyncio.gather(reader.read(), write())
        assert got == data
        writer.close()
        assert d.answer()["bytes"] == len(data)

    asyncio.run(play())


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--listen"]:
        Actor(arguments[1], int(arguments[2])).serve()
        return 0
    if arguments[:1] == ["--connect"]:
        director, names = Director(arguments[1], int(arguments[2])), arguments[3:]
    else:
        director, names = None, arguments
    failed = 0
    for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
        if names and name[5:] not in names:
            continue
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            test(director or Director("127.0.0.1", start("127.0.0.1")))
            print(f"ok {name[5:]}", flush=True)
        except Exception:
            traceback.print_exc(limit=-2)
            print(f"FAILED {name[5:]}", flush=True)
            failed = 1
    return failed


sys.exit(main())
