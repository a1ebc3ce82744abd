# SPDX-License-Identifier: BSD-3-Clause
"""A parallel program in all guests, once."""

import itertools
from dataclasses import dataclass

from nupavm import Cluster

from .stacks import Stack

GUEST = "$REPO/tools/mpi/guest"
PROGRAMS = "$BUILD/mpi"
SERVE_SLACK_S = 10
COUNTERS_LIMIT_S = 20
_numbers = itertools.count(1)


@dataclass
class Outcome:
    ok: bool
    out: str
    problem: str
    moved: dict[str, int]  # by how much the RDMA devices' counters moved, all guests together


def counters(cluster: Cluster) -> dict[str, int]:
    """Of all guests' RDMA devices, added up."""
    total: dict[str, int] = {}
    for shown in cluster.run_all("cd /sys/class/infiniband/tcpqp0/ports/1/hw_counters && grep . *", COUNTERS_LIMIT_S, check=True):
        for line in shown.stdout.split():
            name, _, value = line.partition(":")
            total[name] = total.get(name, 0) + int(value)
    return total


def moved(cluster: Cluster, was: dict[str, int]) -> dict[str, int]:
    """By how much they moved since they were so."""
    return {name: value - was[name] for name, value in counters(cluster).items()}


def launch(cluster: Cluster, stack: Stack, program: str, limit_s: float, before: str = "") -> Outcome:
    """One rank in each guest.  @before is run in the first guest, in the directory where the ranks will be."""
    name = f"mpi{next(_numbers)}"
    was = counters(cluster)
    served = [node.start(f"exec sh {GUEST}/serve {name}", limit_s + SERVE_SLACK_S) for node in cluster.node[1:]]
    command = stack.command([node.ip4 for node in cluster.node], f"{GUEST}/rsh", program)
    result = cluster.node[0].run(f"export LAUNCH={name}; cd /tmp && {before or ':'} && {command}", limit_s)
    if not result.ok:
        for job in served:
            job.kill()
    ends = [job.wait() for job in served]
    problem = "" if result.ok else f"status {result.status}: {result.stdout[-2000:]}{result.stderr[-2000:]}" + "".join(e.stderr[-500:] for e in ends)
    return Outcome(result.ok, result.stdout, problem, moved(cluster, was))
