# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs as they are and under tcpqp-run, turn by turn in one pair of guests: rows and bars."""

import math
import re
import statistics
from dataclasses import dataclass, field, replace

from .bars import AT_LEAST, AT_MOST, Bar, ratio
from .cases import KIB, MIB, Case
from .figures import figures, summary
from .socket_programs import CGROUP, NEVER_SLOWER, SUPERVISED, Program

PLAIN, ULP = "plain", "ulp"
NAME = "tcp_qp_stream"
RUN = "$BUILD/cmake/user/tcpqp_run/tcpqp-run"
CGROUPS = "/sys/fs/cgroup/sockets"  # one for each way
MAKE_CGROUPS = (f"mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup; mkdir -p {CGROUPS}/{PLAIN} {CGROUPS}/{ULP} && "
                f"{RUN} --cgroup {CGROUPS}/{ULP}")  # fmt: skip
SHOW_ULP = "python3 -c 'import socket; print(socket.socket().getsockopt(socket.IPPROTO_TCP, 31, 16))'"
TAKEN = re.compile(rf"tcpqp-run: \S+: {NAME} on [1-9]\d* sockets$", re.MULTILINE)
WARM_BYTES = 8 * MIB  # its bounds were set so


def prefix(reach: str, way: str) -> str:
    """What stands before a program."""
    if reach == CGROUP:
        return f"""sh -c 'echo $$ >{CGROUPS}/{way}/cgroup.procs; exec "$@"' sh """
    return "" if way == PLAIN else f"{RUN} --stats {'--supervise ' if reach == SUPERVISED else ''}"


def placed_share(before: str, after: str) -> float:
    """Of what came for connections that the NIC knows, between two outputs of `ethtool -S`, which the switch wrote to its place."""
    placed, delivered = (
        int(re.search(rf"^ *{name}: (\d+)$", after, re.MULTILINE)[1]) - int(re.search(rf"^ *{name}: (\d+)$", before, re.MULTILINE)[1])
        for name in ("switch_placed_bytes", "switch_qp_delivered_bytes")
    )
    return placed / max(1, placed + delivered)


def median_range(values: list[float]) -> tuple[float, float]:
    """Where the median of all that could be drawn is, 99 times of 100: binomial, whatever their distribution; of few the whole range."""
    ordered, rank = sorted(values), max(0, int((len(values) - 2.58 * math.sqrt(len(values))) / 2))
    return ordered[rank], ordered[-1 - rank]


def order(turn: int) -> tuple[str, str]:
    """What drifts meets both."""
    return (PLAIN, ULP) if turn % 2 == 0 else (ULP, PLAIN)


@dataclass
class Row:
    program: Program
    turns: dict[str, list[float]] = field(default_factory=lambda: {PLAIN: [], ULP: []})
    placed: list[float] = field(default_factory=list)  # shares, of what came under ULP

    def ratios(self) -> list[float]:
        """Of each turn: what drifts meets both ways of one turn alike."""
        return [ulp / plain for ulp, plain in zip(self.turns[ULP], self.turns[PLAIN])]

    def ratio(self) -> float | None:
        return statistics.median(self.ratios()) if self.turns[ULP] else None

    def decided(self) -> bool:
        """Does the bar hold, or fail, for each value that the ratio may have (median_range())?"""
        low, high = median_range(self.ratios())
        return low >= self.program.at_least or high < self.program.at_least

    def json(self) -> dict:
        out = {"program": self.program.name, "client": self.program.client, "server": self.program.server, "n": len(self.turns[ULP])}
        placed = {"placed": summary(self.placed)} if self.placed else {}
        return out | {way: summary(values) for way, values in self.turns.items() if values} | placed | self.compared()

    def compared(self) -> dict:
        low, high = median_range(self.ratios())
        return {"ratio": self.ratio(), "ratio_low": low, "ratio_high": high}

    def bars(self) -> list[Bar]:
        bars = [Bar(f"{self.program.name}: rate under tcpqp-run / plain", AT_LEAST, self.program.at_least, self.ratio())]
        if self.placed:
            bars.append(Bar(f"{self.program.name}: share that the switch placed", AT_LEAST, self.program.placed, statistics.median(self.placed)))
        return bars


