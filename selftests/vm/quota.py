# SPDX-License-Identifier: BSD-3-Clause
"""A guest that takes all of the switch's memory that its port may have: what it is told, and that its neighbour hears nothing of it."""

import contextlib
from collections.abc import Iterator

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import Pair
from vm.exchange import exchange, placed_share

NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"), programs=tuple(f"selftests/vm/programs/{name}" for name in ("qp_end", "qp_exchange", "qp_many")), setup="full",
    switch_args=("--port-memory-mib", "1"),
)  # fmt: skip
pytestmark = pytest.mark.needs(NEEDS)
QUOTA_BYTES = 1 << 20
HOGS = 600  # contexts of more than 1.7 KiB
EDQUOT = 122
TRACING = "/sys/kernel/tracing"
DEVICE = "/sys/class/infiniband/tcpqp0/ports/1/hw_counters"


@contextlib.contextmanager
def driver_errors(t: Guests) -> Iterator[list[int]]:
    """Filled after the block: what the driver's admin commands on node 0 returned, without the zeroes."""
    found: list[int] = []
    probe = "r:quota nupa_dev:nupa_admin_submit ret=$retval:s32"
    t.run(0, f"cd {TRACING}; echo '{probe}' >kprobe_events; echo 'ret!=0' >events/kprobes/quota/filter; echo 1 >events/kprobes/quota/enable")
    try:
        yield found
        lines = t.run(0, f"grep -o 'ret=[-0-9]*' {TRACING}/trace || true").split()
        found += [int(line.removeprefix("ret=")) for line in lines]
    finally:
        t.run(0, f"cd {TRACING}; echo 0 >events/kprobes/quota/enable; echo >kprobe_events; echo >trace")


def counter(t: Guests, node: int, name: str) -> int:
    return int(t.run(node, f"cat {DEVICE}/{name}"))


@contextlib.contextmanager
def hog(t: Guests) -> Iterator[None]:
    """Node 0 has asked for more contexts than its port has memory for; node 1 needs none for its ends.  Both are quiet meanwhile."""
    attached = f"$(($(cat {DEVICE}/offload_qps) + $(cat {DEVICE}/software_qps)))"
    before = int(t.run(0, f"echo {attached}"))
    pair = Pair(t, "qp_many", "--engine auto", "--engine software", f"--count {HOGS} --messages 1000000 --bytes 64", limit_s=120)
    try:
        t.run(0, f"until [ {attached} -ge {before + HOGS} ]; do sleep 0.2; done", 60)
        t.cluster.run_all("pkill -STOP -x qp_many", check=True)
        yield
    finally:
        t.cluster.run_all("pkill -KILL -x qp_many")
        for job in pair.jobs:
            job.wait()


@pytest.mark.long
def test_queue_pairs_beyond_the_quota(t: Guests) -> None:
    before = counter(t, 0, "offload_refused")
    with driver_errors(t) as errors, hog(t):
        contexts = len(t.switch("qps")["qps"])
        t.check(100 < contexts < HOGS, f"{contexts} contexts in {QUOTA_BYTES} bytes")
        t.equal(counter(t, 0, "offload_refused") - before, HOGS - contexts, "queue pairs that were refused")

        # Whoever wants the switch is told; who takes what there is, is served by software.
        pair = Pair(t, "qp_end", "--engine offload", "--engine software")
        result = pair.jobs[0].wait()
        pair.jobs[1].wait()
        said = f"a program beyond its quota ended with {result.status}: {result.stderr}"
        t.check(result.status == 1 and "OFFLOAD_REFUSED: Operation not supported" in result.stderr, said)
        counters = exchange(t, "auto", "offload", "--messages 200 --seed 61")
        t.equal([c["engine"] for c in counters], [1, 2], "engines: beyond the quota, and its neighbour")
        t.check(placed_share(counters[1]) >= 0.9, f"the neighbour: only {placed_share(counters[1]):.3f} placed: {counters[1]}")
        t.equal(counter(t, 1, "offload_refused"), 0, "what the neighbour was refused")
    t.equal(set(errors), {-EDQUOT}, "errors of the driver's commands")
    for node, counters in enumerate(exchange(t, "offload", "offload", "--messages 60 --seed 62")):
        t.check(placed_share(counters) >= 0.9, f"node{node}, with its quota back: {counters}")
