#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs on plain TCP and under tcpqp-run, in one run, turn by turn: `make sockets`, docs/sockets.md."""

import argparse
import json
import signal
import sys
from pathlib import Path

from nupavm import Cluster, CommandFailed, Job, KernelComplaint, NodeDead, SetupError, TimeLimit
from nupavm.paths import BUILD
from nupavm.progress import say

from nupabench import report
from nupabench.cases import Case
from nupabench.machines import CLIENT, PROGRAM, SERVER, count_loop
from nupabench.sockets import NAME, PLAIN, RUN, TAKEN, TRIP, TRIP_COMMAND, ULP, Book, Count, Program, Row, counted_cases, order, programs

REPO = Path(__file__).resolve().parents[1]
TARGET = BUILD / "results/sockets.json"
PORTS = {PLAIN: 7800, ULP: 7801}
MEM_MB, CLUSTER_LIMIT_S, LISTEN_S, CLIENT_S = 1800, 3600, 30, 120


class Pair:
    """One server of each kind on a guest, clients of each kind on the other."""

    def __init__(self, cluster: Cluster, server: str) -> None:
        self.cluster, self.jobs = cluster, []
        for way, port in PORTS.items():
            self.jobs.append(self._server(way, server.replace("{port}", str(port))))
            self._has_ulp(way, port)

    def _server(self, way: str, server: str) -> Job:
        node, port = self.cluster.node[SERVER], PORTS[way]
        job = node.start(f"exec {RUN + ' ' if way == ULP else ''}{server}", CLUSTER_LIMIT_S)
        if not node.wait_listening(port, LISTEN_S):
            job.kill()
            raise CommandFailed(f"{server} does not listen: {job.wait()}")
        return job

    def _has_ulp(self, way: str, port: int) -> None:
        listeners = self.cluster.node[SERVER].run(f"ss -Htlni 'sport = :{port}'", LISTEN_S, check=True).stdout
        if (NAME in listeners) != (way == ULP):
            raise CommandFailed(f"a {way} server's socket: {listeners}")

    def client(self, way: str, command: str) -> str:
        """What it printed."""
        command = command.replace("{peer}", self.cluster.node[SERVER].ip4).replace("{port}", str(PORTS[way]))
        done = self.cluster.node[CLIENT].run(f"{RUN + ' ' if way == ULP else ''}{command}", CLIENT_S, check=True)
        if bool(TAKEN.search(done.stderr)) != (way == ULP):
            raise CommandFailed(f"a {way} client, {command}: {done.stderr}")
        return done.stdout

    def end(self) -> None:
        for job in self.jobs:
            job.kill()
            job.wait()


def counted(book: Book, turns: int) -> str:
    """Instructions: nupa_bench's plain TCP, which knows nothing of the ULP, under -icount."""
    with Cluster(2, mem_mb=MEM_MB, setup="full", icount=True, time_limit_s=CLUSTER_LIMIT_S, name="sockets", quiet=True) as cluster:
        count_loop(cluster.node[CLIENT])
        pair = Pair(cluster, f"{PROGRAM} --port {{port}}")
        book.counts += (counts := [Count(case) for case in counted_cases()])
        for turn in range(turns):
            for count in counts:
                for way in order(turn):
                    count.add(way, count_once(pair, way, count.case))
            say(f"counted: turn {turn + 1} of {turns}")
        pair.end()
        return cluster.image.name.removeprefix("vmlinuz-")


def count_once(pair: Pair, way: str, case: Case) -> dict:
    command = TRIP_COMMAND if case is TRIP else f"--connect {{peer}} --port {{port}} {case.spec()}"
    result = json.loads(pair.client(way, f"{PROGRAM} {command}"))
    if not result["ok"]:
        raise CommandFailed(f"{case.spec()}: {result['problem']}")
    return result


def timed(book: Book, wanted: list[Program], turns: int) -> tuple[str, str]:
    with Cluster(2, mem_mb=MEM_MB, setup="full", time_limit_s=CLUSTER_LIMIT_S, name="sockets", quiet=True) as cluster:
        for program in wanted:
            pair, row = Pair(cluster, program.server), Row(program)
            for turn in range(turns):
                for way in order(turn):
                    row.turns[way].append(program.figure(pair.client(way, program.client)))
            pair.end()
            book.rows.append(row)
            say(f"{program.name}: {row.ratio():.3f} of plain, {turns} turns")
        return cluster.accel, cluster.image.name.removeprefix("vmlinuz-")


def run(args: argparse.Namespace) -> int:
    book, accel, kernel = Book(), "tcg", ""
    wanted = [program for program in programs() if args.only in program.name]
    if not args.timed:
        kernel = counted(book, args.turns)
    if not args.counted:
        accel, kernel = timed(book, wanted, args.turns)
    bars = book.bars()
    report.write(TARGET, REPO, kernel, accel, "make sockets", book.json(), bars)
    print(f"\n{report.bars_table(bars)}\n\n{TARGET.relative_to(REPO)} has all; {sum(b.ok for b in bars)} of {len(bars)} bars hold")
    return 0


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--turns", type=int, default=7, help="of each program and count (default %(default)s)")
    p.add_argument("--only", metavar="TEXT", default="", help="programs whose name contains this")
    p.add_argument("--counted", action="store_true", help="instructions only")
    p.add_argument("--timed", action="store_true", help="programs only")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run(args)
    except (SetupError, NodeDead, CommandFailed, TimeLimit, KernelComplaint, ValueError) as problem:
        print(f"sockets: FAIL: {problem}", file=sys.stderr)
        return 1