@dataclass
class Work(Row):
    """Instructions of both guests for what the program did: beside its rate, without the noise of time."""

    def add(self, way: str, instructions: float, out: str) -> None:
        self.turns[way].append(instructions if self.program.fixed else instructions / self.program.figure(out))

    def json(self) -> dict:
        return {"clock": "icount"} | super().json()

    def bars(self) -> list[Bar]:
        return [Bar(f"{self.program.name}: instructions of both ends, under tcpqp-run / plain", AT_MOST, 1 / NEVER_SLOWER, self.ratio())]


# Counted


def busy_ns(timer_list: str) -> int:
    """Of a guest with one processor, since its boot, from /proc/timer_list; under -icount as many as it had instructions."""
    (now,) = re.findall(r"^now at (\d+) nsecs", timer_list, re.MULTILINE)
    return int(now) - sum(int(ns) for ns in re.findall(r"^  \.(?:idle|iowait)_sleeptime *: *(\d+) nsecs", timer_list, re.MULTILINE))


TRIP = Case("tcp", mode="pingpong", bytes=64).counted(2000, 256 * 64)
# Over loopback in one guest: between two, how often a guest sleeps differs from turn to turn by more than the bar.
TRIP_COMMAND = f"--loopback --interface lo transport=tcp,mode=pingpong,bytes={TRIP.bytes},messages={TRIP.messages},warm_bytes={TRIP.warm_bytes}"

# Whole messages, into pages of 2 MiB and of 4 KiB: their reader waits, and the switch writes where.
WHOLE = Case("tcp", bytes=4 * MIB, waitall=True).counted(96, 64 * MIB)
WHOLE_SCATTERED = replace(WHOLE, scattered=True)


def counted_cases() -> list[Case]:
    return [*(Case("tcp", bytes=size).counted(384 * MIB // size, WARM_BYTES) for size in (MIB, 128 * KIB)), WHOLE, WHOLE_SCATTERED, TRIP]


@dataclass
class Count:
    case: Case
    turns: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {PLAIN: [], ULP: []})

    def add(self, way: str, result: dict) -> None:
        self.turns[way].append(figures(self.case, result))

    def median(self, way: str, name: str) -> float | None:
        return statistics.median(turn[name] for turn in self.turns[way]) if self.turns[way] else None

    def ratio(self, name: str) -> float | None:
        return ratio(*(self.median(way, name) for way in (ULP, PLAIN)))

    def json(self) -> dict:
        spread = {way: {name: summary([turn[name] for turn in turns]) for name in turns[0]} for way, turns in self.turns.items() if turns}
        return self.case.facts() | {"n": len(self.turns[ULP])} | spread

    def bars(self) -> list[Bar]:
        if self.case.mode == "pingpong":
            whole_guest = "tx_instructions_per_message"
            return [Bar("64 B round trip over loopback: instructions of both ends, ULP / plain", AT_MOST, 1.01, self.ratio(whole_guest))]
        if self.case.waitall:
            pages = "4 KiB" if self.case.scattered else "2 MiB"
            cost = self.median(ULP, "rx_instructions_per_byte")
            return [Bar(f"4 MiB by MSG_WAITALL, pages of {pages}: receive instructions per byte, ULP", AT_MOST, 0.04, cost)]
        size, bound = ("1 MiB", 0.5) if self.case.bytes == MIB else ("128 KiB", 0.6)
        return [
            Bar(f"{size}: send instructions per byte, ULP / plain", AT_MOST, bound, self.ratio("tx_instructions_per_byte")),
            Bar(f"{size}: receive instructions per byte, ULP / plain", AT_MOST, 1.02, self.ratio("rx_instructions_per_byte")),
        ]


class Book:
    """What was measured, as rows."""

    def __init__(self) -> None:
        self.counts: list[Count] = []
        self.work: list[Work] = []
        self.rows: list[Row] = []

    def json(self) -> list[dict]:
        return [row.json() for rows in (self.counts, self.work, self.rows) for row in rows]

    def bars(self) -> list[Bar]:
        judged = [bar for rows in (self.counts, self.work, self.rows) for row in rows for bar in row.bars()]
        return [bar for bar in judged if bar.value is not None]
