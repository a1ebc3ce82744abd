# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs that share a receive queue, of which the switch takes receives, too: qp_shared looks at every byte, completion and poisoned buffer."""

import functools

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric, outputs
from harness.traffic import free_port, wait_moving

from nupavm import Job

from vm.completions import refused_by_tcp, turned_off, while_switch_completes

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_shared",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PROGRAM = "$BUILD/cmake/selftests/vm/programs/qp_shared"
LIMIT_S = 90
ENDLESS = 1 << 31
SETUP = "sh $REPO/tools/vm/guest/setup full"
FAULTS = {"loss": 0.01, "reorder": 0.05, "duplicate": 0.01}
ONE_BY_ONE = "--sends 1 --messages 300"
SHORT = "--max-bytes 300 --messages 800"
TRAINS = "--messages 800 --max-bytes 300 --sends 64 --train 16 --receives 200"
SCARCE = "--receives 3 --messages 100"


def begin(t: Guests, options: str, engines: tuple[str, str] = ("offload", "offload")) -> tuple[list[Job], int]:
    """The jobs of both nodes, and the port that one of them listens on."""
    port = free_port()
    server = t.start(0, f"{PROGRAM} --port {port} --engine {engines[0]} {options}", LIMIT_S)
    client = t.start(1, f"{PROGRAM} --connect 10.77.0.1 --port {port} --engine {engines[1]} {options}", LIMIT_S)
    return [server, client], port


def exchange(t: Guests, options: str = "", engines: tuple[str, str] = ("offload", "offload")) -> list[dict]:
    """Both nodes' counters after an exchange that both found right."""
    return outputs(begin(t, options, engines)[0])


def endless(t: Guests) -> list[Job]:
    jobs, port = begin(t, f"--messages {ENDLESS} --timeout-ms {round(8000 * t.cluster.slowness)}")
    wait_moving(t, 1, port)
    return jobs


def both_end(t: Guests, jobs: list[Job], what: str, killed: int = -1) -> None:
    for node, job in enumerate(jobs):
        result = job.wait()
        t.check(node == killed or result.status == 1, f"{what}, node{node}: ended with {result.status}: {result.stderr}")
        t.check(node == killed or "FAILED" in result.stderr, f"{what}, node{node}: {result.stderr}")


def by_switch(t: Guests, options: str, share: float) -> list[dict]:
    """The same, of which the switch completes at least this share of what each end receives."""
    return while_switch_completes(t, functools.partial(exchange, t, options), share)


def test_one_by_one(t: Guests) -> None:
    for node, report in enumerate(by_switch(t, f"{ONE_BY_ONE} --seed 1", 0.8)):
        t.check(report["placed"] >= 0.8 * report["bytes"], f"node{node}: {report}")


@pytest.mark.long
def test_many_under_way(t: Guests) -> None:
    by_switch(t, f"{SHORT} --seed 2", 0.01)
    by_switch(t, "--count 16 --messages 200 --seed 3", 0.01)


def test_trains(t: Guests) -> None:
    by_switch(t, f"{TRAINS} --seed 4", 0.01)


def test_longer_than_a_burst(t: Guests) -> None:
    """What the switch may not place whole is copied."""
    by_switch(t, "--count 2 --sends 1 --messages 60 --max-bytes 600000 --receives 8 --seed 5", 0.1)


def test_receives_are_scarce(t: Guests) -> None:
    """Whoever comes first has them, the host or the switch, and who needs some is told in time."""
    exchange(t, f"{SCARCE} --count 8 --seed 6")
    for report in exchange(t, f"{ONE_BY_ONE} --receives 8 --limit 5 --seed 7"):
        t.check(report["limit_events"] > 0, f"nobody was told that few receives are left: {report}")


def test_faults(t: Guests) -> None:
    for seed, options in ((8, SHORT), (9, TRAINS), (10, f"{SCARCE} --count 4")):
        with fabric(t, **FAULTS):
            exchange(t, f"{options} --seed {seed}")


@pytest.mark.long
def test_tcp_refuses_what_is_completed(t: Guests) -> None:
    with refused_by_tcp(t):
        for seed, options in ((11, SHORT), (12, TRAINS), (13, ONE_BY_ONE)):
            by_switch(t, f"{options} --seed {seed}", 0.01)


@pytest.mark.long
def test_engines_together(t: Guests) -> None:
    exchange(t, f"{SHORT} --seed 14", ("offload", "software"))
    exchange(t, f"{SHORT} --seed 15", ("software", "software"))


@pytest.mark.long
def test_kill_9(t: Guests) -> None:
    for victim in (0, 1):
        jobs = endless(t)
        t.run(victim, "pkill -9 -x qp_shared")
        both_end(t, jobs, f"node{victim} was killed", victim)
    by_switch(t, f"{ONE_BY_ONE} --seed 17", 0.8)


@pytest.mark.long
def test_driver_goes(t: Guests) -> None:
    jobs = endless(t)
    t.run(0, "rmmod nupa_dev")
    both_end(t, jobs, "the driver went")
    t.run(0, SETUP)
    t.run(0, "ping -q -c 3 -i 0.1 $PEER")
    by_switch(t, f"{ONE_BY_ONE} --seed 18", 0.8)


@pytest.mark.long
def test_turned_off(t: Guests) -> None:
    with turned_off(t, "rx_nic_messages"):
        exchange(t, f"{SHORT} --seed 16")
