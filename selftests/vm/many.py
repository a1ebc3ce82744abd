# SPDX-License-Identifier: BSD-3-Clause
"""A thousand queue pairs at once between two guests of ordinary size."""

import pytest

from harness.guests import Guests
from harness.needs import by_each_copy
from harness.pairs import Pair, fabric
from vm.fabric import NEEDS  # the same guests

pytestmark = pytest.mark.needs(NEEDS)
COUNT = 1000
REPEATED = 70  # by each way to copy
MESSAGES, BYTES = 10, 2000
RECEIVES = 4  # of each queue pair, posted before anything is sent (kDepth of qp_many)
KB_PER_QP_MAX = 256  # rings, log, socket, receive queue: 250 MB for a thousand


def _many(t: Guests, engine: str) -> list[dict]:
    reports = Pair(t, "qp_many", common=f"--engine {engine} --count {COUNT} --messages {MESSAGES} --bytes {BYTES}", limit_s=240).done()
    for node, report in enumerate(reports):
        print(f"# many: {engine} node{node}: {report}", flush=True)
        t.equal(report["messages"], 2 * COUNT * MESSAGES, f"node{node}: completions")
        t.equal(report["delivered"], COUNT * MESSAGES * BYTES, f"node{node}: bytes delivered")
        t.check(report["kb_per_qp"] < KB_PER_QP_MAX, f"node{node}: {report['kb_per_qp']} KB for each")
    return reports


@pytest.mark.long
def test_offload(t: Guests) -> None:
    before = [t.switch_stats(node) for node in (0, 1)]
    for node, report in enumerate(_many(t, "offload")):
        t.equal(report["offload"], COUNT, f"node{node}: queue pairs offloaded")
        why = {name: count for name, count in t.switch_counted(node, before[node]).items() if name.startswith("deliver_")}
        # A slow machine posts the other receives late, and what comes before them is delivered; so is what its TCP repeats.
        repeated = BYTES * (why["deliver_duplicate"] + why["deliver_unsynced"])
        least = RECEIVES / MESSAGES * report["delivered"] - repeated
        t.check(report["placed"] >= max(least, 1), f"node{node}: placed only {report['placed']}, delivered segments: {why}")


@pytest.mark.long
def test_software(t: Guests) -> None:
    _many(t, "software")


def test_accepted_in_another_order(t: Guests) -> None:
    """Handshakes overtake each other: the n-th accept() is not the n-th connect()."""
    with fabric(t, delay=0.3, delay_min_us=1000, delay_max_us=20000):
        Pair(t, "qp_many", common="--engine offload --count 100 --messages 2", limit_s=120).done()


@pytest.mark.long
@by_each_copy(NEEDS)
def test_repeated(t: Guests, copy: str) -> None:
    for _ in range(REPEATED):
        test_offload(t)
