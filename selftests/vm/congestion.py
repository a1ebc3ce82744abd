# SPDX-License-Identifier: BSD-3-Clause
"""Linux's congestion controls under everything a path does to packets: every byte arrives, whatever it takes."""

from conditions import FAULTS, Case, control, counted, covering_cases
from fabric import NEEDS  # noqa: F401  (the same guests)
from pairs import fabric
from traffic import ncqp
from vmtest import Failed, Guests

CHECKED = "-v 251 -n 3M"
SEED = 20241121


def transfer(t: Guests, case: Case, options: str = CHECKED) -> None:
    """One checked transfer; the fault that it is about must have happened."""
    name, family, fault, engine = case
    before = counted(t, fault)
    with fabric(t, seed=SEED, **FAULTS[fault]):
        try:
            tx, _ = ncqp(t, engine, f"--timeout 30 {options}", f"--timeout 30 {options}", family=family, limit_s=90)
        except Failed as problem:
            # A middlebox that removes options may end a QP, which must say so; it must never change bytes.
            if fault != "bleach" or "pattern" in str(problem):
                raise Failed(f"{case}: {problem}") from problem
            return
    t.equal(tx["engine"], engine, f"{case}: engine")
    t.check(fault == "bleach" or counted(t, fault) > before, f"{case}: the switch did nothing of the kind")


def _all(t: Guests, name: str) -> None:
    with control(t, name):
        t.equal(t.run(0, "sysctl -n net.ipv4.tcp_congestion_control").strip(), name, "congestion control")
        for case in covering_cases():
            if case[0] == name:
                transfer(t, case)


def test_cubic(t: Guests) -> None:
    _all(t, "cubic")


def test_bbr(t: Guests) -> None:
    _all(t, "bbr")


def test_dctcp(t: Guests) -> None:
    _all(t, "dctcp")
