# SPDX-License-Identifier: BSD-3-Clause
"""Sends that the switch completes, with the answer that acknowledges them ("Sends" in docs/dataflow.md)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.traffic import wait_moving

from vm.completions import counted, refused_by_tcp, turned_off
from vm.exchange import LIMIT_S, PORT, PROGRAM, exchange, under_faults
from vm.number import ADDRESS, by_number, perftest
from vm.shared import ENDLESS, SETUP

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_exchange",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

TURNS = 500
# Both ends have one or two sends under way, which the other's messages acknowledge.
ONE = "--messages 1500 --max-bytes 4096 --depth 1"
TWO = "--messages 1500 --max-bytes 5000 --depth 2 --inline 200"


@contextmanager
def by_switch(t: Guests, least: int) -> Iterator[None]:
    """In which the switch completes at least so many sends of each end."""
    before = [counted(t, node, "tx_nic_messages") for node in range(2)]
    yield
    for node in range(2):
        sends = counted(t, node, "tx_nic_messages") - before[node]
        t.check(sends >= least, f"node{node}: the switch completed {sends} sends, not {least}")


def test_every_byte(t: Guests) -> None:
    for seed, options in ((1, ONE), (2, TWO), (3, f"{ONE} --inline 200 --sges 4")):
        with by_switch(t, 100):
            exchange(t, "offload", "offload", f"{options} --seed {seed}")


@pytest.mark.parametrize("bytes_", (8, pytest.param(2048, marks=pytest.mark.long), 4096))
def test_question_and_answer(t: Guests, bytes_: int) -> None:
    """Spinning, and asleep: one queue has both completions."""
    for options in ("-c", "-c -e"):
        with by_switch(t, TURNS // 2):
            out = by_number(t, f"ibv_rc_pingpong -g 0 -s {bytes_} -n {TURNS} {options}")
        t.check(f"{TURNS} iters in" in out, out)


def test_two_queues(t: Guests) -> None:
    with by_switch(t, TURNS // 4):
        perftest(t, f"ib_send_lat -s 2048 -n {TURNS}")
    perftest(t, f"ib_send_lat -s 2048 -n {TURNS} -e")


def test_writes(t: Guests) -> None:
    with by_switch(t, TURNS // 4):
        perftest(t, f"ib_write_lat -s 64 -n {TURNS}")


@pytest.mark.long
def test_tcp_refuses_what_acknowledges(t: Guests) -> None:
    """It comes again, and completes nothing a second time."""
    with refused_by_tcp(t):
        for seed, options in ((4, ONE), (5, TWO)):
            with by_switch(t, 10):
                exchange(t, "offload", "offload", f"{options} --seed {seed}")


@pytest.mark.long
def test_faults(t: Guests) -> None:
    for seed, options in ((6, ONE), (7, TWO)):
        under_faults(t, "offload", "offload", f"{options} --seed {seed}")


@pytest.mark.long
def test_the_queue_is_resized(t: Guests) -> None:
    """From the first resize on it is the host's alone."""
    for seed, options in ((8, ONE), (9, TWO)):
        exchange(t, "offload", "offload", f"{options} --resize-at 100 --seed {seed}")


def test_turned_off(t: Guests) -> None:
    with turned_off(t, "tx_nic_messages"):
        exchange(t, "offload", "offload", f"{ONE} --seed 10")


@pytest.mark.long
def test_another_end_that_cannot(t: Guests) -> None:
    exchange(t, "offload", "software", f"{TWO} --seed 11")
    exchange(t, "software", "offload", f"{TWO} --seed 12")


def endless(t: Guests, end: str, victim: int, how: str) -> None:
    """Both ends hear of it, and nothing else happens to anybody."""
    options = f"--engine offload --messages {ENDLESS} --max-bytes 2000 --depth 2 --timeout {round(8 * t.cluster.slowness)}"
    jobs = [t.start(0, f"{PROGRAM} --listen {PORT} {options}", LIMIT_S)]
    jobs.append(t.start(1, f"{PROGRAM} --connect {ADDRESS}:{PORT} {options}", LIMIT_S))
    wait_moving(t, 1, PORT)
    t.run(victim, how)
    for node, job in enumerate(jobs):
        result = job.wait()
        t.check(result.status != 0, f"{end}, node{node}: ended well: {result.stdout}")


def test_kill_9(t: Guests) -> None:
    for victim in range(2):
        endless(t, "killed", victim, "pkill -9 -x qp_exchange")
    with by_switch(t, 100):
        exchange(t, "offload", "offload", f"{ONE} --seed 13")


@pytest.mark.long
def test_driver_goes(t: Guests) -> None:
    endless(t, "the driver went", 0, "rmmod nupa_dev")
    t.run(0, SETUP)
    t.run(0, "ping -q -c 3 -i 0.1 $PEER")
    with by_switch(t, 50):
        exchange(t, "offload", "offload", f"{ONE} --seed 14")
