# SPDX-License-Identifier: BSD-3-Clause
"""What a VM test file is made of.

A file selftests/vm/NAME.py has a module-level `NEEDS = Needs(...)` and functions `test_*(t)`, run in the order they stand.
Files with equal needs share one boot.  `t` is a Guests: checks are raised as Failed, a reason not to run as Skip.
"""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tools/vm"))

from nupavm import Cluster, Job, Monitor, Node, Result  # noqa: E402
from nupavm.paths import module_dir, switch_binary  # noqa: E402


NCQP = os.environ.get("NUPA_NCQP", "$BUILD/cmake/tools/ncqp/ncqp")
CONTROL_REPLY_S = 10
POLL_S = 0.05


def on_debug_kernel() -> bool:
    return "NUPA_DEBUG_KERNEL" in os.environ


class Failed(Exception):
    """A check did not hold."""


class Skip(Exception):
    """The test can't run here; the text says why."""


def long(test):
    """Marks a test that costs more time than `make check` has: `make soak` runs it."""
    test.long = True
    return test


def _copy_refused(way: str) -> str:
    """Why the switch can't copy this way on this processor, or nothing."""
    asked = subprocess.run([switch_binary(), "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "NUPA_COPY": way})
    return asked.stderr.strip() if asked.returncode else ""


@dataclass(frozen=True)
class Needs:
    """What the guests must have; frozen so that equal needs share a boot."""

    modules: tuple[str, ...] = ()  # of ours, without .ko
    programs: tuple[str, ...] = ()  # paths below build/cmake
    nodes: int = 2
    mem_mb: int = 1024
    cpus: int = 1
    switch: bool = True
    topology: str = "cxl"
    setup: str = "auto"
    append: str = ""
    switch_args: tuple[str, ...] = ()  # further arguments of the switch: ports, rates
    copy: str = ""  # how the switch copies (NUPA_COPY); empty: the best way there is
    tap: str = ""  # an interface that the switch makes on this host
    debug: bool = False  # fault injection and the like

    def missing(self) -> str:
        """Why the test can't run here, or nothing."""
        kernel = module_dir()
        if self.debug and not on_debug_kernel():
            return "needs the debug kernel: make check-debug"
        if self.tap and os.geteuid() != 0:
            return "needs root: the switch makes a TAP interface here"
        if self.tap and not os.access("/dev/net/tun", os.W_OK):
            return "no TAP can be made here: /dev/net/tun"
        if self.copy and (refused := _copy_refused(self.copy)):
            return refused
        for name in self.modules:
            if not (kernel / name / f"{Path(name).name}.ko").is_file():
                return f"{name}.ko is not built"
        for name in self.programs:
            if not (REPO / "build/cmake" / name).is_file():
                return f"{name} is not built"
        return ""

    def place(self) -> str:
        """The topology, but on the debug kernel no CXL bridge: there its ACPI methods run into the interpreter's 30 s limit."""
        return "plain" if on_debug_kernel() and self.topology == "cxl" else self.topology

    def boot(self) -> tuple:
        """What decides whether two tests may share guests."""
        return (self.nodes, self.mem_mb, self.cpus, self.switch, self.place(), self.setup, self.append, self.switch_args, self.copy)


class Guests:
    """The guests of one test: short names for what most tests do."""

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

    def wait_output(self, job: Job, word: str, limit_s: float = 20) -> None:
        """Returns when the job has printed the word."""
        until = time.monotonic() + limit_s * self.cluster.slowness
        while word not in job.output():
            if job.done or time.monotonic() > until:
                raise Failed(f"{job.node.name}: {job.command!r} did not say {word!r}")
            time.sleep(POLL_S)

    def stat(self, node: int, name: str, netdev: str = "nupa0") -> int:
        """One counter of `ethtool -S`."""
        for line in self.run(node, f"ethtool -S {netdev}").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return int(value)
        raise Failed(f"{netdev} on node{node} has no counter {name}")

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

    def monitor(self, node: int) -> Monitor:
        return Monitor(self.cluster.monitor_socket(node))

    def kernel_log(self, node: int) -> str:
        return self.run(node, "dmesg")
