# SPDX-License-Identifier: BSD-3-Clause
"""What pytest and our plugins make of planted_tests.py, with guests that are made up: fresh ones after a failure, no failure lost."""

import contextlib
import io
from pathlib import Path

import pytest

from harness import boots
from harness.ktap import Ktap
from harness.report import Report

from nupavm import KernelComplaint, TimeLimit

INI = Path(__file__).parents[1] / "pytest.ini"
TESTS = Path(__file__).with_name("planted_tests.py")
# In the order of the run: name, verdict, words of the reason.
EXPECTED = (
    ("does_not_boot_1", "failed", "planted: no boot"),
    ("does_not_boot_2", "failed", "planted: no boot"),
    ("does_not_boot_3", "failed", "did not boot before"),
    ("passes", "passed", ""),
    ("fails", "failed", "a planted failure"),
    ("skipped", "skipped", "after a look"),
    ("wrong_in_itself", "failed", "ZeroDivisionError"),
    ("kernel_complains", "failed", "WARNING: planted"),
    ("fresh_software", "passed", ""),
    ("fresh_offload", "passed", ""),
    ("other_kernel", "skipped", "needs the debug kernel"),
    ("emulator_crashes_once", "passed", ""),
    ("emulator_crashes_twice", "failed", "planted in guests 6"),
    ("emulator_crashes_unmarked", "failed", "planted, unmarked"),
    ("impossible_flags", "passed", ""),
    ("late_complaint", "failed", "kernel log at power-off\nWARNING: planted late"),
)


class MadeUpNode:
    name = "node0"

    def __init__(self) -> None:
        self._log = ""

    def kernel_says(self, line: str) -> None:
        self._log += f"[    1.0] {line}\n"

    def console(self) -> str:
        return self._log


class MadeUpCluster:
    """As much of nupavm.Cluster as Boots needs."""

    booted = 0
    slowness = 1.0
    results = Path("/planted")
    switch = None

    def __init__(self, nodes: int, *, append: str, **_) -> None:
        self.node, self.late, self.number = [MadeUpNode() for _ in range(nodes)], "", 0
        self._boots = not append

    def boot(self) -> None:
        if not self._boots:
            raise TimeLimit("planted: no boot")
        MadeUpCluster.booted += 1
        self.number = MadeUpCluster.booted

    def run_all(self, _command: str, _limit_s: float = 0) -> list:
        return []

    def destroy(self) -> None:
        pass

    def __exit__(self, *_) -> None:
        if self.late:
            raise KernelComplaint(self.late)


def problems() -> str:
    """Where the outcomes are not those expected."""
    real, boots.Cluster = boots.Cluster, MadeUpCluster
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            report = Report()
            pytest.main(["-c", str(INI), "--capture=no", str(TESTS)], plugins=[Ktap(report)])
    finally:
        boots.Cluster = real
    got = [(outcome.name.rpartition("/")[2], outcome.verdict, outcome.detail) for outcome in report.outcomes]
    wrong = [f"{g[:2]}, expected {e}: {g[2]}" for g, e in zip(got, EXPECTED) if g[:2] != e[:2] or e[2] not in g[2]]
    return "\n".join([*wrong, *([f"{len(got)} outcomes: {got}"] if len(got) != len(EXPECTED) else [])])


if __name__ == "__main__":
    print(problems(), end="")
