# SPDX-License-Identifier: BSD-3-Clause
"""Runs one of our test programs on both nodes, and makes the fabric bad for a while."""

import contextlib
import json
from collections.abc import Iterator

from harness.guests import Failed, Guests
from harness.traffic import free_port, wait_moving

from nupavm import Job, Result

PROGRAMS = "$BUILD/cmake/selftests/vm/programs"
PORTS = ("n0", "n1")
# perftest compares its processor's clock with the time, and gives up where something else ran meanwhile.
NO_CLOCK, CLOCK_ATTEMPTS = "Can't produce a report", 4


@contextlib.contextmanager
def fabric(t: Guests, seed: int = 5, **faults) -> Iterator[None]:
    """Both ports with these faults inside the block."""
    for port in PORTS:
        t.switch("faults", port=port, clear=True, set={"seed": seed, **faults})
    try:
        yield
    finally:
        if t.cluster.switch:
            for port in PORTS:
                t.switch("faults", port=port, clear=True)


def succeeded(jobs: list[Job]) -> list[Result]:
    """The result of each node's job; all must succeed."""
    results = [job.wait() for job in jobs]
    if not all(result.ok for result in results):
        raise Failed("\n".join(f"node{n} ended with {r.status}: {r.stdout}{r.stderr}" for n, r in enumerate(results)))
    return results


def outputs(jobs: list[Job]) -> list[dict]:
    """What the job of each node printed; all must succeed."""
    return [json.loads(result.stdout) for result in succeeded(jobs)]


def served(t: Guests, server: str, client: str, port: int, *, client_node: int = 1, server_ends: bool = True, limit_s: float = 60) -> tuple[str, str]:
    """Runs the server on node 0, and the client once it listens; both must succeed.  What client and server printed.

    A server that does not end by itself is killed.
    """
    for _ in range(CLOCK_ATTEMPTS):
        job = t.start(0, f"exec {server}", limit_s)
        t.wait_listening(0, port)
        result = t.nodes[client_node].run(client, limit_s)
        if not server_ends or not result.ok:
            job.kill()
        ended = job.wait()
        if result.ok and (ended.ok or not server_ends):
            return result.stdout, ended.stdout
        said = f"{client}: {result.status}\n{result.stdout}{result.stderr}\n{server}: {ended.status}\n{ended.stdout}{ended.stderr}"
        if NO_CLOCK not in said:
            break
    raise Failed(said)


class Pair:
    """PROGRAM on node 0, which listens, and on node 1, which connects."""

    def __init__(self, t: Guests, program: str, listener: str = "", connector: str = "", common: str = "", family: str = "",
                 limit_s: float = 60, run: str = "") -> None:  # fmt: skip
        self.t, port = t, free_port()
        address = t.nodes[0].ip6 if family == "-6" else t.nodes[0].ip4
        path = f"exec {run} {PROGRAMS}/{program} --port {port}"
        self.jobs = [t.start(0, f"{path} {common} {listener}", limit_s)]
        self.jobs.append(t.start(1, f"{path} --connect {address} {common} {connector}", limit_s))
        self.port = port

    def wait_moving(self, node: int = 1, limit_s: float = 30) -> None:
        """Returns when a megabyte has been acknowledged on the node's connection."""
        wait_moving(self.t, node, self.port, limit_s=limit_s)

    def done(self) -> list[dict]:
        """What both printed; both must succeed."""
        return outputs(self.jobs)

    def survivor(self, node: int) -> dict:
        """What the program on this node printed, and it succeeded; the other was ended by the test."""
        self.jobs[1 - node].wait()
        result = self.jobs[node].wait()
        if not result.ok:
            raise Failed(f"node{node} ended with {result.status}: {result.stdout}{result.stderr}")
        return json.loads(result.stdout)


__all__ = ["Job", "PORTS", "PROGRAMS", "Pair", "fabric", "outputs", "served", "succeeded"]
