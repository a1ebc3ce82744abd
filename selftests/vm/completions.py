# SPDX-License-Identifier: BSD-3-Clause
"""Receives that the switch completes, in turns with the host (docs/dataflow.md): qp_exchange looks at every byte, completion and poisoned buffer."""

import contextlib
import functools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from nupavm.paths import module_dir

from harness.busy import one_shows
from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric
from harness.traffic import parameter

from vm.exchange import TRAINS, exchange, under_faults

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_exchange",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

SMALL = "--messages 3000 --max-bytes 1000 --depth 64"
COUNTERS = "/sys/class/infiniband/tcpqp0/ports/1/hw_counters"
ENDS = 8
SHARED = {"tqp_nic_own", "tqp_turn_take", "tqp_post_revoke"}  # they swap words that a device changes, too
REFUSED = 50  # one packet in so many
T = TypeVar("T")


def printed(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def counted(t: Guests, node: int, name: str) -> int:
    return int(t.run(node, f"cat {COUNTERS}/{name}"))


def while_switch_completes(t: Guests, traffic: Callable[[], T], share: float) -> T:
    """What came of traffic of which the switch completed at least this share of what each end received: one of a few, as a host that has no
    processor is late to give it the turn."""

    def attempt() -> tuple[T, list[tuple[int, int]]]:
        before = [(counted(t, node, "rx_nic_messages"), counted(t, node, "rx_messages")) for node in range(2)]
        came = traffic()
        rose = [(counted(t, node, "rx_nic_messages") - nic, counted(t, node, "rx_messages") - messages) for node, (nic, messages) in enumerate(before)]
        return came, rose

    def holds(saw: tuple[T, list[tuple[int, int]]]) -> bool:
        return all(nic >= share * messages for nic, messages in saw[1])

    return one_shows(t, attempt, holds, f"the switch completes {share} of all messages at both ends")[0]


def by_switch(t: Guests, options: str, share: float) -> None:
    while_switch_completes(t, functools.partial(exchange, t, "offload", "offload", options), share)


@contextlib.contextmanager
def turned_off(t: Guests, name: str) -> Iterator[None]:
    """The switch completes nothing that this counter counts."""
    with parameter(t, "nic_completes", "N"):
        before = [counted(t, node, name) for node in range(2)]
        yield
        t.equal([counted(t, node, name) for node in range(2)], before, f"{name}, which the switch completed")


@contextlib.contextmanager
def refused_by_tcp(t: Guests) -> Iterator[None]:
    """Both hosts lose packets that their switch has seen."""
    for node in range(2):
        if not t.nodes[node].run("tc qdisc add dev nupa0 clsact", 30).ok:
            pytest.skip("this kernel has no clsact")
        if not t.nodes[node].run(f"tc filter add dev nupa0 ingress protocol ip matchall action ok random netrand drop {REFUSED}", 30).ok:
            t.run(node, "tc qdisc del dev nupa0 clsact")
            pytest.skip("this kernel has no actions for packets (NET_ACT_GACT)")
    try:
        yield
    finally:
        for node in range(2):
            t.run(node, "tc qdisc del dev nupa0 clsact")


@pytest.mark.long
def test_both_ways(t: Guests) -> None:
    """One message at a time: it goes alone.  Many of different lengths share a table, which the host reads."""
    by_switch(t, "--messages 600 --max-bytes 1000 --depth 1 --seed 70", 0.8)
    by_switch(t, f"{SMALL} --seed 71", 0.1)


@pytest.mark.long
def test_one_way(t: Guests) -> None:
    before = counted(t, 0, "rx_nic_messages")
    exchange(t, "offload", "offload", f"{SMALL} --one-way --seed 72")
    t.check(counted(t, 0, "rx_nic_messages") - before > 1500, "the switch completed hardly any message")


def test_trains(t: Guests) -> None:
    by_switch(t, f"{TRAINS} --seed 73", 0.1)


def test_the_last_message(t: Guests) -> None:
    """Who ends right after it has it lets TCP hear of it: its sender is told that it came."""
    for seed in range(90, 90 + ENDS):
        exchange(t, "offload", "offload", f"--messages 40 --max-bytes 200 --seed {seed}")


@pytest.mark.long
def test_turned_off(t: Guests) -> None:
    with turned_off(t, "rx_nic_messages"):
        exchange(t, "offload", "offload", f"{SMALL} --seed 74")


def test_tcp_refuses_what_is_completed(t: Guests) -> None:
    """It comes again, and is neither completed nor copied a second time."""
    with refused_by_tcp(t):
        for seed, options in ((75, SMALL), (76, TRAINS), (77, f"{SMALL} --late-receives --slow-ms 1")):
            by_switch(t, f"{options} --seed {seed}", 0.01)


def test_faults(t: Guests) -> None:
    for seed, options in ((78, SMALL), (79, TRAINS)):
        under_faults(t, "offload", "offload", f"{options} --seed {seed}")


@pytest.mark.long
def test_receives_that_are_late(t: Guests) -> None:
    """The host completes what had no receive when it came, and gives the turn back."""
    with fabric(t, loss=0.01):
        by_switch(t, f"{SMALL} --late-receives --slow-ms 1 --seed 80", 0.01)


@pytest.mark.long
def test_another_end_that_cannot(t: Guests) -> None:
    exchange(t, "offload", "software", f"{SMALL} --seed 81")
    exchange(t, "software", "offload", f"{SMALL} --seed 82")


def test_the_queue_is_resized(t: Guests) -> None:
    """From the first resize on it is the host's alone."""
    for seed, options in ((83, SMALL), (84, TRAINS)):
        exchange(t, "offload", "offload", f"{options} --resize-at 100 --seed {seed}")


def test_swaps_stay_locked_with_one_processor() -> None:
    """Linux takes the lock prefixes that .smp_locks lists out of a guest's code if it has one processor; the switch runs on another."""
    module = module_dir() / "tcp_qp/tcp_qp.ko"
    relocations = printed("readelf", "-rW", module).partition("'.rela.smp_locks'")[2].partition("\n\n")[0]
    listed = {int(at, 16) for at in re.findall(r"\.text \+ ([0-9a-f]+)$", relocations, re.MULTILINE)}
    function, locked, patched = "", set(), set()
    for line in printed("objdump", "-d", "--no-show-raw-insn", module).splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(\w+)>:", line):
            function = header[1]
        elif swap := re.match(r"\s*([0-9a-f]+):\s+lock cmpxchg", line):
            (patched if int(swap[1], 16) in listed else locked).add(function)
    atomics = {"tqp_request"}  # of peers, beside reference counts, which are the guest's own
    assert SHARED | atomics <= locked, f"no locked swap in {(SHARED | atomics) - locked}"
    assert not SHARED & patched, f"not locked with one processor: {SHARED & patched}"
