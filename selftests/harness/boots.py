# SPDX-License-Identifier: BSD-3-Clause
"""Runs the VM tests: boots guests once for all files with equal needs, and looks at the kernel logs after each test."""

import importlib.util
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import leak_check
from harness.report import Report
from harness.guests import Cluster, Failed, Guests, Needs, REPO, Skip, on_debug_kernel

from nupavm import CommandFailed, KernelComplaint, NodeDead, SetupError, TimeLimit
from nupavm.dmesg import around_first, splats

BOOT_LIFE_S = 3600.0  # no set of guests lives longer
BOOT_STALE_S = 600.0  # after this much the next test gets fresh ones
LEAKS_S = 60
LEAKS = "k=/sys/kernel/debug/kmemleak; echo scan >$k; [ -s $k ] || exit 0; sleep 6; echo scan >$k; head -c 6000 $k; echo clear >$k"
MACHINE_TROUBLE = (NodeDead, TimeLimit, SetupError, CommandFailed)

Test = tuple[str, Callable[[Guests], None], Needs]


def run(report: Report, wanted: Callable[[str], bool], long: bool = False) -> None:
    """The tests that `wanted` names: those marked long, or all others."""
    groups: dict[tuple, list[Test]] = {}
    for name, function, needs in _tests(report):
        if not wanted(name) or getattr(function, "long", False) != long:
            continue
        reason = needs.missing()
        if reason:
            report.skipped(name, reason)
        else:
            groups.setdefault(needs.boot(), []).append((name, function, needs))
    for tests in groups.values():
        while tests:
            tests = _one_boot(report, tests)


def _tests(report: Report) -> Iterator[Test]:
    for path in sorted((REPO / "selftests/vm").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"vm_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except Exception:  # a broken test file is a failed test, not the end of the run
            report.failed(f"vm/{path.stem}", traceback.format_exc())
            continue
        for name, function in vars(module).items():
            if name.startswith("test_") and function.__module__ == spec.name:
                yield f"vm/{path.stem}/{name.removeprefix('test_')}", function, getattr(function, "needs", module.NEEDS)


def _one_boot(report: Report, tests: list[Test]) -> list[Test]:
    """Runs tests until the list ends or the guests are no longer fit; returns those not run."""
    needs = tests[0][2]
    report.note(f"booting {needs.nodes} guests for {len(tests)} tests")
    cluster = Cluster(
        needs.nodes, mem_mb=needs.mem_mb, cpus=needs.cpus, with_switch=needs.switch, topology=needs.place(), setup=needs.setup,
        append=needs.append, switch_args=list(needs.switch_args), switch_env={"NUPA_COPY": needs.copy} if needs.copy else {}, time_limit_s=BOOT_LIFE_S, name="check", quiet=True,
    )  # fmt: skip
    last, stale = tests[0][0], time.monotonic() + BOOT_STALE_S * cluster.slowness
    try:
        with cluster:
            while tests and time.monotonic() < stale:
                last, function, _ = tests.pop(0)
                if not _one_test(report, cluster, last, function):
                    break
    except KernelComplaint as problem:
        # Not seen right after a test: a late consequence, which must not be lost.
        if not report.outcomes or report.outcomes[-1].verdict != "failed":
            report.failed(f"{last}: kernel log at power-off", str(problem))
    except MACHINE_TROUBLE as problem:
        report.failed(f"{last}: guests", f"{problem}\nresults: {cluster.results}")
    return tests


def _one_test(report: Report, cluster: Cluster, name: str, function: Callable[[Guests], None]) -> bool:
    """False if the guests should not be used any more: after a failure nobody knows what state they are in."""
    began, alive, problem = time.monotonic(), True, ""
    try:
        function(Guests(cluster))
    except Skip as reason:
        report.skipped(name, str(reason))
        return True
    except Failed as failure:
        problem = str(failure)
    except MACHINE_TROUBLE as trouble:
        problem, alive = str(trouble), False
    except Exception:
        problem = traceback.format_exc()
    if alive:
        problem = "\n".join(filter(None, (problem, _left_over(cluster), _kernel_trouble(cluster))))
    took = time.monotonic() - began
    if problem:
        report.failed(name, f"{problem}\nresults: {cluster.results}", took)
    else:
        report.passed(name, took)
    return not problem


def _left_over(cluster: Cluster) -> str:
    try:
        return leak_check.trouble(Guests(cluster)) or (_leaks(cluster) if on_debug_kernel() else "")
    except (*MACHINE_TROUBLE, Failed, OSError) as trouble:
        return str(trouble)


def _leaks(cluster: Cluster) -> str:
    """What kmemleak suspects twice: once alone is often a pointer on its way."""
    shown = cluster.run_all(LEAKS, LEAKS_S)
    return "\n".join(f"{node.name}: {result.stdout}" for node, result in zip(cluster.node, shown) if result.stdout.strip())


def _kernel_trouble(cluster: Cluster) -> str:
    """A splat on any guest's console so far; what the kernel says at lower levels is looked at when the guests end."""
    for node in cluster.node:
        log = node.console()
        if splats(log):
            return f"{node.name}: the kernel complained:\n{around_first(log)}"
    return ""
