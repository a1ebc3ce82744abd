# SPDX-License-Identifier: BSD-3-Clause
"""From what nupa_bench printed to figures, and from several turns to a row."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from .cases import MIB, Case

ENDS = ("tx", "rx")


def figures(case: Case, result: dict) -> dict[str, float]:
    """Of one measurement.  Seconds under -icount are no seconds: there only counts are given."""
    tx, rx = result["tx"], result["rx"]
    messages = rx["messages"]
    payload = rx["payload"] * (2 if case.mode == "pingpong" else 1)
    out = {}
    if case.calls:
        return {f"{end}_calls_per_mib": result[end]["counters"]["calls"] / payload * MIB for end in ENDS}
    if case.clock == "wall":
        seconds = (tx if rx["passive"] else rx)["phase_ns"] / 1e9
        out |= {"gbps": payload * 8 / seconds / 1e9, "messages_per_s": messages / seconds}
        for name, ns in tx.get("rtt_ns", {}).items():
            out[f"rtt_{name}_us"] = ns / 1000
        if case.loss:
            counters = tx["counters"]
            out |= {"tx_segments": counters["tcp_segments"], "tx_segments_again": counters["tcp_segments_again"]}
            out["tx_sent_again_percent"] = out["tx_segments_again"] / out["tx_segments"] * 100
        if "fairness" in rx:
            out["fairness"] = rx["fairness"]
        return out
    for end in ENDS:
        counters = result[end]["counters"]
        out |= {
            f"{end}_instructions_per_byte": counters["busy_ns"] / payload,
            f"{end}_instructions_per_message": counters["busy_ns"] / messages,
            f"{end}_copies_per_byte": result[end]["copied"] / payload,
            f"{end}_interrupts_per_mib": counters["interrupts"] / payload * MIB,
            f"{end}_doorbells_per_mib": counters["doorbells"] / payload * MIB,
            f"{end}_packets_per_mib": counters["rx_completions"] / payload * MIB,
        }
    return out


class AnyFigure(dict):
    """Of a turn that has a figure of every name."""

    def __contains__(self, _: object) -> bool:
        return True

    def __missing__(self, _: str) -> float:
        return 1.0


@dataclass
class Row:
    case: Case
    turns: list[dict[str, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def median(self, name: str) -> float | None:
        values = [turn[name] for turn in self.turns if name in turn]
        return statistics.median(values) if values else None

    def total(self, name: str) -> float | None:
        values = [turn[name] for turn in self.turns if name in turn]
        return sum(values) if values else None

    def json(self) -> dict:
        names = list(dict.fromkeys(name for turn in self.turns for name in turn))
        spread = {name: summary([turn[name] for turn in self.turns if name in turn]) for name in names}
        out = self.case.facts() | {"n": len(self.turns), "figures": spread}
        return out | ({"problems": self.problems} if self.problems else {})


def summary(values: list[float]) -> dict[str, float]:
    return {"median": rounded(statistics.median(values)), "min": rounded(min(values)), "max": rounded(max(values))}


def rounded(value: float) -> float:
    """Five digits: more would be noise."""
    return float(f"{value:.5g}")


class Book:
    """All rows of a run, by case."""

    def __init__(self) -> None:
        self.rows: dict[Case, Row] = {}
        self.more: list[dict] = []  # rows of other kinds: engine, growth, idle

    def add(self, case: Case, result: dict) -> None:
        row = self.rows.setdefault(case, Row(case))
        if result["ok"]:
            row.turns.append(figures(case, result))
        else:
            row.problems.append(result["problem"])

    def find(self, figure: str, **wanted) -> float | None:
        """The median of the first row that has the figure and these facts; the rest as at the default point."""
        return self._first(lambda row: row.median(figure), wanted)

    def total(self, figure: str, **wanted) -> float | None:
        """The sum over all turns of that row."""
        return self._first(lambda row: row.total(figure), wanted)

    def _first(self, of: Callable[[Row], float | None], wanted: dict) -> float | None:
        facts = Case("").facts() | wanted
        for case, row in self.rows.items():
            if case.facts() == facts and (value := of(row)) is not None:
                return value
        return None

    def problems(self) -> list[str]:
        return [f"{row.case.spec()}: {problem}" for row in self.rows.values() for problem in row.problems]

    def as_if_measured(self) -> "Book":
        """The same, if what was run and gave nothing but problems had given its figures."""
        book = Book()
        book.more = self.more
        book.rows = {case: row if row.turns else Row(case, [AnyFigure()]) for case, row in self.rows.items()}
        return book

    def json(self) -> list[dict]:
        return [*(row.json() for row in self.rows.values()), *self.more]
