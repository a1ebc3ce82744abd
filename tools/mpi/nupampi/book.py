# SPDX-License-Identifier: BSD-3-Clause
"""What was measured: a row for each program, stack, number of guests, operation and size; and the bars that are held against it."""

from dataclasses import dataclass, field

from nupabench.bars import AT_LEAST, AT_MOST, Bar, ratio
from nupabench.figures import summary
from nupabench.report import grid, size

from .launch import Outcome
from .pairs import RXM_BYTES
from .programs import KIB, MIB, Figures
from .stacks import STACKS, rivals

LARGE = (MIB, 4 * MIB)
SMALL = (8, 2 * KIB)
PLACED_FROM_BYTES = MIB  # of a run's traffic, from which on its placement tells something


@dataclass(frozen=True)
class Key:
    program: str
    stack: str
    guests: int
    operation: str
    bytes: int


@dataclass
class Row:
    us: list[float] = field(default_factory=list)

    def median(self) -> float | None:
        return summary(self.us)["median"] if self.us else None


@dataclass
class Tally:
    """Of one program on one stack, all runs: how many there were, what failed, and who put the bytes where they are."""

    runs: int = 0
    problems: list[str] = field(default_factory=list)
    delivered: int = 0
    placed: int = 0

    def share(self) -> float | None:
        return self.placed / self.delivered if self.delivered >= PLACED_FROM_BYTES else None


class Book:
    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.tallies: dict[tuple[str, str, int], Tally] = {}

    def add(self, program: str, stack: str, guests: int, outcome: Outcome, figures: Figures) -> None:
        tally = self.tallies.setdefault((program, stack, guests), Tally())
        tally.runs += 1
        tally.delivered += outcome.moved.get("rx_delivered_bytes", 0)
        tally.placed += outcome.moved.get("rx_placed_bytes", 0)
        if not outcome.ok or not figures:
            tally.problems.append(outcome.problem or f"no figure in: {outcome.out[-500:]}")
            return
        for operation, count, us in figures:
            row = self.rows.setdefault(Key(program, stack, guests, operation, count), Row())
            if us:
                row.us.append(us)

    def us(self, program: str, stack: str, guests: int, operation: str, count: int) -> float | None:
        row = self.rows.get(Key(program, stack, guests, operation, count))
        return row.median() if row else None

    def json(self) -> list[dict]:
        rows = [vars(key) | {"n": len(row.us), "figures": {"us": summary(row.us)} if row.us else {}} for key, row in self.rows.items()]
        tallies = [
            {"program": program, "stack": stack, "guests": guests, "runs": tally.runs, "delivered_bytes": tally.delivered, "placed_bytes": tally.placed,
             "problems": tally.problems}
            for (program, stack, guests), tally in self.tallies.items()
        ]  # fmt: skip
        return [*rows, *tallies]


def fastest_tcp(book: Book, stack_name: str, guests: int, operation: str, count: int) -> float | None:
    """The same MPI over TCP at its best."""
    stack = next(stack for stack in STACKS if stack.name == stack_name)
    there = [us for rival in rivals(stack) if (us := book.us("checked", rival.name, guests, operation, count)) is not None]
    return min(there) if there else None


def speed(book: Book, stack: str, guests: int, operation: str, count: int) -> float | None:
    """TCP's time over ours."""
    return ratio(fastest_tcp(book, stack, guests, operation, count), book.us("checked", stack, guests, operation, count))


def slowness(book: Book, stack: str, guests: int, operation: str, count: int) -> float | None:
    return ratio(book.us("checked", stack, guests, operation, count), fastest_tcp(book, stack, guests, operation, count))


def of_stack(book: Book, stack: str) -> list[Bar]:
    def faster(what: str, bound: float, guests: int, operation: str) -> list[Bar]:
        return [Bar(f"{stack}: {what} of {size(count)}, TCP's time / ours", AT_LEAST, bound, speed(book, stack, guests, operation, count)) for count in LARGE]

    small = [
        Bar(f"{stack}: ping-pong of {size(count)}, both spinning, ours / TCP's", AT_MOST, 1, slowness(book, stack, 2, "pingpong", count)) for count in SMALL
    ]
    shares = [
        Bar(f"{stack}: bytes placed, checked, {guests} guests", AT_LEAST, 0.95, tally.share())
        for (program, name, guests), tally in book.tallies.items()
        if program == "checked" and name == stack
    ]
    return [*faster("ping-pong", 2, 2, "pingpong"), *small, *faster("all-reduce, 4 guests,", 1.5, 4, "allreduce"), *shares]


def of_gloo(book: Book) -> list[Bar]:
    def faster(operation: str, count: int) -> float | None:
        return ratio(*(book.us("gloo", stack, 4, operation, count) for stack in ("gloo-tcp", "gloo-ibverbs")))

    return [
        Bar(f"{operation}: all-reduce, 4 guests, of {size(count)}, TCP's time / ours", AT_LEAST, 1.5, faster(operation, count))
        for operation in ("gloo_ring", "gloo_halving")
        for count in LARGE
    ]


def evaluate(book: Book) -> list[Bar]:
    """Those for which something was measured."""
    failed = sum(len(tally.problems) for tally in book.tallies.values())
    rxm = ratio(book.us("fi_pingpong", "verbs;ofi_rxm", 2, "pingpong", RXM_BYTES), book.us("fi_pingpong", "verbs", 2, "pingpong", RXM_BYTES))
    bars = [Bar("runs that failed or had a wrong value", AT_MOST, 0, failed)]
    for stack in STACKS:
        if stack.placed:
            bars += of_stack(book, stack.name)
    bars += of_gloo(book)
    bars.append(Bar(f"fi_pingpong of {size(RXM_BYTES)}: verbs;ofi_rxm / verbs", AT_MOST, 1.5, rxm))
    return [bar for bar in bars if bar.value is not None]


def _cell(row: Row) -> str:
    return f"{row.median():,.0f}" if row.us else "right"


def table(book: Book, program: str, guests: int) -> str:
    """Median microseconds, a column for each stack."""
    there = {key: row for key, row in book.rows.items() if (key.program, key.guests) == (program, guests)}
    stacks = list(dict.fromkeys(key.stack for key in there))
    lines = [(f"{program}, {guests} guests, us", *stacks)]
    for operation, count in dict.fromkeys((key.operation, key.bytes) for key in there):
        cells = (there.get(Key(program, stack, guests, operation, count)) for stack in stacks)
        lines.append((f"{operation} {size(count)}", *(_cell(row) if row else "-" for row in cells)))
    return grid(lines)


def tables(book: Book) -> list[str]:
    return [table(book, program, guests) for program, guests in dict.fromkeys((key.program, key.guests) for key in book.rows)]


def problems(book: Book) -> list[str]:
    return [f"{program} on {stack}, {guests} guests: {text}" for (program, stack, guests), tally in book.tallies.items() for text in tally.problems]
