# SPDX-License-Identifier: BSD-3-Clause
"""A pair of guests that measures."""

import itertools
import json
import socket
import time
from collections.abc import Callable

from nupavm import Cluster, CommandFailed, Job, Node

from .cases import Case

PROGRAM = "$BUILD/cmake/bench/guest/nupa_bench"
PORT = 7700
SERVER, CLIENT = 0, 1
CALL_LIMIT_S, CASE_LIMIT_S, LISTEN_S = 30, 10, 30
CASES_PER_CALL = 8
LONG_BUFFERS = 256  # nupa_dev's default for so much memory
CLOCK_ERROR_MAX = 0.02  # ticks and calibration
# Of a time that a round trip never takes, so that no interrupt comes between; who sleeps waits for it.
DEFER = "cd /sys/class/net/nupa0 && echo 2 > napi_defer_hard_irqs && echo 2000000 > gro_flush_timeout"
NO_DEFER = "cd /sys/class/net/nupa0 && echo 0 > napi_defer_hard_irqs && echo 0 > gro_flush_timeout"
# What waits in the switch waits by real time, of which guests under -icount need ten times as much: NUPA_RX_HOLD_MAX_US.
SLOW = "ethtool -C nupa0 rx-usecs 10000"
RXE = "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev nupa0 && sh $REPO/tools/vm/guest/mkdev"


class Machines:
    """A booted pair with the measuring program listening on one of them."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.cluster, self.say = cluster, say
        self.server: Job | None = None
        self.short = False
        self.watch = bool(cluster.pool_mib)  # nupa_dev's default in mode cxl
        self.deferred = False

    def prepare(self, rxe: bool = True) -> None:
        if rxe:
            self.cluster.run_all(RXE, 60, check=True)
        if self.cluster.icount:
            self.cluster.run_all(SLOW, check=True)
        node = self.cluster.node[SERVER]
        self.server = node.start(f"exec {PROGRAM} --port {PORT}", 3600, name="server")
        if not node.wait_listening(PORT, LISTEN_S):
            raise CommandFailed(f"{node.name}: {PROGRAM} does not listen")

    def count_loop(self) -> float:
        return count_loop(self.cluster.node[CLIENT])

    def faults(self, **set_to: float) -> None:
        for port in ("n0", "n1"):
            self.switch("faults", port=port, clear=True, **({"set": set_to} if set_to else {}))

    def switch(self, command: str, **more) -> dict:
        return control(self.cluster, {"cmd": command, **more})

    def run(self, cases: list[Case], limit_s: float = CALL_LIMIT_S) -> list[dict]:
        """One result for each case, in order.  A case that fails has "ok": false and its problem."""
        results = []
        while len(results) < len(cases):
            following = cases[len(results) : len(results) + CASES_PER_CALL]
            self.prepare_case(following[0])
            alike = itertools.takewhile(lambda case: (case.short, case.watch, case.defer) == (self.short, self.watch, self.deferred), following)
            results += self._call(list(alike), limit_s)
        return results

    def prepare_case(self, case: Case) -> None:
        """Rings as it wants them."""
        self._buffers(case.short)
        if case.watch != self.watch:
            self.cluster.run_all(f"ethtool --set-priv-flags nupa0 tx-watch {'on' if case.watch else 'off'}", check=True)
        self.watch = case.watch
        if case.defer != self.deferred:
            self.cluster.run_all(DEFER if case.defer else NO_DEFER, check=True)
        self.deferred = case.defer

    def _buffers(self, short: bool) -> None:
        if short != self.short:
            self.cluster.run_all(f"ethtool -G nupa0 rx-jumbo {0 if short else LONG_BUFFERS}", check=True)
        self.short = short

    def _call(self, cases: list[Case], limit_s: float) -> list[dict]:
        """At least one result: a case without an answer has failed, those behind it are for the next call."""
        command = f"{PROGRAM} --connect {self.cluster.node[SERVER].ip4} --port {PORT} " + " ".join(c.spec() for c in cases)
        done = self.cluster.node[CLIENT].run(f"exec {command}", limit_s + CASE_LIMIT_S * len(cases))
        results = [json.loads(line) for line in done.stdout.splitlines()]
        if len(results) < len(cases):
            problem = f"no answer: status {done.status} {done.stderr.strip()}"
            self.say(f"{cases[len(results)].spec()}: {problem}")
            results.append({"ok": False, "problem": problem})
        return results

    def rounds(self, cases: list[Case], count: int, add: Callable[[Case, dict], None], until: float = float("inf")) -> int:
        """All cases, turn by turn, @count times or until that moment (but once at least); how often."""
        for turn in range(count):
            if turn and time.monotonic() > until:
                return turn
            for case, result in zip(cases, self.run(cases)):
                add(case, result)
        return count


def count_loop(node: Node) -> float:
    """Nanoseconds that an instruction takes by this guest's clock, by a loop of known length: 1 under -icount."""
    out = node.run(f"{PROGRAM} --count-loop", 60, check=True).stdout
    took = json.loads(out)["ns_per_instruction"]
    if abs(took - 1) > CLOCK_ERROR_MAX:
        raise CommandFailed(f"an instruction takes {took} ns under -icount: its counts mean nothing")
    return took


def control(cluster: Cluster, request: dict) -> dict:
    """A command to the switch."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(str(cluster.switch.control))
        s.sendall(json.dumps(request).encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            chunk = s.recv(1 << 16)
            if not chunk:
                raise CommandFailed("the switch hung up")
            reply += chunk
    answer = json.loads(reply)
    if not answer.get("ok", True):
        raise CommandFailed(f"the switch refuses {request}: {answer}")
    return answer
