# SPDX-License-Identifier: BSD-3-Clause
"""A message between accelerators and back: what signal_bench said, by round trip; pure arithmetic.

Each turn has a short and a long run.  What they differ by belongs to the rounds between: counting, the first ring and the last sleep are in both.
"""

import statistics
from dataclasses import dataclass, field

from .bars import AT_MOST, Bar, ratio
from .figures import summary
from .report import cell, grid

DIRECT, PROCESSES = "direct", "processes"
WAYS = {
    DIRECT: "by the accelerators, all processes asleep",
    PROCESSES: "by processes that sleep for completions",
}
ROUNDS = (8, 56)
COLUMNS = ("a message and its answer", "us", "instr of processes", "instr of the kernel")
COST_MAX = 1  # of the kernel's instructions and the processes', driven by processes


def figures(timed: bool, short: dict, long: dict) -> dict[str, float]:
    rounds = long["rounds"] - short["rounds"]

    def each(*names: str) -> float:
        return sum(long[name] - short[name] for name in names) / rounds

    if timed:
        return {"us_per_round_trip": each("wall_ns") / 1000}
    processes = each("processes_ns", "caller_ns")
    return {
        "process_instructions": processes,
        "other_process_instructions": long["processes_ns"],
        "kernel_instructions": each("busy_ns") - processes,
        "instructions": each("busy_ns"),
    }


@dataclass
class Signals:
    turns: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def add(self, way: str, timed: bool, short: dict, long: dict) -> None:
        self.turns[way].append(figures(timed, short, long))

    def values(self, way: str, figure: str) -> list[float]:
        return [turn[figure] for turn in self.turns[way] if figure in turn]

    def median(self, way: str, figure: str) -> float | None:
        values = self.values(way, figure)
        return statistics.median(values) if values else None

    def json(self) -> list[dict]:
        return [
            {"way": f"signal, {way}", "what": what, "n": len(self.turns[way]),
             "figures": {name: summary(self.values(way, name)) for name in dict.fromkeys(name for turn in self.turns[way] for name in turn)}}
            for way, what in WAYS.items()
        ]  # fmt: skip

    def bars(self) -> list[Bar]:
        others = max(self.values(DIRECT, "other_process_instructions"), default=None)
        return [
            Bar(f"direct signal: instructions of user processes in {ROUNDS[1]} round trips", AT_MOST, 0, others),
            Bar("direct signal: instructions for a round trip, of those driven by processes", AT_MOST, COST_MAX,
                ratio(self.median(DIRECT, "instructions"), self.median(PROCESSES, "instructions"))),
        ]  # fmt: skip

    def table(self) -> str:
        def line(way: str) -> tuple[str, ...]:
            return (WAYS[way], cell(self.median(way, "us_per_round_trip")),
                    *(cell(self.median(way, name), ",.0f") for name in ("process_instructions", "kernel_instructions")))  # fmt: skip

        return grid([COLUMNS, *(line(way) for way in WAYS)])
