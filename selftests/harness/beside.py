# SPDX-License-Identifier: BSD-3-Clause
"""The guest tests that mostly wait (marker `waits`), run by another process beside all else: their guests leave the processors to the others."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.report import Outcome, Report

WAITING, OTHERS = "waiting", "others"  # --part
LOG_LINES = 40


@contextlib.contextmanager
def waiting_tests(report: Report, repo: Path, long: bool = False) -> Iterator[str]:
    """Runs them while the block runs; at its end their outcomes are in the report, too.  Gives the part that is left."""
    with tempfile.TemporaryDirectory() as scratch:
        results, log = Path(scratch) / "results.json", Path(scratch) / "log"
        with log.open("w") as out:
            child = subprocess.Popen(
                [sys.executable, repo / "selftests/run", "--guests", results, "--part", WAITING, *(["--long"] if long else [])],
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        report.note("beside all others, in guests of their own: the tests that mostly wait")
        try:
            yield OTHERS
            report.note("the tests that mostly wait:")
            child.wait()
        finally:
            child.terminate()  # it powers its guests off
            child.wait()
        if results.exists():
            report.take(Outcome(**outcome) for outcome in json.loads(results.read_text())["results"])
        else:
            report.failed("vm/waiting", "\n".join(log.read_text().splitlines()[-LOG_LINES:]))
