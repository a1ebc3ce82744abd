# SPDX-License-Identifier: BSD-3-Clause
"""A server and a client in two guests, once."""

import itertools
import time
from dataclasses import asdict, dataclass, field

from nupavm import Cluster

from .programs import Program

SERVER, CLIENT = 0, 1
LISTEN_LIMIT_S = 20
_ports = itertools.count(21000)
# A counter of the RDMA device moves on the engine that was used.
WAITS = ("tx_credit_waits", "tx_credit_probes", "rx_stalls")
ENGINE_COUNTERS = {"offload": "offload_qps", "software": "software_qps"}


@dataclass
class Outcome:
    program: str
    command: str
    engine: str
    ok: bool
    figure: str
    problem: str = ""
    seconds: float = 0
    waits: dict[str, int] = field(default_factory=dict)  # of both sides: what of WAITS moved, by how much

    def row(self) -> dict:
        return asdict(self)


def set_engine(cluster: Cluster, engine: str) -> None:
    cluster.run_all(f"echo {int(engine == 'offload')} >/sys/module/tcp_qp/parameters/offload", 20)


def listening(cluster: Cluster, port: int) -> bool:
    return cluster.node[SERVER].wait_listening(port, LISTEN_LIMIT_S)


def run_pair(cluster: Cluster, program: Program) -> tuple[str, str]:
    """The client's output, and what went wrong, if anything did."""
    port = program.port or next(_ports)
    peer = cluster.node[SERVER].ip4
    fill = {"{peer}": peer, "{port}": str(port)}
    server, client = program.server, program.client
    for word, value in fill.items():
        server, client = server.replace(word, value), client.replace(word, value)
    job = cluster.node[SERVER].start(f"exec {server}", program.limit_s + LISTEN_LIMIT_S)
    if not listening(cluster, port):
        job.kill()
        shown = job.wait()
        return "", f"the server does not listen: {shown.stdout}{shown.stderr}"
    listeners = cluster.node[SERVER].run(f"ss -Htlni 'sport = :{port}'", LISTEN_LIMIT_S).stdout
    result = cluster.node[CLIENT].run(client, program.limit_s)
    if not result.ok or not program.server_ends:
        job.kill()
    served = job.wait()
    if not result.ok:
        return result.stdout, f"status {result.status}: {result.stdout}{result.stderr}\nserver: {served.stdout}{served.stderr}"
    if program.server_ends and not served.ok:
        return result.stdout, f"the server ended with {served.status}: {served.stdout}{served.stderr}"
    return result.stdout, program.complaint(listeners, result.stderr)


def counters(cluster: Cluster) -> list[dict[str, int]]:
    """Of both guests' RDMA devices."""
    found = []
    for shown in cluster.run_all("cd /sys/class/infiniband/tcpqp0/ports/1/hw_counters && grep . *", 20):
        found.append({name: int(value) for name, _, value in (line.partition(":") for line in shown.stdout.split())})
    return found


def moved(before: list[dict[str, int]], after: list[dict[str, int]], name: str) -> bool:
    """On both sides."""
    return all(a[name] > b[name] for a, b in zip(after, before))


def attempt(cluster: Cluster, program: Program, engine: str) -> Outcome:
    before, began = counters(cluster), time.monotonic()
    out, problem = run_pair(cluster, program)
    took, after = time.monotonic() - began, counters(cluster)
    figure = "" if problem else program.figure(out)
    if not problem and not figure:
        problem = f"no figure in: {out}"
    for name, counter in ENGINE_COUNTERS.items():
        if not problem and moved(before, after, counter) != (name == engine):
            problem = f"not on the {engine} engine: {counter} {'did not move' if name == engine else 'moved'}"
    waits = {name: sum(a[name] - b[name] for a, b in zip(after, before)) for name in WAITS}
    waits = {name: count for name, count in waits.items() if count}
    return Outcome(program.name, program.command(), engine, not problem, figure, problem.strip(), round(took, 1), waits)
