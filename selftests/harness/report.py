# SPDX-License-Identifier: BSD-3-Clause
"""Collects results, prints each as a KTAP line when it comes, and writes them down."""

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

DETAIL_LINES_MAX = 60
REASON_CHARACTERS_MAX = 200
RESULTS = "results: "  # a line that says where more is


@dataclass
class Outcome:
    name: str
    verdict: str  # passed, failed, skipped
    seconds: float
    detail: str = ""


class Report:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._began = time.monotonic()
        self._mark = self._began
        print("KTAP version 1", flush=True)

    def passed(self, name: str, seconds: float | None = None) -> None:
        self._add(Outcome(name, "passed", self._took(seconds)))

    def failed(self, name: str, detail: str, seconds: float | None = None) -> None:
        self._add(Outcome(name, "failed", self._took(seconds), detail))

    def skipped(self, name: str, reason: str) -> None:
        self._add(Outcome(name, "skipped", self._took(None), reason))

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """What another process found."""
        for outcome in outcomes:
            self._add(outcome)

    def note(self, text: str) -> None:
        print(f"# {text}", flush=True)

    def count(self, verdict: str) -> int:
        return sum(o.verdict == verdict for o in self.outcomes)

    def finish(self, path: Path, only: list[str] | None = None) -> int:
        """Writes the file, prints the summary line, and returns the exit status; @only: what was asked for."""
        counts = {verdict: self.count(verdict) for verdict in ("passed", "failed", "skipped")}
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {**counts, "seconds": round(time.monotonic() - self._began, 1), "results": [asdict(o) for o in self.outcomes]}
        path.write_text(json.dumps(whole, indent=1) + "\n")
        print(f"1..{len(self.outcomes)}")
        for outcome in self.outcomes:
            if outcome.verdict == "failed":
                print(f"# failed: {outcome.name}: {_reason(outcome.detail)}")
        if only and not self.outcomes:
            print(f"# no test matches {' '.join(only)}")
        print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), flush=True)
        return 1 if counts["failed"] or not counts["passed"] else 0

    def _took(self, seconds: float | None) -> float:
        now = time.monotonic()
        took = now - self._mark if seconds is None else seconds
        self._mark = now
        return round(took, 2)

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        word = "not ok" if outcome.verdict == "failed" else "ok"
        tail = f" # SKIP {outcome.detail}" if outcome.verdict == "skipped" else f" ({outcome.seconds:.2f} s)"
        print(f"{word} {len(self.outcomes)} {outcome.name}{tail}", flush=True)
        if outcome.verdict == "failed":
            lines = outcome.detail.splitlines()
            if len(lines) > DETAIL_LINES_MAX:
                lines = ["...", *lines[-DETAIL_LINES_MAX:]]
            print("".join(f"#   {line}\n" for line in lines), end="", flush=True)
        sys.stdout.flush()


def _reason(detail: str) -> str:
    """What was said last, which is mostly why: whoever sees only the end of a log sees that."""
    lines = [line.strip() for line in detail.splitlines() if line.strip() and not line.startswith(RESULTS)]
    return lines[-1][:REASON_CHARACTERS_MAX] if lines else "no reason given"
