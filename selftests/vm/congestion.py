# SPDX-License-Identifier: BSD-3-Clause
"""Linux's congestion controls under everything a path does to packets: every byte arrives, whatever it takes."""

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from harness.guests import Failed, Guests
from harness.needs import on_debug_kernel
from harness.pairs import fabric
from harness.traffic import ncqp
from vm.fabric import NEEDS  # the same guests

pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
CONTROLS = ("cubic", "bbr", "dctcp")
FAMILIES = ("", "-6")
ENGINES = ("offload", "software")
RATE_MBPS = 5 if on_debug_kernel() else 200  # less than the guests can send
# name: faults of both ports
FAULTS = {
    "loss": {"loss": 0.01},
    "reorder": {"reorder": 0.03, "reorder_packets": 6},
    "duplicate": {"duplicate": 0.03},
    "corrupt": {"corrupt": 0.01},
    "delay": {"delay": 1.0, "delay_min_us": 500, "delay_max_us": 3000},
    "bleach": {"bleach": 0.001},
    "queue": {"rate_mbps": RATE_MBPS, "queue_bytes": 100_000, "ecn_bytes": 30_000},
}
# What the switch counts when it does it; a bleached option is too rare for each case to have one.
COUNTERS = {"loss": "fault_loss", "reorder": "fault_reorder", "duplicate": "fault_duplicate", "corrupt": "fault_corrupt",
            "delay": "fault_delay", "queue": "ecn_marked"}  # fmt: skip

CHECKED = "-v 251 -n 3M"
SEED = 20241121

Case = tuple[str, str, str, str]  # control, family, fault, engine


def every_case() -> list[Case]:
    return list(itertools.product(CONTROLS, FAMILIES, FAULTS, ENGINES))


def covering_cases() -> list[Case]:
    """Every control with every fault; each family and engine with every control and every fault."""
    return [
        (control, FAMILIES[(c + f) % 2], fault, ENGINES[(c + f // 2) % 2])
        for c, control in enumerate(CONTROLS)
        for f, fault in enumerate(FAULTS)
    ]


@contextlib.contextmanager
def control(t: Guests, name: str) -> Iterator[None]:
    """New connections of both nodes use this congestion control, with ECN."""
    setup = f"[ {name} = cubic ] || modprobe -q tcp_{name} || true; sysctl -qw net.ipv4.tcp_ecn=1 net.ipv4.tcp_congestion_control={name}"
    t.cluster.run_all(setup, check=True)
    try:
        yield
    finally:
        t.cluster.run_all("sysctl -qw net.ipv4.tcp_ecn=2 net.ipv4.tcp_congestion_control=cubic", check=True)


def counted(t: Guests, fault: str) -> int:
    return sum(t.switch_stats(node)[COUNTERS[fault]] for node in (0, 1)) if fault in COUNTERS else 0


def checked_transfer(t: Guests, case: Case) -> None:
    """One transfer whose every byte is checked; the fault that it is about must have happened."""
    _, family, fault, engine = case
    before = counted(t, fault)
    with fabric(t, seed=SEED, **FAULTS[fault]):
        try:
            tx, _ = ncqp(t, engine, f"--timeout 30 {CHECKED}", f"--timeout 30 {CHECKED}", family=family, limit_s=90)
        except Failed as problem:
            # A middlebox that removes options may end a QP, which must say so; it must never change bytes.
            if fault != "bleach" or "pattern" in str(problem):
                raise Failed(f"{case}: {problem}") from problem
            return
    t.equal(tx["engine"], engine, f"{case}: engine")
    t.check(fault == "bleach" or counted(t, fault) > before, f"{case}: the switch did nothing of the kind")


def _walk(t: Guests, name: str, cases: list[Case]) -> None:
    """Those of the cases that are of this congestion control."""
    with control(t, name):
        t.equal(t.run(0, "sysctl -n net.ipv4.tcp_congestion_control").strip(), name, "congestion control")
        for case in cases:
            if case[0] == name:
                checked_transfer(t, case)


def test_cubic(t: Guests) -> None:
    _walk(t, "cubic", covering_cases())


@pytest.mark.long
def test_bbr(t: Guests) -> None:
    _walk(t, "bbr", covering_cases())


@pytest.mark.long
def test_dctcp(t: Guests) -> None:
    _walk(t, "dctcp", covering_cases())


@pytest.mark.long
def test_every_case(t: Guests) -> None:
    for name in CONTROLS:
        _walk(t, name, every_case())
