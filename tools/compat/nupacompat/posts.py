# SPDX-License-Identifier: BSD-3-Clause
"""Small messages of unmodified perftest, a post each: as it is, under tcpqp-run --verbs, and beside them a send() each on plain TCP."""

import json
import statistics

from nupavm import Cluster

from . import figures
from .pair import CLIENT, Outcome, counters, run_pair, set_engine
from .programs import Program

ROUNDS = 3
BYTES, ITERATIONS, TCP_S = 64, 10_000, 1
RUN = "$BUILD/cmake/user/tcpqp_run/tcpqp-run --verbs "
TCP = "tcp"
TARGET = 1.0  # of TCP's rate, WRITEs under --verbs
ENGINES = ("offload", "software")


def perftest(program: str, run: str) -> Program:
    command = f"{run}{program} -R -F -s {BYTES} -n {ITERATIONS} -p {{port}}"
    return Program(program, command, f"{command} {{peer}}", figures.perftest_rate)


def tcp() -> Program:
    """Without TCP_NODELAY: it joins what it can."""
    client = f"iperf3 -J -c {{peer}} -p {{port}} -l {BYTES} -t {TCP_S}"
    return Program("iperf3", "iperf3 -s -1 -p {port}", client, lambda out: str(tcp_rate(out)))


def tcp_rate(out: str) -> float:
    return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 8 / BYTES


def perftest_rate(out: str) -> float:
    return float(figures.rows(out)[0][figures.BW_RATE]) * 1e6


WAYS = {
    TCP: (tcp(), tcp_rate),
    "ib_write_bw": (perftest("ib_write_bw", ""), perftest_rate), "ib_write_bw --verbs": (perftest("ib_write_bw", RUN), perftest_rate),
    "ib_send_bw": (perftest("ib_send_bw", ""), perftest_rate), "ib_send_bw --verbs": (perftest("ib_send_bw", RUN), perftest_rate),
}  # fmt: skip


def compare(cluster: Cluster) -> list[Outcome]:
    """Medians of ROUNDS turns on each engine."""
    return [outcome for engine in ENGINES for outcome in _on(cluster, engine)]


def _on(cluster: Cluster, engine: str) -> list[Outcome]:
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    doorbells: dict[str, list[float]] = {way: [] for way in WAYS}
    problems: dict[str, str] = {}
    set_engine(cluster, engine)
    for _ in range(ROUNDS):
        for way, (program, rate) in WAYS.items():
            before = counters(cluster)[CLIENT]
            out, problem = run_pair(cluster, program)
            after = counters(cluster)[CLIENT]
            if problem:
                problems[way] = problem
                continue
            rates[way].append(rate(out))
            doorbells[way].append((after["doorbells"] - before["doorbells"]) / ITERATIONS)
    return [_outcome(way, engine, rates, doorbells[way], problems.get(way, "")) for way in WAYS]


def _outcome(way: str, engine: str, rates: dict[str, list[float]], doorbells: list[float], problem: str) -> Outcome:
    name = way.split(" ", maxsplit=1)[0]
    command = f"{way} -s {BYTES} (side by side)"
    if problem or not rates[way]:
        return Outcome(name, command, engine, False, "", problem or "no figure")
    rate = statistics.median(rates[way])
    figure = f"{rate:,.0f} a second"
    if way != TCP and rates[TCP]:
        ratio = rate / statistics.median(rates[TCP])
        figure += f", {ratio:.2f} times TCP, {statistics.median(doorbells):.3f} doorbells each"
    return Outcome(name, command, engine, True, figure)
