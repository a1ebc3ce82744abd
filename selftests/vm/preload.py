# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs under tcpqp-run: what a TCP socket does, on both engines, and beside peers without it."""

import re

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric, succeeded
from harness.traffic import free_port

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("user/tcpqp_run/tcpqp-run",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

RUN = "$BUILD/cmake/user/tcpqp_run/tcpqp-run --stats"
SEMANTICS = "$REPO/selftests/preload/semantics.py"
LINE = re.compile(
    r"tcpqp-run: (?P<engine>\w+): (?P<connections>\d+) connections, (?P<sent>\d+) bytes sent, (?P<received>\d+) received, "
    r"(?P<placed>\d+) placed, (?P<copied>\d+) copied"
)
PLAIN = re.compile(r"tcpqp-run: plain, (\w+): (\d+) connections")
BYTES = 4_000_000


def said(stderr: str) -> dict[str, dict[str, int]]:
    return {m["engine"]: {k: int(v) for k, v in m.groupdict().items() if k != "engine"} for m in LINE.finditer(stderr)}


def both(t: Guests, listener: str, connector: str, limit_s: float = 120) -> list:
    """A server on node 0 and its client on node 1; both must succeed."""
    port = free_port()
    jobs = [t.start(0, listener.format(port=port), limit_s)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, connector.format(port=port), limit_s))
    return succeeded(jobs)


def semantics(t: Guests, engine: str, only: str = "") -> None:
    run = f"SEMANTICS_RELAYED=1 {RUN} --engine {engine} python3 {SEMANTICS}"
    for node, result in enumerate(both(t, f"{run} --listen {{port}}", f"{run} --connect $PEER {{port}} {only}")):
        ends = said(result.stderr)
        t.check(engine in ends and ends[engine]["connections"] > len(only.split() or range(20)), f"node{node}: {result.stderr}")
        t.equal(ends[engine]["placed"] + ends[engine]["copied"], ends[engine]["received"], f"node{node}: {result.stderr}")
        t.check(not PLAIN.search(result.stderr), f"node{node}: {result.stderr}")
        if engine == "offload":
            t.check(ends[engine]["placed"] > 0.8 * ends[engine]["received"], f"node{node}: {result.stderr}")


def test_some_semantics(t: Guests) -> None:
    semantics(t, "offload", "bulk_both_ways names_and_options epoll_edge fork shutdown_halves nonblocking_connect reset_by_the_peer reset_by_us")


@pytest.mark.long
def test_semantics_on_offload(t: Guests) -> None:
    semantics(t, "offload")


@pytest.mark.long
def test_semantics_on_software(t: Guests) -> None:
    semantics(t, "software")


SERVER = f"""python3 -c 'import socket, hashlib
s = socket.create_server(("", {{port}}))
for i in range(3):
    c, _ = s.accept(); h = hashlib.sha256(); n = 0
    while n < {BYTES} and (d := c.recv(65536)): h.update(d); n += len(d)
    c.sendall(h.digest()); c.shutdown(socket.SHUT_WR); c.recv(1); c.close()'"""
CLIENT = f"""python3 -c 'import socket, hashlib, os
for i in range(3):
    d = os.urandom({BYTES}); c = socket.create_connection(("'$PEER'", {{port}})); c.sendall(d)
    assert c.recv(32, socket.MSG_WAITALL) == hashlib.sha256(d).digest() and c.recv(1) == b""; c.close()'"""


def test_one_end_only(t: Guests) -> None:
    """The peer has no tcpqp-run: the first connection is relayed as TCP, the others are left alone; every byte is right."""
    for node in (0, 1):
        ends = [f"{RUN} {SERVER}", CLIENT] if node == 0 else [SERVER, f"{RUN} {CLIENT}"]
        result = both(t, *ends)[node]
        plain = {name: int(count) for name, count in PLAIN.findall(result.stderr)}
        t.equal(said(result.stderr), {}, f"node{node}: no queue pair")
        t.equal(sum(plain.values()), 3, f"node{node}: {plain}")
        if node == 1:
            t.equal(plain, {"NO_PEER_QP": 1, "PEER_PLAIN": 2}, f"node{node}: reasons")


HELLO = "fe74637071702d72756e1a01000d0ac65b913ed708f2a46c19e37db5502f88ff"  # run/hello.hpp
GIVEN_UP = f"""python3 -c 'import socket
s = socket.create_server(("", {{port}})); c, _ = s.accept(); c.recv(1); c.sendall(bytes.fromhex("{HELLO}"))
try: print(c.recv(1))
except ConnectionResetError: pass'"""
MISTAKEN = """python3 -c 'import socket
c = socket.create_connection(("'$PEER'", {port})); c.sendall(b"x")
try: raise SystemExit(repr(c.recv(100)))
except ConnectionResetError: pass'"""


def test_a_peer_that_takes_us_for_a_queue_pair(t: Guests) -> None:
    """We gave up waiting, and it did not: its hello is no data, and both hear of it."""
    result = both(t, GIVEN_UP, f"{RUN} {MISTAKEN}")[1]
    t.check("NO_PEER_QP: 1" in result.stderr, result.stderr)


HALVES, HALF_BYTES, WAY_US = 24, 900_000, 40_000  # the ends meet at every stage of a slow start over this way
ENDS_FIRST = f"""python3 -c 'import socket, threading, time
s = socket.create_server(("", {{port}}), backlog={HALVES}); counts, all = [], []
def serve(c, after):
    time.sleep(after); c.shutdown(socket.SHUT_WR); n = 0
    while d := c.recv(65536): n += len(d)
    counts.append(n)
for i in range({HALVES}):
    all.append(threading.Thread(target=serve, args=(s.accept()[0], 0.03 * i))); all[-1].start()
for t in all: t.join()
assert counts == [{HALF_BYTES}] * {HALVES}, counts'"""
CLOSES = f"""python3 -c 'import socket
for i in range({HALVES}):
    c = socket.create_connection(("'$PEER'", {{port}})); c.sendall(bytes({HALF_BYTES})); c.close()'"""


def test_ends_that_cross(t: Guests) -> None:
    """One end sends and closes, the other has no more to say and reads on: on the stock engine its end is bytes, and they come to a socket that was closed."""
    with fabric(t, delay=1, delay_min_us=WAY_US, delay_max_us=WAY_US):
        both(t, f"{RUN} --engine stock {ENDS_FIRST}", f"{RUN} --engine stock {CLOSES}")


@pytest.mark.long
def test_both_ends_choose_offload(t: Guests) -> None:
    for node, result in enumerate(both(t, f"{RUN} {SERVER}", f"{RUN} {CLIENT}")):
        t.equal(said(result.stderr)["offload"]["connections"], 3, f"node{node}: {result.stderr}")
