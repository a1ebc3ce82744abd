# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs as they are and under tcpqp-run, turn by turn in one pair of guests: what is run, its rows and its bars."""

import json
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .bars import AT_LEAST, AT_MOST, Bar, ratio
from .cases import KIB, MIB, Case
from .figures import figures, summary
from .machines import PROGRAM

PLAIN, ULP = "plain", "ulp"
NAME = "tcp_qp_stream"
RUN = "$BUILD/cmake/user/tcpqp_run/tcpqp-run --stats"
TAKEN = re.compile(rf"tcpqp-run: \S+: {NAME} on [1-9]\d* sockets$", re.MULTILINE)
NEVER_SLOWER = 0.97  # of plain TCP's rate: what turns of these programs can tell
FASTER = 1.2
WHOLE_FASTER = 1.8
WARM_BYTES = 8 * MIB  # its bounds were set so


def order(turn: int) -> tuple[str, str]:
    """What drifts meets both."""
    return (PLAIN, ULP) if turn % 2 == 0 else (ULP, PLAIN)


# Timed


@dataclass(frozen=True)
class Program:
    """{peer} is the server's address, {port} the port of the server that is meant."""

    name: str
    server: str
    client: str
    figure: Callable[[str], float]  # more is better; raises ValueError on output that has none
    at_least: float = NEVER_SLOWER
    fixed: bool = False  # it does the same work each time, however long it takes


@dataclass
class Row:
    program: Program
    turns: dict[str, list[float]] = field(default_factory=lambda: {PLAIN: [], ULP: []})

    def ratio(self) -> float | None:
        return ratio(*(statistics.median(self.turns[way]) if self.turns[way] else None for way in (ULP, PLAIN)))

    def json(self) -> dict:
        out = {"program": self.program.name, "client": self.program.client, "server": self.program.server, "n": len(self.turns[ULP])}
        return out | {way: summary(values) for way, values in self.turns.items() if values} | {"ratio": self.ratio()}

    def bar(self) -> Bar:
        return Bar(f"{self.program.name}: rate under tcpqp-run / plain", AT_LEAST, self.program.at_least, self.ratio())


@dataclass
class Work(Row):
    """Instructions of both guests for what the program did: beside its rate, without the noise of time."""

    def add(self, way: str, instructions: float, out: str) -> None:
        self.turns[way].append(instructions if self.program.fixed else instructions / self.program.figure(out))

    def json(self) -> dict:
        return {"clock": "icount"} | super().json()

    def bar(self) -> Bar:
        return Bar(f"{self.program.name}: instructions of both ends, under tcpqp-run / plain", AT_MOST, 1 / NEVER_SLOWER, self.ratio())


def last(pattern: str) -> Callable[[str], float]:
    """The number that the pattern's group has where it matches last."""

    def figure(out: str) -> float:
        found = re.findall(pattern, out)
        if not found:
            raise ValueError(f"no figure in: {out}")
        return float(found[-1])

    return figure


def inverse(pattern: str) -> Callable[[str], float]:
    return lambda out: 1 / last(pattern)(out)


def received(out: str) -> float:
    """iperf3's bits a second."""
    report = json.loads(out)
    if "error" in report:
        raise ValueError(report["error"])
    return float(report["end"]["sum_received"]["bits_per_second"])


NGINX = ("sh -c 'mkdir -p /tmp/n{port}; head -c 1024 /dev/urandom >/tmp/n{port}/small; head -c 1048576 /dev/urandom >/tmp/n{port}/large; "
         'echo "daemon off; pid /tmp/n{port}/pid; error_log /tmp/n{port}/log; worker_processes 1; events {} '
         "http { access_log off; sendfile on; keepalive_requests 1000000; server { listen {port}; root /tmp/n{port}; } }\" >/tmp/n{port}/conf; "
         "exec nginx -c /tmp/n{port}/conf'")  # fmt: skip
REDIS = "redis-server --port {port} --protected-mode no --save '' --daemonize no"


def iperfs() -> Iterator[Program]:
    for options in ("", " -l 1M"):
        for streams in (1, 8):
            yield Program(f"iperf3{options}, {streams} stream{'s' if streams > 1 else ''}", "iperf3 -s -p {port}",
                          f"iperf3 -J -c {{peer}} -p {{port}} -t 2 -O 1 -P {streams}{options}", received, FASTER)  # fmt: skip


def servers() -> Iterator[Program]:
    for pipeline, size, count in ((1, 1024, 3000), (16, 1024, 20000), (1, 512 * KIB, 100), (16, 512 * KIB, 100)):
        yield Program(f"redis -P {pipeline}, values of {size} bytes", REDIS,
                      f"redis-benchmark -h {{peer}} -p {{port}} -q -c 10 -n {count} -P {pipeline} -d {size} -t set,get",
                      last(r"GET: ([\d.]+) requests per second"), fixed=True)  # fmt: skip
    for page, size in (("small", "1 KiB"), ("large", "1 MiB")):
        for more, word in (("", "keep-alive"), (" -H 'Connection: close'", "not keep-alive")):
            yield Program(f"nginx and wrk, {size}, {word}", NGINX, f"wrk -t 1 -c 8 -d 2s{more} http://{{peer}}:{{port}}/{page}",
                          last(r"Requests/sec:\s+([\d.]+)"))  # fmt: skip
    yield Program("sockperf ping-pong", "sockperf server --tcp -p {port}", "sockperf ping-pong --tcp -i {peer} -p {port} -t 2",
                  inverse(r"Latency is ([\d.]+) usec"))  # fmt: skip


def gbps(case: Case) -> Callable[[str], float]:
    return lambda out: figures(case, json.loads(out))["gbps"]


def whole() -> Program:
    """Readers that wait for all of 4 MiB, in pages of 2 MiB."""
    case = Case("tcp", bytes=4 * MIB, waitall=True, ms=2000)
    client = f"{PROGRAM} --connect {{peer}} --port {{port}} {case.spec()}"
    return Program("4 MiB by MSG_WAITALL", f"{PROGRAM} --port {{port}}", client, gbps(case), WHOLE_FASTER)


def programs() -> list[Program]:
    return [*iperfs(), whole(), *servers()]


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
        judged = [*(bar for count in self.counts for bar in count.bars()), *(row.bar() for row in (*self.work, *self.rows))]
        return [bar for bar in judged if bar.value is not None]
