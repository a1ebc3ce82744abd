# SPDX-License-Identifier: BSD-3-Clause
"""Completion descriptors: readable while there is something to take, one call to post and wait.

And what is left of one when its queue, owner or device goes.
"""

import json

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import PROGRAMS

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/cq_fd", "selftests/vm/programs/cq_fd_far"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)
SETUP = "sh $REPO/tools/vm/guest/setup full"
CASES = 15


def test_one_process(t: Guests) -> None:
    t.equal(json.loads(t.run(0, f"{PROGRAMS}/cq_fd", 60))["cases"], CASES, "cases")


def test_foreign_process(t: Guests) -> None:
    for _ in range(5):
        t.run(0, f"{PROGRAMS}/cq_fd_far")
    t.equal(t.run(0, "rdma resource show cq | grep -c cq_fd || true").strip(), "0", "queues left")


def test_device_goes(t: Guests) -> None:
    """Who waits is told; the descriptor keeps the module, and nothing else."""
    t.run(0, "rm -f /tmp/told* /tmp/until")
    job = t.start(0, f"exec {PROGRAMS}/cq_fd_far --told /tmp/told --until /tmp/until")
    t.run(0, "until [ -e /tmp/told.waiting ]; do sleep 0.05; done")
    t.run(0, "rdma link delete tcpqp0; until [ -e /tmp/told ]; do sleep 0.05; done")
    t.run(0, "rmmod nupa_dev && { modprobe -qr rdma_ucm || true; }")
    t.fails(0, "rmmod tcp_qp")
    t.run(0, "touch /tmp/until")
    t.check(job.wait().ok, "the process that held it")
    t.run(0, f"rmmod tcp_qp; {SETUP}")
    t.run(0, f"{PROGRAMS}/cq_fd --case level")
