# SPDX-License-Identifier: BSD-3-Clause
"""The guests of one test: `t` in a test function."""

import json
import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from nupavm import Cluster, Job, Monitor, Node, Result

NCQP = os.environ.get("NUPA_NCQP", "$BUILD/cmake/tools/ncqp/ncqp")
CONTROL_REPLY_S = 10
POLL_S = 0.05
T = TypeVar("T")


class Failed(Exception):
    """A check did not hold."""


class Guests:
    """Short names for what most tests do with their guests; a check that does not hold raises Failed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def nodes(self) -> list[Node]:
        return self.cluster.node

    def run(self, node: int, command: str, limit_s: float = 30) -> str:
        """Runs a command that must succeed; its output."""
        result = self.cluster.node[node].run(command, limit_s)
        if not result.ok:
            raise Failed(f"node{node}: {command!r} ended with {result.status}\n{result.stdout}{result.stderr}")
        return result.stdout

    def fails(self, node: int, command: str, limit_s: float = 30) -> Result:
        """Runs a command that must fail in an orderly way: neither succeed, nor time out, nor die of a signal."""
        result = self.cluster.node[node].run(command, limit_s)
        if result.ok or result.status >= 124:
            raise Failed(f"node{node}: {command!r} should have failed, ended with {result.status}\n{result.stdout}{result.stderr}")
        return result

    def start(self, node: int, command: str, limit_s: float = 60) -> Job:
        return self.cluster.node[node].start(command, limit_s)

    def check(self, condition: bool, what: str) -> None:
        if not condition:
            raise Failed(what)

    def equal(self, got, expected, what: str) -> None:
        if got != expected:
            raise Failed(f"{what}: got {got!r}, expected {expected!r}")

    def wait_listening(self, node: int, port: int, limit_s: float = 20) -> None:
        """Returns when something in the guest listens on the TCP port."""
        if not self.nodes[node].wait_listening(port, limit_s):
            raise Failed(f"node{node}: nothing listens on port {port}")

    def wait_until(self, condition: Callable[[], T], what: str, limit_s: float = 20) -> T:
        """Returns what the condition gives as soon as it is true."""
        until = time.monotonic() + limit_s * self.cluster.slowness
        while not (found := condition()):
            if time.monotonic() > until:
                raise Failed(f"in {limit_s:.0f} s: {what}")
            time.sleep(POLL_S)
        return found

    def wait_output(self, job: Job, word: str, limit_s: float = 20) -> None:
        """Returns when the job has printed the word."""
        silent = f"{job.node.name}: {job.command!r} did not say {word!r}"
        self.wait_until(lambda: word in job.output() or job.done, silent, limit_s)
        if word not in job.output():
            raise Failed(silent)

    def stat(self, node: int, name: str, netdev: str = "nupa0") -> int:
        """One counter of `ethtool -S`."""
        for line in self.run(node, f"ethtool -S {netdev}").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return int(value)
        raise Failed(f"{netdev} on node{node} has no counter {name}")

    def nstat(self, node: int, name: str) -> int:
        """One counter of the node's network stack."""
        return int(self.run(node, f"nstat -asz {name} | awk 'END {{ print $2 }}'"))

    def switch(self, cmd: str, **fields) -> dict:
        """One request to the switch, as nupactl sends it; the reply."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(CONTROL_REPLY_S)
            link.connect(str(self.cluster.switch.control))
            link.sendall(json.dumps({"cmd": cmd, **fields}).encode() + b"\n")
            with link.makefile() as lines:
                reply = json.loads(lines.readline())
        if not reply["ok"]:
            raise Failed(f"switch: {cmd} {fields}: {reply['error']}")
        return reply

    def switch_stats(self, node: int) -> dict[str, int]:
        return self.switch("stats", port=f"n{node}")["stats"][f"n{node}"]

    def switch_counted(self, node: int, before: dict[str, int]) -> dict[str, int]:
        """How much more than `before`, which was switch_stats()."""
        return {name: value - before[name] for name, value in self.switch_stats(node).items()}

    def monitor(self, node: int) -> Monitor:
        return Monitor(self.cluster.monitor_socket(node))

    def kernel_log(self, node: int) -> str:
        return self.run(node, "dmesg")
