# SPDX-License-Identifier: BSD-3-Clause
"""Sockets that the module makes or accepts in a worker are of who asked for the connection: his cgroup's programs see them, and it pays for what they hold."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import Job
from harness.traffic import free_port

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/cm_exchange",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

LIMIT_S = 60
ADDRESSES = ("10.77.0.1", "10.77.0.2")  # the lower one connects
GIDS = tuple(f"0000:0000:0000:0000:0000:ffff:0a4d:000{node + 1}" for node in (0, 1))
NUMBER_PORT = 791  # TCP_QP_NUMBER_PORT
HELD_BYTES = 65536  # less than a socket takes before its window closes
CGROUP = "/sys/fs/cgroup/asker"
INSIDE = f"echo $$ >{CGROUP}/cgroup.procs; exec"
ENDS = "$REPO/selftests/vm/programs/number_ends.py"
EXCHANGE = "$BUILD/cmake/selftests/vm/programs/cm_exchange"
SOCK_CREATE = "/usr/bin/python3 $REPO/selftests/vm/programs/sock_create.py"


@contextmanager
def cgroup(t: Guests) -> Iterator[None]:
    """On both nodes, and nobody in it afterwards."""
    for node in (0, 1):
        t.run(node, f"echo +memory >/sys/fs/cgroup/cgroup.subtree_control; mkdir {CGROUP}")
    try:
        yield
    finally:
        for node in (0, 1):
            t.run(node, f"for pid in $(cat {CGROUP}/cgroup.procs); do kill -9 $pid; done; until rmdir {CGROUP}; do sleep 0.1; done", 20)


def sockets(t: Guests, node: int, port: int, state: str = "established") -> list[str]:
    """What there is to say of each that has the port at either end."""
    return t.run(node, f"ss -Htne --cgroup state {state} '( sport = :{port} or dport = :{port} )'").splitlines()


def cgroups(lines: list[str]) -> list[str]:
    """Of each, which may be told twice."""
    return [" ".join(set(re.findall(r"cgroup:(\S+)", line))) for line in lines]


def charged(t: Guests, node: int) -> int:
    """Bytes of socket buffers."""
    return int(t.run(node, f"awk '/^sock / {{print $2}}' {CGROUP}/memory.stat"))


def held_by_number(t: Guests, options: str = "") -> list[Job]:
    port = free_port()
    jobs = [t.start(0, f"{INSIDE} {ENDS} hold --listen {port} {options}", LIMIT_S)]
    t.wait_listening(0, port, LIMIT_S)
    jobs.append(t.start(1, f"{INSIDE} {ENDS} hold --connect {ADDRESSES[0]}:{port} {options}", LIMIT_S))
    for job in jobs:
        t.wait_output(job, "held", 30)
    return jobs


def ended(t: Guests, jobs: list[Job]) -> None:
    """What was charged is paid back."""
    for job in jobs:
        job.kill()
        job.wait()
    for node in (0, 1):
        t.wait_until(lambda node=node: charged(t, node) == 0, f"node{node}: socket buffers are charged still")


@pytest.mark.long
def test_number(t: Guests) -> None:
    """Messages that nobody receives stay in the sockets: of who connects, which a worker made, and of the other, which one accepted."""
    with cgroup(t):
        jobs = held_by_number(t, "--unread 8")
        for node in (0, 1):
            t.equal(cgroups(sockets(t, node, NUMBER_PORT)), ["/asker"], f"node{node}: the connection's cgroup")
            t.wait_until(lambda node=node: charged(t, node) > HELD_BYTES, f"node{node}: socket buffers are not charged")
        ended(t, jobs)


def test_cm(t: Guests) -> None:
    """The receiver's socket is one that a worker accepted."""
    with cgroup(t):
        port = free_port()
        jobs = [t.start(0, f"{INSIDE} {EXCHANGE} --listen {port} --hold", LIMIT_S)]
        t.wait_listening(0, port, LIMIT_S)
        t.equal(cgroups(sockets(t, 0, port, "listening")), ["/asker"], "the listener's cgroup")
        jobs.append(t.start(1, f"{INSIDE} {EXCHANGE} --connect {ADDRESSES[0]}:{port} --hold --unread 4", LIMIT_S))
        for node in (0, 1):
            t.wait_until(lambda node=node: cgroups(sockets(t, node, port)) == ["/asker"], f"node{node}: the connection's cgroup")
        t.wait_until(lambda: charged(t, 0) > 0, "node0: socket buffers are not charged")
        ended(t, jobs)


def test_program_refuses(t: Guests) -> None:
    """Either side's RTR says so: who connects, and who would be connected to."""
    with cgroup(t):
        for node in (0, 1):
            t.run(node, f"{SOCK_CREATE} {CGROUP}")
            said = t.fails(node, f"{INSIDE} {ENDS} absent --peer {GIDS[1 - node]}", LIMIT_S).stderr
            t.check("Operation not permitted" in said, said)


@pytest.mark.long
def test_program_marks(t: Guests) -> None:
    """What a program wants of a new socket holds for the one that connects."""
    with cgroup(t):
        t.run(0, f"{SOCK_CREATE} {CGROUP} {0x77}")
        jobs = held_by_number(t)
        (line,) = sockets(t, 0, NUMBER_PORT)
        t.check("fwmark:0x77" in line, line)
        ended(t, jobs)
