# SPDX-License-Identifier: BSD-3-Clause
"""A process writes over its own rings while they are in use: another queue pair's data stay intact, the kernel has nothing to say, and all can be destroyed."""

import json

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/hostile/ring_fuzz",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PROGRAM = "$BUILD/cmake/selftests/vm/hostile/ring_fuzz"
PORT = 7300
ROUNDS = 12
LIMIT_S = 120


def _hostile(t: Guests, engine: str, seed: int) -> None:
    common = f"--port {PORT} --engine {engine} --rounds {ROUNDS} --seed {seed}"
    peer = t.start(0, f"{PROGRAM} {common}", LIMIT_S)
    t.wait_listening(0, PORT)
    hostile = t.start(1, f"{PROGRAM} --connect 10.77.0.1 {common}", LIMIT_S)
    results = [peer.wait(), hostile.wait()]
    for node, result in enumerate(results):
        if not result.ok:
            raise Failed(f"node{node} ended with {result.status}\n{result.stderr}\nother: {results[1 - node].stderr}")
    moved = json.loads(results[1].stdout)
    t.check(moved["sent"] > ROUNDS and moved["received"] > ROUNDS, f"the other queue pair hardly moved: {moved}")
    for node in (0, 1):
        left = [kind for kind in ("qp", "cq", "mr") if t.run(node, f"rdma resource show {kind} | grep -c ring_fuzz || true").strip() != "0"]
        t.equal(left, [], f"node{node}: verbs objects left")
    t.equal(t.switch("qps")["qps"], [], "QP contexts left in the switch")


def test_offload(t: Guests) -> None:
    _hostile(t, "offload", 1)


@pytest.mark.long
def test_software(t: Guests) -> None:
    _hostile(t, "software", 2)
