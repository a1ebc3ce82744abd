# SPDX-License-Identifier: BSD-3-Clause
"""One guest, seen from the host: run commands in it, read what they left."""

import itertools
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import Cluster

JOB_SLACK_S = 15.0  # the guest enforces a job's limit; the host waits this much longer before it gives up on the guest
OUTPUT_MAX_BYTES = 4 << 20  # of a command's output that the host reads; the file has all of it


class NodeDead(Exception):
    """A guest ended before it was told to."""


class EmulatorCrashed(NodeDead):
    """QEMU itself was ended by a signal, and not by one of ours, or did what no processor does."""


class MadeUpByEmulator(EmulatorCrashed):
    """A guest died of what no processor does, whatever its software does: it is none of ours."""


class CommandFailed(Exception):
    """A command checked for success did not have it."""


@dataclass
class Result:
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Job:
    """A command running in a guest."""

    def __init__(self, node: "Node", ident: str, command: str, limit_s: float) -> None:
        self.node, self.ident, self.command, self.limit_s = node, ident, command, limit_s

    @property
    def done(self) -> bool:
        return (self.node.index, self.ident) in self.node.cluster.hub.jobs

    def wait(self, check: bool = False) -> Result:
        cluster = self.node.cluster
        cluster.wait(lambda: self.done, self.limit_s + JOB_SLACK_S, f"{self.node.name}: {self.command[:60]!r}")
        result = Result(cluster.hub.jobs[self.node.index, self.ident], self._read("out"), self._read("err"))
        if check and not result.ok:
            raise CommandFailed(f"{self.node.name}: {self.command!r} ended with {result.status}\n{result.stdout}{result.stderr}")
        return result

    def kill(self) -> None:
        self.node.cluster.hub.send(self.node.index, f"kill {self.ident}")

    def output(self) -> str:
        """What it has written so far."""
        return self._read("out")

    def _read(self, kind: str) -> str:
        with (self.node.results / "jobs" / f"{self.ident}.{kind}").open("rb") as file:
            return file.read(OUTPUT_MAX_BYTES).decode(errors="replace")


class Node:
    def __init__(self, cluster: "Cluster", index: int, results: Path) -> None:
        self.cluster, self.index, self.results = cluster, index, results
        self.name = f"node{index}"
        self.ip4, self.ip6 = f"10.77.0.{index + 1}", f"fd77::{index + 1}"
        self.process: subprocess.Popen | None = None
        self._numbers = itertools.count(1)

    def start(self, command: str, limit_s: float | None = None, name: str = "") -> Job:
        """Starts a shell command in the guest, in the repository's root, and returns at once."""
        ident = f"{next(self._numbers):03d}{'.' + name if name else ''}"
        limit = (self.cluster.job_limit_s if limit_s is None else limit_s) * self.cluster.slowness
        jobs = self.results / "jobs"
        for kind in ("out", "err"):
            (jobs / f"{ident}.{kind}").touch()
        (jobs / f"{ident}.sh").write_text(f"{command}\n")
        self.cluster.hub.send(self.index, f"run {ident} {limit}")
        return Job(self, ident, command, limit)

    def run(self, command: str, limit_s: float | None = None, check: bool = False) -> Result:
        """Runs a shell command in the guest to its end."""
        return self.start(command, limit_s).wait(check)

    def wait_listening(self, port: int, limit_s: float) -> bool:
        """Returns when something in the guest listens on the TCP port; False: nothing did in time."""
        ident, limit = f"{next(self._numbers):03d}.listen", limit_s * self.cluster.slowness
        self.cluster.hub.send(self.index, f"listen {ident} {limit} {port}")
        self.cluster.wait(lambda: (self.index, ident) in self.cluster.hub.jobs, limit + JOB_SLACK_S, f"{self.name}: a listener on port {port}")
        return self.cluster.hub.jobs[self.index, ident] == 0

    def console(self) -> str:
        """What its kernel has printed at warning level and above since the guest was set up."""
        return (self.results / "console").read_text(errors="replace")

    def log(self) -> str:
        """Everything known of its kernel log: the console while it runs, and the whole log after the end."""
        parts = [self.results / "console", self.results / "dmesg"]
        return "\n".join(p.read_text(errors="replace") for p in parts if p.exists())
