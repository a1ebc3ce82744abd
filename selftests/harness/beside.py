# SPDX-License-Identifier: BSD-3-Clause
"""About half of the guest tests (marker `beside`), run by another process beside all else: one pair of guests leaves processors idle."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.report import Outcome, Report

BESIDE, OTHERS = "beside", "others"  # --part
LOG_LINES = 40


@contextlib.contextmanager
def second_half(report: Report, repo: Path, long: bool = False) -> Iterator[str]:
    """Runs them while the block runs; at its end their outcomes are in the report, too.  Gives the part that is left."""
    with tempfile.TemporaryDirectory() as scratch:
        results, log = Path(scratch) / "results.json", Path(scratch) / "log"
        with log.open("w") as out:
            child = subprocess.Popen(
                [sys.executable, repo / "selftests/run", "--guests", results, "--part", BESIDE, *(["--long"] if long else [])],
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        report.note("half of the guest tests run beside all else, in guests of their own")
        try:
            yield OTHERS
            report.note("that half:")
            child.wait()
        finally:
            child.terminate()  # it powers its guests off
            child.wait()
        if results.exists():
            report.take(Outcome(**outcome) for outcome in json.loads(results.read_text())["results"])
        else:
            report.failed("vm/beside", "\n".join(log.read_text().splitlines()[-LOG_LINES:]))
