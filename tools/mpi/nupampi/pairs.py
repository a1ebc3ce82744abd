# SPDX-License-Identifier: BSD-3-Clause
"""Programs with a server and a client instead of ranks: UCX's and libfabric's own, and gloo's ibverbs transport."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from nupavm import Cluster

from .launch import PROGRAMS, Outcome, counters, moved
from .programs import KIB, MIB, Figures
from .stacks import DEVICE, UCX_QP, UCX_TCP

SERVER, CLIENT = 0, 1
LISTEN_LIMIT_S = 20
LIMIT_S = 90
FABRIC_PORT = 47592
RXM_BYTES = 256 * KIB
FABRIC_TURNS = 400  # rxm connects with the first message, which takes as long as 80 of these
UCX_TIMES = re.compile(r"^\s*(?:\[thread 0\])?\s*\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)
FABRIC_ROW = re.compile(r"^(\d+)([km]?)\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+([\d.]+)", re.MULTILINE)
UNITS = {"": 1, "k": KIB, "m": MIB}
_ports = itertools.count(23000)
_stores = itertools.count(1)


@dataclass(frozen=True)
class Pair:
    """{peer} is the server's address, {port} a port of the run's own."""

    name: str
    stack: str
    server: str
    client: str
    read: Callable[[str], Figures]
    port: int = 0  # 0: any

    def run(self, cluster: Cluster) -> Outcome:
        port = self.port or next(_ports)
        peer = cluster.node[SERVER].ip4
        was = counters(cluster)
        server, client = (text.replace("{peer}", peer).replace("{port}", str(port)) for text in (self.server, self.client))
        job = cluster.node[SERVER].start(server, LIMIT_S + LISTEN_LIMIT_S)
        if not cluster.node[SERVER].wait_listening(port, LISTEN_LIMIT_S):
            job.kill()
            shown = job.wait()
            return Outcome(False, "", f"the server does not listen: {shown.stdout}{shown.stderr}", {})
        result = cluster.node[CLIENT].run(client, LIMIT_S)
        if not result.ok:
            job.kill()
        served = job.wait()
        ok = result.ok and served.ok
        problem = "" if ok else f"{result.status}: {result.stdout[-1500:]}{result.stderr[-1500:]}\nserver: {served.status}: {served.stderr[-1500:]}"
        return Outcome(ok, result.stdout, problem, moved(cluster, was))


def ucx_reader(operation: str, size: int) -> Callable[[str], Figures]:
    """ucx_perftest's last line: iterations, then 50 % and mean times."""

    def read(out: str) -> Figures:
        found = UCX_TIMES.findall(out)
        return [(operation, size, float(found[-1][2]))] if found else []

    return read


def ucx(operation: str, size: int, count: int) -> list[Pair]:
    """UCP: by tags, and one-sided; the same over TCP."""
    pairs = []
    for stack, environment in (("ucx", UCX_QP), ("ucx-tcp", UCX_TCP)):
        words = "env " + " ".join(f"{name}={value}" for name, value in environment.items())
        command = f"exec {words} ucx_perftest -f -t {operation} -s {size} -n {count} -w 2 -p {{port}}"
        pairs.append(Pair("ucx_perftest", stack, command, f"{command} {{peer}}", ucx_reader(operation, size)))
    return pairs


def uct(transport: str, operation: str, layout: str, size: int, count: int = 50) -> Pair:
    """UCT: the transport's own operations, without UCP's choices."""
    command = f"exec ucx_perftest -f -d {DEVICE} -x {transport} -t {operation} -D {layout} -s {size} -n {count} -w 2 -p {{port}}"
    return Pair("ucx_perftest", f"uct {transport}", command, f"{command} {{peer}}", ucx_reader(f"{operation} {layout}", size))


def read_fabric(out: str) -> Figures:
    """fi_pingpong -c compares what came with what was sent."""
    return [("pingpong", int(count) * UNITS[unit], float(us)) for count, unit, us in FABRIC_ROW.findall(out)]


def fabric(provider: str, kind: str) -> Pair:
    command = f"exec fi_pingpong -p '{provider}' -e {kind} -c -I {FABRIC_TURNS} -S {RXM_BYTES}"
    return Pair("fi_pingpong", provider, command, f"{command} {{peer}}", read_fabric, FABRIC_PORT)


def pairs() -> list[Pair]:
    two_sided = [*ucx("tag_lat", 8, 300), *ucx("tag_lat", MIB, 20), *ucx("tag_bw", MIB, 50), *ucx("ucp_am_bw", 64 * KIB, 50)]
    one_sided = [*ucx("ucp_put_bw", MIB, 50), *ucx("ucp_get", MIB, 30)]
    own = [uct("rc_verbs", "am_lat", "short", 8), uct("rc_verbs", "am_bw", "bcopy", 4 * KIB), uct("rc_verbs", "put_bw", "zcopy", MIB),
           uct("rc_verbs", "get", "zcopy", MIB), uct("rc_verbs", "fadd", "short", 8), uct("ud_verbs", "am_lat", "short", 8),
           uct("ud_verbs", "am_bw", "bcopy", 1000)]  # fmt: skip
    return [*two_sided, *one_sided, *own, fabric("verbs", "msg"), fabric("verbs;ofi_rxm", "rdm"), fabric("tcp;ofi_rxm", "rdm")]


def gloo(cluster: Cluster, tcp: bool, limit_s: float = LIMIT_S) -> Outcome:
    """A process in each guest; they find each other by the harness's words."""
    store, was, device = f"gloo{next(_stores)}", counters(cluster), DEVICE.partition(":")[0]
    command = f"exec {PROGRAMS}/gloo_checked {store} $NODE $NODES {'$IP4' if tcp else device}"
    jobs = [node.start(command, limit_s) for node in cluster.node]
    ends = [job.wait() for job in jobs]
    ok = all(end.ok for end in ends)
    problem = "" if ok else "\n".join(f"{end.status}: {end.stdout[-800:]}{end.stderr[-800:]}" for end in ends)
    return Outcome(ok, ends[0].stdout, problem, moved(cluster, was))
