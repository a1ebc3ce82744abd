# SPDX-License-Identifier: BSD-3-Clause
"""What NCCL's own IB transport asks of tcpqp0, with each of its variables that changes the verbs calls (docs/nccl.md)."""

import json

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port, parameter

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PROGRAM = "$REPO/selftests/vm/programs/nccl_ib.py"
LIMIT_S = 90
NEAR_END = 250  # of the FIFO's 256 rows
PLACED = 512 * 1024  # bytes, of 1.16 million in all


def both(t: Guests, options: str = "") -> dict:
    port = free_port()
    jobs = [t.start(0, f"exec {PROGRAM} --listen {port} {options}", LIMIT_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"exec {PROGRAM} --connect $PEER:{port} {options}", LIMIT_S))
    results = [job.wait() for job in jobs]
    if not all(result.ok for result in results):
        raise Failed("\n".join(f"{options}: side {n}: {r.status}\n{r.stderr[-2000:]}" for n, r in enumerate(results)))
    return json.loads(results[0].stdout)


def test_one_queue_pair(t: Guests) -> None:
    before = t.stat(0, "rx_placed_bytes")
    said = both(t, f"--first {NEAR_END}")
    t.check(t.stat(0, "rx_placed_bytes") - before >= PLACED, "the switch placed what was written")
    t.check(bool(said["gid_type"]), "the GID's type is told")


@pytest.mark.long
def test_several_queue_pairs(t: Guests) -> None:
    both(t, "--qps 4 --inline")
    both(t, "--qps 4 --split --adaptive --gid 1")


@pytest.mark.long
def test_on_software(t: Guests) -> None:
    with parameter(t, "offload", 0):
        both(t, "--qps 2 --split --adaptive")
